"""Products of few rows of a module as noyau's kernels: the products of a graph that dynamo captured, packed weights,
the operator that stands for products while torch traces, and its launch in a graph."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, fx

from noyau.codegen.triton import row_attention
from noyau.codegen.triton.row_attention import RowAttention
from noyau.codegen.triton.row_products import MOST_ROWS, RowProducts, WeightForm, source
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.frontends.torch.tensors import FROM_TORCH
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.graph_corrections import arguments_of
from noyau.hosts.torch.operator_registry import define
from noyau.ir.loops import Kernel, Launch

LEAST_BYTES = 1 << 16  # of weights: less is read in no time
_MOST = 4  # products of a launch
_LINEAR = (torch._C._nn.linear, torch.nn.functional.linear)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_WORDS = re.compile(r"^l_.*?(modules|parameters)_|^l_|_(modules|parameters)_|_+$")  # that dynamo puts into names
_KEYS = itertools.count()
_KNOWN: WeakValueDictionary[int, PackedProducts] = WeakValueDictionary()


def pack(weight: Tensor, form: WeightForm, has_words: bool = False) -> tuple[Tensor, ...]:
    """Weights [channels, inputs] as cells and scales: of 8 bits u8[channels, inputs] or words, and f32[channels]; of 4
    bits u8[channels, bytes], bf16[channels, groups], as in noyau.codegen.triton.row_products; or unchanged."""
    if not form.bits:
        return (weight.detach(),)
    middle = 1 << (form.bits - 1)
    wide, largest = weight.detach().to(torch.float32), middle - 1
    if form.group:
        wide = torch.nn.functional.pad(wide, (0, -wide.shape[1] % (2 * form.group))).view(len(wide), -1, form.group)
    scales = wide.abs().amax(-1) / largest
    scales = scales.to(torch.bfloat16) if form.group else scales
    scales[scales == 0] = 1
    cells = (wide / scales.to(torch.float32).unsqueeze(-1)).round_().clamp_(-largest, largest).add_(middle)
    cells = cells.to(torch.uint8).view(len(wide), -1)
    if form.bits == 4:
        low, high = cells.chunk(2, dim=1)
        cells = low | (high << 4)
    if has_words:
        cells = cells.view(len(cells), 4, -1).transpose(1, 2).contiguous().view(torch.int32).squeeze(2)
    return cells.contiguous(), scales.contiguous()


def unpack(packed: Sequence[Tensor], form: WeightForm, depth: int) -> Tensor:
    """The exact weights f64[channels, depth] that packed ones represent."""
    if not form.bits:
        return packed[0].double()
    cells, scales = packed
    if cells.dtype == torch.int32:
        cells = cells.unsqueeze(2).view(torch.uint8).transpose(1, 2).reshape(len(cells), -1)
    if form.bits == 4:
        cells = torch.cat((cells & 15, cells >> 4), dim=1)
    wide = cells.double() - (1 << (form.bits - 1))
    return (wide.view(*scales.shape, -1) * scales.double().unsqueeze(-1)).view(len(wide), -1)[:, :depth]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PackedProducts:
    """Products with `packed` weights, or with those of a call. It lives as long as a graph that calls it."""

    products: Any  # RowProducts, or RowAttention
    packed: tuple[tuple[Tensor, ...], ...]
    call: DeviceCall
    key: int

    def arguments(self, x: Any, operands: Sequence[Any], packed: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Arguments of the kernel: `operands` are weights that are not packed and biases, product by product."""
        rest, result = iter(operands), [x]
        for own, has_bias in zip(packed, self.products.biased if packed else (), strict=True):
            result += [*(own or [next(rest)]), *([next(rest)] if has_bias else [])]
        return (*result, *rest)  # all operands of attention

    def __call__(self, x: Tensor, operands: Sequence[Tensor]) -> list[Tensor]:
        """The results [rows, channels] for packed rows [rows, depth]."""
        results = self.call(*self.arguments(x, operands, self.packed))
        return list(results) if isinstance(results, tuple) else [results]


def packed_products(products: RowProducts, weights: Sequence[Tensor]) -> PackedProducts:
    """Products with these weights [channels, inputs], packed in their form."""
    own = tuple(pack(each, products.form, products.has_words) if products.form.bits else () for each in weights)
    count = 1 + len(weights) * (2 if products.form.bits else 1) + sum(products.biased)
    return _hold_call(products, source(products), own, count)


def attention_call(own: RowAttention) -> PackedProducts:
    """Attention of few rows in the form of products: with queries as rows, and keys, values and a mask as operands."""
    return _hold_call(own, row_attention.source(own), (), 3 if own.mask is None else 4, 2)


def _hold_call(products: Any, text: tuple[str, str], own: Any, count: int, launches: int = 1) -> PackedProducts:
    kernel = Kernel(text[0], (), (), (Launch(()),) * launches)
    result = PackedProducts(products, own, DeviceCall(text[1], kernel, [PACKED] * count, waits=True), next(_KEYS))
    result.call.loads = launches == 1  # weights, before it waits
    return _KNOWN.setdefault(result.key, result)


