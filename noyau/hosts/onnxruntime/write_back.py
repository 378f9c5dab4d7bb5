"""Fused nodes put back into the model they came from; other nodes stay as they were.

A fused node is an operator of the domain "noyau" and a model-local function of the same name, whose body is the
original subgraph: with the library onnxruntime runs the kernel, without it the body.

Also the insertion of planned kernels into a model: their nodes, and the library that onnxruntime loads."""

from __future__ import annotations

import heapq
import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from noyau.codegen.cuda.printer import grid_text
from noyau.codegen.plan import GridTwin, Plan, PlannedKernel, without
from noyau.compiler.partition.cut import Group
from noyau.dtypes import DType
from noyau.errors import GraphError, ModelError
from noyau.frontends.onnx_messages import every_node, reads
from noyau.hosts.onnxruntime import function_bodies
from noyau.hosts.onnxruntime.function_bodies import DOMAIN, FunctionBody, FusedNode, ModelValues, is_own
from noyau.ir.graph import Node
from noyau.text import free_name, package_text
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cuda import compiler as cuda_compiler

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

_ELEMENTWISE = frozenset("Abs Cast Erf Exp Identity Log Neg Not Relu Sigmoid Sqrt Tanh".split())
StandIns: TypeAlias = "tuple[dict[str, str], dict[str, str]]"  # for readers that may need the dtype, and for Shape
FUNCTIONS_SINCE = 8  # the first IR version with model-local functions


def refusals(model: ModelProto, fused: Sequence[FusedNode], folder: Path | None = None) -> dict[int, str]:
    """The parts that `write_back` would refuse, by their places in `fused`, each with the reason."""
    values, views = ModelValues.of(model, folder), _views(model, fused, folder)
    # The operators of noyau's domain that no part covers
    covered = {position for part in fused for position in part.nodes}
    rest = [node for position, node in enumerate(model.graph.node) if position not in covered]
    rest += [node for function in model.functions for node in function.node]
    used = {node.op_type for node in every_node(rest) if is_own(node.domain)}
    reasons = [_name_refusal(part, used) or function_bodies.refusal(part, values) for part in fused]
    by_name = {place: reason for place, reason in enumerate(reasons) if reason}
    right = [place for place in range(len(fused)) if place not in by_name]
    by_name |= _twice_made(fused, right)
    bodies = {place: function_bodies.body_of(fused[place], views[place]) for place in right if place not in by_name}
    chosen = _choose_bodies({place: fused[place].operator for place in bodies}, bodies)
    alone = [place for place, body in bodies.items() if not _fits(body, bodies[chosen[fused[place].operator]])]
    reason = "another place of its operator reads other values from outside, so they cannot share a body"
    by_name |= dict.fromkeys(alone, reason)
    while True:  # a cycle is only known once all other parts are in
        left = [place for place in bodies if place not in by_name]
        guilty = _arrange_nodes(model, [fused[place] for place in left], [bodies[place].extras for place in left])[1]
        if guilty is None:
            return by_name
        by_name[left[guilty]] = "a path leaves it and comes back to it"


def write_back(
    model: ModelProto, fused: Sequence[FusedNode], folder: Path | None = None, domain: str = DOMAIN
) -> ModelProto:
    """The model with one node of a domain in place of each part; `model` itself is unchanged.

    A covered node whose results are still read outside stays beside the fused node. Constants and shape arithmetic
    that lose their last reader are removed. `folder`: where the model's external data lies, for onnxruntime needs small
    constants of a body in the body. GraphError where a part cannot become a node (see `refusals`)."""
    for place, reason in sorted(refusals(model, fused, folder).items()):
        raise GraphError(f"{fused[place].operator!r} cannot be put back into the model: {reason}")
    views = _views(model, fused, folder)
    bodies = {place: function_bodies.body_of(part, views[place]) for place, part in enumerate(fused)}
    chosen = _choose_bodies({place: part.operator for place, part in enumerate(fused)}, bodies)
    extras = [bodies[place].extras if bodies[chosen[part.operator]].extras else () for place, part in enumerate(fused)]
    result = deepcopy(model)
    if fused:
        ordered = _arrange_nodes(model, fused, extras)[0]
        for node in ordered:
            if is_own(node.domain) and node.op_type in chosen:
                node.domain = domain
        del result.graph.node[:]
        result.graph.node.extend(ordered)
        drop_unread(result.graph, model.graph)
        _write_types(result.graph, fused)
        _add_functions(result, {name: bodies[place] for name, place in chosen.items()}, domain)
    return result


