"""Operators of ONNX as functions of torch, in tables, for nodes that no kernel covers where torch hosts a model.

Shapes and numbers about them stay NumPy's and never go to the device; a tensor is torch's."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.errors import UnsupportedError
from noyau.frontends.torch.tensors import FROM_TORCH
from noyau.hosts.torch.tensors import tensor_of

Value: TypeAlias = "torch.Tensor | np.ndarray | None"
F = torch.nn.functional
BY_NUMBER = {dtype.onnx: theirs for theirs, dtype in FROM_TORCH.items()}


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A call of a node: its inputs, None for an omitted one; `numbers` are its attributes."""

    operator: str
    inputs: Sequence[Value]
    numbers: Mapping[str, Any]
    outputs: int
    device: torch.device

    def tensor(self, at: int) -> torch.Tensor:
        """An input on the device."""
        value = self.inputs[at]
        if isinstance(value, np.ndarray):
            return tensor_of(value).to(self.device)
        assert value is not None, f"{self.operator} lacks its input {at}"
        return value

    def tensors(self) -> list[torch.Tensor]:
        return [self.tensor(at) for at, value in enumerate(self.inputs) if value is not None]

    def has(self, at: int) -> bool:
        return at < len(self.inputs) and self.inputs[at] is not None

    def array(self, at: int, name: str = "") -> list[int] | None:
        """Known integers: an input, or the attribute that older operator sets have."""
        if not self.has(at):
            attribute = self.numbers.get(name)
            return None if attribute is None else [int(each) for each in attribute]
        value = self.inputs[at]
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(
                f"{self.operator} has a shape, axes or places that only a run tells; torch hosts it where they follow "
                "from the shapes of the inputs"
            )
        return [int(each) for each in value.reshape(-1)]


Function: TypeAlias = Callable[[NodeCall], Any]


def _each(function: Callable[..., Any]) -> Function:
    return lambda call: function(*call.tensors())


def _fold(function: Callable[[Any, Any], Any]) -> Function:
    def run(call: NodeCall) -> Any:
        first, *others = call.tensors()
        for other in others:
            first = function(first, other)
        return first

    return run


def _power(call: NodeCall) -> torch.Tensor:
    x, exponent = call.tensor(0), call.inputs[1]
    number = exponent.item() if isinstance(exponent, np.ndarray) and exponent.size == 1 else call.tensor(1)
    return torch.pow(x, number).to(x.dtype)


def _cast(call: NodeCall) -> torch.Tensor:
    number = int(call.numbers["to"])
    if number not in BY_NUMBER:
        raise UnsupportedError(f"Cast to ONNX's element type {number} has no dtype of torch here")
    return call.tensor(0).to(BY_NUMBER[number])


def _clip(call: NodeCall) -> torch.Tensor:
    low, high = (call.tensor(at) if call.has(at) else call.numbers.get(name) for at, name in ((1, "min"), (2, "max")))
    x = call.tensor(0)
    return x if low is None and high is None else torch.clamp(x, low, high)


def _gemm(call: NodeCall) -> torch.Tensor:
    a, b = call.tensor(0), call.tensor(1)
    alpha, beta = (call.numbers.get(name, 1.0) for name in ("alpha", "beta"))
    product = (a.T if call.numbers.get("transA") else a) @ (b.T if call.numbers.get("transB") else b)
    product = product * alpha if alpha != 1.0 else product
    if not call.has(2):
        return product
    addend = call.tensor(2)
    return product + (addend * beta if beta != 1.0 else addend)


def _softmax(function: Callable[..., torch.Tensor]) -> Function:
    return lambda call: function(call.tensor(0), call.numbers.get("axis", -1))


def _reduce(function: Callable[..., torch.Tensor]) -> Function:
    def run(call: NodeCall) -> torch.Tensor:
        x, axes = call.tensor(0), call.array(1, "axes")
        if not axes:
            if call.numbers.get("noop_with_empty_axes", 0):
                return x
            axes = list(range(x.dim()))
        return function(x, axes, bool(call.numbers.get("keepdims", 1))).to(x.dtype)  # torch sums i32 as i64

    return run


