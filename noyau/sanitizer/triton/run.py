"""A kernel of Triton on an op, launched in this process, in which Triton interprets, with every access watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import (
    CheckError,
    DeviceError,
    FindingKind,
    MissingExtraError,
    NoyauError,
    RaisedError,
    SignatureError,
    UnsupportedError,
)
from noyau.hosts.torch.tensors import tensor_of
from noyau.kernels.call import FunctionKernel
from noyau.kernels.triton.calls import TritonKernel, is_interpreted
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import UserKernel, python_function
from noyau.sanitizer.access_map import AccessMap, Owner, TracingShadow, map_of_writes
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Access, Observation, Route, Site, WatchedRun, findings_of, unwritten
from noyau.sanitizer.routes import KernelCase
from noyau.sanitizer.triton.interpreter_hooks import Hooks, MemoryExtents, interpreter_hooks
from noyau.verify.findings import Finding

Array = np.ndarray
LANGUAGE = "triton"
MOST = 30_000_000  # accesses of one launch
_WIDEN = "a product of int32 overflowed on the way: widen it, as in row.to(tl.int64) * stride"
_ZONE, _ALIGNED = 1 << 16, 64  # bytes around an argument, at least; how it is aligned


def watch_here(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, watched; a map of it is put into `maps`. UnsupportedError where it cannot be;
    RaisedError where it raises, CheckError for what the interpreter does not calculate in."""
    kernel, instance, size = case.kernel, case.instance, case.size
    if any(value.dtype is DType.BF16 for value in (*instance.inputs, *instance.outputs)):
        raise CheckError("Triton's interpreter takes bfloat16 for integers")
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zeroed_outputs()
    before = run.prepared([np.array(each) for each in case.arrays], outputs)
    unset = run.unset(before, outputs)
    config = sum(extent for array in (*before, *outputs) for extent in array.shape)
    launcher = TritonKernel(kernel, instance, case.constants, config if configs_of(kernel.function) else None)
    shadow = Shadow() if maps is None else TracingShadow()
    extents = MemoryExtents(shadow)
    ends = zip((*instance.inputs, *instance.outputs), (*before, *outputs), strict=True)
    arrays = [array if value.scalar else roomy(array) for value, array in ends]
    arguments: list[Any] = []
    numbers: dict[str, int] = {}
    for value, array in zip((*instance.inputs, *instance.outputs), arrays, strict=True):
        if not value.scalar:
            numbers[value.name] = extents.add(value.name, array, is_set=value.name not in unset)
        arguments.append(array.item() if value.scalar else tensor_of(array))
    count = len(instance.inputs)
    extents.shadow.region()
    hooks = _launched(launcher, arguments[:count], arguments[count:], extents)
    observations = unique_races(extents.shadow.seen())
    findings, allowed = findings_of(observations, route_of(hooks, extents), kernel.target.op, kernel.name, size)
    if not hooks.was_cut:
        findings += _unwritten([numbers[name] for name in sorted(unset)], hooks, extents, kernel, size)
    if maps is not None and isinstance(shadow, TracingShadow):
        maps.append(map_of(kernel.called, hooks, extents, shadow))
    results = tuple(run.results(arrays[:count], arrays[count:]))
    return WatchedRun(tuple(findings), extents.shadow.accesses, tuple(allowed), notes_of(hooks), results)


def map_of(name: str, hooks: Hooks, extents: MemoryExtents, traced: TracingShadow) -> AccessMap:
    """The map of a launch."""
    grid = grid_text(hooks.grid)
    return map_of_writes(
        name, f"[{grid}]", "program", lambda n: Owner("", hooks.owner(n)[8:]), extents.memories, traced
    )


