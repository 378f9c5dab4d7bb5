"""Hooks for a running script that watch launches of Numba-CUDA, on the script's own arguments. No GPU is needed: other
calls of the API go to Numba's own simulator."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import cuda
from numba.core.sigutils import normalize_signature
from numba.cuda import simulator
from numba.cuda.args import ArgHint, In
from numba.cuda.cudadrv import devicearray as real_arrays
from numba.cuda.dispatcher import CUDADispatcher
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.cuda.simulator.kernel import FakeCUDAKernel

from noyau import errors
from noyau.errors import DeviceError, NoyauError, RaisedError
from noyau.kernels.call import error_of
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.engine import cells_of, root_of
from noyau.sanitizer.numba_cuda import launch as launches
from noyau.sanitizer.numba_cuda.launch import LANGUAGE, MOST, SimulatedLaunch, WatchedArgument, lint_call
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.numba_host import WORDS, in_numpy, lend, stood_in
from noyau.sanitizer.scripts.record import ScriptSession, describe_shapes, is_counted, place_of
from noyau.sanitizer.scripts.streams import DEFAULT, StreamWork, calling_place, order_of, stream_number

# Names of the simulator that do not replace those of numba.cuda; kernels run thread by thread over the shadow.
_NEVER = frozenset(
    "jit reduce Reduce sys config declare_device kernel api In Out InOut PTXSource CUSource Cubin Fatbin Archive "
    "Object LTOIR LinkableCode".split()
)
_COMPILES = ("compile", "compile_all", "compile_for_current_device", "compile_ptx", "compile_ptx_for_current_device")
_UNCOMPILED = "without a GPU nothing is compiled: texts of code and counts of registers that it asks for are empty"
FORALL = 256  # threads per block where a script leaves them to Numba
_FOLDERS = tuple(str(Path(str(each.__file__)).parent) for each in (numba, cuda, errors))
_OWN = [Path(each.__file__).parent for each in (numba, cuda) if each.__file__]
_place = partial(calling_place, _FOLDERS)


@dataclass(slots=True)
class FreshArray:
    """A device array that began empty: a mask of its written cells, and the last kernel that had it."""

    array: np.ndarray
    is_set: np.ndarray
    kernel: tuple[str, str] | None = None


@contextmanager
def install_hooks(session: ScriptSession, launch: Any = None) -> Iterator[None]:
    """Watch calls for `session`. `launch`: a grid and a block that replace the script's."""
    hooks = _CudaHooks(session, launch)

    def configured(kernel: Any, configuration: Any) -> HookedKernel:
        """Configure a kernel that was compiled before the hooks were installed."""
        return HookedKernel(python_function(kernel), False, hooks)[configuration]

    with ExitStack() as undone:
        patch(undone, CUDADispatcher, "__getitem__", configured)
        patch(undone, CUDADispatcher, "__call__", _without_a_launch)
        patch(undone, cuda, "jit", hooks.jit)
        patch(undone, cuda, "is_available", lambda: True)
        for name, word in vars(simulator).items():  # None marks what the simulator lacks
            if not name.startswith("_") and name not in _NEVER and hasattr(cuda, name) and word is not None:
                patch(undone, cuda, name, word)
        for holder in (simulator.devicearray, real_arrays):  # for isinstance(x, cuda.devicearray.DeviceNDArray)
            patch(undone, holder, "DeviceNDArray", FakeCUDAArray)
        compiling = {name: hooks.compile for name in _COMPILES if hasattr(cuda, name)}
        for name, word in (WORDS | compiling).items():
            patch(undone, cuda, name, word)
        for name in ("device_array", "device_array_like"):  # other constructors fill the array
            patch(undone, cuda, name, partial(hooks.empty, getattr(simulator, name)))
        undone.enter_context(stood_in(session.note, hooks.jit))
        patch(undone, cuda, "to_device", partial(hooks.send, simulator.to_device))
        for name in ("copy_to_device", "__setitem__"):
            patch(undone, FakeCUDAArray, name, hooks.fill(getattr(FakeCUDAArray, name)))
        patch(undone, FakeCUDAArray, "__cuda_array_interface__", property(lend))
        patch(undone, FakeCUDAArray, "copy_to_host", hooks.copy(FakeCUDAArray.copy_to_host))
        yield