def _views(model: ModelProto, fused: Sequence[FusedNode], folder: Path | None) -> list[ModelValues]:
    """The model as the body of each part sees it: shape arithmetic outside reads the stand-ins of values within other
    parts, but not those of the part's own values."""
    values, nodes = ModelValues.of(model, folder), model.graph.node
    readers = shape_readers(model, fused)

    def view(but: FusedNode | None = None) -> ModelValues:
        return replace(values, nodes=tuple(_redirect_readers(nodes, readers, _stand_ins(fused, nodes, but))))

    everywhere = view()
    return [view(part) if part.stand_ins else everywhere for part in fused]


def _stand_ins(fused: Sequence[FusedNode], nodes: Sequence[NodeProto], but: FusedNode | None = None) -> StandIns:
    stand_ins = {name: other for part in fused if part is not but for name, other in part.stand_ins.items()}
    return stand_ins, stand_ins | {name: other for part in fused for name, other in _as_inputs(part, nodes).items()}


def _as_inputs(part: FusedNode, nodes: Sequence[NodeProto]) -> dict[str, str]:
    """From inner values that functions of one operand alone compute from an input to that input, which has their shape
    and which onnxruntime computes once for the part and for all others."""
    origins = dict(zip(part.inputs, part.inputs, strict=True))
    for node in (nodes[position] for position in sorted(part.nodes) if 0 <= position < len(nodes)):
        if node.op_type in _ELEMENTWISE and node.input[0] in origins:
            origins[node.output[0]] = origins[node.input[0]]
    return {name: origins[name] for name in origins.keys() - {*part.inputs, *part.outputs}}


def shape_readers(model: ModelProto, fused: Sequence[FusedNode]) -> frozenset[int]:
    """The positions of the nodes outside that read the shape of a value within a part."""
    inside, nodes = {position for part in fused for position in part.nodes}, model.graph.node
    names = {name for part in fused for name in part.stand_ins}
    shapes = names.union(*(_as_inputs(part, nodes) for part in fused))  # whose values others may read as well
    readers = (at for at, node in enumerate(nodes) if (shapes if node.op_type == "Shape" else names) & {*node.input})
    return frozenset(readers) - inside


def _redirect_readers(nodes: Sequence[NodeProto], readers: Collection[int], stand_ins: StandIns) -> list[NodeProto]:
    """The nodes; those that are `readers` read the stand-ins of values."""
    changed = list(nodes)
    for position in readers:
        changed[position] = deepcopy(nodes[position])
        names = stand_ins[nodes[position].op_type == "Shape"]
        changed[position].input[:] = [names.get(name, name) for name in nodes[position].input]
    return changed


def _name_refusal(part: FusedNode, names: set[str]) -> str | None:
    if not IDENTIFIER.fullmatch(part.operator):
        return "its operator's name is not made of letters, digits and _"
    return "the model has an operator of this name already" if part.operator in names else None


def _twice_made(fused: Sequence[FusedNode], right: Iterable[int]) -> dict[int, str]:
    """The parts with an output that an earlier one gives already."""
    result, by_name = set[str](), dict[int, str]()
    for place in right:
        if double := result.intersection(fused[place].outputs):
            by_name[place] = f"another operator gives {min(double)!r} already"
        result.update(fused[place].outputs)
    return by_name


def _choose_bodies(operators: Mapping[int, str], bodies: Mapping[int, FunctionBody]) -> dict[str, int]:
    """For each operator the place whose body its function has: the first without extras, or the first."""
    chosen: dict[str, int] = {}
    for place, operator in operators.items():
        if operator not in chosen or (bodies[chosen[operator]].extras and not bodies[place].extras):
            chosen[operator] = place
    return chosen


def _fits(body: FunctionBody, chosen: FunctionBody) -> bool:
    """Whether a place can call the function with another's body: as many inputs, and the same text if it has extras."""
    alike = len(body.inputs) == len(chosen.inputs) and len(body.outputs) == len(chosen.outputs)
    return alike and (not chosen.extras or body is chosen or function_bodies.same_text(body, chosen))