def roomy(array: Array) -> Array:
    """A packed copy with room around it, which nothing else lies in."""
    zone = max(_ZONE, array.nbytes)
    whole = np.empty(array.nbytes + 2 * zone + _ALIGNED, np.uint8)
    start = zone + -(whole.__array_interface__["data"][0] + zone) % _ALIGNED
    copy = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def route_of(hooks: Hooks, extents: MemoryExtents) -> Route:
    """The names of sites, memories and programs of a launch."""
    remedies = {FindingKind.OUT_OF_BOUNDS: _WIDEN} if hooks.overflows else {}
    return Route(LANGUAGE, hooks.sites, extents.memories, hooks.owner, remedies)


def unique_races(observations: Sequence[Observation]) -> list[Observation]:
    """Observations; of races on one argument that share a line only the one with most writes."""
    unique = [each for each in observations if each.kind is not FindingKind.RACE]
    lines: set[tuple[int, int]] = set()
    for each in sorted(
        (each for each in observations if each.kind is FindingKind.RACE), key=lambda each: each.writes, reverse=True
    ):
        own = {(each.memory, each.site), (each.memory, each.other_site)}
        if not own & lines:
            unique.append(each)
        lines |= own
    return unique


def notes_of(hooks: Hooks) -> tuple[str, ...]:
    """Notes of a report on a launch, beside its findings."""
    notes = [f"launched: a grid of {grid_text(hooks.grid)}"]
    if hooks.overflows:
        lines = ", ".join(str(hooks.sites[site].line) for site in sorted(hooks.overflows))
        notes.append(f"int32: a product overflowed (line {lines})")
    if hooks.was_cut:
        notes.append(f"ended: after {MOST} accesses")
    return tuple(notes)


def grid_text(grid: Sequence[int]) -> str:
    """`(4,)` or `(4, 2)`."""
    axes = list(grid)
    while len(axes) > 1 and axes[-1] == 1:
        axes.pop()
    return str(tuple(axes))


def _launched(launcher: TritonKernel, inputs: Sequence[Any], outputs: Sequence[Any], extents: MemoryExtents) -> Hooks:
    with interpreter_hooks(extents, MOST) as hooks:
        try:
            launcher.into(inputs, outputs)
        except NoyauError:
            raise
        except Exception as fault:
            if not hooks.was_cut:
                raise RaisedError(f"{launcher.kernel.called} raised {type(fault).__name__}: {fault}") from fault
    return hooks


def _unwritten(
    numbers: Sequence[int], hooks: Hooks, extents: MemoryExtents, kernel: UserKernel, size: str
) -> list[Finding]:
    """A finding for each output of which cells were never written."""
    findings: list[Finding] = []
    place, nobody = Site.at(kernel.place), f"no program of the grid {grid_text(hooks.grid)} stores"
    route, op = route_of(hooks, extents), kernel.target.op
    for number in numbers:
        holes, memory = extents.shadow.unwritten(number), extents.memories[number]
        findings += unwritten(holes, memory, nobody, place, route, op, kernel.name, size)
    return findings


try:
    import torch
    from triton.runtime.interpreter import InterpretedFunction
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau[triton]'") from error

_LOW = (torch.bfloat16,)  # what the interpreter takes for integers


@dataclass(slots=True)
class FreshTensor:
    """The memory of a tensor that began empty: which of its bytes hold values, the last kernel that had it (name and
    place), and whether it is known to be filled."""

    is_set: np.ndarray
    kernel: tuple[str, str] | None = None

    def fill(self) -> None:
        self.is_set[...] = True