def _run(x: Tensor, operands: Sequence[Tensor], key: int) -> list[Tensor]:
    return _KNOWN[key](x, operands)


def _fake(x: Tensor, operands: Sequence[Tensor], key: int) -> list[Tensor]:
    products = _KNOWN[key].products
    return [x.new_empty((products.rows, width)) for width in products.results]


OPERATOR = define("row_products", "(Tensor x, Tensor[] operands, int key) -> Tensor[]", _run, _fake)


def launch_products(module: fx.GraphModule) -> None:
    """Replace the products of a graph by calls of their kernels, with packed weights as buffers of the module, so that
    a CUDA graph can record them, and a flat function launch them by numbers."""
    for node in module.graph.find_nodes(op="call_function", target=OPERATOR):
        x, operands, key = node.args
        own = _KNOWN[key]
        with module.graph.inserting_before(node):
            held = [[_hold_tensor(module, each) for each in parts] for parts in own.packed]
            call = module.graph.call_function(own.call, own.arguments(x, operands, held))
        is_alone = len(own.products.results) == 1  # a call returns a single result without a list
        parts = [*node.users, node] if is_alone else [node]
        call.meta = dict(parts[0].meta)
        for part in parts:
            part.replace_all_uses_with(call)
            module.graph.erase_node(part)
    module.recompile()


def _hold_tensor(module: fx.GraphModule, tensor: Tensor) -> fx.Node:
    name = f"_row_products_{next(_KEYS)}"
    module.register_buffer(name, tensor, persistent=False)
    return module.graph.get_attr(name)


@dataclass(frozen=True, slots=True, eq=False)
class RowProduct:
    """A product of a graph that reads few rows: its nodes, its weights [channels, inputs], and their `name`."""

    name: str
    node: fx.Node
    source: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    values: Tensor

    @property
    def shift(self) -> Tensor | None:
        """Zeros of the shape of the bias, or None without one."""
        return None if self.bias is None else self.values.new_zeros(len(self.values))


@dataclass(frozen=True, slots=True, eq=False)
class ProductFamily:
    """Products of the same rows, which one launch computes. `gate`: the nodes of silu of the first product, and of that
    times the second, if nothing else reads the two."""

    members: tuple[RowProduct, ...]
    gate: tuple[fx.Node, ...] = ()

    @property
    def name(self) -> str:
        first, *others = (each.name for each in self.members)
        return " + ".join([first, *(each.rpartition(".")[2] for each in others)])

    @property
    def source(self) -> fx.Node:
        return self.members[0].source

    def plain(self, rows: Tensor) -> list[Tensor]:
        """The results by torch's own functions."""
        results = [torch.nn.functional.linear(rows, each.values, each.shift) for each in self.members]
        return [torch.nn.functional.silu(results[0]) * results[1]] if self.gate else results

    def operands(self, form: WeightForm) -> list[Tensor]:
        """Operands of a kernel besides the rows and packed weights, with biases of 0."""
        pairs = ((None if form.bits else each.values, each.shift) for each in self.members)
        return [each for each in itertools.chain(*pairs) if each is not None]

    def products(self, form: WeightForm) -> RowProducts:
        """The products of the family as one kernel, with weights of a form."""
        first, rows = self.members[0].values, math.prod(map(int, self.source.meta["example_value"].shape[:-1]))
        widths, biased = (len(each.values) for each in self.members), (each.bias is not None for each in self.members)
        kind = FROM_TORCH[first.dtype], bool(self.gate)
        return RowProducts(form, rows, first.shape[1], tuple(widths), tuple(biased), *kind)

    def pack(self, form: WeightForm) -> PackedProducts:
        """The kernel of `products` with the weights of the family."""
        return packed_products(self.products(form), [each.values for each in self.members])

    def join(self, graph: fx.Graph, packed: PackedProducts, new: dict[fx.Node, fx.Node]) -> None:
        """Replace the products by one call, in a graph whose nodes are `new`, which then has the new results."""
        products, bits = packed.products, packed.products.form.bits
        nodes = [each.node for each in self.members]
        old = [new[each] for each in (*reversed(self.gate), *nodes)]
        with graph.inserting_before(new[self.members[0].node]):
            rows = graph.call_method("reshape", (new[self.source], (products.rows, products.depth)))
            rows = graph.call_method("contiguous", (rows,))
            pairs = ((None if bits else each.weight, each.bias) for each in self.members)
            operands = [new[each] for each in itertools.chain(*pairs) if each is not None]
            joint = graph.call_function(OPERATOR, (rows, operands, packed.key))
            for at, end in enumerate(self.gate[1:] or nodes):
                part = graph.call_function(operator.getitem, (joint, at))
                shown = graph.call_method("view", (part, tuple(map(int, end.meta["example_value"].shape))))
                shown.meta = dict(end.meta)
                new[end].replace_all_uses_with(shown)
                new[end] = shown
        for each in old:  # not before: the nodes above stand before them
            graph.erase_node(each)