class _CudaHooks:
    """Stand-ins for Numba-CUDA's functions while a script runs."""

    def __init__(self, session: ScriptSession, launch: Any) -> None:
        self.session, self.launch = session, launch
        self.fresh: dict[int, FreshArray] = {}
        self.counters: dict[int, np.ndarray] = {}  # integers written by kernels, each in an array of its own
        self.order, self.roots = order_of(session), dict[int, np.ndarray]()  # kept alive, so that ids stay unique

    def jit(self, function: Any = None, *args: Any, device: bool = False, **options: Any) -> Any:
        """Stand in for numba.cuda.jit, with or without a signature; nothing is compiled."""
        if callable(function) and not isinstance(function, type) and hasattr(function, "__code__"):
            return HookedKernel(function, device, self)
        signature = function if function is not None and not isinstance(function, list | tuple) else None
        return lambda kernel: HookedKernel(kernel, device, self, signature)

    def compile(self, *wishes: Any, **named: Any) -> tuple[str, None]:
        """Stand in for cuda.compile and its variants: an empty text and no return type."""
        self.session.note(_UNCOMPILED)
        return "", None

    def empty(self, plain: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a device array and register it as unwritten."""
        array = plain(*args, **options)
        root = root_of(in_numpy(array))
        self.fresh[id(root)] = FreshArray(root, np.zeros(root.shape, bool))
        return array

    def note_work(
        self, what: str, place: str, stream: Any, arrays: Sequence[tuple[np.ndarray, bool]], *, waits: bool
    ) -> None:
        """Record work of a stream that reads or writes arrays; with `waits` the host waits for it."""
        number = DEFAULT if stream is None or isinstance(stream, int) else stream_number(stream)
        self.order.begin(number)
        for array, is_written in arrays:
            root = root_of(array)
            low, high = getattr(np.lib, "array_utils", np).byte_bounds(array)  # in numpy itself until 2.0
            begin = low - root.__array_interface__["data"][0]
            self.roots[id(root)] = root
            name = f"an array of {array.dtype}{list(array.shape)}"
            work = StreamWork(number, what, place, LANGUAGE)
            self.order.touch(work, id(root), (begin, begin + high - low), name, writes=is_written)
        if waits:
            self.order.synchronize(number)

    def send(self, plain: Callable[..., Any], value: Any, stream: Any = 0, *args: Any, **named: Any) -> Any:
        """Stand in for cuda.to_device; the host waits for the copy unless it names a stream."""
        array = plain(value, stream, *args, **named)
        self.note_work("a copy", _place(), stream, [(in_numpy(array), True)], waits=isinstance(stream, int))
        return array

    def fill(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap copy_to_device and the host's assignments to a device array: they mark their cells as written."""

        def fill(array: Any, *args: Any, **named: Any) -> Any:
            fresh_array = self.fresh.get(id(root_of(array._ary)))
            if fresh_array is not None:
                cells = cells_of(array._ary, fresh_array.array, fresh_array.array.itemsize)
                fresh_array.is_set.reshape(-1)[cells[args[0]] if plain.__name__ == "__setitem__" else cells] = True
            stream = named.get("stream", args[1] if len(args) > 1 and plain.__name__ != "__setitem__" else 0)
            self.note_work("a copy", _place(), stream, [(array._ary, True)], waits=isinstance(stream, int))
            return plain(array, *args, **named)

        return fill

    def copy(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap copy_to_host: cells that no kernel wrote are a finding of the last kernel that had the array."""

        def copied(array: Any, *args: Any, **named: Any) -> Any:
            fresh_array = self.fresh.get(id(root_of(array._ary)))
            if fresh_array is not None and fresh_array.kernel is not None:
                cells = cells_of(array._ary, fresh_array.array, fresh_array.array.itemsize)
                is_set = fresh_array.is_set.reshape(-1)[cells.reshape(-1)]
                missed = np.flatnonzero(~is_set)
                if missed.size and not is_counted(
                    is_set.reshape(array._ary.shape), (each.item() for each in self.counters.values())
                ):
                    first = ", ".join(map(str, np.unravel_index(missed[0], array._ary.shape)))
                    many = f"{missed.size} of {array._ary.size} cells that are copied to the host were never written"
                    mend = "let the threads reach the last cells, or fill the array before"
                    self.session.find_unwritten(*fresh_array.kernel, LANGUAGE, f"{many}, [{first}] first", mend)
            stream = named.get("stream", args[1] if len(args) > 1 else 0)
            self.note_work("a copy", _place(), stream, [(array._ary, False)], waits=isinstance(stream, int))
            return plain(array, *args, **named)

        return copied


class PlainFunction:
    """A compiled kernel for some types, with empty answers in place of a compiler's."""

    def __getattr__(self, name: str) -> Any:
        nothing: Any = "" if name.startswith("inspect_") else 0
        return (lambda *_, **__: nothing) if name.startswith(("inspect_", "get_", "max_")) else nothing


class HookedKernel(FakeCUDAKernel):  # type: ignore[misc]
    """A kernel of a script, which runs without a GPU and has its accesses watched. `casts`: the argument and return
    types of a device function with a signature."""

    noyau_language = LANGUAGE

    def __init__(self, function: Any, device: bool, hooks: _CudaHooks, signature: Any = None) -> None:
        super().__init__(function, device)
        self._hooks, self._signature = hooks, signature
        self._compiled: dict[Any, PlainFunction] = {}
        self._launch: Any = None
        self.casts = None if signature is None or not device else normalize_signature(signature)

    @property
    def overloads(self) -> dict[Any, PlainFunction]:
        """The types of the arguments of its launches."""
        self._hooks.session.note(_UNCOMPILED)
        return self._compiled

    @property
    def signatures(self) -> list[Any]:
        return list(self.overloads)

    def __getattr__(self, name: str) -> Any:
        """Answer questions about the compiled code with empty values, and note that."""
        if not name.startswith(("inspect_", "get_", "compile")):
            raise AttributeError(f"a kernel of numba.cuda has no {name} without a GPU")
        self._hooks.session.note(_UNCOMPILED)
        nothing: Any = "" if name.startswith("inspect_") else 0
        own = {self._signature: nothing} if self._signature else dict.fromkeys(self._compiled, nothing)
        is_number = name.startswith("get_") and self._signature
        return lambda signature=None, *_, **__: nothing if is_number or signature is not None else own

    def __getitem__(self, launch: Any) -> HookedKernel:
        kernel = HookedKernel(self.fn, self._device, self._hooks, self._signature)
        kernel._launch, kernel._compiled = self._hooks.launch or launch, self._compiled
        return kernel

    def configure(self, griddim: Any, blockdim: Any, *rest: Any) -> HookedKernel:
        return self[griddim, blockdim, *rest]

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> HookedKernel:
        """Configure a launch of at least `ntasks` threads."""
        threads = tpb or FORALL
        return self[max(-(-ntasks // threads), 0), threads, stream, sharedmem]

    def __call__(self, *args: Any) -> Any:
        if self._device:  # called from host code
            return self.fn(*args)
        if self._launch is None:
            _without_a_launch(self)
        caller = sys._getframe(1)
        self._watch(args, f"{caller.f_code.co_filename}:{caller.f_lineno}")
        return None

    def _watch(self, args: Any, at: str) -> None:
        """Watch a launch from line `at`. If that fails, the script continues without its results."""
        names = list(inspect.signature(self.fn).parameters)
        arguments = [self._argument(each, value) for each, value in zip(names, args, strict=True)]
        shapes = describe_shapes(names, [each.value for each in arguments])
        session, name, place = self._hooks.session, self.fn.__name__, place_of(self)
        with suppress(ValueError, NotImplementedError):  # a value without a Numba type
            self._compiled[tuple(numba.typeof(each.value) for each in arguments)] = PlainFunction()
        configuration = launches.configuration_of(self._launch)
        try:
            traced = session.trace(name, place)
            arrays = [each.value for each in arguments if isinstance(each.value, np.ndarray)]
            before = [each.tobytes() for each in arrays]
            watched = partial(launches.launch_kernel, goes_on=True, held=in_numpy)
            launch = watched(self.fn, configuration, arguments, MOST, traced)
            touched = [(a, False) for a in arrays]
            touched += [(a, True) for a, old in zip(arrays, before, strict=True) if a.tobytes() != old]
            ones = (a for a, is_written in touched if is_written and a.size == 1 and a.dtype.kind in "iu")
            self._hooks.counters |= {id(root_of(a)): a for a in ones}
            stream = self._launch[2] if isinstance(self._launch, tuple) and len(self._launch) > 2 else 0
            self._hooks.note_work(f"the kernel {name}", at, stream, touched, waits=False)
            self._report(launch, at, shapes)
        except Exception as fault:
            refusal = fault if isinstance(fault, NoyauError) else error_of(name, fault)
            if isinstance(refusal, RaisedError) or not session.goes_on:
                raise
            session.add(name, LANGUAGE, place, shapes, None, f"{refusal}; the launch was left out")
            session.is_partial = True
            for each in arguments:
                if isinstance(each.is_set, np.ndarray):
                    each.is_set[...] = True
            return
        if traced is not None:
            session.draw(launch.access_map(name, traced), place)
        for each in arguments:  # later launches see the written cells as set
            if isinstance(each.is_set, np.ndarray):
                mask = launch.recorder.written_elements(launch.arrays[each.name])
                each.is_set.reshape(-1)[...] |= mask | launch.recorder.was_cut

    def _report(self, launch: SimulatedLaunch, at: str, shapes: str) -> None:
        """Add a launch and its findings to the session."""
        session, name, size = self._hooks.session, self.fn.__name__, f"{shapes}; launched {launch.configuration}"
        watched = launch.report_run(session.script, name, size)
        remarks = lint_call(launch, self.fn, session.script, name, at, size, is_whole=True)
        findings = watched.findings
        own = [each for each in _OWN if Path(place_of(self).rpartition(":")[0]).is_relative_to(each)]
        if own and "tests" not in Path(place_of(self)).relative_to(own[-1]).parts:  # functions such as cuda.reduce
            mild: dict[str, Any] = {"severity": "warning", "mend": "tell the authors of Numba, or call something else"}
            findings = tuple(replace(each, message=f"in Numba's own text: {each.message}", **mild) for each in findings)
        late = f"after {MOST} accesses of a launch; run the script on smaller arrays"
        unseen, watched = late if launch.recorder.was_cut else "", replace(watched, findings=(*findings, *remarks))
        session.add(name, LANGUAGE, place_of(self), shapes, watched, unseen)

    def _argument(self, name: str, value: Any) -> WatchedArgument:
        """Convert an argument to a NumPy array or a number."""
        plain = in_numpy(value)
        if isinstance(plain, ArgHint):
            plain = copy(plain.value) if isinstance(plain, In) else plain.value
        if not isinstance(plain, np.ndarray):
            return WatchedArgument(name, plain)
        fresh_array = self._hooks.fresh.get(id(root_of(plain)))
        if fresh_array is not None:
            fresh_array.kernel = self.fn.__name__, place_of(self)
        return WatchedArgument(name, plain, True if fresh_array is None else fresh_array.is_set)


def _without_a_launch(kernel: Any, *args: Any) -> None:
    name = python_function(kernel).__name__
    raise DeviceError(f"{name} needs a launch: {name}[grid, block](...)")
