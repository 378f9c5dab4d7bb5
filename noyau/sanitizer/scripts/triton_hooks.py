"""Hooks that watch a running script's launches of Triton kernels in Triton's interpreter, on its own arguments, and
lint them (number of programs, offsets beyond 32 bits). Without a GPU, CPU tensors stand in for its tensors."""

import ast
import inspect
import math
import os
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from torch.multiprocessing.reductions import StorageWeakRef
from triton.compiler.errors import CompileTimeAssertionFailure

from noyau import errors
from noyau.errors import FindingKind, NoyauError, UnsupportedError
from noyau.kernels.call import error_of, first_cause
from noyau.kernels.user_kernel import python_function, three
from noyau.sanitizer.lint.arithmetic import offsets_of_launch, phantom
from noyau.sanitizer.lint.diagnostics import Diagnostic, warnings_of
from noyau.sanitizer.lint.launches import LaunchFacts, advise, sm_count_in
from noyau.sanitizer.scripts import triton_host
from noyau.sanitizer.scripts.record import ScriptSession, describe_shapes, is_counted, place_of
from noyau.sanitizer.scripts.streams import HOST, StreamWork, calling_place, order_of
from noyau.sanitizer.scripts.triton_host import FakeCompiledKernel, is_marked, parts, storage_of
from noyau.sanitizer.triton.run import LANGUAGE, MOST, FreshTensor, launch_watched, reach
from noyau.toolchain.triton import interpreter
from noyau.verify.findings import Finding

# Functions that return no tensor and read the values of one.
_READING = frozenset({"item", "tolist", "numpy", "equal", "allclose", "__repr__", "__bool__", "__float__", "__int__"})

_REACH = "let the indices and the mask of the store reach every cell"
_SHARING = frozenset({"numpy", "__array__"})  # functions that return a NumPy array on the same memory
_FOLDERS = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (triton, torch, errors))


@contextmanager
def install_hooks(session: ScriptSession, grid: Sequence[int] | None = None) -> Iterator[None]:
    """Watch launches for `session` in Triton's interpreter, in this process. `grid`: replaces the script's grids."""
    hooks = _TritonHooks(session, grid)
    with ExitStack() as undone:
        undone.enter_context(triton_host.triton_stood_in(session.note))
        undone.enter_context(triton_host.torch_stood_in(hooks.look, session.note))
        interpreter.install()
        interpreter.LAUNCHES.append(hooks.run)
        undone.callback(interpreter.LAUNCHES.remove, hooks.run)
        yield


class _Empties:
    """Tensors made by torch.empty, by the address of their storage, until the host writes to them."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[FreshTensor, StorageWeakRef, int]] = {}

    def add(self, tensor: torch.Tensor, is_set: np.ndarray | None = None, kernel: Any = None) -> None:
        """Register a tensor, by default without any value. `is_set`: the bytes that a `kernel` has written."""
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            if storage.nbytes() and tensor.device.type == "cpu" and not tensor.is_inference():
                fresh = FreshTensor(np.zeros(storage.nbytes(), bool) if is_set is None else is_set, kernel)
                self.known[storage.data_ptr()] = fresh, StorageWeakRef(storage), tensor._version

    def of(self, tensor: torch.Tensor) -> FreshTensor | None:
        """Return the written bytes of a tensor's storage; None if all of them hold values."""
        if not self.known or tensor.layout is not torch.strided:
            return None
        with torch._C.DisableTorchFunction():
            at = tensor.untyped_storage().data_ptr()
            if at in self.known:
                fresh, storage, version = self.known[at]
                if not storage.expired() and not tensor.is_inference() and tensor._version == version:
                    return fresh
                del self.known[at]
            return None

    def forget(self, tensor: torch.Tensor) -> None:
        """Drop a tensor that the host may fill unseen from now on."""
        self.known.pop(storage_of(tensor), None)