def families_of(graph: fx.Graph, arguments: Sequence[Any]) -> tuple[list[ProductFamily], dict[str, str]]:
    """The products of few rows of parameters of 64 KiB or more, in families of up to four that read the same rows; and
    the reasons against other products, by name. `arguments`: those of the graph."""
    values = dict(zip(graph.find_nodes(op="placeholder"), arguments, strict=True))
    families, reasons, region = defaultdict[Any, list[RowProduct]](list), dict[str, str](), 0
    for node in graph.nodes:
        region += may_change(node)
        source, holder, bias, turned = _operands_of(node)
        weight = values.get(holder)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.nbytes < LEAST_BYTES or not _are_few(source):
            continue
        name = _WORDS.sub(lambda match: "." if match.start() else "", holder.name).strip(".").removesuffix(".weight")
        if reason := _refusal(node, source, bias, weight, values):
            reasons[name] = reason
            continue
        product = RowProduct(name, node, source, holder, bias, weight.t() if turned else weight)
        families[region, source, product.values.shape[1]].append(product)
    parts = (each[at : at + _MOST] for each in families.values() for at in range(0, len(each), _MOST))
    return [_family(each) for each in parts], reasons


def _family(members: Sequence[RowProduct]) -> ProductFamily:
    """Some products as a family; two of them with the gate, if it is their only reader."""
    for first, second in itertools.permutations(members) if len(members) == 2 else ():
        silu, result = _reader(first.node), _reader(second.node)
        if silu is None or result is None or _reader(silu) != result or len(first.values) != len(second.values):
            continue
        in_place = any(silu.args[1:]) or silu.kwargs.get("inplace")
        if silu.target is torch.nn.functional.silu and not in_place and result.target in (operator.mul, torch.mul):
            return ProductFamily((first, second), (silu, result))
    return ProductFamily(tuple(members))


def _reader(node: fx.Node) -> fx.Node | None:
    """The only node that reads one, or None."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def may_change(node: fx.Node) -> bool:
    """Whether a node may change its operands, judged by names."""
    name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
    in_place = name.endswith("_") or name == "setitem" or (name in dir(operator) and name.startswith("i"))
    return in_place or bool(node.kwargs.get("inplace")) or "out" in node.kwargs


def _operands_of(node: fx.Node) -> tuple[Any, Any, Any, bool]:
    """Rows, weights and bias of a product, and whether weights are [inputs, channels]; None for no product."""
    if node.target in _LINEAR:
        words = arguments_of(node, ("input", "weight", "bias"))
        return words["input"], words["weight"], words.get("bias"), False
    if node.target is torch.addmm and len(node.args) == 3 and not node.kwargs:  # as Conv1D of transformers has it
        bias, source, weight = node.args
        return source, weight, bias, True
    return None, None, None, False


def _are_few(source: Any) -> bool:
    """Whether the rows of a value are known to be few."""
    fake = source.meta.get("example_value")
    is_known = isinstance(fake, Tensor) and all(isinstance(each, int) for each in fake.shape) and fake.numel() > 0
    return is_known and math.prod(fake.shape[:-1]) <= MOST_ROWS


def _refusal(node: fx.Node, source: fx.Node, bias: Any, weight: Tensor, values: Mapping[fx.Node, Any]) -> str:
    """Why a product is not replaced, or an empty text."""
    dtypes = [each.meta["example_value"].dtype for each in (source, node)]
    if type(weight) is not torch.nn.Parameter:
        return f"its weights are a {type(weight).__name__}, and no plain parameter"
    if weight.dtype not in FLOATS or any(each != weight.dtype for each in dtypes):
        return f"it makes {dtypes[1]} of {dtypes[0]} and {weight.dtype}"
    channels = node.meta["example_value"].shape[-1:]
    if bias is not None and not (isinstance(values.get(bias), Tensor) and values[bias].shape == channels):
        return "its bias is no argument with a cell a channel"
    if weight.is_inference():
        return "its weights are of inference mode, and nothing counts their changes"
    if weight.numel() >= 1 << 31:
        return "its weights have 2**31 cells or more"
    return "" if bool(weight.isfinite().all()) else "its weights have NaN or infinities"


def with_products(
    module: fx.GraphModule, chosen: Mapping[Any, PackedProducts]
) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """A graph in which each family is one call, and each site of attention a kernel; and the positions of its
    arguments, without packed weights."""
    graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(module.graph, new))
    packed = {each.weight for family, own in chosen.items() for each in family.members if own.products.form.bits}
    for family, own in chosen.items():
        family.join(graph, own, new)
    places = list[int]()
    for at, holder in enumerate(module.graph.find_nodes(op="placeholder")):
        if holder in packed and not new[holder].users:
            graph.erase_node(new[holder])
            continue
        places.append(at)
        if hasattr(holder, "_dynamo_source"):  # AOTAutograd asks for it
            new[holder]._dynamo_source = holder._dynamo_source
    graph.lint()
    return fx.GraphModule(module, graph), tuple(places)