@dataclass(slots=True)
class TensorSpan:
    """A part of a storage that arguments of a launch lie in: its bytes in the user's memory, and a copy with room
    around it. `fresh`: what of it holds values, where it began empty."""

    name: str
    storage: np.ndarray
    start: int
    end: int
    tensor: torch.Tensor
    fresh: FreshTensor | None
    room: np.ndarray = field(init=False)
    memory: int = -1

    @property
    def own(self) -> np.ndarray:
        """Its bytes where the user has them."""
        return self.storage[self.start : self.end]

    @property
    def cells(self) -> tuple[int, ...]:
        """The shape of its cells: of the tensor that begins it, where that is all of it and packed."""
        size = self.tensor.element_size()
        is_whole = self.tensor.is_contiguous() and self.tensor.numel() * size == self.end - self.start
        return tuple(self.tensor.shape) if is_whole else ((self.end - self.start) // size,)


@dataclass(frozen=True, slots=True)
class TritonLaunch:
    """The observations of a launch. `grid`: its programs, as they are told."""

    hooks: Hooks
    extents: MemoryExtents
    spans: Sequence[TensorSpan]
    notes: tuple[str, ...]

    @property
    def grid(self) -> str:
        return grid_text(self.hooks.grid)

    def watched(self, op: str, kernel: str, size: str) -> WatchedRun:
        """Its findings in words."""
        shadow = self.extents.shadow
        route = route_of(self.hooks, self.extents)
        findings, allowed = findings_of(unique_races(shadow.seen()), route, op, kernel, size)
        return WatchedRun(tuple(findings), shadow.accesses, tuple(allowed), (*notes_of(self.hooks), *self.notes))


def launch_watched(
    run: Callable[..., Any],
    function: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
    fresh: Mapping[int, FreshTensor] | None = None,
    most: int = MOST,
    shadow: Shadow | None = None,
) -> TritonLaunch:
    """Call `run(*args, **named)`, which has Triton interpret a launch of `function`, with each tensor among the
    arguments in a place with room around it; what it left there is copied back. `fresh`: memory that began empty, by
    the address of its storage; it is told what was written.

    Whatever the kernel raises comes through, once what it wrote is copied back, unless it made more than `most`
    accesses, which the notes tell."""
    names = list(python_function(function).__code__.co_varnames)
    arguments = [*zip(names, args, strict=False), *named.items()]
    with torch._C.DisableTorchFunction(), torch.no_grad():
        tensors = [pair for name, each in arguments for pair in _tensors(name, each)]
        spans = _spans(tensors, fresh or {})
        extents = MemoryExtents(shadow or Shadow())
        for span in spans:
            _add(span, extents)
        extents.shadow.region()
        moved = [_moved(each, spans) for each in args]
        others = {name: _moved(each, spans) for name, each in named.items()}
    with interpreter_hooks(extents, most) as hooks:
        try:
            run(*moved, **others)
        except Exception:
            if not hooks.was_cut:
                raise
        finally:
            for span in spans:
                span.own[...] = span.room
                _remember(span, extents)
    low = any(tensor.dtype in _LOW for _, tensor in tensors)
    notes = ("bfloat16: Triton's interpreter calculates in it as in integers",) if low else ()
    return TritonLaunch(hooks, extents, spans, notes)


def _tensors(name: str, each: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an argument, with the name that it has."""
    match each:
        case torch.Tensor():
            yield name, each
        case tuple():
            for part in each:
                yield from _tensors(name, part)
        case _ if hasattr(each, "base"):  # a descriptor, or a tensor that is taken for another dtype
            yield from _tensors(name, each.base)
        case _:
            return


def _reach(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor lies in: from its first cell to its last."""
    size = tensor.element_size()
    steps = (step * (extent - 1) for step, extent in zip(tensor.stride(), tensor.shape, strict=True))
    start = tensor.storage_offset() * size
    return start, start + (sum(steps) + 1) * size if tensor.numel() else start


def _spans(tensors: Sequence[tuple[str, torch.Tensor]], fresh: Mapping[int, FreshTensor]) -> list[TensorSpan]:
    """The parts of storages that tensors lie in, those that overlap as one."""
    spans: list[TensorSpan] = []
    for name, tensor in sorted(tensors, key=lambda pair: (pair[1].untyped_storage().data_ptr(), _reach(pair[1])[0])):
        start, end = _reach(tensor)
        if end == start:
            continue
        storage = _bytes(tensor)
        last = spans[-1] if spans else None
        if last is not None and _address(last.storage) == _address(storage) and start < last.end:
            last.end = max(last.end, end)
            continue
        spans.append(TensorSpan(name, storage, start, end, tensor, fresh.get(_address(storage))))
    return spans


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """All of the storage of a tensor."""
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    contents: np.ndarray = whole.numpy()
    return contents


def _address(storage: np.ndarray) -> int:
    return int(storage.__array_interface__["data"][0])


def _add(span: TensorSpan, extents: MemoryExtents) -> None:
    """Its copy, watched, with what it holds."""
    span.room = roomy(span.own)
    bits = span.room.view(f"u{min(span.tensor.element_size(), 8)}").reshape(-1)
    shape = span.cells if bits.size == int(np.prod(span.cells)) else bits.shape
    mask = None if span.fresh is None else span.fresh.is_set[span.start : span.end : bits.itemsize]
    span.memory = extents.add(span.name, bits.reshape(shape), is_set=mask is None or bool(mask.all()))
    if mask is not None and mask.any() and not mask.all():
        extents.shadow.region(serial=True)
        extents.shadow.touch_many(span.memory, np.flatnonzero(mask), Access.WRITE, -1)


def _remember(span: TensorSpan, extents: MemoryExtents) -> None:
    """Mark written cells as holding values."""
    if span.fresh is None:
        return
    cells = extents.memories[span.memory]
    mask = extents.shadow.written(span.memory, int(np.prod(cells.shape)))
    item = (span.end - span.start) // max(mask.size, 1)
    span.fresh.is_set[span.start : span.end] |= np.repeat(mask, item)


def _moved(each: Any, spans: Sequence[TensorSpan]) -> Any:
    """An argument with its tensors where the copies are."""
    match each:
        case torch.Tensor():
            return _placed(each, spans)
        case TensorDescriptor():
            return replace(each, base=_moved(each.base, spans))
        case tuple():
            parts = [_moved(part, spans) for part in each]
            return type(each)(*parts) if hasattr(each, "_fields") else tuple(parts)
        case _ if hasattr(each, "base") and hasattr(each, "data_ptr"):
            return type(each)(_moved(each.base, spans), each.dtype)
        case _:
            return each


def _placed(tensor: torch.Tensor, spans: Sequence[TensorSpan]) -> torch.Tensor:
    """The same cells in the copy of their span."""
    plain, (start, end) = tensor.detach(), _reach(tensor)
    if start == end:
        return plain
    at = tensor.untyped_storage().data_ptr()
    span = next(each for each in spans if _address(each.storage) == at and each.start <= start < each.end)
    whole = torch.from_numpy(span.room).view(plain.dtype)
    return whole.as_strided(plain.shape, plain.stride(), (start - span.start) // plain.element_size())


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op_name: str) -> tuple[WatchedRun, Any]:
    """As sanitizer/routes.py has it. SignatureError without a grid, UnsupportedError where Triton does not
    interpret."""
    name = python_function(function).__name__
    if launch is None:
        raise SignatureError(f"{name} needs a grid: noyau.check({name}, args, launch=(programs,))")
    if not is_interpreted(function):
        remedy = "set TRITON_INTERPRET=1 before triton is imported, or run: noyau check SCRIPT.py"
        raise UnsupportedError(f"{name} was made where Triton compiles, so its accesses are not seen; {remedy}")
    grid = launch if callable(launch) or isinstance(launch, tuple) else (launch,)
    with _plainly():
        triton_launch = launch_watched(function[grid], function, args, {})
    if triton_launch.hooks.was_cut:
        raise DeviceError(f"{name}[{triton_launch.grid}] made more than {MOST} accesses; check smaller tensors")
    return triton_launch.watched(op_name, name, f"{size}; launched {triton_launch.grid}"), None


@contextmanager
def _plainly() -> Iterator[None]:
    """Within, launches are Triton's own, though those of a script be watched."""
    run = InterpretedFunction.run
    InterpretedFunction.run = getattr(run, "__wrapped__", run)
    try:
        yield
    finally:
        InterpretedFunction.run = run
