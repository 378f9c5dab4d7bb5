"""A traced graph as a program: kernels, and library calls between them (a matrix product).

Two kernels may be joined into one, which reads their common operands once and is launched once."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from noyau.codegen.language import Schedule
from noyau.compiler.lowering.input_layouts import with_strides
from noyau.compiler.lowering.names import Names
from noyau.compiler.lowering.nest import lower
from noyau.compiler.lowering.values import guards
from noyau.compiler.partition.cut import Group, Model, ModelOperator, Speller, partition
from noyau.compiler.partition.recomputation import repeat_cheap
from noyau.compiler.passes.cleanup import compose_views, drop_unused, fold_constants, merge_equal
from noyau.compiler.passes.normal_form import own_sizes
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options, schedule
from noyau.compiler.schedules.primitives import in_turn
from noyau.errors import UnsupportedError
from noyau.ir.dims import indices
from noyau.ir.graph import Constant, Contract, Graph, Input, Map, Node, Scatter, View, downstream
from noyau.ir.graph_verifier import check
from noyau.ir.loops import Buffer, Kernel, Let, Role
from noyau.ir.sizes import Sizes
from noyau.ir.walk import every_statement
from noyau.kernels.programs.libraries import contract, einsum_of, prepare, slopes_of

Lowered: TypeAlias = tuple[Kernel, Graph]  # a kernel before its schedule, and the graph that it computes
StepRun: TypeAlias = Callable[[list[Any], Sizes], Sequence[Any]]  # operands and sizes -> results
Joining: TypeAlias = Callable[[Kernel, Kernel, Collection[str]], Kernel | None]
KEPT_SHAPES = 64  # tuples of shapes whose sizes a program memoises


def join(parts: Sequence[Lowered], tidy: Graph, joining: Joining) -> list[Lowered]:
    """Merge pairs of kernels that `joining` can fuse; it is passed the outputs of the first that others need.
    Two stay apart if one of them depends on the other through a third step."""
    rest = list(parts)
    for one in parts:
        for other in parts:
            if one in rest and other in rest and one is not other and not _is_between(one, other, tidy):
                # The values of the first that steps other than the second need
                read = {node.output for part in rest if part is not other for node in part[1].inputs}
                computed = {node.output for part in rest for node in part[1].nodes if not isinstance(node.kind, Input)}
                library = {name for node in tidy.nodes if node.output not in computed for name in node.inputs}
                merged = joining(one[0], other[0], {*tidy.outputs, *read, *library} & set(one[1].outputs))
                if merged is not None:
                    rest[rest.index(one)] = merged, _graph_of(merged, tidy)
                    rest.remove(other)
    return rest


def _is_between(one: Lowered, other: Lowered, tidy: Graph) -> bool:
    """Whether a third step between `one` and `other` depends on `one`, or `one` depends on `other`."""
    needs, inputs = ({node.output for node in part[1].inputs} for part in (other, one))
    outputs = set(one[1].outputs)
    return bool((needs - outputs) & downstream(tidy, outputs)) or bool(inputs & downstream(tidy, other[1].outputs))


def _graph_of(kernel: Kernel, tidy: Graph) -> Graph:
    """The graph of a kernel, its inputs and outputs in the kernel's order."""
    inputs = [replace(tidy[b.source], kind=Input(), inputs=()) for b in kernel.of(Role.INPUT)]
    outputs, names = tuple(b.source for b in kernel.of(Role.OUTPUT)), {node.output for node in inputs}
    rest: dict[str, Node] = {}

    def enter(name: str) -> None:
        if name not in names and name not in rest:
            for operand in tidy[name].inputs:
                enter(operand)
            rest[name] = tidy[name]

    for name in outputs:
        enter(name)
    return Graph((*inputs, *rest.values()), outputs)


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A scheduled kernel, the graph that it computes with operands in its order, and the kernel before its schedule."""

    kernel: Kernel
    graph: Graph
    lowered: Kernel


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """A library call: one node, with views of it or of its operands. `reason`: why it is no kernel."""

    graph: Graph
    reason: str


Step: TypeAlias = KernelStep | LibraryStep


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order; `graph`: the graph that they compute, with inputs and outputs in the order of a call. `cuts`:
    pairs of values that no common kernel computes, as text, each with the reason."""

    graph: Graph
    steps: tuple[Step, ...]
    cuts: tuple[tuple[str, str], ...] = ()

    @property
    def kernel_steps(self) -> tuple[KernelStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, KernelStep))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(step.kernel for step in self.kernel_steps)

    @property
    def single(self) -> Kernel | None:
        """The only kernel, if it takes the inputs of a call and makes all its outputs, in order; else None."""
        return None if self.constants else self.only

    @property
    def only(self) -> Kernel | None:
        """The only kernel, if it takes the inputs of a call, then `constants`, and makes all its outputs, in order."""
        match self.steps:
            case (KernelStep(kernel, graph),) if graph.inputs[: len(self.graph.inputs)] == self.graph.inputs:
                return kernel if graph.outputs == self.graph.outputs else None
            case _:
                return None

    @property
    def constants(self) -> list[np.ndarray]:
        """The constants that steps take, in order."""
        kinds = [self.graph[node.output].kind for step in self.steps for node in step.graph.inputs]
        return [kind.value for kind in kinds if isinstance(kind, Constant)]


