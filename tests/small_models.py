"""Small models for the main job, of every kind that it meets, and kernels spoilt on purpose. Support for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from noyau.codegen.plan import PlannedKernel
from noyau.jobs.optimize.pipeline import BindingTiming
from noyau.timing.verdict import Comparison

NODE = helper.make_node
FLOAT, INT64, STRING, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
CHAIN = ("Tanh", "Mul", "Sigmoid")  # the operators of `chain`


def value(name: str, shape: Sequence[int | str] | None = ("n",), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def chain(source: str, result: str, prefix: str = "") -> list[onnx.NodeProto]:
    """sigmoid(x tanh(x)): three operators that become one kernel."""
    tanh, product = f"{prefix}tanh", f"{prefix}product"
    return [
        NODE("Tanh", [source], [tanh]),
        NODE("Mul", [tanh, source], [product]),
        NODE("Sigmoid", [product], [result]),
    ]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    tensors: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 18,
) -> onnx.ModelProto:
    domains = sorted({node.domain for node in nodes} - {""})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(list(nodes), "small", list(inputs), list(outputs), list(tensors))
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9)


def plain() -> onnx.ModelProto:
    """One kernel, of x: f32[rows, 6]."""
    return model_of(chain("x", "y"), [value("x", ("rows", 6))], [value("y", ("rows", 6))])


def twice() -> onnx.ModelProto:
    """Two kernels with a MatMul between them, the first in two places."""
    nodes = [*chain("x", "a", "a"), NODE("MatMul", ["a", "w"], ["b"]), *chain("b", "c", "c")]
    nodes += [NODE("MatMul", ["c", "w"], ["d"]), NODE("Exp", ["d"], ["e"]), NODE("Neg", ["e"], ["y"])]
    weight = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    return model_of(nodes, *ends, [numpy_helper.from_array(weight, "w")])


def with_branches() -> onnx.ModelProto:
    then = helper.make_graph(chain("x", "a", "then"), "then", [], [value("a")])
    other = helper.make_graph([NODE("Neg", ["x"], ["b"])], "other", [], [value("b")])
    nodes = [*chain("x", "w"), NODE("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    nodes += [NODE("Add", ["y", "w"], ["s"]), NODE("Exp", ["s"], ["z"])]
    return model_of(nodes, [value("x"), value("c", (), BOOL)], [value("z")])


def with_loop() -> onnx.ModelProto:
    body = [NODE("Tanh", ["state"], ["q"]), NODE("Add", ["q", "x"], ["next"]), NODE("Identity", ["go"], ["on"])]
    inputs = [value("i", (), INT64), value("go", (), BOOL), value("state")]
    inner = helper.make_graph(body, "body", inputs, [value("on", (), BOOL), value("next")])
    nodes = [*chain("x", "w"), NODE("Loop", ["trips", "", "w"], ["y"], body=inner)]
    return model_of(nodes, [value("x")], [value("y")], [numpy_helper.from_array(np.array(3), "trips")])


def with_function() -> onnx.ModelProto:
    function = helper.make_function("own", "F", ["a"], ["b"], chain("a", "b"), [helper.make_opsetid("", 18)])
    nodes = [NODE("F", ["x"], ["y"], domain="own"), NODE("Exp", ["y"], ["z"])]
    return model_of(nodes, [value("x")], [value("z")], functions=[function])


def with_strange_operator() -> onnx.ModelProto:
    """What stands before the operator of an unknown domain can run, and what stands after it cannot."""
    nodes = [*chain("x", "w"), NODE("Strange", ["w"], ["v"], domain="com.example"), NODE("Exp", ["v"], ["e"])]
    model = model_of([*nodes, NODE("Neg", ["e"], ["y"])], [value("x")], [value("y")])
    model.graph.value_info.append(value("v"))
    return model


def overridable() -> onnx.ModelProto:
    """An initializer that is an input too."""
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    ends = [value("x", ("n", 4)), value("w", (4,))], [value("y", ("n", 4))]
    return model_of([NODE("Mul", ["x", "w"], ["a"]), *chain("a", "y")], *ends, [weight])


def sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def _of_type(dtype: int) -> onnx.ModelProto:
    return model_of(chain("x", "y"), [value("x", dtype=dtype)], [value("y", dtype=dtype)])


# Models in which `chain` becomes a kernel, whatever else is in them; but for what is computed once.
KINDS = {
    "branches": with_branches(),
    "loop": with_loop(),
    "function": with_function(),
    "strange operator": with_strange_operator(),
    "overridable initializer": overridable(),
    "float16": _of_type(TensorProto.FLOAT16),
    "float64": _of_type(TensorProto.DOUBLE),
    "scalar": model_of(chain("x", "y"), [value("x", ())], [value("y", ())]),
    "empty": model_of(chain("x", "y"), [value("x", (0, 3))], [value("y", (0, 3))]),
    "no inputs": model_of(
        [NODE("Constant", [], ["x"], value=numpy_helper.from_array(np.ones(3, np.float32))), *chain("x", "y")],
        [],
        [value("y", (3,))],
    ),
    "strings": model_of(
        [*chain("x", "y"), NODE("Identity", ["s"], ["t"])],
        [value("x"), value("s", dtype=STRING)],
        [value("y"), value("t", dtype=STRING)],
    ),
    "sequence in": model_of(
        [*chain("x", "y"), NODE("SequenceLength", ["s"], ["k"])],
        [value("x"), sequence("s")],
        [value("y"), value("k", (), INT64)],
    ),
    "sequence out": model_of(
        [*chain("x", "y"), NODE("SequenceConstruct", ["y", "x"], ["s"])], [value("x")], [sequence("s")]
    ),
    "any rank": model_of(
        [*chain("x", "y"), *chain("u", "v", "u")], [value("x"), value("u", None)], [value("y"), value("v", None)]
    ),
    "shape from data": model_of(
        [NODE("NonZero", ["x"], ["i"]), NODE("Cast", ["i"], ["f"], to=FLOAT), *chain("f", "y")],
        [value("x")],
        [value("y", (1, "k"))],
    ),
    "random": model_of(
        [NODE("RandomNormalLike", ["x"], ["r"]), NODE("Add", ["x", "r"], ["a"]), *chain("a", "y")],
        [value("x")],
        [value("y")],
    ),
}
# Models in which nothing can be fused.
BARE = {
    "computed once": KINDS["no inputs"],
    "no nodes": model_of([], [value("x")], [value("x")]),
    "one operator": model_of([NODE("Tanh", ["x"], ["y"])], [value("x")], [value("y")]),
    "a product alone": model_of([NODE("MatMul", ["x", "x"], ["y"])], [value("x", (3, 3))], [value("y", (3, 3))]),
    "a newer opset": model_of(chain("x", "y"), [value("x")], [value("y")], opset=999),
    "strings alone": model_of([NODE("Identity", ["s"], ["t"])], [value("s", dtype=STRING)], [value("t", dtype=STRING)]),
}


def written(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def llama(exporter: str) -> Path:
    """The tiny LLaMA of the demo."""
    return Path(str(files("noyau.jobs.demo.models").joinpath(f"llama_tiny_{exporter}.onnx")))


def arrays_for(model: onnx.ModelProto, seed: int = 0, size: int = 5) -> dict[str, np.ndarray]:
    """Floats for the inputs of a model, its sizes all one number."""
    rng, stored = np.random.default_rng(seed), {tensor.name for tensor in model.graph.initializer}
    made = {}
    for each in model.graph.input:
        kind = each.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else size for dim in kind.shape.dim]
        if each.name not in stored:
            made[each.name] = np.asarray(rng.standard_normal(shape)).astype(
                helper.tensor_dtype_to_np_dtype(kind.elem_type)
            )
    return made


def compared(ratio: float) -> Comparison:
    """A comparison that says so many times as fast, as if the clock had."""
    return Comparison((ratio,) * 10, (1.0,) * 10)


def timed_as(ratio: float) -> Callable[..., list[BindingTiming]]:
    """In place of `Bench.compare`: the clock says so many times as fast, at every binding."""
    return lambda _, before, after, scenes, *rest: [BindingTiming(scene.sizes, compared(ratio)) for scene in scenes]


WRONG = "if (call->launch == 0 && begin == 0 && begin < end) *(float *)call->buffers[{inputs}] += 1; return status;"
CRASHES = "__builtin_trap(); return status;"
HANGS = (
    "{{ extern int pause(void); for (volatile int one = 1; one;) pause(); }} return status;"  # it wears no processor
)
REFUSES = "return status ? status : NOYAU_OUT_OF_MEMORY;"


def spoilt(planned: PlannedKernel, ending: str) -> PlannedKernel:
    """The kernel, of which the run ends in another way: WRONG in its first cell, REFUSES to give a result, CRASHES or
    HANGS."""
    name, inputs = planned.operator, len(planned.groups[0].inputs)
    signature = f"static int32_t {name}_run(const noyau_call *call, int64_t begin, int64_t end)\n{{"
    assert planned.text.count(signature) == 1
    head, tail = planned.text.split(signature)
    inner, table = tail.split(f"static const int32_t {name}_dtypes")
    outer = f"{signature} int32_t status = {name}_right(call, begin, end); {ending.format(inputs=inputs)} }}\n"
    text = f"{head}{signature.replace('_run(', '_right(')}{inner}{outer}\nstatic const int32_t {name}_dtypes{table}"
    return replace(planned, text=text)
