"""Each operator of the table, beside ONNX's own evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from noyau.errors import UnsupportedError
from noyau.hosts.torch.modules.onnx_operators import FUNCTIONS, NodeCall, run
from noyau.jobs.optimize.torch.onnx_model import attributes

rng = np.random.default_rng(0)
X, Y, ROW = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4), (2, 3, 4), (4,)))
N, AT = rng.integers(-5, 6, (2, 3)), np.array([[0, -1], [2, 1]])
N = np.where(N == 0, 3, N)
B = X > 0


def ints(*numbers):
    return np.array(numbers, np.int64)


CASES = [
    *((name, [X, Y], {}) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "GreaterOrEqual")),
    *((name, [X, ROW], {}) for name in ("Less", "LessOrEqual")),
    *(
        (name, [X], {})
        for name in ("Neg", "Abs", "Exp", "Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Erf", "Floor", "Ceil")
    ),
    *((name, [np.abs(X)], {}) for name in ("Sqrt", "Reciprocal", "Log")),
    *((name, [X], {}) for name in ("Round", "Sign", "Relu", "IsNaN", "Softplus", "Identity", "Dropout")),
    *((name, [B, ~B[:1]], {}) for name in ("And", "Or", "Xor")),
    ("Not", [B], {}),
    ("Sum", [X, Y, ROW], {}),
    ("Div", [N, np.full_like(N, 2)], {}),
    ("Mod", [N, np.full_like(N, 3)], {}),
    ("Mod", [X, np.abs(Y) + 1], {"fmod": 1}),
    ("Pow", [np.abs(X), np.float32(2.5)], {}),
    ("Pow", [X, Y.round()], {}),
    ("Where", [B, X, Y], {}),
    ("MatMul", [X, rng.standard_normal((4, 5)).astype(np.float32)], {}),
    ("Gemm", [X[0], Y[0], np.float32(1)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gelu", [X], {}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("Cast", [X], {"to": 7}),
    ("Clip", [X, np.float32(-0.5), np.float32(0.5)], {}),
    ("Softmax", [X], {"axis": 1}),
    ("LogSoftmax", [X], {}),
    *((name, [X, ints(-1)], {"keepdims": 0}) for name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")),
    ("ReduceProd", [X, ints(0, 2)], {}),
    ("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    ("ArgMax", [X], {"axis": 2}),
    ("ArgMin", [X], {"axis": 1, "keepdims": 0}),
    ("Reshape", [X, ints(0, -1)], {}),
    ("Transpose", [X], {"perm": [2, 0, 1]}),
    ("Transpose", [X], {}),
    ("Flatten", [X], {"axis": 2}),
    ("Squeeze", [X[:, :1], ints(1)], {}),
    ("Unsqueeze", [X, ints(0, -1)], {}),
    ("Expand", [X[:, :1], ints(5, 1, 3, 1)], {}),
    ("Slice", [X, ints(1, 0), ints(9, -1), ints(1, 2), ints(1, 2)], {}),
    ("Slice", [X, ints(-1), ints(-99), ints(2), ints(-2)], {}),
    ("Split", [X, ints(1, 2)], {"axis": 1}),
    ("Split", [X], {"axis": 2, "num_outputs": 2}),
    ("Concat", [X, Y], {"axis": -1}),
    ("Gather", [X, AT], {"axis": 1}),
    ("Gather", [X, np.array(1)], {"axis": 2}),
    ("Gather", [X[0], AT], {}),
    ("GatherND", [X, np.array([[0, 1], [1, 2]])], {}),
    ("GatherND", [X, np.array([[1], [2]])], {"batch_dims": 1}),
    ("GatherElements", [X[0], np.array([[0, 2, 1, -1]])], {"axis": 0}),
    ("Trilu", [X, np.array(1)], {"upper": 0}),
    ("CumSum", [X, np.array(1)], {}),
    *(("CumSum", [N.astype(np.int32), np.array(1)], {"exclusive": 1, "reverse": turns}) for turns in (0, 1)),
    *((name, [N.astype(np.int32), ints(-1)], {}) for name in ("ReduceSum", "ReduceProd", "ReduceMean")),
    ("Tile", [X, ints(1, 2, 1)], {}),
    ("Pad", [X, ints(0, 1, 0, 2, 0, 0), np.float32(3)], {}),
    ("LayerNormalization", [X, ROW, ROW], {"epsilon": 1e-3}),
    ("RMSNormalization", [X, ROW], {"axis": -1}),
    (
        "RotaryEmbedding",
        [rng.standard_normal((2, 3, 5, 8)).astype(np.float32), *(X[:1, :, :4].repeat(5, 1)[:, :5],) * 2],
        {},
    ),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "numbers"), CASES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_an_operator(operator, inputs, numbers):
    if operator == "RotaryEmbedding":
        inputs = [inputs[0], *(np.repeat(each, 2, 0) for each in inputs[1:])]
    outputs = [f"o{at}" for at in range(2 if operator == "Split" else 1)]
    names = [f"i{at}" for at in range(len(inputs))]
    node = onnx.helper.make_node(operator, names, outputs, **numbers)
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, map(np.asarray, inputs), strict=True)
    ]
    graph = onnx.helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    want = ReferenceEvaluator(model).run(
        None, {name: np.asarray(each) for name, each in zip(names, inputs, strict=True)}
    )
    first = 2 if operator == "Where" else 1
    tensors = [torch.from_numpy(np.asarray(each)) if at < first else np.asarray(each) for at, each in enumerate(inputs)]
    made = run(NodeCall(operator, tensors, attributes(node), len(outputs), torch.device("cpu")))
    for got, right in zip(made, want, strict=True):
        assert tuple(got.shape) == right.shape
        assert got.numpy().dtype == right.dtype
        assert np.allclose(got.numpy(), right, 1e-5, 1e-5, equal_nan=True)


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 0)), (1, (0, 12)), (3, (0, 1)), (-1, (0, 4)), (-3, (1, 0))])
def test_arrays_without_cells_are_flattened(axis, shape):
    (result,) = run(NodeCall("Flatten", [torch.ones(0, 3, 4)], {"axis": axis}, 1, torch.device("cpu")))
    assert tuple(result.shape) == shape


def test_arrays_without_cells_are_rotated():
    flat, half = torch.ones(0, 3, 16), torch.ones(0, 3, 4)
    (result,) = run(NodeCall("RotaryEmbedding", [flat, half, half], {"num_heads": 2}, 1, torch.device("cpu")))
    assert result.shape == flat.shape


def test_every_operator_has_a_case():
    assert set(FUNCTIONS) - {case[0] for case in CASES} == {"SimplifiedLayerNormalization"}


def test_what_torch_has_nothing_for_is_named():
    x = torch.ones(2, 3)
    for operator, inputs, numbers, told in (
        ("NonZero", [x], {}, "NonZero has no function of torch in noyau"),
        ("Reshape", [x, torch.tensor([6])], {}, "Reshape has a shape, axes or places that only a run tells"),
        ("Cast", [x], {"to": 8}, "ONNX's element type 8"),
        ("Pad", [x, ints(1, 1, 1, 1)], {"mode": "reflect"}, "Pad of the mode 'reflect'"),
        ("Dropout", [x, None, np.array(True)], {}, "Dropout that trains"),
        ("ArgMax", [x], {"select_last_index": 1}, "takes the last of several"),
    ):
        with pytest.raises(UnsupportedError, match=told):
            run(NodeCall(operator, inputs, numbers, 1, torch.device("cpu")))


def test_a_number_may_be_a_tensor_of_the_model():
    inputs = [torch.ones(2), ints(1, 0), torch.tensor([3.0])]
    (made,) = run(NodeCall("Pad", inputs, {}, 1, torch.device("cpu")))
    assert made.tolist() == [3, 1, 1]
