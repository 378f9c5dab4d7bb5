"""Operators of ONNX as functions of torch, by tables: what runs those that no kernel covers where torch hosts a model.

What is known of shapes is NumPy's all along and never on the device; a tensor is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.errors import UnsupportedError
from noyau.frontends.torch.dtypes import FROM_TORCH
from noyau.hosts.torch.tensors import tensor_of

Value: TypeAlias = "torch.Tensor | np.ndarray | None"
F = torch.nn.functional
BY_NUMBER = {dtype.onnx: theirs for theirs, dtype in FROM_TORCH.items()}


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node in a run: its inputs, None where one is left out; `numbers` are its attributes."""

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
        """Numbers that are known: an input, or the attribute that older operator sets have."""
        if not self.has(at):
            found = self.numbers.get(name)
            return None if found is None else [int(each) for each in found]
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


def _folded(function: Callable[[Any, Any], Any]) -> Function:
    def run(call: NodeCall) -> Any:
        first, *others = call.tensors()
        for other in others:
            first = function(first, other)
        return first

    return run


def _divided(call: NodeCall) -> torch.Tensor:
    x, y = call.tensors()
    return x / y if x.dtype.is_floating_point else torch.div(x, y, rounding_mode="trunc")


def _power(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    known = call.inputs[1]
    number = known.item() if isinstance(known, np.ndarray) and known.size == 1 else call.tensor(1)
    return torch.pow(x, number).to(x.dtype)


def _remainder(call: NodeCall) -> torch.Tensor:
    x, y = call.tensors()
    return torch.fmod(x, y) if call.numbers.get("fmod", 0) else torch.remainder(x, y)


def _cast(call: NodeCall) -> torch.Tensor:
    number = int(call.numbers["to"])
    if number not in BY_NUMBER:
        raise UnsupportedError(f"Cast to ONNX's element type {number} has no dtype of torch here")
    return call.tensor(0).to(BY_NUMBER[number])


def _clip(call: NodeCall) -> torch.Tensor:
    low, high = (call.tensor(at) if call.has(at) else call.numbers.get(name) for at, name in ((1, "min"), (2, "max")))
    x = call.tensor(0)
    if low is None and high is None:
        return x
    return torch.clamp(x, low, high)


def _gemm(call: NodeCall) -> torch.Tensor:
    a, b = call.tensor(0), call.tensor(1)
    made = (a.T if call.numbers.get("transA") else a) @ (b.T if call.numbers.get("transB") else b)
    made = made * call.numbers["alpha"] if call.numbers.get("alpha", 1.0) != 1.0 else made
    if not call.has(2):
        return made
    added = call.tensor(2)
    return made + (added * call.numbers["beta"] if call.numbers.get("beta", 1.0) != 1.0 else added)


def _softmax(function: Callable[..., torch.Tensor]) -> Function:
    return lambda call: function(call.tensor(0), call.numbers.get("axis", -1))


def _reduced(function: Callable[..., torch.Tensor]) -> Function:
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
    count = math.prod(x.shape[axis] for axis in axes)
    return torch.div(torch.sum(x, axes, keep), count, rounding_mode="trunc")


def _product(x: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def _found(function: Callable[..., torch.Tensor]) -> Function:
    def run(call: NodeCall) -> torch.Tensor:
        if call.numbers.get("select_last_index", 0):
            raise UnsupportedError(f"{call.operator} that takes the last of several has no function of torch here")
        return function(call.tensor(0), call.numbers.get("axis", 0), keepdim=bool(call.numbers.get("keepdims", 1)))

    return run


def _reshaped(call: NodeCall) -> torch.Tensor:
    x, wanted = call.tensor(0), call.array(1, "shape") or []
    if not call.numbers.get("allowzero", 0):
        wanted = [x.shape[at] if extent == 0 else extent for at, extent in enumerate(wanted)]
    return x.reshape(wanted)


def _transposed(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.permute(call.numbers.get("perm") or tuple(reversed(range(x.dim()))))


def _flattened(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.numbers.get("axis", 1)
    return x.reshape(int(np.prod(x.shape[: axis % (x.dim() + 1) if axis >= 0 else axis])), -1)


def _squeezed(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), call.array(1, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueezed(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), call.array(1, "axes") or []
    for axis in sorted(axis % (x.dim() + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _expanded(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.expand(torch.broadcast_shapes(x.shape, tuple(call.array(1) or ())))


def _sliced(call: NodeCall) -> torch.Tensor:
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
        count = int(call.numbers.get("num_outputs", call.outputs))
        return tuple(x.split(-(-x.shape[axis] // count), axis))
    return tuple(x.split(sizes, axis))


def _joined(call: NodeCall) -> torch.Tensor:
    return torch.cat(call.tensors(), int(call.numbers["axis"]))


def _gathered(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.numbers.get("axis", 0)
    known = call.inputs[1]
    if isinstance(known, np.ndarray) and not known.ndim:
        return x.select(axis, int(known))
    at = call.tensor(1).long()
    at = torch.where(at < 0, at + x.shape[axis], at)
    if x.dim() == 2 and axis == 0 and x.dtype.is_floating_point:
        return F.embedding(at, x)
    shape = (*x.shape[: axis % x.dim()], *at.shape, *x.shape[axis % x.dim() + 1 :])
    return x.index_select(axis, at.reshape(-1)).reshape(shape)


def _gathered_nd(call: NodeCall) -> torch.Tensor:
    x, at = call.tensor(0), call.tensor(1).long()
    lead = int(call.numbers.get("batch_dims", 0))
    own = [torch.arange(x.shape[k], device=x.device) for k in range(lead)]
    grids = [each.reshape([-1 if k == j else 1 for j in range(at.dim() - 1)]) for k, each in enumerate(own)]
    return x[(*grids, *at.unbind(-1))]


def _gathered_elements(call: NodeCall) -> torch.Tensor:
    x, at, axis = call.tensor(0), call.tensor(1).long(), call.numbers.get("axis", 0)
    return torch.gather(x, axis, torch.where(at < 0, at + x.shape[axis], at))


def _triangle(call: NodeCall) -> torch.Tensor:
    offset = (call.array(1) or [0])[0]
    return (torch.triu if call.numbers.get("upper", 1) else torch.tril)(call.tensor(0), offset)


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


def _rotated(call: NodeCall) -> torch.Tensor:
    """RotaryEmbedding of operator set 23, as its function body has it."""
    x, cos, sin = call.tensor(0), call.tensor(1), call.tensor(2)
    if call.has(3):
        cos, sin = (each[call.tensor(3).long()] for each in (cos, sin))
    shape, flat = x.shape, x.dim() == 3
    if flat:
        x = x.reshape(*shape[:2], int(call.numbers["num_heads"]), -1)
    else:
        x = x.transpose(1, 2)
    width = int(call.numbers.get("rotary_embedding_dim", 0)) or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    apart = call.numbers.get("interleaved", 0)
    one, two = (turned[..., ::2], turned[..., 1::2]) if apart else turned.chunk(2, -1)
    cos, sin = (each.unsqueeze(2) for each in (cos, sin))
    real, other = cos * one - sin * two, sin * one + cos * two
    made = torch.stack((real, other), -1).flatten(-2) if apart else torch.cat((real, other), -1)
    made = torch.cat((made, rest), -1) if rest.shape[-1] else made
    return made.reshape(shape) if flat else made.transpose(1, 2)


def _gelu(call: NodeCall) -> torch.Tensor:
    words = call.numbers.get("approximate", "none")
    return F.gelu(call.tensor(0), approximate=words)


def _padded(call: NodeCall) -> torch.Tensor:
    x, pads, mode = call.tensor(0), call.array(1, "pads") or [], call.numbers.get("mode", "constant")
    if mode != "constant" or call.has(3):
        raise UnsupportedError(f"Pad of the mode {mode!r} or of some axes has no function of torch here")
    half = len(pads) // 2
    pairs = [extent for axis in reversed(range(half)) for extent in (pads[axis], pads[half + axis])]
    return F.pad(x, pairs, value=_number(call, 2) if call.has(2) else 0.0)


def _number(call: NodeCall, at: int) -> float:
    """An input of one cell that is known: an array, or a tensor of the model."""
    value = call.inputs[at]
    assert value is not None
    try:
        return float(value.item())
    except RuntimeError as error:  # of tracing
        raise UnsupportedError(f"{call.operator} has a number that only a run tells; make it a constant") from error


def _summed_up(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), (call.array(1) or [0])[0]
    turns = call.numbers.get("reverse", 0)
    made = torch.cumsum(x.flip(axis) if turns else x, axis, dtype=x.dtype)
    if call.numbers.get("exclusive", 0) and x.shape[axis]:
        made = torch.cat((torch.zeros_like(made.narrow(axis, 0, 1)), made.narrow(axis, 0, x.shape[axis] - 1)), axis)
    return made.flip(axis) if turns else made


def _kept(call: NodeCall) -> torch.Tensor:
    """Dropout as models are run with: nothing is dropped."""
    if call.has(2) and _number(call, 2):
        raise UnsupportedError("Dropout that trains has no function of torch here; export the model in eval mode")
    return call.tensor(0)


FUNCTIONS: dict[str, Function] = {
    **{name: _folded(function) for name, function in (("Max", torch.maximum), ("Min", torch.minimum))},
    **{name: _folded(function) for name, function in (("Add", torch.add), ("Mul", torch.mul), ("Sum", torch.add))},
    **{name: _each(getattr(torch, name.lower())) for name in ("Sub", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log")},
    **{name: _each(getattr(torch, name.lower())) for name in ("Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Erf", "Floor")},
    **{name: _each(getattr(torch, name.lower())) for name in ("Ceil", "Round", "Sign", "Relu", "IsNaN")},
    "And": _each(torch.logical_and),
    "Or": _each(torch.logical_or),
    "Xor": _each(torch.logical_xor),
    "Not": _each(torch.logical_not),
    "Equal": _each(torch.eq),
    "Greater": _each(torch.gt),
    "GreaterOrEqual": _each(torch.ge),
    "Less": _each(torch.lt),
    "LessOrEqual": _each(torch.le),
    "Where": _each(torch.where),
    "MatMul": _each(torch.matmul),
    "Softplus": _each(F.softplus),
    "Gelu": _gelu,
    "Div": _divided,
    "Pow": _power,
    "Mod": _remainder,
    "Cast": _cast,
    "Clip": _clip,
    "Gemm": _gemm,
    "Softmax": _softmax(torch.softmax),
    "LogSoftmax": _softmax(torch.log_softmax),
    "ReduceMean": _reduced(_mean),
    "ReduceSum": _reduced(torch.sum),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMin": _reduced(torch.amin),
    "ReduceProd": _reduced(_product),
    "ArgMax": _found(torch.argmax),
    "ArgMin": _found(torch.argmin),
    "Identity": lambda call: call.tensor(0),
    "Dropout": _kept,
    "Reshape": _reshaped,
    "Transpose": _transposed,
    "Flatten": _flattened,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Expand": _expanded,
    "Slice": _sliced,
    "Split": _split,
    "Concat": _joined,
    "Gather": _gathered,
    "GatherND": _gathered_nd,
    "GatherElements": _gathered_elements,
    "Trilu": _triangle,
    "CumSum": _summed_up,
    "Tile": lambda call: call.tensor(0).repeat(call.array(1) or []),
    "Pad": _padded,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "RotaryEmbedding": _rotated,
}


def run(call: NodeCall) -> tuple[Value, ...]:
    """The results of a node. UnsupportedError where torch has nothing for it here."""
    function = FUNCTIONS.get(call.operator)
    if function is None:
        raise UnsupportedError(
            f"{call.operator} has no function of torch in noyau, so torch cannot host the model; "
            "optimise it for onnxruntime, without a device"
        )
    result = function(call)
    return tuple(result) if isinstance(result, tuple | list) else (result,)