def _arrange_nodes(
    model: ModelProto, fused: Sequence[FusedNode], extras: Sequence[tuple[str, ...]]
) -> tuple[list[NodeProto], int | None]:
    """The nodes of the model with those of the parts, producers before readers; or the smallest part on a cycle.

    A reader of a shape reads the stand-in of the value within a part, unless that would depend on the reader itself: it
    then reads the value, whose producer stays beside the part."""
    readers, stand_ins = set(shape_readers(model, fused)), _stand_ins(fused, model.graph.node)
    while True:
        kept = _remaining(model, _redirect_readers(model.graph.node, readers, stand_ins), fused, extras)
        ordered, cycle = _in_order(kept)
        loose = readers.intersection(kept[number][0] for number in cycle if number >= len(fused))
        if cycle and not loose:
            if not (guilty := [number for number in cycle if number < len(fused)]):
                raise ModelError(f"the model has a cycle through a node of type {kept[min(cycle)][1].op_type!r}")
            return [], min(guilty, key=lambda number: (len(fused[number].nodes), number))
        if not cycle:
            return ordered, None
        readers -= loose


def _remaining(
    model: ModelProto, before: Sequence[NodeProto], fused: Sequence[FusedNode], extras: Sequence[tuple[str, ...]]
) -> list[tuple[int, NodeProto]]:
    """The nodes of the parts, and those of `before` that are needed beside them, each with its position."""
    graph = model.graph
    covered = {position for part in fused for position in part.nodes}
    provided = {name for part in fused for name in part.outputs}
    names = {each.name for each in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer)}
    names.update(*(node.output for node in graph.node))
    nodes = [(max(part.nodes), _fused_node(part, more, graph, names)) for part, more in zip(fused, extras, strict=True)]
    count = len(nodes)
    nodes += [(at, _without(node, provided, names) if at in covered else node) for at, node in enumerate(before)]
    always = live(before, {value.name for value in graph.output})
    roots = {value.name for value in graph.output}.union(*(reads(node) for _, node in nodes[:count]))
    dead = [position for position, alive in enumerate(always) if not alive and position not in covered]
    roots.update(name for at in dead for name in (*before[at].output, *reads(before[at])))
    alive = live([node for _, node in nodes], roots)
    kept = [entry for number, entry in enumerate(nodes) if number < count or alive[number] or not any(entry[1].output)]
    # GraphError where a node of the model would now call the function of one of the first `count` nodes
    operators = {node.op_type for _, node in kept[:count]}
    for _, node in kept[count:]:
        if is_own(node.domain) and node.op_type in operators:
            raise GraphError(f"{node.op_type!r} cannot be put back: a node of the model has an operator of this name")
    return kept


def _fused_node(part: FusedNode, extras: tuple[str, ...], graph: GraphProto, names: set[str]) -> NodeProto:
    name = free_name(part.operator, names)
    names.add(name)
    ends = {"input": (*part.inputs, *extras), "output": part.outputs}
    return type(graph)().node.add(op_type=part.operator, domain=DOMAIN, name=name, **ends)


def _without(node: NodeProto, provided: set[str], names: set[str]) -> NodeProto:
    """The node with other names for the outputs that a fused node computes."""
    if provided.isdisjoint(node.output):
        return node
    copy = deepcopy(node)
    for number, name in enumerate(node.output):
        if name in provided:
            copy.output[number] = free_name(f"{name}_unread", names)
            names.add(copy.output[number])
    return copy


def live(nodes: Sequence[NodeProto], roots: Iterable[str]) -> list[bool]:
    """For each node, whether one of the values `roots` needs it."""
    producers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    alive, pending = [False] * len(nodes), list(roots)
    while pending:
        number = producers.get(pending.pop())
        if number is not None and not alive[number]:
            alive[number] = True
            pending.extend(reads(nodes[number]))
    return alive


def _in_order(nodes: Sequence[tuple[int, NodeProto]]) -> tuple[list[NodeProto], list[int]]:
    """The nodes, producers before readers, otherwise by their positions; and the numbers of those on cycles, if any."""
    producers = {name: number for number, (_, node) in enumerate(nodes) for name in node.output if name}
    needs = [{producers[name] for name in reads(node) if name in producers} for _, node in nodes]
    readers: list[set[int]] = [set() for _ in nodes]
    for number, needed in enumerate(needs):
        for producer in needed:
            readers[producer].add(number)
    places = [position for position, _ in nodes]
    ordered = _ready_first(needs, readers, places)
    stuck = set(range(len(nodes))).difference(ordered)
    behind = [readers[number] & stuck if number in stuck else set() for number in range(len(nodes))]
    return [nodes[number][1] for number in ordered], sorted(stuck.difference(_ready_first(behind, needs, places)))