def by_numpy(graph: Graph) -> StepRun:
    """A function that runs a library step by NumPy."""
    inputs = [node.output for node in graph.inputs]  # only one if an array is multiplied by itself
    match einsum_of(graph):
        case (equation, names, dtype) if dtype.compute is dtype:
            at = [inputs.index(name) for name in names]
            return lambda arrays, sizes: [contract(equation, [arrays[k] for k in at], dtype.numpy)]
        case _:
            run = prepare(graph)
            return lambda arrays, sizes: [run(arrays, sizes)]


class ProgramRunner:
    """Executor of a program on arrays or tensors of its layouts; InputError where their shapes do not fit. `kernels`:
    the calls of its kernels; `library` makes the call of a library step, `constant` the operand of a constant."""

    def __init__(
        self,
        program: Program,
        kernels: Iterable[StepRun],
        library: Callable[[Graph], StepRun] = by_numpy,
        constant: Callable[[np.ndarray], Any] = np.asarray,
    ) -> None:
        names = [node.output for node in program.graph.inputs]
        self.solve = solver(program.graph)
        constants = {n.output: n.kind.value for n in program.graph.nodes if isinstance(n.kind, Constant)}
        results = [name for step in program.steps for name in step.graph.outputs]
        places = {name: at for at, name in enumerate(dict.fromkeys([*names, *constants, *results]))}
        self.room = [None] * (len(places) - len(names))
        self.constants = [(places[name], constant(value)) for name, value in constants.items()]
        calls = iter(kernels)
        self.steps = [
            (
                next(calls) if isinstance(step, KernelStep) else self.library_call(step.graph, program, library),
                [places[node.output] for node in step.graph.inputs],
                [places[name] for name in step.graph.outputs],
            )
            for step in program.steps
        ]
        self.results = [places[name] for name in program.graph.outputs]

    def library_call(self, graph: Graph, program: Program, library: Callable[[Graph], StepRun]) -> StepRun:
        """A library call; a result that depends on sizes alone and is no output of the program is memoised."""
        call = library(graph)
        if graph.inputs or {*graph.outputs} & {*program.graph.outputs}:
            return call
        last: tuple[Sizes, Sequence[Any]] = {}, ()

        def again(arrays: list[Any], sizes: Sizes) -> Sequence[Any]:
            nonlocal last
            known, values = last
            if known != sizes or not values:
                values = call(arrays, sizes)
                last = sizes, values
            return values

        return again

    def __call__(self, *arrays: Any) -> list[Any]:
        sizes = self.solve(arrays)
        values: list[Any] = [*arrays, *self.room]
        for place, value in self.constants:
            values[place] = value
        for call, reads, writes in self.steps:
            for place, result in zip(writes, call([values[place] for place in reads], sizes), strict=True):
                values[place] = result
        return [values[place] for place in self.results]


