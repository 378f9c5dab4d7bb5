"""While a script runs, calls of parallel functions of Numba and launches of Numba-CUDA are watched, on the script's own
arguments. There need be no GPU: what a script says to one is said to Numba's own simulator of the API."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import cuda
from numba.core.registry import CPUDispatcher
from numba.cuda import simulator
from numba.cuda.args import ArgHint
from numba.cuda.dispatcher import CUDADispatcher
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.cuda.simulator.kernel import FakeCUDAKernel

from noyau.errors import DeviceError, NoyauError, UnsupportedError
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.lint.arithmetic import sums_of_call
from noyau.sanitizer.numba.kernel import MOST as MOST_IN_PYTHON
from noyau.sanitizer.numba.kernel import copied, map_of, restore, watch_call
from noyau.sanitizer.numba_cuda.kernel import MOST, lint_call
from noyau.sanitizer.numba_cuda.launch import (
    LANGUAGE,
    WatchedArgument,
    cells_of,
    configuration_of,
    launch_kernel,
    root_of,
)
from noyau.sanitizer.recording_array import Recorder
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.numba_host import WORDS, in_numpy, stood_in
from noyau.sanitizer.scripts.record import ScriptSession, describe_shapes, place_of

# What of the simulator stands for numba.cuda; kernels themselves run thread by thread over the shadow.
_NEVER = frozenset({"jit", "reduce", "Reduce", "sys", "config", "kernel", "api"})


@dataclass(slots=True)
class FreshArray:
    """An array of a device that began empty: which of its cells hold values, and the last kernel that had it."""

    array: np.ndarray
    is_set: np.ndarray
    kernel: tuple[str, str] | None = None


@contextmanager
def install_hooks(session: ScriptSession, launch: Any = None) -> Iterator[None]:
    """Watch what is called in the meantime, for `session`. `launch`: what kernels of CUDA are launched with, in place
    of what the script says."""
    hooks = _NumbaHooks(session, launch)

    def configured(kernel: Any, configuration: Any) -> HookedKernel:
        """`kernel[grid, block]` of a kernel that was compiled before the hooks were there."""
        return HookedKernel(python_function(kernel), False, hooks)[configuration]

    with ExitStack() as undone:
        patch(undone, CPUDispatcher, "__call__", hooks.parallel(CPUDispatcher.__call__))
        patch(undone, CUDADispatcher, "__getitem__", configured)
        patch(undone, CUDADispatcher, "__call__", _without_a_launch)
        patch(undone, cuda, "jit", hooks.jit)
        patch(undone, cuda, "is_available", lambda: True)
        for name in vars(simulator):
            if not name.startswith("_") and name not in _NEVER and hasattr(cuda, name):
                patch(undone, cuda, name, getattr(simulator, name))
        for name, word in WORDS.items():
            patch(undone, cuda, name, word)
        for name in ("device_array", "device_array_like"):  # what the host fills by itself holds values
            patch(undone, cuda, name, hooks.empty(getattr(simulator, name)))
        undone.enter_context(stood_in(session.note))
        for name in ("copy_to_device", "__setitem__"):
            patch(undone, FakeCUDAArray, name, hooks.filled(getattr(FakeCUDAArray, name)))
        patch(undone, FakeCUDAArray, "copy_to_host", hooks.copied(FakeCUDAArray.copy_to_host))
        yield


class _NumbaHooks:
    """Stand-ins of Numba's own functions while a script runs."""

    def __init__(self, session: ScriptSession, launch: Any) -> None:
        self.session, self.launch = session, launch
        self.fresh: dict[int, FreshArray] = {}
        self.watching = False  # a loop is: what it calls is called as it is

    # Loops of the CPU.

    def parallel(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(function: Any, *args: Any, **named: Any) -> Any:
            for each in sums_of_call(function, args):
                finding = each.finding(self.session.script, function.py_func.__name__, "numba")
                self.session.advice.setdefault(finding.id, finding)
            if self.watching or not function.targetoptions.get("parallel"):
                return plain(function, *args, **named)
            return self.looped(function, plain, args, named)

        return called

    def looped(self, function: Any, plain: Callable[..., Any], args: Any, named: Any) -> Any:
        """A call of a parallel function, watched; where it cannot be, it is Numba's own."""
        name, place = function.py_func.__name__, place_of(function)
        arguments = inspect.signature(function.py_func).bind(*args, **named)
        arguments.apply_defaults()
        if arguments.kwargs:  # Numba says what it has against parameters that are given by name only
            return plain(function, *args, **named)
        before = copied(arguments.args)
        shapes = describe_shapes(list(arguments.arguments), arguments.args)
        self.watching = True
        try:
            traced = self.session.traced(name, place)
            recorder = Recorder(MOST_IN_PYTHON, traced)
            watched, result = watch_call(function, arguments.args, shapes, self.session.script, recorder=recorder)
            if traced is not None:
                is_cut = traced.accesses >= MOST_IN_PYTHON
                self.session.draw(map_of(name, recorder, traced, arguments.arguments, is_cut), place)
        except Exception as fault:  # noqa: BLE001  whatever it is, the script goes on as Numba has it
            raised = "" if isinstance(fault, NoyauError) else f"in Python it raised {type(fault).__name__}: "
            self.session.add(name, "numba", place, shapes, None, f"{raised}{fault}")
            restore(arguments.args, before)
            return plain(function, *args, **named)
        finally:
            self.watching = False
        self.session.add(name, "numba", place, shapes, watched)
        return result

    # Kernels of CUDA.

    def jit(self, function: Any = None, *args: Any, device: bool = False, **options: Any) -> Any:
        """numba.cuda.jit, with or without a signature: nothing is compiled."""
        if callable(function) and not isinstance(function, type) and hasattr(function, "__code__"):
            return HookedKernel(function, device, self)
        return lambda kernel: HookedKernel(kernel, device, self)

    def empty(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """An array of a device that holds nothing yet."""

        def make_fresh(*args: Any, **options: Any) -> Any:
            array = make(*args, **options)
            root = root_of(in_numpy(array))
            if root.dtype.names is None:
                self.fresh[id(root)] = FreshArray(root, np.zeros(root.shape, bool))
            return array

        return make_fresh

    def filled(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """copy_to_device, and what the host assigns to an array of a device: its cells hold values from then on."""

        def fill(array: Any, *args: Any, **named: Any) -> Any:
            fresh_array = self.fresh.get(id(root_of(array._ary)))
            if fresh_array is not None:
                cells = cells_of(array._ary, fresh_array.array)
                fresh_array.is_set.reshape(-1)[cells[args[0]] if plain.__name__ == "__setitem__" else cells] = True
            return plain(array, *args, **named)

        return fill

    def copied(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """copy_to_host: cells that no kernel wrote are a finding of the last one that had the array."""

        def copy(array: Any, *args: Any, **named: Any) -> Any:
            fresh_array = self.fresh.get(id(root_of(array._ary)))
            if fresh_array is not None and fresh_array.kernel is not None:
                self.report_unwritten(fresh_array, array._ary)
            return plain(array, *args, **named)

        return copy

    def report_unwritten(self, fresh_array: FreshArray, view: np.ndarray) -> None:
        cells = cells_of(view, fresh_array.array)
        missed = np.flatnonzero(~fresh_array.is_set.reshape(-1)[cells.reshape(-1)])
        if missed.size and fresh_array.kernel is not None:
            first = ", ".join(map(str, np.unravel_index(missed[0], view.shape)))
            many = f"{missed.size} of {view.size} cells that are copied to the host were never written"
            mend = "let the threads reach the last cells, or fill the array before"
            self.session.find_unwritten(*fresh_array.kernel, LANGUAGE, f"{many}, [{first}] first", mend)


class HookedKernel(FakeCUDAKernel):  # type: ignore[misc]
    """A kernel of a script, launched without a GPU, its accesses watched."""

    noyau_language = LANGUAGE
    signatures: tuple[Any, ...] = ()  # nothing is compiled

    def inspect_types(self, *wishes: Any, **named: Any) -> None:
        """Nothing has types here."""

    def __init__(self, function: Any, device: bool, hooks: _NumbaHooks) -> None:
        super().__init__(function, device)
        self._hooks, self._launch = hooks, None

    def __getitem__(self, launch: Any) -> HookedKernel:
        kernel = HookedKernel(self.fn, self._device, self._hooks)
        kernel._launch = self._hooks.launch or launch
        return kernel

    def __call__(self, *args: Any) -> Any:
        if self._device:  # called by what is no kernel
            return self.fn(*args)
        if self._launch is None:
            _without_a_launch(self)
        caller = sys._getframe(1)
        self._watched(args, f"{caller.f_code.co_filename}:{caller.f_lineno}")
        return None

    def _watched(self, args: Any, at: str) -> None:
        """A launch from a line `at`."""
        names = list(inspect.signature(self.fn).parameters)
        arguments = [self._argument(each, value) for each, value in zip(names, args, strict=True)]
        shapes = describe_shapes(names, [each.value for each in arguments])
        session, name, place = self._hooks.session, self.fn.__name__, place_of(self)
        configuration = configuration_of(self._launch)
        size = f"{shapes}; launched {configuration}"
        try:
            traced = session.traced(name, place)
            launch = launch_kernel(self.fn, configuration, arguments, MOST, traced)
        except UnsupportedError as refusal:  # the script goes on without what it would have written
            session.add(name, LANGUAGE, place, shapes, None, f"{refusal}; the launch was left out")
            _take_for_set(arguments)
            return
        watched = launch.watched(session.script, name, size)
        if launch.is_cut:  # as above, and what was seen until then is told
            reason = f"a launch was ended after {MOST} accesses; run the script on smaller arrays"
            session.add(name, LANGUAGE, place, shapes, watched, reason)
            _take_for_set(arguments)
            return
        remarks = lint_call(launch, self.fn, session.script, name, at, size, is_whole=True)
        session.add(name, LANGUAGE, place, shapes, replace(watched, findings=(*watched.findings, *remarks)))
        if traced is not None:
            session.draw(launch.access_map(name, traced), place)
        for each in arguments:  # cells that were written hold values in the launches to come
            if isinstance(each.is_set, np.ndarray):
                mask = launch.recorder.shadow.written(launch.arrays[each.name], each.is_set.size)
                each.is_set.reshape(-1)[...] |= mask

    def _argument(self, name: str, value: Any) -> WatchedArgument:
        """An argument as an array of NumPy or a number."""
        plain = in_numpy(value)
        plain = plain.value if isinstance(plain, ArgHint) else plain
        if not isinstance(plain, np.ndarray):
            return WatchedArgument(name, plain)
        fresh_array = self._hooks.fresh.get(id(root_of(plain)))
        if fresh_array is not None:
            fresh_array.kernel = self.fn.__name__, place_of(self)
        return WatchedArgument(name, plain, True if fresh_array is None else fresh_array.is_set)


def _take_for_set(arguments: Sequence[WatchedArgument]) -> None:
    """Nobody is told of cells that a launch would have written which did not come to its end."""
    for each in arguments:
        if isinstance(each.is_set, np.ndarray):
            each.is_set[...] = True


def _without_a_launch(kernel: Any, *args: Any) -> None:
    name = python_function(kernel).__name__
    raise DeviceError(f"{name} needs a launch: {name}[grid, block](...)")
