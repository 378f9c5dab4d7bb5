"""A graph on a GPU as one flat Python function, generated at its first run: launches, allocations and views by known
numbers, so that Python does little between two launches.

A graph with constant sizes does the same in every call but for addresses. So the first call runs node by node and
is recorded: the launches of kernels (cuda/launch.py), the arguments of torch's own functions, and the layouts of views.
The text that is generated from the record repeats that: lines in order, the names that each reads and assigns, and the
last use of each value, where it is freed. Views are created for functions of torch; kernels get addresses."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from noyau.compiler.lowering.input_layouts import packed_strides
from noyau.hosts.torch.cuda.device import has_early_launches
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.cuda_graph import SHOWS, WARM, GraphReplay, is_capturing, is_on_gpu, is_repeatable
from noyau.hosts.torch.modules.device_inputs import is_static
from noyau.hosts.torch.modules.executor import Boxed, copy_graph, eager, with_device_errors
from noyau.hosts.torch.modules.parallel_products import join_products
from noyau.hosts.torch.modules.simplification import changed_arguments, join_copies, join_updates, update_in_place
from noyau.hosts.torch.tensors import reads_alike

_ALIGNED = 15  # Triton specialises on memory that begins at a multiple of 16 bytes
_GUARDS = getattr(torch._C._dynamo, "guards", None)
aten = torch.ops.aten
# Functions of torch with the meaning of an operator, which take less time to be called.
DIRECT: dict[Any, Callable[..., Any]] = {
    **{
        getattr(aten, name).default: getattr(torch, name)
        for name in (
            *("mm", "addmm", "bmm", "clone", "cat", "index_select", "arange", "embedding", "rsqrt", "cos", "sin"),
            *(f"_scaled_dot_product_{kind}_attention" for kind in ("cudnn", "efficient", "flash")),
        )
    },
    aten.linear.default: torch._C._nn.linear,
    aten.add.Tensor: torch.add,
    aten.mul.Tensor: torch.mul,
    aten.sub.Tensor: torch.sub,
    aten.index_copy_.default: torch.Tensor.index_copy_,
    aten.copy_.default: torch.Tensor.copy_,
    aten.pow.Tensor_Scalar: torch.pow,
    aten.mean.dim: torch.mean,
    aten._foreach_add_.Scalar: torch._foreach_add_,
}


@dataclass(frozen=True, slots=True)
class ViewForm:
    """A value in the memory of another, `root`: all of it where `lies` is None, else a view. `lies`: sizes, strides,
    and the offset in cells; `cell`: the bytes of a cell."""

    root: str
    lies: tuple[tuple[int, ...], tuple[int, ...], int] | None = None
    cell: int = 1

    @property
    def late(self) -> int:
        """The offset in bytes."""
        return (self.lies[2] if self.lies else 0) * self.cell

    @property
    def address(self) -> str:
        return f"{self.root}.data_ptr(){f' + {self.late}' if self.late else ''}"


@dataclass(slots=True)
class Line:
    """A line of the text, the names that it reads, and the name that it assigns."""

    words: str
    reads: tuple[str, ...]
    makes: str = ""


@dataclass(slots=True)
class FlatText:
    """Text of a flat function, grown call by call. `changed`: arguments that it writes; `values`: the form of a node's
    value; `views`: the names of the created views; `placed`: the arguments whose address a kernel gets; `stands`: the
    argument where the result of a function of torch's begins, None where it lies elsewhere in one; `mutates`: whether a
    function of torch's changes its arguments."""

    placeholders: Sequence[str]
    arguments: Sequence[Any]
    changed: frozenset[str] = frozenset()
    lines: list[Line] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    views: dict[ViewForm, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    stands: dict[str, str | None] = field(default_factory=dict)
    owners: dict[int, list[int]] = field(default_factory=dict)
    results: str = "()"
    count: int = 0
    device: int = 0
    mutates: bool = False

    def __post_init__(self) -> None:
        self.values |= {name: ViewForm(f"a{at}") for at, name in enumerate(self.placeholders)}
        for at, each in enumerate(self.arguments):
            self.owners.setdefault(_memory(each), []).append(at)

    @property
    def is_backward(self) -> bool:
        return any(name.startswith("tangents") for name in self.placeholders)

    def fresh(self, letter: str = "v") -> str:
        """A name that no value has."""
        self.count += 1
        return f"{letter}{self.count}"

    def hold(self, value: Any, letter: str = "c") -> str:
        """The name of an object that the text refers to."""
        name = next((name for name, known in self.names.items() if known is value), None) or self.fresh(letter)
        self.names[name] = value
        return name

    def view(self, node: fx.Node, base: Tensor, result: Tensor) -> None:
        """Record a node whose result is a view of its first argument."""
        source = self.values[node.args[0].name]
        begins = (source.lies[2] if source.lies else 0) + result.storage_offset() - base.storage_offset()
        lies = tuple(result.shape), tuple(result.stride()), begins
        same = source.lies is None and (tuple(base.shape), tuple(base.stride()), 0) == lies
        self.values[node.name] = source if same else ViewForm(source.root, lies, result.element_size())

    def note(self, name: str, result: Any) -> None:
        """Record a result that lies in memory of an argument."""
        if isinstance(result, tuple | list):
            for each in result:
                self.note(name, each)
        elif (memory := _memory(result)) and memory in self.owners:
            begin = (at for at in self.owners[memory] if self.arguments[at].data_ptr() == result.data_ptr())
            self.stands[name] = next((f"a{at}" for at in begin), None)

    def pick(self, node: fx.Node, result: Any) -> None:
        """Record the choice of one of several results."""
        source, at = node.args
        form = self.values[source.name]
        if isinstance(form, tuple):
            self.values[node.name] = form[at]
            return
        self.assign(node, f"{form.root}[{at!r}]", (form.root,), result)

    def assign(self, node: fx.Node, text: str, reads: tuple[str, ...], result: Any) -> None:
        """Add a line that assigns the value of a node."""
        name = self.fresh()
        self.lines.append(Line(f"{name} = {text}", reads, name))
        self.note(name, result)
        self.values[node.name] = ViewForm(name)

    def call(self, node: fx.Node, result: Any) -> None:
        """Add a call of a function of torch's, or of a kernel that is not launched by numbers."""
        reads: list[str] = []
        self.mutates |= bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))
        function = self.hold(DIRECT.get(node.target, node.target), "f")
        words = [self.word(each, reads) for each in node.args]
        words += [f"{key}={self.word(each, reads)}" for key, each in node.kwargs.items()]
        self.assign(node, f"{function}({', '.join(words)})", tuple(reads), result)

    def word(self, value: Any, reads: list[str]) -> str:
        """The text of an argument; the names in it are appended to `reads`."""
        match value:
            case fx.Node():
                name = self.there(self.values[value.name])
                reads.append(name)
                return name
            case list() | tuple():
                inner = ", ".join(self.word(each, reads) for each in value)
                return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
            case dict():
                return f"{{{', '.join(f'{self.word(k, reads)}: {self.word(v, reads)}' for k, v in value.items())}}}"
            case slice():
                return f"slice({', '.join(self.word(each, reads) for each in (value.start, value.stop, value.step))})"
            case bool() | int() | None:
                return repr(value)
            case float() if math.isfinite(value):
                return repr(value)
            case _:
                return self.hold(value)

    def there(self, shown: Any) -> str:
        """The name of a value; a view that does not exist yet is created."""
        if isinstance(shown, tuple):
            return f"({', '.join(map(self.there, shown))},)"
        if shown.lies is None:
            return str(shown.root)
        if shown not in self.views:
            size, stride, begins = shown.lies
            name = self.views[shown] = self.fresh()
            self.lines.append(Line(f"{name} = shows({shown.root}, {size}, {stride}, {begins})", (shown.root,), name))
        return self.views[shown]

    def launch(self, node: fx.Node, plan: Any, results: Any) -> bool:
        """Add the launches of a kernel by numbers; False where an argument does not begin as it must."""
        places = [self.values[each.name] for each in node.args]
        if not all(map(self.begins_well, places)):
            return False
        self.device = plan.index
        for shape, dtype in plan.allocations:
            name = self.fresh("b")
            words = f"empty({tuple(shape)}, {packed_strides(shape)}, {self.hold(dtype)})"
            self.lines.append(Line(f"{name} = {words}", (), name))
            places.append(ViewForm(name))
        for run, more, grid, function, packed, _, arguments, at_places in plan.launched:
            where = {at: places[place] for at, place in at_places}
            addresses = {at: shown.address for at, shown in where.items()}
            given_to = [addresses.get(at) or self.literal(one) for at, one in enumerate(arguments)]
            options = [*map(self.literal, more)]
            follows = any(line.words.startswith("k") for line in self.lines)  # the first may follow a user's update
            roots = {shown.root for shown in places} if node.target.loads else set()
            if node.target.waits and more and follows and not self.changed & roots:
                options[1] = "early"
            head = [*map(str, grid), "stream", self.literal(function), *options, self.hold(packed), "None, None, None"]
            reads = tuple(shown.root for shown in where.values())
            self.lines.append(Line(f"{self.hold(run, 'k')}({', '.join([*head, *given_to])})", reads))
        result = tuple(places[at] for at in plan.results)
        self.values[node.name] = result if isinstance(results, tuple) else result[0]
        return True

    def begins_well(self, shown: ViewForm) -> bool:
        """Whether an address is known to be a multiple of 16 bytes; for an argument, each call checks it."""
        root = self.stands.get(shown.root, shown.root)
        if root is None:
            return False
        if root.startswith("a"):
            if self.arguments[int(root[1:])].data_ptr() & _ALIGNED:
                return False
            self.placed.add(root)
        elif shown.root in self.names and self.names[shown.root].data_ptr() & _ALIGNED:
            return False
        return not shown.late & _ALIGNED

    def literal(self, value: Any) -> str:
        """The text of a number or a word in a launch."""
        return repr(value) if type(value) in (int, bool, str) or value is None else self.hold(value)

    def give_results(self, results: Any) -> None:
        """Write the text of the graph's results."""
        many = results if isinstance(results, tuple | list) else (results,)
        names = [self.there(self.values[each.name]) if isinstance(each, fx.Node) else repr(each) for each in many]
        self.results = f"({', '.join(names)}{',' if len(names) == 1 else ''})" if many is results else names[0]

    def finish(self) -> str:
        """The text of the function."""
        arguments = [f"a{at}" for at in range(len(self.placeholders))]
        head = [f"{', '.join(arguments)}, = arguments"] if arguments else []
        head += [*self.conditions(), "arguments.clear()", "stream = raw_stream(device)"]
        head += ["early = may_begin_early()"] * any(" early, " in line.words for line in self.lines)
        last = {name: at for at, line in enumerate(self.lines) for name in (*line.reads, line.makes) if name}
        kept = set(self.results.replace("(", " ").replace(")", " ").replace(",", " ").split()) | set(self.names)
        free = [name for name in arguments if name not in last and name not in kept]
        body = [f"del {', '.join(free)}"] if free else []
        for at, line in enumerate(self.lines):
            body.append(line.words)
            free = sorted({n for n in (*line.reads, line.makes) if n and last[n] == at and n not in kept})
            body += [f"del {', '.join(free)}"] if free else []
        body.append(f"return {self.results}")
        if not self.mutates:  # autograd records nothing here, and no version of a tensor changes
            body = ["with below():", *(f"    {line}" for line in body)]
        inner = "\n".join(f"    {line}" for line in [*head, *body])
        return f"def call(arguments):\n{inner}\n"

    def conditions(self) -> list[str]:
        """Text of the conditions on arguments."""
        placed = sorted(self.placed, key=lambda name: int(name[1:]))
        parts = [f"({' | '.join(f'{name}.data_ptr()' for name in placed)}) & {_ALIGNED}"] if placed else []
        if self.is_backward:  # saved tensors may have other strides in another call
            tensors = ((at, each) for at, each in enumerate(self.arguments) if isinstance(each, Tensor))
            parts += [f"a{at}.stride() != {tuple(each.stride())}" for at, each in tensors]
        if any(line.words.startswith("k") for line in self.lines):
            parts += ["current_device() != device", "watched()"]
        return [f"if {' or '.join(parts)}:", "    return slowly(arguments)"] if parts else []

    def function(self, slowly: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """The function of the text; it calls `slowly` where arguments do not meet its conditions."""
        from noyau.hosts.torch.cuda.launch import current_device, is_hooked, raw_stream

        names = {
            **self.names,
            "shows": SHOWS,
            "empty": getattr(_GUARDS, "_empty_strided_cuda", None),
            "raw_stream": raw_stream,
            "current_device": current_device,
            "watched": is_hooked,
            "device": self.device,
            "may_begin_early": partial(may_begin_early, self.device),
            "below": torch._C._AutoDispatchBelowAutograd,
            "slowly": slowly,
        }
        exec(compile(self.finish(), "<noyau: a compiled graph>", "exec"), names)  # noqa: S102  numbers and own names
        result: Callable[[list[Any]], Any] = names["call"]
        return result


def may_begin_early(device: int) -> bool:
    """Whether kernels that wait themselves may begin before the launch before them has ended: in a recording, on a GPU
    that has it. Elsewhere that launch may be an update of the weights, which they load before they wait."""
    return is_capturing() and has_early_launches(device)


def _memory(value: Any) -> int:
    """Address of the memory of a tensor; 0 for a value without memory, as zeros may be."""
    has_memory = isinstance(value, Tensor) and value.layout is torch.strided and not value._is_zerotensor()
    return value.untyped_storage().data_ptr() if has_memory else 0


def flat(module: fx.GraphModule, inputs: Sequence[Any], replays: bool = True) -> Boxed:
    """A graph as a function of a list of tensors, which it empties. With symbolic sizes it runs node by node.
    `replays`: whether its launches are recorded once they are known, and replayed as one. The function raises
    torch.OutOfMemoryError, and DeviceError where the device's context is lost."""
    update_in_place(module.graph)
    join_updates(module.graph)
    result = Flat(module, replays) if is_static(module.graph) else eager(module, inputs)

    run = with_device_errors(result)
    run.flat = result  # type: ignore[attr-defined]
    return run


class Flat:
    """A graph with constant sizes. `known`: the function that the first call on a GPU generated; `slowly`: the same
    node by node, for arguments with other layouts."""

    def __init__(self, module: fx.GraphModule, replays: bool = True) -> None:
        self.module: fx.GraphModule | None = module  # until it is known
        self.replays = replays and is_repeatable(module.graph)
        self.slowly = eager(fx.GraphModule(module, copy_graph(module.graph)), [])
        self.known: Callable[[list[Any]], Any] | None = None
        self.text = ""

    def __call__(self, arguments: list[Any]) -> Any:
        return self.first(arguments) if self.known is None else self.known(arguments)

    def first(self, arguments: list[Any]) -> Any:
        """The first call, which is recorded."""
        module = self.module
        if module is None:  # another thread was first
            return self.slowly(arguments)
        inputs = list(arguments)
        arguments.clear()
        if self.replays:
            from noyau.hosts.torch.cuda.joint_copies import copy_rows  # imports Triton, which a CPU does without

            join_products(module.graph)
            join_copies(module.graph, copy_rows)
        noting = NodeRecorder(module, inputs)
        results = noting.run(*inputs)
        self.text = noting.text.finish()
        known = noting.text.function(self.slowly)
        if self.replays and is_on_gpu(results):
            is_backward, changed = noting.text.is_backward, changed_arguments(module.graph)
            known = GraphReplay(known, inputs, changed, not is_backward, WARM * (1 + is_backward))
        self.known, self.module = known, None
        return results


class NodeRecorder(fx.Interpreter):  # type: ignore[misc]  # torch's class has no types
    """Interpreter of a graph that records each node in a text."""

    def __init__(self, module: fx.GraphModule, arguments: Sequence[Any]) -> None:
        super().__init__(module)
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        self.text = FlatText(names, arguments, frozenset(f"a{at}" for at in changed_arguments(module.graph)))
        self.now: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and record it."""
        self.now = n
        result = super().run_node(n)
        match n.op:
            case "get_attr":
                self.text.values[n.name] = ViewForm(self.text.hold(result))
            case "call_function":
                self.note(n, result)
            case "output":
                self.text.give_results(n.args[0])
        return result

    def note(self, node: fx.Node, result: Any) -> None:
        """Record a call of a function."""
        target, text = node.target, self.text
        if isinstance(target, DeviceCall):
            plan = target.launcher.known_call(target.in_memory([self.env_of(each) for each in node.args]))
            if plan is not None and text.launch(node, plan, result):
                return
        elif target is operator.getitem:
            text.pick(node, result)
            return
        elif self.is_view(node, result):
            text.view(node, self.env_of(node.args[0]), result)
            return
        text.call(node, result)

    def is_view(self, node: fx.Node, result: Any) -> bool:
        """Whether a node's result is a view of its first argument, in the same dtype."""
        base = self.env_of(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        if not isinstance(result, Tensor) or not isinstance(base, Tensor) or base.dtype is not result.dtype:
            return False
        changes = getattr(getattr(node.target, "_schema", None), "is_mutable", True)
        same = base.numel() and 0 != _memory(base) == _memory(result)
        return bool(same) and reads_alike(base, result) and not changes

    def env_of(self, node: Any) -> Any:
        return self.env[node] if isinstance(node, fx.Node) else node
