"""Simplification of graphs of ATen operators: equal values are one, updates of arguments are made in place, and a graph
for a GPU has fewer launches. Values that are compared with values computed from them, as in the gradient of a maximum,
must be equal in backward where they were in forward. docs/notes/hosts.md."""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.checkpoint import CheckpointPolicy

from noyau.hosts.torch.cuda.device_call import DeviceCall

KNOWN = ("aten", "prims")  # operators of other libraries may draw numbers, or keep a state
# The tags of operators whose results may differ between calls.
_OTHERWISE = torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output
_ZERO_PRODUCTS = {torch.ops.aten.mul.Tensor: 2, torch.ops.aten.div.Tensor: 1}  # operands of which one is enough


def merge_equal(graph: fx.Graph) -> None:
    """Merge equal nodes: the same operators on the same values, without a mutation in between. Nodes that draw random
    numbers, results of the graph and mutated values stay, each in memory of its own."""
    changing = [node for node in graph.nodes if node.op == "output" or may_change(node)]
    apart = memory_of(each for node in changing for each in node.all_input_nodes)
    known, region = dict[Any, fx.Node](), 0
    for node in list(graph.nodes):
        region += may_change(node)
        if node in apart or not _is_pure(node):
            continue
        first = known.setdefault((region, node.target, _key(node.args), _key(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def fill_zeros(graph: fx.Graph) -> None:
    """Give memory to zeros without it, which forward-mode derivatives have and kernels cannot read. Their products and
    quotients are zeros too, whatever the other operand is, and their views."""
    zeros = set(graph.find_nodes(op="call_function", target=torch.ops.aten._efficientzerotensor.default))
    for node in list(graph.nodes) if zeros else ():
        fake, reads = node.meta.get("val"), node.all_input_nodes[: _ZERO_PRODUCTS.get(node.target, 0)]
        if node in zeros:
            node.target = torch.ops.aten.zeros.default
        elif not zeros.isdisjoint(reads) and all(isinstance(extent, int) for extent in fake.shape):
            node.target, node.args = torch.ops.aten.zeros.default, (list(fake.shape),)
            node.kwargs = {"dtype": fake.dtype, "device": fake.device}
            zeros.add(node)
        elif node.op == "call_function" and node.args and node.args[0] in zeros and shows(node):
            zeros.add(node)


def place_constants(module: fx.GraphModule) -> None:
    """Copy constants of the host to the GPU where they are read once, not in each call: numbers in a module's text."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default):
        lifted = node.args[0]
        source = lifted.args[0] if lifted.target is torch.ops.aten.lift_fresh_copy.default else lifted
        value = getattr(module, source.target, None) if source.op == "get_attr" and "." not in source.target else None
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" != node.meta["val"].device.type:
            name = f"{source.target}_of_{node.name}"
            with unset_fake_temporarily(), torch.no_grad():
                module.register_buffer(name, node.target(value, **node.kwargs))
            with module.graph.inserting_before(node):
                node.args, node.kwargs = (module.graph.get_attr(name),), {}
            node.target = torch.ops.aten.lift_fresh_copy.default
            node.args[0].meta["val"] = node.meta["val"]
            for each in dict.fromkeys((lifted, source)):
                if not each.users:
                    module.graph.erase_node(each)


def drop_detached(graph: fx.Graph) -> None:
    """Replace each `detach` by its operand: a graph has no gradients. torch's partitioner takes a `detach` for no map,
    and would save each tanh, sigmoid and exp for backward that it can compute again."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
        if not node.users:
            graph.erase_node(node)


def may_change(node: fx.Node) -> bool:
    """Whether a node changes memory that it reads, as far as that is known."""
    if node.op in ("call_method", "call_module") or isinstance(node.target, HigherOrderOperator):
        return True
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _is_pure(node: fx.Node) -> bool:
    """Whether a node returns the same tensors whenever it is called between two mutations."""
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, OpOverload) or target.namespace not in KNOWN or may_change(node):
        return False
    gives = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    is_number = any(isinstance(each, torch.SymInt | torch.SymFloat | torch.SymBool) for each in gives)
    return not (is_number or "empty" in str(target._schema.name) or any(tag in target.tags for tag in _OTHERWISE))


def _key(value: Any) -> Any:
    """The key of an argument, the same for equal arguments: 1, 1.0 and True differ, as 0.0 and -0.0 do."""
    match value:
        case fx.Node():
            return value
        case list() | tuple():
            return tuple(map(_key, value))
        case dict():
            return tuple((key, _key(each)) for key, each in sorted(value.items()))
        case _:
            return type(value), repr(value)


def shows(node: fx.Node) -> bool:
    """Whether a node's results may share memory with its operands."""
    if node.op == "output":
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        is_view = node.target is torch.ops.aten._unsafe_view.default
        return is_view or any(each.alias_info is not None for each in schema.returns)
    own = set(_storages(node))
    return not own or not own.isdisjoint(_storages(*node.all_input_nodes))


def reach(nodes: Iterable[fx.Node], neighbours: Callable[[fx.Node], Iterable[fx.Node]]) -> set[fx.Node]:
    """The nodes, and all nodes that are reachable from them by `neighbours`."""
    waiting, results = list(nodes), set[fx.Node]()
    while waiting:
        if (node := waiting.pop()) not in results:
            results.add(node)
            waiting += neighbours(node)
    return results


def memory_of(nodes: Iterable[fx.Node], shows: Callable[[fx.Node], bool] = shows) -> set[fx.Node]:
    """The nodes whose memory these nodes may share, they themselves among them."""
    return reach(nodes, lambda node: node.all_input_nodes if shows(node) else ())


def _storages(*nodes: fx.Node) -> Iterator[int]:
    """The memory of the tensors that nodes make, as far as that is known."""
    for node in nodes:
        for each in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                yield each.untyped_storage()._cdata


_NAMES = ("eq", "ne", "ge", "gt", "le", "lt")
COMPARISONS = tuple(getattr(torch.ops.aten, name).Tensor for name in _NAMES)
_REGION = "ac_graph_id"  # which checkpoint a node lies in


def keep_compared(graph: fx.Graph, results: int) -> None:
    """Mark values of forward to be saved, not recomputed in backward, if a comparison holds them against values
    computed from them, unless one checkpoint recomputes both. `graph` is of forward and backward; its first
    `results` results are those of forward."""
    forward: set[fx.Node] | None = None
    for node in graph.nodes:
        if node.target not in COMPARISONS:
            continue
        if not any(each.meta["val"].is_floating_point() for each in node.all_input_nodes):  # no rounding changes them
            continue
        forward = forward or _behind(graph.output_node().args[0][:results])
        sides = [_sources(each, forward) for each in node.all_input_nodes]
        if len(sides) == 2 and (_stems(*sides) or _stems(*reversed(sides))) and not _is_repeated(set().union(*sides)):
            for each in set().union(*sides):
                each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _behind(nodes: Iterable[object]) -> set[fx.Node]:
    """The nodes, and all that they are computed from."""
    return reach((each for each in nodes if isinstance(each, fx.Node)), lambda node: node.all_input_nodes)


def _sources(node: fx.Node, forward: set[fx.Node]) -> set[fx.Node]:
    """Values of forward from which backward computes a value, through views; empty where it depends on gradients."""
    waiting, results = [node], set[fx.Node]()
    while waiting:
        each = waiting.pop()
        if each in forward and each.op != "placeholder" and not shows(each):
            results.add(each)
        elif each.op == "placeholder" and each not in forward:
            return set()
        else:
            waiting += each.all_input_nodes
    return results


def _stems(some: set[fx.Node], others: set[fx.Node]) -> bool:
    """Whether some of these nodes are computed from some of the others, or are the same."""
    return not _behind(some).isdisjoint(others)


def _is_repeated(nodes: set[fx.Node]) -> bool:
    """Whether one checkpoint recomputes all of them, and no later one reads them, whose inputs torch would keep."""
    from torch._functorch.partitioners import must_recompute  # imports all of dynamo, which a saved module lacks

    regions = {node.meta.get(_REGION) for node in nodes if must_recompute(node)}
    users = [user for node in nodes for user in node.users if must_recompute(user)]
    return all(map(must_recompute, nodes)) and len(regions | {user.meta.get(_REGION) for user in users}) == 1


aten = torch.ops.aten
_OVERLOADS = {"default": "index_copy index_put index_add scatter_add", "int_Scalar": "index_fill"}
_OVERLOADS |= {"src": "scatter", "value": "scatter", "Tensor": "add sub mul"}
IN_PLACE: dict[Any, Any] = {
    getattr(getattr(aten, name), overload): getattr(getattr(aten, f"{name}_"), overload)
    for overload, names in _OVERLOADS.items()
    for name in names.split()
}


def update_in_place(graph: fx.Graph) -> None:
    """Make each update of an argument, which a graph copies back at its end, in the argument itself."""
    for update, back in updates(graph).items():
        update.target = IN_PLACE[update.target]
        back.replace_all_uses_with(update)
        graph.erase_node(back)
    graph.lint()


def updates(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The updates of arguments that can be made in place, and the copies back that they make redundant: behind the
    update nothing reads the old argument, and no result of the graph shares memory with the update."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    entries: dict[fx.Node, fx.Node] = {}
    for back in copies_back(graph):
        argument, update = back.args[:2]
        is_update = isinstance(update, fx.Node) and update.target in IN_PLACE and update.args[0] is argument
        if not is_update or not _is_like(argument, update) or leaves(update, back):
            continue
        if all(order[reader] < order[update] for reader in _readers(argument) - {update, back}):
            entries[update] = back
    return entries


def copies_back(graph: fx.Graph) -> Iterator[fx.Node]:
    """The nodes that copy a value to an argument."""
    for node in graph.nodes:
        if node.target is aten.copy_.default and getattr(node.args[0], "op", "") == "placeholder":
            yield node


def _is_like(argument: fx.Node, update: fx.Node) -> bool:
    """Whether an update has the shape and dtype of its argument."""
    one, other = argument.meta.get("val"), update.meta.get("val")
    return one is not None and other is not None and one.shape == other.shape and one.dtype == other.dtype


def _readers(value: fx.Node, back: fx.Node | None = None) -> set[fx.Node]:
    """Nodes that read memory of a value, through views too, except its copy `back`."""

    def users(node: fx.Node) -> list[fx.Node]:
        return [user for user in node.users if user is not back]

    return reach(users(value), lambda node: users(node) if _shows(node) else ())


def leaves(value: fx.Node, back: fx.Node | None = None) -> bool:
    """Whether a result of the graph has memory of a value, by itself or through views, except its copy `back`."""
    return any(reader.op == "output" for reader in _readers(value, back))


def changed_arguments(graph: fx.Graph) -> frozenset[int]:
    """The places of the arguments that calls in a graph change, by themselves or through views."""
    memory = memory_of((each for node in graph.nodes if may_change(node) for each in node.all_input_nodes), _shows)
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    return frozenset(at for at, node in enumerate(arguments) if node in memory)


def _shows(node: fx.Node) -> bool:
    """Like `shows`; the results of noyau's own kernels are new."""
    return not isinstance(node.target, DeviceCall) and shows(node)


def simplify(graph: fx.Graph) -> None:
    """Merge equal nodes, drop additions to `arange(1)`, and sink updates, in a graph of ATen operators."""
    merge_equal(graph)
    drop_zeros(graph)
    sink_updates(graph)
    graph.lint()


def drop_zeros(graph: fx.Graph) -> None:
    """Replace the positions `arange(1) + begin` by `begin`."""
    for node in list(graph.nodes):
        if node.target is aten.add.Tensor and not node.kwargs and not leaves(node):
            other = next((two for one, two in (node.args, node.args[::-1]) if _is_zero(one)), None)
            if isinstance(other, fx.Node) and _is_alike(node, other):
                node.replace_all_uses_with(_with_an_axis(graph, node, other) if other.meta["val"].dim() == 0 else other)
                graph.erase_node(node)
    graph.eliminate_dead_code()


def _is_zero(value: Any) -> bool:
    """Whether a node is the vector of the number 0, `arange(1)`."""
    starts = {aten.arange.default: (1,), aten.arange.start_step: (0, 1)}
    return isinstance(value, fx.Node) and value.target in starts and value.args[:2] == starts[value.target]


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether the first is a vector of one number, and the second that or a scalar, of one dtype on one device."""
    left, right = one.meta.get("val"), other.meta.get("val")
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or right.dim() > 1:
        return False
    return len({(each.dtype, each.device, each.numel()) for each in (left, right)}) == 1 and tuple(left.shape) == (1,)


def _with_an_axis(graph: fx.Graph, node: fx.Node, number: fx.Node) -> fx.Node:
    """A scalar as a vector of one cell, before a node."""
    with graph.inserting_before(node):
        result = graph.call_function(aten.unsqueeze.default, (number, 0))
    result.meta["val"] = number.meta["val"].unsqueeze(0)
    return result


def sink_updates(graph: fx.Graph) -> None:
    """Move an update of an argument by a number alone, which nothing else reads, to the end: in place, then."""
    for back in list(copies_back(graph)):
        argument, update = back.args[:2]
        is_update = isinstance(update, fx.Node) and update.target in IN_PLACE and update.all_input_nodes == [argument]
        if is_update and set(update.users) == {back}:
            back.prepend(update)


TOGETHER: dict[Any, Any] = {
    getattr(aten, f"{name}_").Tensor: getattr(aten, f"_foreach_{name}_").Scalar for name in ("add", "sub", "mul")
}


def join_updates(graph: fx.Graph) -> None:
    """Join updates of several arguments by the same number, which nothing reads any more, into one call at the last."""
    entries: dict[Any, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.target in TOGETHER and not node.users and not node.kwargs and type(node.args[1]) in (int, float):
            fake, number = node.meta["val"], node.args[1]
            key = node.target, fake.dtype, fake.device, type(number), repr(number)  # 0.0 and -0.0 differ
            entries.setdefault(key, []).append(node)
    for (target, *_), nodes in entries.items():
        if len(nodes) > 1:
            with graph.inserting_after(nodes[-1]):
                graph.call_function(TOGETHER[target], ([node.args[0] for node in nodes], nodes[0].args[1]))
            for node in nodes:
                graph.erase_node(node)


def join_copies(graph: fx.Graph, joint: Callable[..., None]) -> None:
    """Join two copies of a row into arguments of one shape and dtype, at one index, into one call of `joint` at the
    second, where only views stand between the two, and neither row lies in one of these arguments."""
    waiting: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target is not aten.index_copy_.default or not _copies_a_row(node):
            waiting = waiting if _shows(node) else {}
            continue
        fake = node.args[0].meta["val"]
        key = *node.args[1:3], fake.shape, fake.dtype
        first, waiting = waiting.get(key), {key: node}
        if first is None or first.args[0] is node.args[0]:
            continue
        (one, axis, index, row), (other, *_, rows) = first.args, node.args
        if not memory_of((row, rows), _shows).isdisjoint((one, other)):
            continue
        with graph.inserting_before(node):
            graph.call_function(joint, ((one, other), axis % fake.dim(), index, (row, rows)))
        for each in (first, node):
            each.replace_all_uses_with(each.args[0])
            graph.erase_node(each)
        waiting = {}


def _copies_a_row(node: fx.Node) -> bool:
    """Whether a node copies floats to one index of a contiguous argument."""
    place, _, index, row = node.args
    fake, is_one = place.meta["val"], index.meta["val"].numel() == 1 and row.meta["val"].numel() > 0
    is_plain = fake.dim() > 0 and fake.is_floating_point() and fake.element_size() > 1 and fake.is_contiguous()
    return bool(place.op == "placeholder" and is_plain and is_one)