def _ready_first(needs: Sequence[set[int]], readers: Sequence[set[int]], places: Sequence[int]) -> list[int]:
    """The numbers of nodes in topological order, otherwise by place; without those on or behind a cycle."""
    missing = [len(needed) for needed in needs]
    ready = [(places[number], number) for number, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(number)
        for reader in readers[number]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, (places[reader], reader))
    return ordered


def drop_unread(graph: GraphProto, before: GraphProto) -> None:
    """Remove the initializers and types that only removed nodes used."""
    was_read = {name for node in before.node for name in reads(node)}
    was_made = {name for node in before.node for name in node.output}
    kept = {value.name for value in (*graph.output, *graph.input)}
    kept.update(name for node in graph.node for name in reads(node))
    unread, unmade = was_read - kept, was_made - {name for node in graph.node for name in node.output}
    function_bodies.drop(graph.initializer, lambda tensor: tensor.name in unread)
    function_bodies.drop(graph.value_info, lambda value: value.name in unmade)


def _write_types(graph: GraphProto, fused: Sequence[FusedNode]) -> None:
    """Write dtypes and ranks. Kernels return the extents: with extents in bodies onnxruntime finds fusions that it did
    not find before, of which some are slower (SkipLayerNormalization, Split)."""
    typed = {value.name for value in (*graph.output, *graph.value_info) if value.HasField("type")}
    for part in fused:
        for name, kind in zip(part.outputs, part.output_types, strict=False):
            if name not in typed and kind.dtype is not DType.OTHER:
                graph.value_info.append(value_info(graph, name, replace(kind, shape=(None,) * len(kind.shape))))


def value_info(graph: GraphProto, name: str, kind: function_bodies.ValueType) -> ValueInfoProto:
    """A value's type as a message of the same kind as those of `graph`."""
    value = type(graph)().value_info.add(name=name)
    value.type.tensor_type.elem_type = kind.dtype.onnx
    value.type.tensor_type.shape.SetInParent()
    for dim in kind.shape:
        entry = value.type.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim is not None:
            entry.dim_param = dim
    return value


def _add_functions(result: ModelProto, bodies: Mapping[str, FunctionBody], own_domain: str) -> None:
    """Add one function for each operator, in the place of one of the same name that nothing uses any more."""
    function_bodies.drop(result.functions, lambda each: is_own(each.domain) and each.name in bodies)
    for operator, body in bodies.items():
        function = function_bodies.function_of(body, operator, result, function_bodies.clean(), own_domain)
        result.functions.append(function)
    if not any(entry.domain == own_domain for entry in result.opset_import):
        result.opset_import.add(domain=own_domain, version=1)
    result.ir_version = max(result.ir_version, FUNCTIONS_SINCE)


def put_back(model: ModelProto, kernels: Iterable[PlannedKernel], folder: Path) -> ModelProto:
    """The model with a fused node in each place of each kernel; `folder`: where its external data lies."""
    return write_back(model, fused_nodes_of(kernels), folder, function_bodies.domain_of(model))


def installable(plan: Plan, model: ModelProto, folder: Path) -> Plan:
    """The plan without the places that cannot become nodes of the model, which join the refused ones."""
    places = [group for kernel in plan.kernels for group in kernel.groups]
    reasons = refusals(model, fused_nodes_of(plan.kernels), folder)
    return without(plan, [(places[number], reason) for number, reason in sorted(reasons.items())])


def fused_nodes_of(kernels: Iterable[PlannedKernel]) -> list[FusedNode]:
    """A FusedNode for each place of each kernel."""
    return [fused_node_of(kernel.operator, group) for kernel in kernels for group in kernel.groups]


def fused_node_of(operator: str, group: Group) -> FusedNode:
    types = tuple(value_type(group.graph[name]) for name in group.outputs)
    return FusedNode(operator, group.positions, group.inputs, group.outputs, types, dict(group.stand_ins))


