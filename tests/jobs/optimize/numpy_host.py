"""Plain NumPy as a host of the pipeline: all that a fourth host costs. Support for tests.

A function of arrays is traced into a graph, which NumPy runs node by node; kernels take the place of groups of nodes,
and what is installed is a callable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from noyau.codegen import plan as codegen_plan
from noyau.codegen.plan import Plan, PlannedKernel
from noyau.compiler.partition.cut import Group, Model, ModelOperator, Partition, partition, scalars_of
from noyau.compiler.partition.traffic import traffic
from noyau.dtypes import from_numpy
from noyau.frontends.numpy.trace import follow
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Graph, Input, Node
from noyau.ir.graph_interpreter import Evaluator, evaluate
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, Optimization, Sizes, attempt, certify
from noyau.jobs.optimize.record import Report, not_fused, record, uncovered_nodes
from noyau.kernels.certificates import CertificateTask, judge
from noyau.timing.comparison import compare
from noyau.timing.machine import this_machine
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.verify.adversarial import SMOKE
from noyau.verify.failures import Case

Array = np.ndarray
Arrays = Mapping[str, Array]


def kernel_of(candidate: Candidate, group: Group) -> Callable[[Arrays], dict[str, Array]]:
    """A built kernel in one of its places, as a function of the values that it reads there."""
    assert candidate.library is not None
    native = Native(candidate.library, f"{candidate.planned.operator}_kernel")
    scalars = scalars_of(group)

    def call(values: Arrays) -> dict[str, Array]:
        return dict(zip(group.outputs, native(*({**values, **scalars}[name] for name in group.inputs)), strict=True))

    return call


@dataclass(frozen=True, slots=True)
class NumpyBench:
    """The clock of a function at some sizes; `values` are all that flow through it there."""

    sizes: Sizes
    values: Arrays
    budget_s: float

    def timing(self, candidate: Candidate) -> BindingTiming:
        """The kernel in its first place against NumPy's own run of the nodes there."""
        group = candidate.planned.groups[0]
        read = {node.output: self.values[node.output] for node in group.original.inputs}
        kernel = kernel_of(candidate, group)
        found = compare(lambda: evaluate(group.original, read), lambda: kernel(read), budget_s=self.budget_s)
        return BindingTiming(self.sizes, found, None, traffic(group.graph, dict(self.sizes)))


@dataclass(frozen=True, slots=True)
class Fused:
    """What is installed: the function, its kept kernels in the place of their nodes."""

    graph: Graph
    kernels: Sequence[tuple[Group, Callable[[Arrays], dict[str, Array]]]]

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        values = dict(zip((node.output for node in self.graph.inputs), arrays, strict=True))
        sizes = self.graph.bind([array.shape for array in arrays])
        steps = list(self._steps(values, Evaluator(False, sizes)))
        while steps:  # whatever has all that it reads goes first
            ready = [step for step in steps if values.keys() >= set(step[0])]
            steps = [step for step in steps if step not in ready]
            for _, run in ready:
                values |= run()
        return tuple(values[name] for name in self.graph.outputs)

    def _steps(
        self, values: Arrays, numpy: Evaluator
    ) -> Iterator[tuple[Sequence[str], Callable[[], dict[str, Array]]]]:
        covered = {position for group, _ in self.kernels for position in group.positions}
        for group, kernel in self.kernels:
            scalars = scalars_of(group)
            yield [name for name in group.inputs if name not in scalars], lambda kernel=kernel: kernel(values)
        for position, node in enumerate(computed(self.graph)):
            if position not in covered:
                yield node.inputs, lambda node=node: run_node(node, values, numpy)
        for node in self.graph.nodes:
            if isinstance(node.kind, Constant):
                yield (), lambda node=node: run_node(node, values, numpy)


def run_node(node: Node, values: Arrays, numpy: Evaluator) -> dict[str, Array]:
    """One node, by NumPy."""
    return {node.output: numpy.value(node, [values[name] for name in node.inputs], values)}


def computed(graph: Graph) -> list[Node]:
    """The nodes that compute something: the places of the partition."""
    return [node for node in graph.nodes if not isinstance(node.kind, Input | Constant)]


@dataclass(slots=True)
class NumpyHost:
    """A function of arrays, whose axes have names; `make` draws its inputs at some sizes, `rounds` are those to time
    at."""

    function: Callable[..., object]
    axes: Mapping[str, tuple[str, ...]]
    make: Callable[[Sizes], Arrays]
    rounds: Sequence[Sizes]
    budget_s: float = 0.02
    spoil: Callable[[PlannedKernel], PlannedKernel] = lambda planned: planned  # of tests: kernels that are wrong
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        drawn = self.make(self.rounds[0])
        inputs = [
            Node(name, Input(), (), from_numpy(drawn[name].dtype), tuple(map(Dim.of, axes)))
            for name, axes in self.axes.items()
        ]
        self.graph = follow(self.function, inputs, None, {}).graph

    @property
    def operators(self) -> list[str]:
        return [getattr(node.kind, "function", type(node.kind).__name__.lower()) for node in computed(self.graph)]

    def plan(self) -> tuple[Partition, Plan]:
        nodes = computed(self.graph)
        places = [ModelOperator(at, self.operators[at], node.inputs, (node.output,)) for at, node in enumerate(nodes)]
        model = Model(self.graph, places, {node.output: at for at, node in enumerate(nodes)}, frozenset(), {})
        cut = partition(model)
        plan = codegen_plan.plan(cut.groups, self.operators, c_compiler.level())
        return cut, replace(plan, kernels=tuple(map(self.spoil, plan.kernels)))

    def certify(self, kernels: Sequence[PlannedKernel]) -> list[Candidate]:
        values = self.values(self.rounds[0])
        return [self._certified(kernel, values) for kernel in kernels]

    def _certified(self, kernel: PlannedKernel, values: Arrays) -> Candidate:
        candidate, group = Candidate(kernel), kernel.groups[0]
        library = c_compiler.compile_library
        candidate = attempt(lambda: replace(candidate, library=library([kernel.text])), candidate, "does not build")
        read = Case("captured", tuple(values[node.output] for node in group.original.inputs), captured=True)

        def certificate():
            ends = (group.original, group.graph, [read], dict(self.rounds[0]))
            return judge(CertificateTask(kernel.operator, candidate.library, *ends, 0, made_up=True, effort=SMOKE)), ""

        return certify(candidate, certificate)

    def values(self, sizes: Sizes) -> dict[str, Array]:
        """Every value at some sizes, by NumPy."""
        inputs = dict(self.make(sizes))
        every = replace(self.graph, outputs=tuple(node.output for node in computed(self.graph)))
        return inputs | evaluate(every, inputs)

    def bindings(self) -> Sequence[Sizes]:
        return self.rounds

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> NumpyBench:
        return NumpyBench(sizes, self.values(sizes), self.budget_s)

    def install(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Fused]:
        kept = [(each, group) for each in candidates if each.kept for group in each.planned.groups]
        return candidates, Fused(self.graph, [(group, kernel_of(each, group)) for each, group in kept])

    def report(self, outcome: Optimization[Fused]) -> Report:
        names = [f"{operator}#{position}" for position, operator in enumerate(self.operators)]
        kernels = outcome.installed.kernels
        return Report(
            this_machine(),
            self.function.__name__,
            len(names),
            len(names) - sum(len(group.positions) - 1 for group, _ in kernels),
            kernels=tuple(map(record, outcome.candidates)),
            not_fused=not_fused(uncovered_nodes(names, outcome.partition, outcome.plan)),
        )