def _mean(x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
    if x.dtype.is_floating_point:
        return torch.mean(x, axes, keep)
    return torch.div(torch.sum(x, axes, keep), math.prod(x.shape[axis] for axis in axes), rounding_mode="trunc")


def _product(x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def _place(function: Callable[..., torch.Tensor]) -> Function:
    def run(call: NodeCall) -> torch.Tensor:
        if call.numbers.get("select_last_index", 0):
            raise UnsupportedError(f"{call.operator} that takes the last of several has no function of torch here")
        return function(call.tensor(0), call.numbers.get("axis", 0), keepdim=bool(call.numbers.get("keepdims", 1)))

    return run


def _reshape(call: NodeCall) -> torch.Tensor:
    x, shape = call.tensor(0), call.array(1, "shape") or []
    if not call.numbers.get("allowzero", 0):
        shape = [x.shape[at] if extent == 0 else extent for at, extent in enumerate(shape)]
    return x.reshape(shape)


def _transpose(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.permute(call.numbers.get("perm") or tuple(reversed(range(x.dim()))))


def _flatten(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.numbers.get("axis", 1)
    return x.reshape(x.shape[:axis].numel(), x.shape[axis:].numel())  # a -1 says nothing where there are no cells


def _squeeze(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), call.array(1, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), call.array(1, "axes") or []
    for axis in sorted(axis % (x.dim() + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _expand(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.expand(torch.broadcast_shapes(x.shape, tuple(call.array(1) or ())))


def _slice(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    starts, ends = call.array(1, "starts") or [], call.array(2, "ends") or []
    axes, steps = call.array(3, "axes") or list(range(len(starts))), call.array(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
        else:
            extent = x.shape[axis]
            places = range(*slice(start, end if end >= -extent else None, step).indices(extent))
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=x.device))
    return x


def _split(call: NodeCall) -> tuple[torch.Tensor, ...]:
    x, sizes, axis = call.tensor(0), call.array(1, "split"), call.numbers.get("axis", 0)
    if sizes is None:
        return tuple(x.split(-(-x.shape[axis] // int(call.numbers.get("num_outputs", call.outputs))), axis))
    return tuple(x.split(sizes, axis))


def _gather(call: NodeCall) -> torch.Tensor:
    x, axis, index = call.tensor(0), call.numbers.get("axis", 0), call.inputs[1]
    if isinstance(index, np.ndarray) and not index.ndim:
        return x.select(axis, int(index))
    at = call.tensor(1).long()
    at = torch.where(at < 0, at + x.shape[axis], at)
    if x.dim() == 2 and axis == 0 and x.dtype.is_floating_point:
        return F.embedding(at, x)
    shape = (*x.shape[: axis % x.dim()], *at.shape, *x.shape[axis % x.dim() + 1 :])
    return x.index_select(axis, at.reshape(-1)).reshape(shape)


def _gather_nd(call: NodeCall) -> torch.Tensor:
    x, at = call.tensor(0), call.tensor(1).long()
    own = [torch.arange(x.shape[k], device=x.device) for k in range(int(call.numbers.get("batch_dims", 0)))]
    grids = [each.reshape([-1 if k == j else 1 for j in range(at.dim() - 1)]) for k, each in enumerate(own)]
    return x[(*grids, *at.unbind(-1))]


def _gather_elements(call: NodeCall) -> torch.Tensor:
    x, at, axis = call.tensor(0), call.tensor(1).long(), call.numbers.get("axis", 0)
    return torch.gather(x, axis, torch.where(at < 0, at + x.shape[axis], at))


def _layer_norm(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.numbers.get("axis", -1)
    shape = tuple(x.shape[axis % x.dim() :])
    bias = call.tensor(2) if call.has(2) else None
    return F.layer_norm(x, shape, call.tensor(1), bias, float(call.numbers.get("epsilon", 1e-5)))


def _rms_norm(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.numbers.get("axis", -1)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    axes = tuple(range(axis % x.dim(), x.dim()))
    root = torch.rsqrt(wide.pow(2).mean(axes, True) + float(call.numbers.get("epsilon", 1e-5)))
    return (wide * root).to(x.dtype) * call.tensor(1)


def _rotary(call: NodeCall) -> torch.Tensor:
    """RotaryEmbedding of operator set 23, as its function body has it."""
    x, cos, sin = call.tensor(0), call.tensor(1), call.tensor(2)
    if call.has(3):
        cos, sin = (each[call.tensor(3).long()] for each in (cos, sin))
    shape, flat = x.shape, x.dim() == 3
    heads = int(call.numbers.get("num_heads", 1))
    x = x.reshape(*shape[:2], heads, shape[2] // heads) if flat else x.transpose(1, 2)
    width = int(call.numbers.get("rotary_embedding_dim", 0)) or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    apart = call.numbers.get("interleaved", 0)
    one, two = (turned[..., ::2], turned[..., 1::2]) if apart else turned.chunk(2, -1)
    cos, sin = (each.unsqueeze(2) for each in (cos, sin))
    real, other = cos * one - sin * two, sin * one + cos * two
    result = torch.stack((real, other), -1).flatten(-2) if apart else torch.cat((real, other), -1)
    result = torch.cat((result, rest), -1) if rest.shape[-1] else result
    return result.reshape(shape) if flat else result.transpose(1, 2)


def _pad(call: NodeCall) -> torch.Tensor:
    x, pads, mode = call.tensor(0), call.array(1, "pads") or [], call.numbers.get("mode", "constant")
    if mode != "constant" or call.has(3):
        raise UnsupportedError(f"Pad of the mode {mode!r} or of some axes has no function of torch here")
    half = len(pads) // 2
    pairs = [extent for axis in reversed(range(half)) for extent in (pads[axis], pads[half + axis])]
    return F.pad(x, pairs, value=_number(call, 2) if call.has(2) else 0.0)


def _number(call: NodeCall, at: int) -> float:
    """The number in an input of one cell, which has to be known: an array, or a tensor of the model."""
    value = call.inputs[at]
    assert value is not None
    try:
        return float(value.item())
    except RuntimeError as error:  # of tracing
        raise UnsupportedError(f"{call.operator} has a number that only a run tells; make it a constant") from error


def _first(call: NodeCall) -> int:
    """The number in the second input; 0 without it."""
    return (call.array(1) or [0])[0]


def _cumsum(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), _first(call)
    turns = call.numbers.get("reverse", 0)
    sums = torch.cumsum(x.flip(axis) if turns else x, axis, dtype=x.dtype)
    if call.numbers.get("exclusive", 0) and x.shape[axis]:
        sums = torch.cat((torch.zeros_like(sums.narrow(axis, 0, 1)), sums.narrow(axis, 0, x.shape[axis] - 1)), axis)
    return sums.flip(axis) if turns else sums


def _dropout(call: NodeCall) -> torch.Tensor:
    """Dropout at inference: nothing is dropped."""
    if call.has(2) and _number(call, 2):
        raise UnsupportedError("Dropout that trains has no function of torch here; export the model in eval mode")
    return call.tensor(0)


FUNCTIONS: dict[str, Function] = {
    **{name: _fold(function) for name, function in (("Max", torch.maximum), ("Min", torch.minimum))},
    **{name: _fold(function) for name, function in (("Add", torch.add), ("Mul", torch.mul), ("Sum", torch.add))},
    **{name: _each(getattr(torch, name.lower())) for name in ("Sub", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log")},
    **{name: _each(getattr(torch, name.lower())) for name in ("Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Erf", "Floor")},
    **{name: _each(getattr(torch, name.lower())) for name in ("Ceil", "Round", "Sign", "Relu", "IsNaN")},
    **{name: _each(getattr(torch, f"logical_{name.lower()}")) for name in ("And", "Or", "Xor", "Not")},
    **{name: _each(function) for name, function in (("Equal", torch.eq), ("Greater", torch.gt), ("Less", torch.lt))},
    **{name: _each(function) for name, function in (("GreaterOrEqual", torch.ge), ("LessOrEqual", torch.le))},
    **{name: _each(function) for name, function in (("Where", torch.where), ("MatMul", torch.matmul))},
    "Softplus": _each(F.softplus),
    "Gelu": lambda call: F.gelu(call.tensor(0), approximate=call.numbers.get("approximate", "none")),
    "Div": _each(lambda x, y: x / y if x.dtype.is_floating_point else torch.div(x, y, rounding_mode="trunc")),
    "Pow": _power,
    "Mod": lambda call: (torch.fmod if call.numbers.get("fmod", 0) else torch.remainder)(*call.tensors()),
    "Cast": _cast,
    "Clip": _clip,
    "Gemm": _gemm,
    **{name: _softmax(function) for name, function in (("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax))},
    **{name: _reduce(function) for name, function in (("ReduceMean", _mean), ("ReduceProd", _product))},
    **{f"Reduce{name}": _reduce(fold) for name, fold in (("Sum", torch.sum), ("Max", torch.amax), ("Min", torch.amin))},
    "ArgMax": _place(torch.argmax),
    "ArgMin": _place(torch.argmin),
    "Identity": lambda call: call.tensor(0),
    "Dropout": _dropout,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Slice": _slice,
    "Split": _split,
    "Concat": lambda call: torch.cat(call.tensors(), int(call.numbers["axis"])),
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
    "Trilu": lambda call: (torch.triu if call.numbers.get("upper", 1) else torch.tril)(call.tensor(0), _first(call)),
    "CumSum": _cumsum,
    "Tile": lambda call: call.tensor(0).repeat(call.array(1) or []),
    "Pad": _pad,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "RotaryEmbedding": _rotary,
}


def run(call: NodeCall) -> tuple[Value, ...]:
    """The results of a node. UnsupportedError where torch has no function for it here."""
    function = FUNCTIONS.get(call.operator)
    if function is None:
        raise UnsupportedError(
            f"{call.operator} has no function of torch in noyau, so torch cannot host the model; "
            "optimise it for onnxruntime, without a device"
        )
    result = function(call)
    return tuple(result) if isinstance(result, tuple | list) else (result,)