def solver(graph: Graph) -> Callable[[Sequence[Any]], Sizes]:
    """A function that binds the sizes to arrays in the order of the inputs. InputError where they do not fit."""
    known: dict[tuple[Any, ...], Sizes] = {}  # by shapes, since checking every demand takes longer than a kernel

    def solve(arrays: Sequence[Any]) -> Sizes:
        shapes = tuple([tuple(array.shape) for array in arrays])
        sizes = known.get(shapes)
        if sizes is None:
            sizes = graph.bind(shapes)
            if len(known) >= KEPT_SHAPES:
                known.clear()
            known[shapes] = sizes
        return sizes

    return solve


def program(
    graph: Graph,
    name: str,
    strided: Mapping[str, str] | None = None,
    options: Schedule = USUAL,
    *,
    text_of: Speller | None = None,
    joining: Joining | None = None,
) -> Program:
    """The program of a graph, whose kernels are named after `name`. `strided`: layouts of inputs, as for `lower`;
    `text_of`: the `speller` of `partition`; `joining`: makes one kernel of two, or none.

    UnsupportedError where the operands of a kernel do not determine its sizes."""
    graph = merge_equal(fold_constants(graph))
    nodes = [replace(n, kind=View(indices(len(n.shape)))) if n.kind == Map("identity") else n for n in graph.nodes]
    viewed = compose_views(replace(graph, nodes=tuple(nodes)))
    rest = [node for node in drop_unused(viewed).nodes if not isinstance(node.kind, Input)]
    live = replace(viewed, nodes=(*viewed.inputs, *rest))  # every input stays
    tidy = check(own_sizes(repeat_cheap(_scatters_as_outputs(live))))
    groups_and_cuts = partition(_as_model(tidy), alone_too=True, speller=text_of)
    groups = [group for group in groups_and_cuts.groups if not _is_seen_by_library(group, tidy, groups_and_cuts.groups)]
    if len(groups) == 1 and _is_whole(groups[0], tidy):
        alone = _lower_group(groups[0], tidy, name, strided or {}, whole=True)
        return Program(tidy, (KernelStep(schedule_kernel(alone[0], options), alone[1], alone[0]),))
    names = Names(node.output for node in tidy.nodes) if isinstance(options, Options) else None
    lowered = [_lower_group(group, tidy, f"{name}_{k}", strided or {}, names) for k, group in enumerate(groups)]
    places = [node.output for node in _computed_nodes(tidy)]
    reasons = {places[cut.producer]: cut.reason for cut in groups_and_cuts.cuts if cut.consumer is None}
    cuts = [(places[c.producer], places[c.consumer], c.reason) for c in groups_and_cuts.cuts if c.consumer is not None]
    library = _library_steps(tidy, groups, reasons)
    reasons_of_pairs = tuple(dict.fromkeys((f"{one}, {other}", reason) for one, other, reason in cuts))
    steps = [
        replace(step, kernel=schedule_kernel(step.kernel, options)) if isinstance(step, KernelStep) else step
        for step in _arrange(lowered, library, tidy, joining)
    ]
    joined = steps if names is None else _as_one(steps, tidy, name, names, strided or {}, options)
    return Program(tidy, tuple(joined), reasons_of_pairs)


def _as_one(
    steps: list[Step], tidy: Graph, name: str, names: Names, strided: Mapping[str, str], options: Schedule
) -> list[Step]:
    """Merge all steps into one kernel, whose operands are the inputs of the program, then constants: one call runs it.
    Steps with a library call that has operands stay as they are."""
    if any(isinstance(step, LibraryStep) and step.graph.inputs for step in steps):
        return steps
    kernels = list[KernelStep]()
    for at, step in enumerate(steps):
        if isinstance(step, LibraryStep):
            lowered = lower(step.graph, f"{name}_{at}", None, names)
            step = KernelStep(schedule_kernel(lowered, options), step.graph, lowered)
        kernels.append(step)
    read = {node.output for step in kernels for node in step.graph.inputs}
    inputs = [*tidy.inputs, *(node for node in tidy.nodes if isinstance(node.kind, Constant) and node.output in read)]
    ends = [*((node, Role.INPUT) for node in inputs), *((tidy[value], Role.OUTPUT) for value in tidy.outputs)]
    buffers = [Buffer(names.of(node.output), node.dtype, node.shape, role, node.output) for node, role in ends]
    parts = [step.kernel for step in kernels], [step.lowered for step in kernels]
    joined = [in_turn(name, each, buffers, lambda value: tidy[value].shape) for each in parts]
    checks, sizes = guards(Graph(tidy.inputs, (), tidy.demands)), {b.size for s in kernels for b in s.kernel.binding}
    match [with_strides(replace(each, guards=(*checks, *each.guards)), strided) for each in joined if each is not None]:
        case [kernel, whole] if sizes <= {binding.size for binding in kernel.binding}:
            return [KernelStep(kernel, replace(_graph_of(kernel, tidy), demands=tidy.demands), whole)]
        case _:
            return steps


