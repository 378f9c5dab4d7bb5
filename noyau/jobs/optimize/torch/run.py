"""`noyau.optimize(module, inputs)`: a module with its winning kernels, the report, and the way to a file."""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from noyau.codegen.plan import kernel_named
from noyau.compiler.partition.cut import Group, scalars_of
from noyau.errors import BuildError, InputError, NoyauError, UnsupportedError
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.rewrite import KernelSwap, rewrite
from noyau.hosts.torch.tensors import type_text
from noyau.jobs.optimize import weight_choice
from noyau.jobs.optimize.cuda.saved_kernels import CallForm
from noyau.jobs.optimize.pipeline import Candidate
from noyau.jobs.optimize.record import EndToEnd, Evidence, GraphSplit, Report, not_fused, record, uncovered_nodes
from noyau.jobs.optimize.torch import saved_module
from noyau.jobs.optimize.torch.backend import PRODUCTS, compile_captured
from noyau.jobs.optimize.torch.candidates import AheadOfTime, ends_of
from noyau.jobs.optimize.torch.graph_hosts import CompiledGraph, GraphRecord, drawing_of, host_of, optimize_graph
from noyau.jobs.optimize.torch.options import CompileKeywords, CompileOptions, options_from
from noyau.jobs.optimize.torch.saved_module import export
from noyau.jobs.optimize.torch.whole import ATTEMPTS, Run, loses, loss_of, settle, step_of
from noyau.text import path_of, printable
from noyau.timing.comparison import compare
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Comparison
from noyau.toolchain.c import compiler as c_compiler

if TYPE_CHECKING:
    from noyau.jobs.optimize.torch.weights import FewBits

log = logging.getLogger("noyau")
_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")  # logs a page for each operator that refuses its inputs
# Errors with a clear message; only newer releases of torch have the last one.
_CLEAR = (NoyauError, torch.OutOfMemoryError, getattr(torch, "AcceleratorError", NoyauError))
_UNTIMED = "not timed as a whole, but kernel by kernel: torch.compile times gradients too"
WHOLE_S = 2.0  # seconds of the clock for the module as a whole
# torch's messages for tensors on different devices, real ones and fakes.
_APART = re.compile(r"same device|different devices|Device Propagation|not on the expected device")


