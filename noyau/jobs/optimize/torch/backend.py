"""`torch.compile(module, backend="noyau")`: each graph that dynamo captured, cut into groups, judged and rewritten.

torch finds it by the entry point `noyau` of the group `torch_dynamo_backends`. On a GPU, the first result of a graph
does not wait for kernels, for a graph that is called once would never regain the time of compiling them."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch import fx
from torch._dynamo.exc import TorchDynamoException, exceptions_allowed_to_be_fallback
from torch._dynamo.utils import flatten_graph_inputs
from torch._functorch import config
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils._python_dispatch import _disable_current_modes

from noyau.codegen.plan import Plan
from noyau.codegen.triton.row_attention import RowAttention
from noyau.compiler.partition.cut import Partition
from noyau.errors import BuildError, InputError, UnsupportedError
from noyau.hosts.torch.cuda.device import beside_captures
from noyau.hosts.torch.modules import executor, graph_corrections, simplification
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_inputs import is_static, is_symbolic
from noyau.hosts.torch.modules.executor import Boxed, copy_graph, eager, with_device_errors
from noyau.hosts.torch.modules.rewrite import rewrite
from noyau.ir import ranges
from noyau.jobs.optimize.torch.candidates import AheadOfTime, begin_triton
from noyau.jobs.optimize.torch.graph_hosts import CompiledGraph, GraphRecord, host_of, optimize_graph, runner
from noyau.jobs.optimize.torch.options import CompileOptions, options_from
from noyau.jobs.optimize.torch.whole import JudgedGraph, Run, time_wall_once
from noyau.kernels.certificates import prepare
from noyau.text import several
from noyau.toolchain.garbage_collection import without_collections
from noyau.toolchain.triton.parallel_compile import COMPILER
from noyau.workers.resources import give_back
from noyau.workers.signals import TimeIsUp, time_limit

if TYPE_CHECKING:
    from noyau.jobs.optimize.cuda.host import CudaHost
    from noyau.jobs.optimize.torch.host import TorchHost
    from noyau.jobs.optimize.torch.weights import FewBits

Partitioner: TypeAlias = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
Result = TypeVar("Result")
REPORT = (
    "If torch runs it, that is a defect of noyau: please report it to its maintainers with what `noyau doctor` prints"
)
_LINE = 500  # the most characters of a fault
PRODUCTS = "products of few rows"  # their name among the kernels that a graph may lose
_FLAT = (torch.Tensor, int, float, torch.SymInt, torch.SymFloat)
_ONE = Lock()  # one lazy compilation at a time: kernels of two would be timed side by side


def cut_in_two(
    joint: fx.GraphModule, *args: Any, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph, by a minimum cut of the saved values."""
    simplification.fill_zeros(joint.graph)
    simplification.drop_detached(joint.graph)
    simplification.merge_equal(joint.graph)
    simplification.keep_compared(joint.graph, num_fwd_outputs)
    graph_corrections.correct_dtypes(joint.graph)
    graph_corrections.free_seeds(joint.graph)
    with config.patch(cse=False):  # merge_equal has done it, and torch's own pass imports all of inductor
        forward, backward = min_cut_rematerialization_partition(joint, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
    graph_corrections.complete_drawn(forward.graph)
    graph_corrections.complete_drawn(backward.graph)
    return forward, backward


def trace_with_autograd(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    compiler: Callable[[fx.GraphModule, Sequence[Any], str], Run],
    taken_apart: Mapping[Any, Any] | None = None,
    partition: Partitioner = cut_in_two,
) -> Run:
    """Trace a captured module into functional graphs: one for inference, or forward and backward, split by `partition`.
    Each goes to `compiler` with its kind: inference, forward or backward."""

    def traced(graph: fx.GraphModule, examples: Sequence[Any]) -> Run:
        run = aot_module_simplified(
            graph,
            examples,
            fw_compiler=lambda graph, examples: compiler(graph, examples, "forward"),
            bw_compiler=backward,
            inference_compiler=lambda graph, examples: compiler(graph, examples, "inference"),
            partition_fn=partition,
            decompositions=dict(taken_apart or {}),
            keep_inference_input_mutations=any(getattr(each, "is_cuda", False) for each in examples),  # simplification
        )
        return torch._dynamo.disable(run)  # type: ignore[no-any-return]

    def backward(graph: fx.GraphModule, examples: Sequence[Any]) -> Run:
        """Compile the backward during a run; dynamo traces neither the compiler nor its result."""
        return torch._dynamo.disable(torch._dynamo.disable(compiler)(graph, examples, "backward"))  # type: ignore[no-any-return]

    if any(isinstance(each, list | tuple | dict) for each in inputs):
        return flatten_graph_inputs(module, inputs, traced)  # type: ignore[no-any-return]
    return traced(module, inputs)


def decompositions(rest: str) -> Mapping[Any, Any]:
    """Decompositions before noyau sees a graph: inductor's own; with eager none, so that a node that no kernel covers
    runs as one kernel of torch's. noyau imports composites through their bodies."""
    if rest == "eager":
        return {}
    from torch._inductor import lowering  # noqa: F401  select_decomp_table needs it and does not import it
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()  # type: ignore[no-any-return]


log = logging.getLogger("noyau")


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **others: Any
) -> Run:
    """A graph that dynamo captured, as a function that computes the same, gradients too.

    `options` are the fields of noyau.jobs.optimize.torch.options.CompileOptions: rest="eager" or "inductor",
    against="eager" or "inductor", budget_s=60, keep="faster". InputError for an unknown option or an invalid value."""
    wishes = options_from({**(options or {}), **others})
    if wishes.calibration is not None:
        raise InputError("a calibration is for noyau.optimize: torch.compile takes what its first call is given")
    return compile_captured(module, inputs, wishes, GraphRecord(forgets=True))