def _arrange(lowered: Sequence[Lowered], library: Sequence[Step], tidy: Graph, joining: Joining | None) -> list[Step]:
    """Order unscheduled kernels and library calls, with kernels merged by `joining`. If the merges make a cycle, which
    two merges can do even if each alone does not, no kernels are merged."""

    def ordered(kernels: Sequence[Lowered]) -> list[Step]:
        return _in_order([*(KernelStep(kernel, graph, kernel) for kernel, graph in kernels), *library], tidy)

    if joining is not None:
        with suppress(UnsupportedError):
            return ordered(join(lowered, tidy, joining))
    return ordered(lowered)


def _scatters_as_outputs(graph: Graph) -> Graph:
    """The graph with each Scatter renamed to the output that is an identity view of it, if nothing else reads it. A
    kernel with a Scatter contains nothing else, so the view would be a copy."""
    names = dict[str, str]()
    for node in graph.nodes:
        if node.output in graph.outputs and node.kind == View(indices(len(node.shape))):
            source = graph[node.inputs[0]]
            if isinstance(source.kind, Scatter) and source.shape == node.shape and _is_alone(graph, source.output):
                names[source.output] = node.output
    shown = set(names.values())
    nodes = [replace(n, output=names.get(n.output, n.output)) for n in graph.nodes if n.output not in shown]
    return replace(graph, nodes=tuple(nodes))


def _is_alone(graph: Graph, name: str) -> bool:
    """Whether a value is read exactly once and is no output."""
    return sum(node.inputs.count(name) for node in graph.nodes) == 1 and name not in graph.outputs


def _as_model(graph: Graph) -> Model:
    """The graph as a Model for the partition, in which each node is an operator."""
    nodes = _computed_nodes(graph)
    places = [ModelOperator(at, _kind_name(node), node.inputs, (node.output,)) for at, node in enumerate(nodes)]
    return Model(graph, places, {node.output: at for at, node in enumerate(nodes)}, frozenset(), {})


def _computed_nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if not isinstance(node.kind, Input | Constant)]


def _kind_name(node: Node) -> str:
    return type(node.kind).__name__.lower()


def schedule_kernel(kernel: Kernel, options: Schedule) -> Kernel:
    """Schedule a kernel by a language's options, or by its own schedule."""
    return schedule(kernel, options) if isinstance(options, Options) else options(kernel)


def _lower_group(
    group: Group, tidy: Graph, name: str, strided: Mapping[str, str], names: Names | None = None, *, whole: bool = False
) -> Lowered:
    # Put back the scalar constants that the normal form has made inputs.
    nodes = [
        tidy[node.output] if isinstance(node.kind, Input) and _is_number(tidy, node.output) else node
        for node in group.graph.nodes
    ]
    graph = replace(group.graph, nodes=tuple(nodes))
    # Order the inputs as in the whole graph; with `whole`, keep unused ones too.
    own = {node.output: node for node in graph.inputs}
    inputs = [own.get(node.output, node) for node in tidy.inputs if whole or node.output in own]
    inputs += [node for name, node in own.items() if not isinstance(tidy[name].kind, Input)]
    graph = replace(graph, nodes=(*inputs, *(node for node in graph.nodes if not isinstance(node.kind, Input))))
    if whole:
        graph = replace(graph, outputs=tidy.outputs, demands=tidy.demands)
    layouts = {node.output: strided[node.output] for node in graph.inputs if node.output in strided}
    kernel = lower(graph, name, layouts, names)
    for statement in every_statement([s for launch in kernel.launches for s in launch.body]):
        if names is not None and isinstance(statement, Let):
            names.of(statement.name)  # no other kernel of the program has memory of this name
    return kernel, graph