@dataclass(slots=True, repr=False)
class OptimizedModule:
    """A module with its winning kernels: call it like the module, also for gradients; other attributes are the
    module's. `wins`: whether it is not slower than torch's own run; if it is, calls run the original module, and `save`
    writes that. A copy, pickled or not, compiles its kernels again when it is called."""

    module: Run
    compiled: Any
    inputs: tuple[Any, ...]
    wishes: CompileOptions
    record: GraphRecord
    dynamic: bool | None
    whole: Comparison | None = None
    notes: tuple[str, ...] = field(default=())
    words: str = ""  # the outcome of the whole, as text

    def __post_init__(self) -> None:
        if self.compiled is None:  # in a copy
            self.compiled = _compile(self.module, self.wishes, self.dynamic, self.record)

    def __repr__(self) -> str:
        count = sum(one.kept for one in self.candidates)
        return f"<{name_of(self.module)} with {count} of {len(self.candidates)} kernels; .report tells of them>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the protocols of copying are this class's own
            raise AttributeError(name)
        value = getattr(self.module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            return self if result is self.module else result  # train, eval and to return the module

        return wraps(value)(call) if isinstance(value, MethodType) else value

    def __reduce__(self) -> tuple[Any, ...]:
        if any(each.weights for each in self.weights):
            raise UnsupportedError('weights in few bits are not copied; optimize the module with weights="none"')
        record, outcome = GraphRecord(dropped=dict(self.record.dropped)), (self.whole, self.notes, self.words)
        return type(self), (self.module, None, self.inputs, self.wishes, record, self.dynamic, *outcome)

    @property
    def wins(self) -> bool:
        return self.wishes.keep == "all" or not loses(self.whole)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Without a kernel, the captured graph may still be slower: composites such as attention are decomposed in it.
        changed = any(graph.kept for graph in self.record.graphs) or any(each.module for each in self.weights)
        runs = self.wins and (torch.is_grad_enabled() or changed or not self.record.graphs)  # a copy has none yet
        with explain_devices(self.module, (args, kwargs)):
            return (self.compiled if runs else self.module)(*args, **kwargs)

    @property
    def report(self) -> Report:
        """Report on the module so far, including graphs that were compiled later, for gradients for example."""
        report = report_of(name_of(self.module), self.record.graphs, self.whole, self.notes, self.loss)
        records = [] if self.wishes.weights == "none" else [each.record for each in self.weights]
        few = weight_choice.together(records, self.loss or self.record.dropped.get(PRODUCTS, ""))
        return replace(report, graphs=tuple(split(self.record, self.words)), weights=few)

    @property
    def weights(self) -> list[FewBits]:
        """Outcomes of weights in few bits, graph by graph."""
        return list(self.record.weights.values())

    @property
    def loss(self) -> str:
        """The reason why calls run the original module, or an empty text."""
        return "" if self.whole is None or self.wins else loss_of(self.whole)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every kernel with its evidence."""
        return drop_all(distinct(self.record.graphs), self.loss)

    def source(self, kernel: str) -> str:
        """The text of a kernel, kept or not, under its certificate; InputError if none has that name."""
        candidates = self.candidates  # new objects each time
        planned = kernel_named(kernel, (one.planned for one in candidates))
        return planned.explain(next(one.evidence for one in candidates if one.planned is planned))

    def save(self, path: str | Path) -> None:
        """Write the module for inference: noyau.load(path) starts without timing or compiling anything.
        UnsupportedError if torch cannot export the module as one graph, OutputError if no file can be written."""
        place = path_of(path, "save() takes")
        if not isinstance(self.module, torch.nn.Module):
            raise UnsupportedError("a function is not saved; make it the forward of a torch.nn.Module")
        if any(each.weights for each in self.weights):
            remedy = 'optimize the module with weights="none" to save it'
            raise UnsupportedError(f"weights in few bits are not saved; {remedy}")
        exported = export(self.module, self.inputs, bool(self.dynamic))
        try:
            if not self.wins:
                raise UnsupportedError(self.loss)
            with _disable_current_modes(), AheadOfTime(self.wishes, log.info) as ahead:
                host = host_of(exported.program, self.wishes, ahead, registered=False)
                graph, swaps = optimize_graph(host, "inference", self.record.dropped)
        except (UnsupportedError, BuildError) as reason:
            log.info("the module is saved without kernels: %s", reason)
            swaps, pieces, program = [], {}, exported.program
        else:
            program = rewrite(exported.program, swaps)
            places = [(one, group) for one in graph.kept for group in one.planned.groups]
            pieces = {swap.target: _piece(swap, *place) for swap, place in zip(swaps, places, strict=True)}
        saved_module.save(place, exported, program, pieces)


def _piece(swap: KernelSwap, candidate: Candidate, group: Group) -> saved_module.SavedKernel:
    kernel = candidate.planned
    if isinstance(swap.target, DeviceCall):
        form = CallForm(len(kernel.kernel.launches), swap.target.axes)
        return saved_module.SavedKernel(kernel.operator, kernel.text, None, ends_of(group.graph), (), form)
    scalars: Mapping[str, np.ndarray] = scalars_of(group)
    fixed = tuple(scalars.get(node.output) for node in group.graph.inputs)
    return saved_module.SavedKernel(kernel.operator, kernel.text, candidate.library, ends_of(group.graph), fixed)


def optimize(
    module: Run, inputs: Any, *, dynamic: bool | None = None, **options: Unpack[CompileKeywords]
) -> OptimizedModule:
    """A module, or a function of tensors, with kernels where they are right and win, on these inputs: a tensor, or a
    tuple of tensors.

    `dynamic`: as in torch.compile. `options` are the fields of noyau.jobs.optimize.torch.options.CompileOptions; by
    default certificates are full, without a time limit. InputError for invalid options or inputs, or inputs that
    torch's own run of the module refuses; other errors of the module are not caught."""
    wishes, arguments = options_from({"certificate": "full", "limit_s": math.inf, **options}), as_inputs(inputs)
    record, few, flows = GraphRecord(), dict[Any, Any](), dict[Any, Any]()
    if wishes.weights != "none":
        from noyau.jobs.optimize.torch.weights import calibrate  # imports Triton, needed with a GPU alone

        flows = calibrate(module, arguments, [as_inputs(each) for each in wishes.calibration or ()], dynamic)

    def attempt(dropped: Mapping[str, str]) -> tuple[Run, Comparison | None, Mapping[str, float]]:
        nonlocal record
        record = GraphRecord(dropped=dict(dropped), weights=few, calibration=flows)
        return *_time(module, arguments, wishes, dynamic, record), record.gains

    with as_it_was(module, arguments):
        compiled, whole, words = settle(attempt, 1 if wishes.keep == "all" else ATTEMPTS)
        if whole is not None:
            record.measures = True
            with torch.no_grad():
                compiled(*arguments)
            record.measures = False
    notes = tuple(_describe(at, each) for at, each in enumerate(arguments))
    return OptimizedModule(module, compiled, arguments, wishes, record, dynamic, whole, notes, words)


def split(record: GraphRecord, words: str) -> Iterator[GraphSplit]:
    """Each graph of a module: the split of a call with its kernels, and the outcome of the whole (`words`)."""
    walls, timed = iter(record.walls), words or "it has no kernel, and was not timed"
    for graph in record.graphs:
        ends = (timed, next(walls, None)) if graph.kind == "inference" else (_UNTIMED, None)
        yield GraphSplit(graph.kind, *ends)


def _compile(module: Run, wishes: CompileOptions, dynamic: bool | None, record: GraphRecord) -> Run:
    backend = partial(compile_captured, wishes=wishes, record=record)
    return torch.compile(module, backend=backend, dynamic=dynamic)  # type: ignore[no-any-return]


def _time(
    module: Run, arguments: tuple[Any, ...], wishes: CompileOptions, dynamic: bool | None, record: GraphRecord
) -> tuple[Run, Comparison | None]:
    """A module compiled into the empty `record`, and timed against torch's own run if it has kernels."""
    compiled, whole = _compile(module, wishes, dynamic, record), None
    with torch.no_grad():
        with explain_inputs(module, arguments):
            compiled(*arguments)
        if any(graph.kept for graph in record.graphs) or any(each.module for each in record.weights.values()):
            budget_s = min(WHOLE_S, wishes.budget_s)
            whole = compare(step_of(module, arguments), step_of(compiled, arguments), budget_s=budget_s)
    return compiled, whole


def drop_all(candidates: Iterable[Candidate], loss: str) -> tuple[Candidate, ...]:
    """The candidates; none is kept if there is a reason (`loss`) to hand the original module back."""
    return tuple(replace(one, kept=False, reason=loss) if loss and one.kept else one for one in candidates)


@contextmanager
def explain_devices(module: Run, inputs: Any) -> Iterator[None]:
    """InputError in place of torch's error if a module and its inputs are on different devices."""
    try:
        yield
    except _CLEAR:
        raise
    except RuntimeError as error:
        own = _devices((*module.parameters(), *module.buffers())) if isinstance(module, torch.nn.Module) else set[str]()
        others = _devices(inputs)
        if own == others or not own or not others or not _APART.search(str(error)):
            raise
        one, other = (" and ".join(sorted(each)) for each in (own, others))
        raise InputError(f"the module is on {one}, and its inputs are on {other}; move them to one device") from error


@contextmanager
def explain_inputs(module: Run, inputs: Sequence[Any]) -> Iterator[None]:
    """InputError in place of torch's error and log if the original module does not run on its inputs."""
    was, _FAKE_LOG.disabled = _FAKE_LOG.disabled, True
    try:
        with explain_devices(module, inputs):
            yield
    except _CLEAR:
        raise
    except (RuntimeError, TypeError, IndexError):
        try:
            module(*inputs)
        except (RuntimeError, TypeError, IndexError) as error:
            if type(error) in (RuntimeError, TypeError, IndexError):  # subclasses are the module's own errors
                reason = printable(str(error).strip().partition("\n")[0])
                types = ", ".join(map(type_text, inputs)) or "none"
                raise InputError(f"{name_of(module)} does not run on its inputs ({types}): {reason}") from error
        raise
    finally:
        _FAKE_LOG.disabled = was


@contextmanager
def as_it_was(module: Run, inputs: Any) -> Iterator[None]:
    """Restore a module's buffers (statistics, in training), inputs and random state after calls."""
    buffers: Iterable[torch.Tensor] = getattr(module, "buffers", tuple)()
    tensors = [each for each in (*buffers, *_tensors(inputs)) if not torch.nn.parameter.is_lazy(each)]
    kept = [(each, each.clone()) for each in tensors]
    try:
        with torch.random.fork_rng(devices={each.get_device() for each in tensors if each.is_cuda}):
            yield
    finally:
        for each, was in kept:  # all: norms do not count their changes; inference mode does not count these
            with suppress(RuntimeError), torch.inference_mode():  # a view with repeated cells cannot be written
                each.data.copy_(was)


def _devices(nested: Any) -> set[str]:
    return {str(each.device) for each in _tensors(nested)}


def _tensors(nested: Any) -> list[torch.Tensor]:
    return [each for each in torch.utils._pytree.tree_leaves(nested) if isinstance(each, torch.Tensor)]


def as_inputs(inputs: Any) -> tuple[Any, ...]:
    """The arguments of a call. InputError if they are no tuple and no tensor, or on several devices."""
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, tuple | list):
        kind = type(inputs).__name__
        raise InputError(f"inputs are a tensor or a tuple of the module's arguments, not a {kind}: optimize(m, (x,))")
    devices = sorted({each.device.type for each in _tensors(tuple(inputs))})
    if len(devices) > 1:
        raise InputError(f"the inputs are on {' and '.join(devices)}; move them to one device")
    if devices == ["meta"]:
        raise InputError("the inputs are on the device meta and have no values; give tensors with values")
    return tuple(inputs)