def value_type(node: Node) -> function_bodies.ValueType:
    """The type of a value as a model writes it: extents that are neither numbers nor names are left open."""
    named = [str(dim) if str(dim) in dim.names else None for dim in node.shape]
    extents = [name if dim.constant is None else dim.constant for dim, name in zip(node.shape, named, strict=True)]
    return function_bodies.ValueType(node.dtype, tuple(extents))


def library(kernels: Sequence[PlannedKernel], options: c_compiler.CompilerOptions, fused: ModelProto) -> Path | None:
    """The library of these kernels, which `put_back` put into `fused`, in the disk cache; None for no kernels.
    BuildError where it cannot be built."""
    if not kernels:
        return None
    texts = {kernel.operator: kernel.text for kernel in kernels}
    grids = [grid_of(kernel.twin) for kernel in kernels if kernel.twin is not None]
    domains = (function.domain for function in fused.functions if function.name in texts)
    return cached_library(texts, options, next(domains, DOMAIN), grids)


def grid_of(twin: GridTwin) -> str:
    """The C text of a kernel for a GPU, with its machine code. BuildError where neither NVRTC nor nvcc is there."""
    return grid_text(twin.kernel, {each: cuda_compiler.cubin_of(twin.text, each) for each in twin.architectures})


IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def shim_text(operators: Sequence[str], domain: str = DOMAIN, *, on_gpu: bool = False) -> str:
    """The C text that registers operators of a domain with onnxruntime; compile it for the oldest CPU of the machine.

    Each operator NAME is defined by an object that has `const noyau_kernel NAME_kernel`, visible in the library;
    `on_gpu`: another one has `const noyau_grid NAME_grid`, for the provider of CUDA."""
    for name in (*operators, *domain.split(".")):
        if not IDENTIFIER.fullmatch(name):
            raise GraphError(f"{name!r} cannot name an operator: letters, digits and _ alone make a C name")
    if not operators or len(set(operators)) < len(operators):
        raise GraphError("a library needs one operator or more, each once")
    hidden = 'extern __attribute__((visibility("hidden"))) const'
    table = [f'#define NOYAU_DOMAIN "{domain}"', *(f"{hidden} noyau_kernel {name}_kernel;" for name in operators)]
    table += ["static const noyau_kernel *const noyau_kernels[] = {", *(f"    &{name}_kernel," for name in operators)]
    own = "hosts/onnxruntime"
    headers = ["codegen/c/noyau.h", "hosts/shares.h", f"{own}/onnxruntime.h", f"{own}/cpu_check.h"]
    if on_gpu:
        headers += ["codegen/cuda/noyau_grid.h", f"{own}/grids.h"]
        table += ["};", *(f"{hidden} noyau_grid {name}_grid;" for name in operators)]
        table += ["static const noyau_grid *const noyau_grids[] = {", *(f"    &{name}_grid," for name in operators)]
    return "\n".join([*map(package_text, headers), *table, "};", "", package_text(f"{own}/onnxruntime.c")])


def cached_library(
    kernels: Mapping[str, str],
    options: c_compiler.CompilerOptions = c_compiler.DEFAULTS,
    domain: str = DOMAIN,
    grids: Sequence[str] = (),
) -> Path:
    """Path in the disk cache of the shared library that gives onnxruntime these kernels: operator name -> C text;
    `grids`: the texts of the same for a GPU, of all or none.

    BuildError where the compiler is missing or refuses a text, OutputError where the cache cannot be written."""
    shim = shim_text(tuple(kernels), domain, on_gpu=bool(grids))
    parts = [*objects(kernels, options, shim), *(c_compiler.compile_object(text, options) for text in grids)]
    words = ("-ldl", "-pthread") if grids else ()  # of the C library, where that is an older one
    return c_compiler.shared_library(parts, replace(options, extra=(*options.extra, *words)))


def objects(kernels: Mapping[str, str], options: c_compiler.CompilerOptions, shim: str) -> list[Path]:
    """The object files of such a library; `shim`: the text that registers the operators, for the oldest CPU."""
    oldest = replace(options, target=c_compiler.level_of(platform.machine(), frozenset()), export=False)
    needs = package_text("hosts/onnxruntime/cpu_needs.c")  # it records the features that the kernels' compiler may use
    compiled = [c_compiler.compile_object(text, options) for text in (*kernels.values(), needs)]
    return [*compiled, c_compiler.compile_object(shim, oldest)]