def _is_number(graph: Graph, name: str) -> bool:
    """Whether a value is a scalar constant, which may be printed as a literal."""
    kind = graph[name].kind if name in graph.by_name else None
    return isinstance(kind, Constant) and kind.value.size == 1


def _is_whole(group: Group, tidy: Graph) -> bool:
    """Whether a group reads only inputs of the program and makes all its outputs."""
    reads_inputs = all(isinstance(tidy[n.output].kind, Input) or _is_number(tidy, n.output) for n in group.graph.inputs)
    return reads_inputs and set(tidy.outputs) <= set(group.outputs)


def _is_seen_by_library(group: Group, tidy: Graph, groups: Sequence[Group]) -> bool:
    """Whether a group is only strided views that no other kernel reads, and those of outputs are of fresh results."""
    for node in _computed_nodes(group.graph):
        if not isinstance(node.kind, View) or slopes_of(node.kind.index, len(node.shape)) is None:
            return False
    read = {node.output for other in groups for node in other.graph.inputs}
    outputs = {name for other in groups for name in other.outputs}
    own = all(_is_fresh(tidy, name, outputs) for name in group.outputs if name in tidy.outputs)
    return own and not read.intersection(group.outputs)


def _is_fresh(tidy: Graph, name: str, outputs: Collection[str]) -> bool:
    """Whether a value is, or is a view of, a library result that nothing else uses."""
    while isinstance(tidy[name].kind, View):
        name = tidy[name].inputs[0]
        if not _is_alone(tidy, name):
            return False
    return name not in outputs and not isinstance(tidy[name].kind, Input | Constant)


def _library_steps(tidy: Graph, groups: Iterable[Group], reasons: Mapping[str, str]) -> list[Step]:
    """A step for each needed value that no kernel makes; views belong to the step that reads them."""
    outputs = {name for group in groups for name in group.outputs}
    names = [*tidy.outputs, *(node.output for group in groups for node in group.graph.inputs)]
    steps: dict[str, Step] = {}
    while names:
        name = names.pop()
        if name in outputs or name in steps or isinstance(tidy[name].kind, Input | Constant):
            continue
        graph, reason = _with_views(tidy, name, outputs), "a product of matrices is a call of BLAS"
        if not isinstance(tidy[name].kind, Contract):
            reason = reasons.get(name, f"{_kind_name(tidy[name])} is left to NumPy")
        steps[name] = LibraryStep(graph, reason)
        names += [node.output for node in graph.inputs]
    return list(steps.values())


def _with_views(tidy: Graph, name: str, outputs: Collection[str]) -> Graph:
    """The graph of one node, with the views and constants that it reads; values of other steps are its inputs."""
    nodes: dict[str, Node] = {}

    def enter(value: str, *, inside: bool) -> None:
        node = tidy[value]
        is_view = isinstance(node.kind, View) and value not in outputs
        if not inside and not is_view and not isinstance(node.kind, Constant):
            node = replace(node, kind=Input(), inputs=())
        for operand in node.inputs:
            enter(operand, inside=inside and is_view)
        nodes.setdefault(value, node)

    enter(name, inside=True)
    return drop_unused(Graph(tuple(nodes.values()), (name,)))


def _in_order(parts: Sequence[Step], tidy: Graph) -> list[Step]:
    """The steps in topological order. UnsupportedError where they depend on each other in a cycle."""
    names = {node.output for node in tidy.nodes if isinstance(node.kind, Input | Constant)}
    rest, ordered = list(parts), list[Step]()
    while rest:
        ready = next((s for s in rest if {node.output for node in s.graph.inputs} <= names), None)
        if ready is None:
            raise UnsupportedError("its kernels need each other's results")
        rest.remove(ready)
        ordered.append(ready)
        names |= set(ready.graph.outputs)
    return ordered
