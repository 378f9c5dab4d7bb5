"""Models to cut parts out of, and random parts. Support for tests, not a test."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from noyau.frontends.onnx_messages import reads, subgraphs
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.function_bodies import FusedNode, ModelValues, recompute
from tests.hosts.kernels import F32, Arrays, model_of
from tests.small_models import llama

NODE = helper.make_node
HOSTILE = [
    'a"b',
    "a\nb",
    "*/ int main() {} /*",
    "../../etc/passwd",
    "$(touch x); `id`",
    "a b",
    "\u00e9",
    "1",
    "_",
    "-",
    "%s",
    "x" * 5000,
]


def tiny_llama(exporter: str) -> onnx.ModelProto:
    """The tiny LLaMA of the demo, for onnxruntime 1.17 too: what IR 10 has beyond IR 8 are dtypes of others."""
    model = onnx.load(llama(exporter))
    model.ir_version = 8
    return model


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, shape)


def constant(name: str, value: object) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def norm_nodes(prefix: str, source: str, result: str, weight: str = "w") -> list[onnx.NodeProto]:
    """x * rsqrt(mean(x^2) + eps) * w, as exporters spell it."""
    names = [f"{prefix}{number}" for number in range(5)]
    return [
        NODE("Pow", [source, "two"], [names[0]]),
        NODE("ReduceMean", [names[0], "axes"], [names[1]]),
        NODE("Add", [names[1], "eps"], [names[2]]),
        NODE("Sqrt", [names[2]], [names[3]]),
        NODE("Div", [source, names[3]], [names[4]]),
        NODE("Mul", [names[4], weight], [result]),
    ]


NORM_CONSTANTS = [
    constant("two", np.float32(2)),
    constant("axes", np.array([-1], np.int64)),
    constant("eps", np.float32(1e-5)),
    constant("w", np.arange(8, dtype=np.float32)),
]


def two_norms() -> onnx.ModelProto:
    nodes = [*norm_nodes("a", "x", "y"), NODE("Tanh", ["y"], ["t"], name="between"), *norm_nodes("b", "t", "z")]
    return model_of(nodes, [floats("x", "n", 8)], [floats("z", "n", 8)], NORM_CONSTANTS)


def reshaped(prefix: str, source: str, result: str, shape: str) -> list[onnx.NodeProto]:
    return [NODE("Tanh", [source], [f"{prefix}t"]), NODE("Reshape", [f"{prefix}t", shape], [result])]


def with_outer_shape(extra: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    """Reshapes whose shape depends on an input that they do not read otherwise."""
    nodes = [NODE("Shape", ["ids"], ["size"]), NODE("Concat", ["size", "rest"], ["shape"], axis=0)]
    nodes += [*reshaped("a", "x", "y", "shape"), *extra]
    inputs = [floats("x", "n", 8), helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])]
    return model_of(
        nodes, inputs, [floats(name, None, None, None) for name in outputs], [constant("rest", np.array([2, 4]))]
    )


def run(model: onnx.ModelProto, feeds: Arrays, library: Path | None = None) -> Arrays:
    return runs.run(sessions.open_session(model.SerializeToString(), library, threads=1, optimized=False), feeds)


def same(model: onnx.ModelProto, other: onnx.ModelProto, feeds: Arrays | None = None) -> bool:
    """Whether both are right models that give the same bits."""
    onnx.checker.check_model(other, full_check=True)
    feeds = feeds or {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}
    wanted, found = run(model, feeds), run(other, feeds)
    return wanted.keys() == found.keys() and all(wanted[name].tobytes() == found[name].tobytes() for name in wanted)


def node_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def random_parts(model: onnx.ModelProto, seed: int) -> list[FusedNode]:
    """Windows of consecutive nodes, some nodes in none; a window is always convex. Some inputs are left to be found."""
    rng, values, graph = random.Random(seed), ModelValues.of(model), model.graph
    at, parts = 0, list[FusedNode]()
    while at < len(graph.node):
        window = [
            number
            for number in range(at, min(at + rng.randint(1, 12), len(graph.node)))
            if not any(subgraphs(graph.node[number]))
        ]
        at += rng.randint(len(window) or 1, 14)
        made = {name for number in window for name in graph.node[number].output if name}
        outside = {name for number, node in enumerate(graph.node) if number not in window for name in reads(node)}
        outside.update(value.name for value in graph.output)
        inputs = sorted(set().union(*(reads(graph.node[number]) for number in window)) - made)
        inputs = [name for name in inputs if recompute(name, values) is None and rng.random() < 0.8]
        outputs = sorted(made & outside)
        if outputs:
            parts.append(FusedNode(f"part{len(parts)}_{seed}", tuple(window), tuple(inputs), tuple(outputs)))
    return parts
