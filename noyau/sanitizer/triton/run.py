"""One watched launch of a Triton kernel on any tensors, in a process in which Triton interprets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import FindingKind, NoyauError, dependency
from noyau.kernels.call import FunctionKernel, HostTensor
from noyau.kernels.triton.calls import TritonKernel
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.access_map import AccessMap, Owner, TracingShadow, Writes, map_of_writes
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Access, Observation, Route, Site, WatchedRun, findings_of, unwritten
from noyau.sanitizer.routes import KernelCase, tuple_like
from noyau.sanitizer.triton.interpreter_hooks import Hooks, MemoryExtents, interpreter_hooks
from noyau.toolchain.triton.interpreter import LAUNCHES, interpret
from noyau.verify.findings import Finding
from noyau.workers.import_path import LazyModule
from noyau.workers.resources import memory_bytes

with dependency("triton, or torch,", "noyau-kernels[triton]"):
    if TYPE_CHECKING:
        import torch
    else:
        torch = LazyModule("torch")
    from triton.tools.tensor_descriptor import TensorDescriptor

LANGUAGE = "triton"
MOST, _MOST_OF_AN_OP = 200_000_000, 30_000_000  # watched accesses of one launch: of a script, of an op
_SHADOW = 104  # most bytes of the shadow per cell that was read and written
_APART = "nothing orders two programs: store to a second tensor, load in a second launch, or sum with tl.atomic_add"
_WIDEN = "a product of int32 overflowed on the way: widen it, as in row.to(tl.int64) * stride"
_ZONE, _ALIGNED = 1 << 16, 64  # least bytes around an argument; its alignment
_FILLS = (0xFF, 0x7B)  # bytes of NaNs and of -1, and of large numbers


@dataclass(slots=True)
class FreshTensor:
    """The memory of a tensor that began empty: a mask of the bytes that hold values, and the last kernel that had it
    (name, place and language)."""

    is_set: np.ndarray
    kernel: tuple[str, str, str] | None = None
    store: str = ""  # the line of the last launch's store, if it has only one


@dataclass(slots=True)
class TensorSpan:
    """A range of a storage in which arguments of a launch lie: its bytes in the user's memory, and `room`, a copy with
    space around it, or itself, `in_place`, if kernels read its address from a table. `fresh`: which bytes hold values,
    if it began empty."""

    name: str
    storage: np.ndarray
    start: int
    end: int
    tensor: torch.Tensor
    fresh: FreshTensor | None
    in_place: bool = False
    room: np.ndarray = field(init=False)
    memory: int = -1

    @property
    def own(self) -> np.ndarray:
        """Its bytes in the user's memory."""
        return self.storage[self.start : self.end]

    @property
    def cells(self) -> tuple[int, ...]:
        """The shape of its cells: that of its first tensor, if that is packed and all of it."""
        size = self.tensor.element_size()
        is_whole = self.tensor.is_contiguous() and self.tensor.numel() * size == self.end - self.start
        return tuple(self.tensor.shape) if is_whole else ((self.end - self.start) // size,)


@dataclass(frozen=True, slots=True)
class TritonLaunch:
    """The observations of a launch. `unpacked`: remedies for memories whose tensors are not packed; `uses_unset`:
    whether a result depends on unwritten cells that were read."""

    hooks: Hooks
    unpacked: Mapping[int, str] = field(default_factory=dict)
    uses_unset: bool = True

    @property
    def grid(self) -> str:
        """Its programs: `(4,)` or `(4, 2)`."""
        grid = self.hooks.sample.grid
        axes = max((axis for axis, extent in enumerate(grid, 1) if extent != 1), default=1)
        return str(grid[:axes])

    def route(self, op: str, kernel: str, size: str) -> Route:
        """Return the names of its sites, memories and programs."""
        hooks = self.hooks
        return Route(*(LANGUAGE, op, kernel, size, hooks.sites, hooks.extents.memories, hooks.owner), hint=self._hint)

    def _hint(self, observation: Observation) -> str:
        """Return the remedy of a race with a read, or of an access outside, from its tensor, offsets or mask."""
        if observation.kind is not FindingKind.OUT_OF_BOUNDS:
            return _APART if observation.kind is FindingKind.RACE and observation.writes == 1 else ""
        widen = _WIDEN if self.hooks.overflows else self.hooks.masks.get(observation.site, "")
        return self.unpacked.get(observation.memory, "") or widen

    def report_run(self, op: str, kernel: str, size: str) -> WatchedRun:
        """Return its findings in words."""
        shadow = self.hooks.shadow
        findings, allowed = findings_of(_unique_races(shadow.observations()), self.route(op, kernel, size))
        if not self.uses_unset:  # such as a tile of which a `where` takes the lower half
            findings = [each.without_effect() if each.kind is FindingKind.UNINITIALISED else each for each in findings]
        lines = frozenset((site.file, site.line) for site in self.hooks.sites)
        notes, is_cut = tuple(self._notes()), self.hooks.sample.is_partial
        return WatchedRun(tuple(findings), shadow.accesses, tuple(allowed), notes, lines=lines, is_cut=is_cut)

    def _notes(self) -> Iterator[str]:
        yield f"launched: a grid of {self.grid}"
        if sites := sorted(self.hooks.overflows):
            yield f"int32: a product overflowed (line {', '.join(str(self.hooks.sites[site].line) for site in sites)})"
        if self.hooks.sample.is_partial:
            yield f"watched: {self.hooks.part}"

    def access_map(self, name: str, writes: Writes) -> AccessMap:
        """Return the map of its writes."""
        memories, program = self.hooks.extents.memories, self.hooks.owner
        return map_of_writes(name, f"[{self.grid}]", "program", lambda n: Owner("", program(n)[8:]), memories, writes)


def _unique_races(observations: Sequence[Observation]) -> list[Observation]:
    """Return observations; of the races on one argument that share a line, only the one with most writes."""
    unique = [each for each in observations if each.kind is not FindingKind.RACE]
    races = [each for each in observations if each.kind is FindingKind.RACE]
    lines: set[tuple[int, int]] = set()
    for each in sorted(races, key=lambda each: each.writes, reverse=True):
        own = {(each.memory, each.site), (each.memory, each.other_site)}
        unique += [] if own & lines else [each]
        lines |= own
    return unique


def roomy(array: np.ndarray) -> np.ndarray:
    """Return a packed copy in the middle of a buffer that holds nothing else."""
    zone = max(_ZONE, array.nbytes)
    whole = np.empty(array.nbytes + 2 * zone + _ALIGNED, np.uint8)
    start = zone + -(_address(whole) + zone) % _ALIGNED
    copy = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def launch_watched(
    run: Callable[..., Any],
    function: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
    fresh: Mapping[int, FreshTensor] | None = None,
    shadow: Shadow | None = None,
    behind: Sequence[torch.Tensor] = (),
) -> TritonLaunch:
    """Call `run(*args, **named)`, by which Triton interprets a launch of `function`, with each tensor argument in a
    copy with room around it, which is copied back. `fresh`: memory that began empty, by the address of its storage; its
    masks are updated; `behind`: tensors whose addresses may be elements of an argument.

    An exception of the kernel propagates, after its writes are copied back, with the observations until then as its
    `launch`. In a launch of more than MOST accesses a sample of the programs is watched, as the notes say."""
    arguments = [*zip(python_function(function).__code__.co_varnames, args, strict=False), *named.items()]
    with torch._C.DisableTorchFunction(), torch.no_grad():
        spans = _spans([pair for name, each in arguments for pair in _tensors(name, each)], fresh or {}, behind)
        extents = MemoryExtents(shadow or Shadow())
        for span in spans:
            _add(span, extents)
        extents.shadow.region()
        moved = {name: _move_argument(each, spans) for name, each in named.items()}
        run = partial(run, *(_move_argument(each, spans) for each in args), **moved)
    is_whole, uses_unset = False, True
    with interpreter_hooks(extents, _most(spans), goes_on=True) as hooks:
        try:
            run()
            is_whole = not hooks.sample.is_partial
            if is_whole and any(each.kind is FindingKind.UNINITIALISED for each in extents.shadow.observations()):
                uses_unset = any(_depends(run, spans, hooks, byte) for byte in _FILLS)
        except Exception as fault:
            vars(fault)["launch"] = TritonLaunch(hooks)
            raise
        finally:
            for span in spans:
                span.own[...] = span.room
                _remember(span, hooks, is_whole=is_whole)
    return TritonLaunch(hooks, {s.memory: _strides_text(s) for s in spans if not s.tensor.is_contiguous()}, uses_unset)


def _most(spans: Sequence[TensorSpan]) -> int:
    """Return the limit of watched accesses of a launch: the shadow of its cells takes at most half of the memory."""
    cells = memory_bytes() // (2 * _SHADOW)
    return MOST if sum(math.prod(span.cells) for span in spans) <= cells else min(MOST, cells)


def _depends(run: Callable[[], Any], spans: Sequence[TensorSpan], hooks: Hooks, byte: int) -> bool:
    """Whether a launch's results change if unwritten cells hold this byte; its first results stay."""
    results, hooks.sample.is_over = [span.room.copy() for span in spans], True
    masks = [_written_bytes(span, hooks.extents) for span in spans]
    for span in spans:
        span.room[...] = span.own
        if span.fresh is not None:
            span.room[~span.fresh.is_set[span.start : span.end]] = byte
    try:
        run()
        pairs = zip(spans, results, masks, strict=True)
        depends = any((span.room[mask] != result[mask]).any() for span, result, mask in pairs)
    except Exception:  # noqa: BLE001  the first run did not raise
        depends = True
    for span, result in zip(spans, results, strict=True):
        span.room[...] = result
    hooks.sample.is_over = False
    return depends


def _written_bytes(span: TensorSpan, extents: MemoryExtents) -> np.ndarray:
    """Return the bytes of a span that hold values after a launch."""
    if span.fresh is None:
        return np.ones(span.end - span.start, bool)
    memory = extents.memories[span.memory]
    mask = extents.shadow.written_cells(span.memory, math.prod(memory.shape) * memory.width)
    return np.repeat(mask, (span.end - span.start) // max(mask.size, 1))


def _strides_text(span: TensorSpan) -> str:
    strides = tuple(span.tensor.stride())
    how = "expanded" if 0 in strides else "not packed"
    return f"{span.name} is {how} (strides {', '.join(map(str, strides))}): make it contiguous, or index by its strides"


def _tensors(name: str, each: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in an argument, with its name."""
    match each:
        case torch.Tensor():
            yield name, each
        case tuple():
            for part in each:
                yield from _tensors(name, part)
        case _ if hasattr(each, "base"):  # a descriptor, or a tensor reinterpreted as another dtype
            yield from _tensors(name, each.base)
        case _ if (held := _held_tensor(each)) is not None:
            yield name, held
        case _:
            return


def _held_tensor(each: Any) -> torch.Tensor | None:
    """Return the tensor behind an object that gives a kernel an address and a dtype, as a part of the tensor."""
    values = vars(each).values() if hasattr(each, "data_ptr") and hasattr(each, "__dict__") else ()
    return next((value for value in values if isinstance(value, torch.Tensor)), None)


def reach(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the range of a tensor in its storage, in bytes: from its first cell to its last."""
    size = tensor.element_size()
    steps = (step * (extent - 1) for step, extent in zip(tensor.stride(), tensor.shape, strict=True))
    start = tensor.storage_offset() * size
    return start, start + (sum(steps) + 1) * size if tensor.numel() else start


def _spans(
    tensors: Sequence[tuple[str, torch.Tensor]], fresh: Mapping[int, FreshTensor], behind: Sequence[torch.Tensor]
) -> list[TensorSpan]:
    """Return the ranges of storages that tensors lie in, merged where they overlap; those `behind` pointers stay."""
    spans: list[TensorSpan] = []
    pointed = {each.untyped_storage().data_ptr() for each in behind}
    tensors = [*tensors, *((f"{each.dtype}{list(each.shape)}", each) for each in behind)]
    for name, tensor in sorted(tensors, key=lambda pair: (pair[1].untyped_storage().data_ptr(), reach(pair[1])[0])):
        start, end = reach(tensor)
        storage: np.ndarray = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
        at, last = _address(storage), spans[-1] if spans else None
        if last is not None and _address(last.storage) == at and start < last.end:
            last.end = max(last.end, end)
        elif start < end:
            spans.append(TensorSpan(name, storage, start, end, tensor, fresh.get(at), at in pointed))
    return spans


def _address(storage: np.ndarray) -> int:
    return int(storage.__array_interface__["data"][0])


def _add(span: TensorSpan, extents: MemoryExtents) -> None:
    """Copy a span with room around it, and add it to the watched memories, with its mask of set cells."""
    span.room = span.own if span.in_place else roomy(span.own)
    bits = span.room.view(f"u{min(span.tensor.element_size(), 8)}").reshape(-1)
    shape = span.cells if bits.size == int(np.prod(span.cells)) else bits.shape
    mask = None if span.fresh is None else span.fresh.is_set[span.start : span.end : bits.itemsize]
    span.memory = extents.add(span.name, bits.reshape(shape), is_set=mask is None or bool(mask.all()))
    if mask is not None and mask.any() and not mask.all():
        extents.shadow.region(serial=True)
        extents.shadow.touch_many(span.memory, np.flatnonzero(mask), Access.WRITE, -1)


def _remember(span: TensorSpan, hooks: Hooks, *, is_whole: bool) -> None:
    """Mark written cells as holding values; all cells, unless the whole launch was seen."""
    if span.fresh is not None:
        span.fresh.is_set[span.start : span.end] |= _written_bytes(span, hooks.extents) if is_whole else np.True_
        places = [hooks.sites[site].place for site in hooks.extents.stores.get(span.memory, ())]
        span.fresh.store = places[0] if len(places) == 1 else ""


def _move_argument(each: Any, spans: Sequence[TensorSpan]) -> Any:
    """Replace the tensors in an argument by their copies."""
    match each:
        case torch.Tensor():
            return _place_tensor(each, spans)
        case TensorDescriptor():
            return replace(each, base=_move_argument(each.base, spans))
        case tuple():
            return tuple_like(each, [_move_argument(part, spans) for part in each])
        case _ if hasattr(each, "base") and hasattr(each, "data_ptr"):
            return type(each)(_move_argument(each.base, spans), each.dtype)
        case _ if (held := _held_tensor(each)) is not None:
            copy, item = _place_tensor(held, spans), each.dtype.itemsize
            start = copy.storage_offset() * copy.element_size() + each.data_ptr() - held.data_ptr()
            return torch.empty(0, dtype=each.dtype).set_(copy.untyped_storage(), start // item, (1,))
        case _:
            return each


def _place_tensor(tensor: torch.Tensor, spans: Sequence[TensorSpan]) -> torch.Tensor:
    """Return the same cells in the copy of their span."""
    plain, (start, end) = tensor.detach(), reach(tensor)
    if start == end:
        return plain
    at = tensor.untyped_storage().data_ptr()
    span = next(each for each in spans if _address(each.storage) == at and each.start <= start < each.end)
    whole = torch.from_numpy(span.room).view(plain.dtype)
    return whole.as_strided(plain.shape, plain.stride(), (start - span.start) // plain.element_size())


def watch_here(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Watch the kernel on its arrays; `maps` receives its access map. UnsupportedError if it cannot be watched;
    RaisedError if it raises."""
    kernel, instance = case.kernel, case.instance
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zero_outputs()
    before = run.prepare([np.array(each) for each in case.arrays], outputs)
    unset = run.unset(before, outputs)
    config = sum(extent for array in (*before, *outputs) for extent in array.shape)
    launcher = TritonKernel(kernel, instance, case.constants, config if configs_of(kernel.function) else None)
    traced = None if maps is None else TracingShadow()
    extents = MemoryExtents(traced or Shadow())
    values = (*instance.inputs, *instance.outputs)
    arrays = [a if v.scalar else roomy(a) for v, a in zip(values, (*before, *outputs), strict=True)]
    for value, array in zip(values, arrays, strict=True):
        if not value.scalar:
            extents.add(value.name, array, is_set=value.name not in unset)
    arguments = [a.item() if v.scalar else HostTensor(a) for v, a in zip(values, arrays, strict=True)]
    count = len(instance.inputs)
    extents.shadow.region()
    with interpreter_hooks(extents, _MOST_OF_AN_OP) as hooks:
        try:
            launcher.into(arguments[:count], arguments[count:])
        except NoyauError:
            if not hooks.sample.is_partial:
                raise
    launch = TritonLaunch(hooks)
    watched = launch.report_run(kernel.target.op, kernel.name, case.size)
    findings = watched.findings if watched.is_cut else (*watched.findings, *_unwritten(launch, unset, case))
    if maps is not None and traced is not None:
        maps.append(launch.access_map(kernel.title, traced))
    results = None if watched.is_cut else tuple(run.results(arrays[:count], arrays[count:]))
    return replace(watched, findings=findings, outputs=results)


def _unwritten(launch: TritonLaunch, unset: set[str], case: KernelCase) -> list[Finding]:
    kernel, extents = case.kernel, launch.hooks.extents
    by_name = sorted(extents.memories.items(), key=lambda pair: pair[1].name)
    memories = {number: memory for number, memory in by_name if memory.name in unset}
    route = launch.route(kernel.target.op, kernel.name, case.size)
    nobody = f"no program of the grid {launch.grid} stores"
    return unwritten(memories, extents.shadow.unwritten, nobody, Site.at(kernel.place), route)


def watch_call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> WatchedRun:
    """Watch one launch of a kernel without an op. `launch`: its grid, or the number of its programs."""
    grid = launch if callable(launch) or isinstance(launch, tuple) else (launch,)
    LAUNCHES.append(interpret)  # this launch is Triton's own, even within a watched script
    try:
        triton_launch = launch_watched(function[grid], function, args, {})
    finally:
        LAUNCHES.pop()
    return triton_launch.report_run(op, python_function(function).__name__, f"{size}; launched {triton_launch.grid}")
