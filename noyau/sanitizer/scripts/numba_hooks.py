"""While a script runs, calls of parallel functions of Numba and launches of Numba-CUDA are watched, on the script's own
arguments. There need be no GPU: what a script says to one is said to Numba's own simulator of the API."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda
from numba.core.registry import CPUDispatcher
from numba.cuda import simulator
from numba.cuda.args import ArgHint
from numba.cuda.dispatcher import CUDADispatcher
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.cuda.simulator.kernel import FakeCUDAKernel

from noyau.errors import DeviceError, FindingKind, NoyauError, UnsupportedError
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.lint.arithmetic import sums_of_call
from noyau.sanitizer.numba.kernel import MOST as MOST_IN_PYTHON
from noyau.sanitizer.numba.kernel import copied, map_of, restore, watch_call
from noyau.sanitizer.numba_cuda.kernel import MOST, advised
from noyau.sanitizer.numba_cuda.kernel import map_of as map_of_launch
from noyau.sanitizer.numba_cuda.launch import LANGUAGE, Argument, Launch, cells_of, configured, launched, root_of
from noyau.sanitizer.recording_array import Recorder, TooManyError
from noyau.sanitizer.records import Watched, digest, findings_of
from noyau.sanitizer.scripts import numba_ufuncs
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.numba_host import WORDS
from noyau.sanitizer.scripts.record import Session, shapes_told
from noyau.verify.findings import Finding

# What of the simulator stands for numba.cuda; kernels themselves run thread by thread over the shadow.
_NEVER = frozenset({"jit", "reduce", "Reduce", "sys", "config", "kernel", "api"})


@dataclass(slots=True)
class Fresh:
    """An array of a device that began empty: which of its cells hold values, and the last kernel that had it."""

    array: np.ndarray
    is_set: np.ndarray
    kernel: tuple[str, str] | None = None


@contextmanager
def hooked(session: Session, launch: Any = None) -> Iterator[None]:
    """What is called in the meantime is watched, for `session`. `launch`: what kernels of CUDA are launched with, in
    place of what the script says."""
    hooks = _Hooks(session, launch)
    with ExitStack() as undone:
        patch(undone, CPUDispatcher, "__call__", hooks.parallel(CPUDispatcher.__call__))
        patch(undone, CUDADispatcher, "__getitem__", hooks.configuring())
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
        undone.enter_context(numba_ufuncs.stood_in(session.note))
        for name in ("copy_to_device", "__setitem__"):
            patch(undone, FakeCUDAArray, name, hooks.filled(getattr(FakeCUDAArray, name)))
        patch(undone, FakeCUDAArray, "copy_to_host", hooks.copied(FakeCUDAArray.copy_to_host))
        yield


class _Hooks:
    """What stands in place of Numba's own while a script runs."""

    def __init__(self, session: Session, launch: Any) -> None:
        self.session, self.launch = session, launch
        self.fresh: dict[int, Fresh] = {}
        self.watching = False  # a loop is: what it calls is called as it is

    # Loops of the CPU.

    def parallel(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(function: Any, *args: Any, **named: Any) -> Any:
            for each in sums_of_call(function, args):
                made = each.finding(self.session.script, function.py_func.__name__, "numba")
                self.session.advice.setdefault(made.id, made)
            if self.watching or not function.targetoptions.get("parallel"):
                return plain(function, *args, **named)
            return self.looped(function, plain, args, named)

        return called

    def looped(self, function: Any, plain: Callable[..., Any], args: Any, named: Any) -> Any:
        """A call of a parallel function, watched; where it cannot be, it is Numba's own."""
        name, place = function.py_func.__name__, _place(function)
        given = inspect.signature(function.py_func).bind(*args, **named)
        given.apply_defaults()
        if given.kwargs:  # Numba says what it has against parameters that are given by name only
            return plain(function, *args, **named)
        before = copied(given.args)
        shapes = shapes_told(list(given.arguments), given.args)
        self.watching = True
        try:
            traced = self.session.traced(name, place)
            recorder = Recorder(MOST_IN_PYTHON, traced)
            watched, result = watch_call(function, given.args, shapes, self.session.script, recorder=recorder)
            if traced is not None:
                is_cut = traced.accesses >= MOST_IN_PYTHON
                self.session.draw(map_of(name, recorder, traced, given.arguments, is_cut), place)
        except Exception as fault:  # noqa: BLE001  whatever it is, the script goes on as Numba has it
            told = (
                str(fault) if isinstance(fault, NoyauError) else f"in Python it raised {type(fault).__name__}: {fault}"
            )
            self.session.add(name, "numba", place, shapes, None, told)
            restore(given.args, before)
            return plain(function, *args, **named)
        finally:
            self.watching = False
        self.session.add(name, "numba", place, shapes, watched)
        return result

    # Kernels of CUDA.

    def jit(self, function: Any = None, *args: Any, device: bool = False, **options: Any) -> Any:
        """numba.cuda.jit, with or without a signature: nothing is compiled."""
        if callable(function) and not isinstance(function, type) and hasattr(function, "__code__"):
            return Kernel(function, device, self)
        return lambda given: Kernel(given, device, self)

    def configuring(self) -> Callable[[Any, Any], Any]:
        """What `kernel[grid, block]` is for kernels that were compiled before the hooks were there."""

        def configured_kernel(dispatcher: Any, launch: Any) -> Any:
            return Kernel(python_function(dispatcher), False, self)[launch]

        return configured_kernel

    def empty(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """An array of a device that holds nothing yet."""

        def made(*args: Any, **options: Any) -> Any:
            array = make(*args, **options)
            inner = array._ary if isinstance(array, FakeCUDAArray) else array
            if inner.dtype.names is None:
                self.unset(inner)
            return array

        return made

    def unset(self, array: np.ndarray) -> None:
        root = root_of(array)
        self.fresh[id(root)] = Fresh(root, np.zeros(root.shape, bool))

    def filled(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """copy_to_device, and what the host assigns to an array of a device: its cells hold values from then on."""

        def fill(array: Any, *args: Any, **named: Any) -> Any:
            known = self.fresh.get(id(root_of(array._ary)))
            if known is not None:
                cells = cells_of(array._ary, known.array)
                known.is_set.reshape(-1)[cells[args[0]] if plain.__name__ == "__setitem__" else cells] = True
            return plain(array, *args, **named)

        return fill

    def copied(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """copy_to_host: cells that no kernel wrote are a finding of the last one that had the array."""

        def copy(array: Any, *args: Any, **named: Any) -> Any:
            known = self.fresh.get(id(root_of(array._ary)))
            if known is not None and known.kernel is not None:
                self.told(known, array._ary)
            return plain(array, *args, **named)

        return copy

    def told(self, known: Fresh, view: np.ndarray) -> None:
        cells = cells_of(view, known.array)
        missed = np.flatnonzero(~known.is_set.reshape(-1)[cells.reshape(-1)])
        if missed.size and known.kernel is not None:
            name, place = known.kernel
            first = ", ".join(map(str, np.unravel_index(missed[0], view.shape)))
            told = f"{missed.size} of {view.size} cells that are copied to the host were never written, [{first}] first"
            shown = digest(FindingKind.UNWRITTEN, name)
            finding = Finding(
                *(self.session.script, name, LANGUAGE, FindingKind.UNWRITTEN, place, "", told),
                digest=shown,
                mend="let the threads reach the last cells, or fill the array before",
            )
            self.session.find(name, place, finding)


class Kernel(FakeCUDAKernel):  # type: ignore[misc]
    """A kernel of a script, launched without a GPU, its accesses watched."""

    noyau_language = LANGUAGE
    signatures: tuple[Any, ...] = ()  # nothing is compiled

    def inspect_types(self, *wishes: Any, **named: Any) -> None:
        """Nothing has types here."""

    def __init__(self, function: Any, device: bool, hooks: _Hooks) -> None:
        super().__init__(function, device)
        self._hooks, self._launch = hooks, None

    def __getitem__(self, launch: Any) -> Any:
        chosen = Kernel(self.fn, self._device, self._hooks)
        chosen._launch = self._hooks.launch or launch
        return chosen

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
        arguments = [self._argument(name, value) for name, value in zip(names, args, strict=True)]
        shapes = shapes_told(names, [each.value for each in arguments])
        session, place = self._hooks.session, _place(self)
        configuration = configured(self._launch)
        size = f"{shapes}; launched {configuration}"
        try:
            traced = session.traced(self.fn.__name__, place)
            launch = launched(self.fn, configuration, arguments, MOST, traced)
        except TooManyError:
            told = f"it made more than {MOST} accesses; run the script on smaller arrays"
            session.add(self.fn.__name__, LANGUAGE, place, shapes, None, told)
            raise DeviceError(f"{self.fn.__name__}{self._launch}: {told}") from None
        except UnsupportedError as refusal:  # the script goes on without what it would have written
            session.add(self.fn.__name__, LANGUAGE, place, shapes, None, f"{refusal}; the launch was left out")
            for each in arguments:
                if isinstance(each.is_set, np.ndarray):
                    each.is_set[...] = True
            return
        seen = launch.recorder.shadow.seen()
        findings, allowed = findings_of(seen, launch.route, session.script, self.fn.__name__, size)
        findings += advised(launch, self.fn, session.script, self.fn.__name__, at, size, is_whole=True)
        watched = Watched(tuple(findings), launch.recorder.shadow.accesses, tuple(allowed), launch.notes)
        session.add(self.fn.__name__, LANGUAGE, place, shapes, watched)
        if traced is not None:
            session.draw(map_of_launch(self.fn.__name__, launch, traced), place)
        self._remember(launch, arguments)

    def _argument(self, name: str, value: Any) -> Argument:
        """An argument as an array of NumPy or a number."""
        plain = value._ary if isinstance(value, FakeCUDAArray) else value
        plain = plain.value if isinstance(plain, ArgHint) else plain
        if not isinstance(plain, np.ndarray):
            return Argument(name, plain)
        known = self._hooks.fresh.get(id(root_of(plain)))
        if known is not None:
            known.kernel = self.fn.__name__, _place(self)
        return Argument(name, plain, True if known is None else known.is_set)

    def _remember(self, launch: Launch, arguments: list[Argument]) -> None:
        """Cells that were written hold values in the launches to come."""
        for each in arguments:
            if isinstance(each.is_set, np.ndarray):
                written = launch.recorder.shadow.written(launch.arrays[each.name], each.is_set.size)
                each.is_set.reshape(-1)[...] |= written


def _without_a_launch(kernel: Any, *args: Any) -> None:
    name = python_function(kernel).__name__
    raise DeviceError(f"{name} needs a launch: {name}[grid, block](...)")


def _place(function: Any) -> str:
    """The file and the line of a function."""
    plain = python_function(function)
    return f"{inspect.getsourcefile(plain)}:{plain.__code__.co_firstlineno}"