def or_else(
    compiled: Callable[[], Result],
    left: Callable[[str], Result],
    limit_s: float = math.inf,
    dynamos: tuple[type[Exception], ...] = (),
) -> Result:
    """A result of `compiled`, within a time limit; if that is refused, fails or takes longer, one of `left`, by which
    torch runs the graph, with a warning that states the reason. `dynamos`: exceptions that are left to dynamo."""
    try:
        with time_limit(limit_s):
            return compiled()
    except (UnsupportedError, BuildError) as refusal:
        reason = str(refusal)
    except TimeIsUp:
        reason = f"its kernels take over {limit_s:g} s; the option limit_s gives them longer"
    except (TorchDynamoException, *dynamos):
        raise
    except Exception as fault:  # of any class: torch can run the graph instead
        log.debug("a fault while a graph was compiled", exc_info=True)
        line = " ".join(str(fault).split())[:_LINE]
        reason = f"{type(fault).__name__}: {line}. {REPORT}"
    warnings.warn(f"noyau leaves this graph to torch: {reason}", RuntimeWarning, stacklevel=2)
    return left(reason)


def compile_captured(module: fx.GraphModule, inputs: Sequence[Any], wishes: CompileOptions, record: GraphRecord) -> Run:
    """Compile as `backend`; the outcome of each graph goes to `record`. A failure leaves all graphs to torch, except
    data-dependent shapes: there dynamo breaks the graph in two, and calls this again for each."""
    few = _in_few_bits(module, inputs, wishes, record)

    def compiled(arguments: Sequence[Any], wishes: CompileOptions, record: GraphRecord) -> Run:
        if few is None or few.module is None or PRODUCTS in record.dropped:
            return _compile_graphs(module, arguments, wishes, record)
        record.gains[PRODUCTS] = few.gain_s
        return few.around(_compile_graphs(few.module, few.pick(arguments), wishes, record), module.forward)

    dynamos = exceptions_allowed_to_be_fallback
    run: Run = or_else(partial(compiled, inputs, wishes, record), lambda _: module.forward, dynamos=dynamos)
    if not record.forgets:  # noyau.optimize times the module itself
        return time_wall_once(run, record.walls.append, lambda: record.measures)

    def again(dropped: Mapping[str, str], arguments: Sequence[Any]) -> tuple[Run, Mapping[str, float]]:
        fewer = GraphRecord(forgets=True, dropped=dropped)
        return compiled(arguments, replace(wishes, prompt=False), fewer), fewer.gains

    is_dynamic = is_symbolic(inputs)  # compiled again it would be specialised to the sizes of one call
    is_odd = not all(isinstance(each, _FLAT) for each in inputs) or (is_dynamic and wishes.rival != "eager")
    rival = partial(executor.RIVALS[wishes.rival], module)
    if wishes.keep != "all" and run != module.forward and not is_odd:
        run = JudgedGraph(run, rival, None if is_dynamic else again, record.gains, wishes.tell)
    elif is_odd:
        taken = "what is no tensor, or sizes that are names, which inductor is not given"
        wishes.tell(f"not timed as a whole: it takes {taken}")
    # If torch runs it in the end, a lost device is still reported with noyau's error.
    return torch._dynamo.disable(executor.with_device_errors(run))  # type: ignore[no-any-return]