class _TritonHooks:
    """Stand-ins for Triton's functions while a script runs."""

    def __init__(self, session: ScriptSession, grid: Sequence[int] | None) -> None:
        self.session, self.grid, self.empties, self.order = session, grid, _Empties(), order_of(session)
        session.empties = self.empties
        self.storages: dict[int, StorageWeakRef] = {}
        self.counters: dict[int, torch.Tensor] = {}  # integers written by kernels, each in a tensor of its own
        self.pointed = weakref.WeakValueDictionary[int, torch.Tensor]()  # tensors whose address the script asked for

    def run(self, function: Any, args: Sequence[Any], named: Mapping[str, Any], grid: Any) -> FakeCompiledKernel:
        """Run a launch or a warm-up of a kernel."""
        if grid is not None:
            self.launch(function, args, named, self.grid or grid)
        return FakeCompiledKernel(partial(interpreter.run, function))

    def launch(self, function: Any, args: Sequence[Any], named: Mapping[str, Any], grid: Any) -> None:
        def run(*args: Any, **named: Any) -> None:
            interpreter.interpret(function, args, named, grid)

        session, name, place = self.session, python_function(function).__name__, place_of(function)
        names = list(inspect.signature(python_function(function)).parameters)
        own = {each: value for each, value in named.items() if each in names}
        size = describe_shapes([*names[: len(args)], *own], [*args, *own.values()])
        remarks = lint_launch(function, args, own, grid, session.script, size)
        session.advice |= {each.id: each for each in remarks if each.id not in session.advice}
        dtypes = {each.dtype for each in _tensors((*args, *own.values()))}
        behind = list(self.pointed.values()) if dtypes & {torch.int64, torch.uint64} else []
        fresh = dict(self.fresh([*args, *own.values(), *behind], name, place))
        traced = session.trace(name, place)
        # A launch on unpinned host memory belongs to Triton's interpreter, which runs it at once.
        tensors = [t for t in _tensors((*args, *own.values())) if is_marked(t) or storage_of(t) in self.order.pinned]
        before = [self.bytes_of(each) for each in tensors]
        try:
            triton_launch = launch_watched(run, function, args, named, fresh, traced, behind)
        except Exception as fault:
            _raise_if_refused(fault)
            for each in fresh.values():
                each.is_set[...] = True  # the launch's writes are unknown
            error = fault if isinstance(fault, NoyauError) else error_of(name, fault)
            seen = vars(fault).get("launch")  # the accesses before the fault
            session.add(name, LANGUAGE, place, size, seen and seen.report_run(session.script, name, size), str(error))
            if not isinstance(error, UnsupportedError) or not session.goes_on:
                raise
            session.is_partial = True  # the script continues without the launch's results
            return
        written = [b for a, b in zip(before, tensors, strict=True) if not np.array_equal(a, self.bytes_of(b))]
        self.note_work(f"the kernel {name}", tensors, written)
        self.counters |= {storage_of(t): t for t in written if t.numel() == 1 and t.dtype in (torch.int32, torch.int64)}
        watched = triton_launch.report_run(session.script, name, f"{size}; launched {triton_launch.grid}")
        notes = tuple(note for note in watched.notes if not note.startswith(("launched: ", "watched: ")))
        limit = f"it makes more than {MOST} accesses, so {triton_launch.hooks.part} were watched"
        unseen = f"{limit}; run the script on smaller tensors" if watched.is_cut else ""
        session.add(name, LANGUAGE, place, size, replace(watched, notes=notes), unseen)
        if traced is not None:
            session.draw(triton_launch.access_map(name, traced), place)

    def fresh(self, values: Sequence[Any], name: str, place: str) -> Iterator[tuple[int, FreshTensor]]:
        """Yield a launch's partly unwritten memories by address, and attribute them to this kernel."""
        for each in values:
            tensor = each if isinstance(each, torch.Tensor) else getattr(each, "base", None)
            fresh_tensor = self.empties.of(tensor) if isinstance(tensor, torch.Tensor) else None
            if fresh_tensor is not None:
                fresh_tensor.kernel = name, place, LANGUAGE
                yield storage_of(tensor), fresh_tensor

    def bytes_of(self, tensor: torch.Tensor) -> np.ndarray:
        """Return a copy of a tensor's cells as bytes."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            cells: np.ndarray = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
            return cells.copy()

    def note_work(self, what: str, reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> None:
        """Record work of the current stream that reads and writes these tensors."""
        self.order.begin(self.order.current)
        self.note_accesses(StreamWork(self.order.current, what, calling_place(_FOLDERS), LANGUAGE), reads, writes)

    def note_accesses(self, work: StreamWork, reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> None:
        """Record work's accesses by storage; a freed storage's address may be reused, so its accesses are dropped."""
        for tensor, is_written in [*((each, False) for each in reads), *((each, True) for each in writes)]:
            with torch._C.DisableTorchFunction():
                storage, span = tensor.untyped_storage(), reach(tensor)
                at = storage.data_ptr()
                known = self.storages.get(at)
                if known is None or known.expired():
                    self.storages[at] = StorageWeakRef(storage)
                    self.order.touched.pop(at, None)
                name = f"a tensor of {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            if tensor.numel():
                self.order.touch(work, at, span, name, writes=is_written)

    def look_at_order(self, name: str, args: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        """Record the reads and writes of a torch call, its stream, and whether the host waits for it."""
        results, tensors = _tensors(parts((result,))), _tensors(parts((*args, *named.values())))
        places = set(map(storage_of, tensors))
        outputs = [each for each in results if storage_of(each) not in places]
        first = next(iter((*args, *named.values())), None)  # torch.nn.init passes it by name
        if _changes(name) and isinstance(first, torch.Tensor):
            outputs.append(first)
        outputs += _tensors([named.get("out")])
        own = set(map(id, tensors if name.endswith("_like") or name.startswith("new_") else outputs))  # of shapes alone
        if not any(map(is_marked, (*tensors, *results))):
            known = [each for each in tensors if storage_of(each) in self.order.touched]
            written = [each for each in outputs if id(each) in set(map(id, known))]
            host = StreamWork(HOST, "the host", calling_place(_FOLDERS) if known else "", LANGUAGE)
            self.note_accesses(host, [each for each in known if id(each) not in own], written)
        elif outputs or name in _READING | _SHARING:  # otherwise a view
            self.note_transfer(name, args, named, [each for each in tensors if id(each) not in own], outputs)

    def note_transfer(
        self, name: str, args: Sequence[Any], named: Mapping[str, Any], reads: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Record work of torch on a GPU. The host waits for copies to or from it, except non-blocking copies of pinned
        memory; of pageable memory the access happens at once."""
        here = [each for each in (*reads, *outputs) if not is_marked(each) and each.dim()]
        goes_on = bool(named.get("non_blocking")) or any(each is True for each in args[1:])
        if goes_on and name in ("to", "cpu"):  # torch pins the result of these
            self.order.pinned |= {storage_of(each) for each in outputs if not is_marked(each)}
        is_late = goes_on and all(storage_of(each) in self.order.pinned for each in here)
        sides = [[each for each in side if is_late or is_marked(each)] for side in (reads, outputs)]
        self.note_work("a copy" if here else f"torch's {name}", *sides)
        if name in _READING | _SHARING or (here and not is_late):
            self.order.synchronize(self.order.current)

    def look(self, function: Any, args: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> None:
        """Observe a torch call: tensors that it makes empty, and reads of elements that were never written."""
        name = getattr(function, "__name__", "")
        self.look_at_order(name, args, named, result)
        if name in ("allclose", "equal") and result is False:
            self.session.note_difference(name, calling_place(_FOLDERS))
        if name == "data_ptr" and is_marked(args[0]):
            whole = args[0]._base if args[0]._is_view() else args[0]
            self.pointed[id(whole)] = whole
        if name in triton_host.EMPTY and isinstance(result, torch.Tensor):
            self.empties.add(result)
        elif self.empties.known and not _writes(name):
            for each in _tensors(args):
                if _reads(name, each, result):
                    self.read(each)
            if name in _SHARING and isinstance(args[0], torch.Tensor):
                self.empties.forget(args[0])
        elif self.empties.known and args and isinstance(args[0], torch.Tensor):
            self.empties.of(args[0])  # `x.data` has its own version counter; only the in-place call shows a change

    def read(self, tensor: torch.Tensor) -> None:
        """Report cells that the host reads and no kernel wrote, as a finding of the last kernel that had the tensor."""
        fresh_tensor = self.empties.of(tensor)
        if fresh_tensor is None or fresh_tensor.kernel is None:
            return
        with torch._C.DisableTorchFunction(), torch.no_grad():
            marks = torch.from_numpy(fresh_tensor.is_set[:: tensor.element_size()].copy())
            mask = marks.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            missed = (~mask).nonzero()
            counts = [int(each) for each in self.counters.values()]
        if len(missed) and not is_counted(mask.numpy(), counts):
            kernel, fresh_tensor.kernel = fresh_tensor.kernel, None
            first = ", ".join(map(str, missed[0].tolist()))
            message = f"{len(missed)} of {mask.numel()} cells that the host reads were never stored, [{first}] first"
            is_tail = not mask.flatten()[-len(missed) :].any()
            mend = f"{FindingKind.UNWRITTEN.remedies[kernel[2]]}; {_REACH}" if is_tail else _REACH
            self.session.find_unwritten(*kernel, message, mend, fresh_tensor.store)


def _raise_if_refused(fault: BaseException) -> None:
    """Raise Triton's compile error for a failed static assertion, for which an autotuner drops a configuration."""
    root = first_cause(fault)
    frames = traceback.extract_tb(root.__traceback__)
    if frames[-1].name.endswith("static_assert"):
        node = ast.Pass(lineno=frames[-2].lineno or 0, col_offset=0)
        raise CompileTimeAssertionFailure(None, node, str(root) or None) from fault


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the strided tensors among values; sparse tensors have no storage."""
    return [each for each in values if isinstance(each, torch.Tensor) and each.layout is torch.strided]


def _writes(name: str) -> bool:
    """Whether a torch function makes a tensor like another one or changes one in place, without reading it."""
    is_operator = name.startswith("__i")  # reads the tensor that it changes
    return name.startswith("new_") or name.endswith("_like") or (_changes(name) and not is_operator)


def _reads(name: str, tensor: torch.Tensor, result: Any) -> bool:
    """Whether a torch function reads the cells of a tensor; making a view does not."""
    if not isinstance(result, torch.Tensor):
        return name in _READING
    return result.layout is not torch.strided or storage_of(result) != storage_of(tensor)


def lint_launch(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], grid: Any, op: str, size: str
) -> list[Finding]:
    """Warn about a launch at the script's line that makes it, and about offsets at the kernel's line. `args`, `named`:
    tensors and numbers; `grid`: the script's grid."""
    plain, (file, _, line) = python_function(function), calling_place(_FOLDERS).rpartition(":")
    name, signature = plain.__name__, inspect.signature(plain)
    bound = signature.bind_partial(*args, **named)
    bound.apply_defaults()
    arguments = bound.arguments
    marked = {key for key, each in signature.parameters.items() if "constexpr" in str(each.annotation)}
    constants = {key: value for key, value in arguments.items() if key in marked}
    programs = three(grid(dict(arguments)) if callable(grid) else grid)
    with torch._C.DisableTorchFunction():
        arrays = {key: _flat(each) for key, each in arguments.items() if isinstance(each, torch.Tensor)}
    shape = max((each.shape for each in arrays.values()), key=math.prod, default=())
    launch = LaunchFacts(programs, (1, 1, 1), shape, sm_count=sm_count_in(file), is_of_programs=True)
    remarks = [Diagnostic(FindingKind.LAUNCH, file, int(line), *each, name, size) for each in advise(launch)]
    remarks += offsets_of_launch(function, programs, {**arguments, **arrays}, constants, size)
    return warnings_of(remarks, op, name, LANGUAGE)


def _flat(tensor: torch.Tensor) -> np.ndarray:
    """Return a 1-D array of all cells that the tensor's pointer reaches, since a kernel knows no shapes."""
    start, end = reach(tensor)
    return phantom([(end - start) // tensor.element_size()], np.dtype(f"u{min(tensor.element_size(), 8)}"))


def _changes(name: str) -> bool:
    """Whether a function of torch changes its first tensor."""
    in_place = name.startswith("__i") and name.endswith("__") and name not in ("__index__", "__int__", "__invert__")
    return name == "__setitem__" or in_place or (name.endswith("_") and not name.endswith("__"))