def _describe(at: int, value: Any) -> str:
    if isinstance(value, torch.Tensor) and (value.layout is not torch.strided or value.is_quantized):
        what = "quantised" if value.is_quantized else str(value.layout).removeprefix("torch.")
        return f"argument {at}: {what}, not dense: what reads it stays with torch"
    return f"argument {at}: {type_text(value)}{', as given' * isinstance(value, torch.Tensor)}"


def name_of(module: Run) -> str:
    return type(module).__name__ if isinstance(module, torch.nn.Module) else getattr(module, "__name__", "function")


def report_of(
    name: str, graphs: Sequence[CompiledGraph], whole: Comparison | None, notes: Iterable[str], loss: str = ""
) -> Report:
    """The report on a module; `whole`: the compiled module against torch's own run, if timed; `loss`: why the original
    is handed back."""
    before = sum(len(graph.source.nodes) - 1 for graph in graphs if graph.source)
    gone = sum(len(group.positions) - 1 for graph in graphs for one in graph.kept for group in one.planned.groups)
    machine = this_machine(c_compiler.DEFAULTS)
    left = ([(f"the whole {each.kind} graph", each.whole)] if each.whole else leftovers(each) for each in graphs)
    candidates = drop_all(distinct(graphs), loss)
    drawings = {
        graph.kind: tuple(drawing_of(graph, title, is_fused=title == "After") for title in ("Before", "After"))
        for graph in graphs
        if graph.source
    }
    return Report(
        replace(machine, versions={**machine.versions, "torch": torch.__version__}),
        name,
        before,
        before - (0 if loss else gone),
        kernels=tuple(map(record, candidates)),
        end_to_end=EndToEnd() if whole is None else EndToEnd(*whole.medians_s, whole.verdict, whole.speedup),
        not_fused=not_fused(chain.from_iterable(left)),
        inputs=tuple(notes),
        evidence=Evidence(candidates, drawings=drawings),
    )


def distinct(graphs: Iterable[CompiledGraph]) -> list[Candidate]:
    """Each kernel once, with all its places; kept if one graph keeps it."""
    by_name: dict[str, list[Candidate]] = defaultdict(list)
    for one in (one for graph in graphs for one in graph.candidates):
        by_name[one.planned.operator].append(one)
    result = list[Candidate]()
    for same in by_name.values():
        best = next((one for one in same if one.kept), same[0])
        places = tuple(group for one in same for group in one.planned.groups)
        result.append(replace(best, planned=replace(best.planned, groups=places)))
    return result


def leftovers(graph: CompiledGraph) -> Iterator[tuple[str, str]]:
    """The nodes of a graph that are in no kernel, with the reasons."""
    if graph.source is not None:
        names = [node.name for node in graph.source.nodes[:-1]]  # the last is what the graph returns
        yield from uncovered_nodes(names, graph.partition, graph.plan)