def _in_few_bits(
    module: fx.GraphModule, inputs: Sequence[Any], wishes: CompileOptions, record: GraphRecord
) -> FewBits | None:
    """The graph with kernels for products of few rows, from an earlier attempt or a new search; None on the CPU unless
    the options ask for it, or if the search fails."""
    if wishes.weights == "none" and not any(getattr(each, "is_cuda", False) for each in inputs):
        return None
    from noyau.jobs.optimize.torch.weights import TorchWeightStage, key_of_graph  # imports Triton, for a GPU alone

    key = key_of_graph(module, inputs)
    stage = TorchWeightStage(module, inputs, wishes.weights, wishes.budget, record.calibration.get(key, ()))
    few = record.weights.get(key) or or_else(stage.run, lambda _: None, wishes.limit_s)
    if few is None:
        return None
    record.weights[key] = few
    attended = sum(isinstance(each.products, RowAttention) for each in few.kept)
    words = f"{several(len(few.kept) - attended, 'launch')} of products of few rows"
    words += f", attention of few rows in {several(attended, 'place')}" if attended else ""
    if wishes.weights != "none":
        chosen = few.record
        moved = f"the outputs move by {chosen.error:.2g} of the largest, {chosen.flips} of {chosen.rows} tokens flip"
        words = f"{words}, {len(chosen.changed)} with weights in few bits; {chosen.reason or moved}"
    if few.kept or wishes.weights != "none":
        wishes.tell(words)
    return few


def _compile_graphs(module: fx.GraphModule, inputs: Sequence[Any], wishes: CompileOptions, record: GraphRecord) -> Run:
    on_gpu = any(getattr(each, "is_cuda", False) for each in inputs)
    graph_corrections.fold_masks(module)
    if on_gpu:
        COMPILER.start()
    waits = not (on_gpu and may_wait(wishes, record)) or is_symbolic(inputs)
    if not waits:
        begin()
    with contextlib.ExitStack() as stack:
        early = AheadOfTime(wishes, log.info, reasons=not record.forgets, on_gpu=on_gpu, waits=waits)
        ahead = stack.enter_context(early)
        if on_gpu:  # memory of the host is not scarce there
            stack.enter_context(without_collections())

        def partition(*args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
            forward, backward = cut_in_two(*args, **kwargs)
            if not on_gpu:
                gc.collect()  # the joint graph, and the network of the minimum cut, are in reference cycles
            for graph in (forward.graph, backward.graph):
                ahead.begin(graph)
            return forward, backward

        compiler = GraphCompiler(wishes, record, ahead)
        return trace_with_autograd(module, inputs, compiler.compile, decompositions(wishes.rest), partition)


@dataclass(frozen=True, slots=True)
class GraphCompiler:
    """Compiler of the graphs of one captured module. `ahead`: work begun ahead of time; `hosts`: the graphs without
    kernels so far, each cut on its host; or why torch runs it, and "" if it is not cut yet."""

    wishes: CompileOptions
    record: GraphRecord
    ahead: AheadOfTime | None = None
    hosts: dict[fx.GraphModule, TorchHost | CudaHost | str] = field(default_factory=dict)

    def compile(self, module: fx.GraphModule, inputs: Sequence[Any], kind: str) -> Boxed:
        """A graph of ATen operators as a function of a list of tensors, which it empties: noyau's kernels where they
        are right and win, the rest as the options say."""
        simplification.fill_zeros(module.graph)  # of inference
        simplification.place_constants(module)
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        tangents = [at for at, name in enumerate(names) if name.startswith("tangents")]
        if is_prompt(module.graph, self.wishes, self.record):
            self.hosts[module] = ""
            run = compile_lazily(module, lambda: replace(self, ahead=None).compile_now(module, (), kind))
        else:
            run = self.compile_now(module, inputs, kind)
        return executor.in_memory_at(tangents, run) if tangents else run

    def compile_now(self, module: fx.GraphModule, inputs: Sequence[Any], kind: str) -> Boxed:
        """Compile as `compile`, with kernels at once."""
        on_gpu = modules_sites.device_of(module.graph) != modules_sites.CPU
        try:
            with contextlib.ExitStack() as stack:
                how = {"reasons": not self.record.forgets, "on_gpu": on_gpu}
                ahead = self.ahead or stack.enter_context(AheadOfTime(self.wishes, log.info, **how))
                if ahead.closed:  # torch may ask for a backward late: processes started for it end here
                    stack.callback(ahead.certification.__exit__)
                for each in (module, *self.hosts):  # the others, while the launches of this module are compiled
                    if not self.hosts.get(each):
                        self.hosts[each] = or_else(partial(self._host_of, each, ahead), str, self.wishes.limit_s)
                return self._compile(module, inputs, kind)
        finally:
            ranges.forget()
            if not on_gpu:  # with a GPU, memory of the host is not scarce
                gc.collect()  # torch's graphs are in reference cycles
                give_back()

    def _host_of(self, module: fx.GraphModule, ahead: AheadOfTime) -> TorchHost | CudaHost:
        graph_corrections.correct_dtypes(module.graph)
        if modules_sites.device_of(module.graph) != modules_sites.CPU:
            simplification.simplify(module.graph)
        with _disable_current_modes():  # torch is tracing, and tensors in its modes would have no cells
            return host_of(module.graph, self.wishes, ahead, self.wishes.rest == "inductor")

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any], kind: str) -> Boxed:
        wishes, host, run = self.wishes, self.hosts.pop(module), runner(module.graph, self.wishes)

        def install(host: TorchHost | CudaHost) -> tuple[CompiledGraph, fx.GraphModule]:
            with _disable_current_modes():
                graph, swaps = optimize_graph(host, kind, self.record.dropped)
            return graph, fx.GraphModule(module, rewrite(module.graph, swaps)) if swaps else module

        def left(reason: str) -> tuple[CompiledGraph, fx.GraphModule]:
            return CompiledGraph(kind, None, Partition((), ()), Plan(()), whole=reason), module

        graph, program = left(host) if isinstance(host, str) else or_else(partial(install, host), left, wishes.limit_s)
        self.record.tell(graph)
        on_gpu = modules_sites.device_of(module.graph) != modules_sites.CPU
        if wishes.rest == "eager" and (on_gpu or wishes.weights != "none"):  # inductor needs registered operators
            from noyau.hosts.torch.modules.row_products import launch_products

            launch_products(program)
        return run(program, inputs)


