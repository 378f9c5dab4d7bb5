"""One graph of ATen operators, from the top: cut into groups, judged, rewritten, handed to what runs the rest."""

from __future__ import annotations

import contextlib
import gc
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.errors import BuildError, UnsupportedError
from noyau.hosts.torch.modules import executor
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.rewrite import KernelSwap, rewrite
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.ir import ranges
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.torch.aot import AheadOfTime
from noyau.jobs.optimize.torch.host import TorchHost
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.workers.resources import give_back

if TYPE_CHECKING:
    from noyau.jobs.optimize.cuda.host import CudaHost

log = logging.getLogger("noyau")
Boxed = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """Outcome of one graph: `kind` is inference, forward or backward; `whole` says why all of it was left to torch,
    where it was."""

    kind: str
    source: TracedGraph | None
    partition: Partition
    plan: Plan
    candidates: tuple[Candidate, ...] = ()
    whole: str = ""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        return tuple(one for one in self.candidates if one.kept)


@dataclass(slots=True)
class GraphRecord:
    """Every graph that was compiled for a module, in order; none where it `forgets`: they are large, and torch keeps
    what compiles them as long as the module."""

    graphs: list[CompiledGraph] = field(default_factory=list)
    forgets: bool = False

    def tell(self, graph: CompiledGraph) -> None:
        """A graph that was compiled."""
        if not self.forgets:
            self.graphs.append(graph)


def compile_graph(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    kind: str,
    wishes: CompileOptions,
    record: GraphRecord,
    ahead: AheadOfTime | None = None,
) -> Boxed:
    """A graph of ATen operators as a function of a list of tensors, which it empties: kernels of noyau's where they are
    right and win, and the rest as is wished. `ahead`: what is known of the graph already."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    tangents = [at for at, name in enumerate(names) if name.startswith("tangents")]
    if is_prompt(module.graph, wishes, record):
        from noyau.jobs.optimize.cuda import lazy_compile

        run = lazy_compile.compile_lazily(module, lambda: compile_now(module, (), kind, wishes, record))
    else:
        run = compile_now(module, inputs, kind, wishes, record, ahead)
    return executor.in_memory_at(tangents, run) if tangents else run


def is_prompt(program: fx.Graph, wishes: CompileOptions, record: GraphRecord) -> bool:
    """Whether the first result of a graph does not wait for its kernels: on a GPU, where nobody reads the record."""
    on_gpu = modules_sites.device_of(program) != modules_sites.CPU
    return on_gpu and may_wait(wishes, record) and executor.is_static(program)


def may_wait(wishes: CompileOptions, record: GraphRecord) -> bool:
    """Whether kernels of a GPU may come after a graph's first result."""
    return wishes.prompt and wishes.rest == "eager" and record.forgets


def compile_now(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    kind: str,
    wishes: CompileOptions,
    record: GraphRecord,
    ahead: AheadOfTime | None = None,
) -> Boxed:
    """As `compile_graph`, its kernels made."""
    on_gpu = modules_sites.device_of(module.graph) != modules_sites.CPU
    try:
        with contextlib.ExitStack() as stack:
            known = ahead or stack.enter_context(
                AheadOfTime(wishes, log.info, reasons=not record.forgets, on_gpu=on_gpu)
            )
            if known.closed:  # torch may ask for a backward late: the processes that are started for it end here
                stack.callback(known.certification.__exit__)
            return _compiled(module, inputs, kind, wishes, record, known)
    finally:
        ranges.forget()
        if not on_gpu:  # there, memory of the host is not what is short
            gc.collect()  # torch's graphs are in cycles
            give_back()


def _compiled(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    kind: str,
    wishes: CompileOptions,
    record: GraphRecord,
    ahead: AheadOfTime,
) -> Boxed:
    if modules_sites.device_of(module.graph) != modules_sites.CPU:
        from noyau.hosts.torch.modules import common_values

        common_values.simplify(module.graph)
    run = runner(module.graph, wishes)
    try:
        with _disable_current_modes():  # torch traces meanwhile, and tensors made under its modes would have no cells
            compiled, swaps = optimize_graph(module.graph, kind, wishes, ahead, registered=wishes.rest == "inductor")
    except (UnsupportedError, BuildError) as reason:
        warnings.warn(f"noyau leaves this graph to torch: {reason}", RuntimeWarning, stacklevel=2)
        record.tell(CompiledGraph(kind, None, Partition((), ()), Plan(()), whole=str(reason)))
        return run(module, inputs)
    record.tell(compiled)
    if not swaps:
        return run(module, inputs)
    return run(fx.GraphModule(module, rewrite(module.graph, swaps)), inputs)


def runner(program: fx.Graph, wishes: CompileOptions) -> Callable[[fx.GraphModule, Sequence[Any]], Boxed]:
    """Executor of a graph, its kernels and the rest: on a GPU in one flat function, where that is not inductor."""
    if wishes.rest == "eager" and modules_sites.device_of(program) != modules_sites.CPU:
        from noyau.hosts.torch.modules import flat_codegen  # a hundred modules, which nobody needs without a GPU

        return partial(flat_codegen.flat, replays=wishes.graphs)
    return executor.RESTS[wishes.rest]


def optimize_graph(
    program: fx.Graph, kind: str, wishes: CompileOptions, ahead: AheadOfTime, *, registered: bool
) -> tuple[CompiledGraph, list[KernelSwap]]:
    """The kernels of a graph, each with its evidence, and how those that are kept take the places of torch's nodes.
    UnsupportedError where an input is nothing that noyau knows."""
    host = host_of(program, wishes, ahead, registered)
    outcome = pipeline.optimize(host, wishes.keep, log.debug)
    return CompiledGraph(kind, host.source, outcome.partition, outcome.plan, outcome.candidates), outcome.installed


def host_of(program: fx.Graph, wishes: CompileOptions, ahead: AheadOfTime, registered: bool) -> TorchHost | CudaHost:
    """The host that a graph runs on: the CPU, or the device of its tensors."""
    sketch = ahead.sketch(program)
    source = sketch.source if sketch else modules_sites.trace_graph(program)
    if source.device == modules_sites.CPU:
        return TorchHost(sketch or ahead.sketched(source), wishes, ahead, registered)
    from noyau.jobs.optimize.cuda.host import CudaHost, with_updates_apart  # Triton's modules, which no CPU needs

    return CudaHost(with_updates_apart(source), source.device, wishes, ahead, registered)