class LazyCompile:
    """A function of a list of tensors, which it empties. In the first call, and while another thread compiles this or
    another graph, the nodes run one by one on torch's kernels; from the second call on, the result of `compiled` runs.
    Nothing is compiled while a CUDA graph is captured: the capture has torch's kernels."""

    def __init__(self, module: fx.GraphModule, compiled: Callable[[], Boxed]) -> None:
        self.plain: Boxed | None = eager(fx.GraphModule(module, copy_graph(module.graph)), [])
        self.compiled: Callable[[], Boxed] | None = compiled
        self.known: Boxed | None = None
        self.is_begun = False
        self.device = modules_sites.device_of(module.graph)

    def __call__(self, arguments: list[Any]) -> Any:
        plain = self.plain  # read before `known`: then one of them is not None, whatever other threads do
        known = self.known
        if known is None and not torch.cuda.is_current_stream_capturing() and _ONE.acquire(blocking=False):
            try:
                with beside_captures(), without_collections():
                    known = self.now()
            finally:
                _ONE.release()
        run = known or plain
        assert run is not None
        return run(arguments)

    def now(self) -> Boxed | None:
        """Compile once; None in the first call."""
        if not self.is_begun:
            self.is_begun = True
        elif self.known is None:
            assert self.compiled is not None
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # earlier work ends before kernels are timed
            self.known = self.compiled()
            self.plain = self.compiled = None  # they hold the graph
        return self.known


def begin() -> None:
    """Load the modules, digests and Triton that the second call needs, while the first is traced; not while a CUDA
    graph is captured, which the driver would end."""

    def early() -> None:
        with contextlib.suppress(Exception):  # the next use reports the error
            prepare()
            from noyau.jobs.optimize.cuda import host  # noqa: F401  takes a second
        begin_triton()

    if not torch.cuda.is_current_stream_capturing():
        Thread(target=early, daemon=True).start()


def compile_lazily(module: fx.GraphModule, compiled: Callable[[], Boxed]) -> Boxed:
    """A `LazyCompile` in the form that AOTAutograd accepts."""
    result = LazyCompile(module, compiled)
    run = with_device_errors(result)
    run.prompt = result  # type: ignore[attr-defined]
    return run


def is_prompt(program: fx.Graph, wishes: CompileOptions, record: GraphRecord) -> bool:
    """Whether the first result of a graph does not wait for its kernels: on a GPU, if nobody reads the record."""
    return modules_sites.device_of(program) != modules_sites.CPU and may_wait(wishes, record) and is_static(program)


def may_wait(wishes: CompileOptions, record: GraphRecord) -> bool:
    """Whether kernels of a GPU may come after a graph's first result."""
    return wishes.prompt and wishes.rest == "eager" and record.forgets
