"""Hand-written kernels of noyau's C ABI, as a generator would print them, and the models that they replace parts of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from noyau.hosts.onnxruntime import write_back
from noyau.hosts.onnxruntime.function_bodies import DOMAIN
from noyau.toolchain.c import compiler as c_compiler

ABI = files("noyau").joinpath("codegen", "c", "noyau.h").read_text(encoding="utf-8")

SCALE_ADD = """
/* out[r, c] = x[r, c] * w[c] + s + EXTRA; EXTRA, when it is not 0, tells which of kernel and body ran. */
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) {
    sizes[0] = shapes[0][0], sizes[1] = shapes[0][1];
    return shapes[1][0] == sizes[1] ? 0 : 2;
}
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0], dims[1] = sizes[1]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 8 * sizes[1]; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const float *x = call->buffers[0], *w = call->buffers[1], *s = call->buffers[2];
    float *out = call->buffers[3];
    const int64_t cols = call->sizes[1];
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < cols; c++) out[r * cols + c] = x[r * cols + c] * w[c] + s[0] + EXTRA;
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 1, 1, 1}, ranks[] = {2, 1, 0, 2};
const noyau_kernel NAME_kernel = {
    "NAME", 3, 1, 0, 1, 2, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""

SOFTMAX = """
/* The softmax of the rows of x: f32[a, b, n]. */
#include <math.h>
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) {
    sizes[0] = shapes[0][0], sizes[1] = shapes[0][1], sizes[2] = shapes[0][2];
    return 0;
}
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) {
    dims[0] = sizes[0], dims[1] = sizes[1], dims[2] = sizes[2];
}
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0] * sizes[1]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 8 * sizes[2]; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const int64_t n = call->sizes[2];
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)call->buffers[0] + r * n;
        float *out = (float *)call->buffers[1] + r * n, high = -INFINITY, total = 0;
        for (int64_t i = 0; i < n; i++) high = x[i] > high ? x[i] : high;
        for (int64_t i = 0; i < n; i++) total += out[i] = expf(x[i] - high);
        for (int64_t i = 0; i < n; i++) out[i] /= total;
    }
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 1}, ranks[] = {3, 3};
const noyau_kernel NAME_kernel = {
    "NAME", 1, 1, 0, 1, 3, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""

SUM = """
/* The sum of x: f32[n], in blocks of 256 that a second launch adds in order; doubles between them. */
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) { return sizes[0] = shapes[0][0], 0; }
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) {}
static int64_t blocks(const int64_t *sizes) { return (sizes[0] + 255) / 256; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return index ? 8 : 8 * blocks(sizes); }
static int64_t extent(const int64_t *sizes, int32_t launch) { return launch ? 1 : blocks(sizes); }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return launch ? 8 * blocks(sizes) : 1032; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const float *x = call->buffers[0];
    double *partial = call->buffers[2], *total = call->buffers[3];
    if (call->launch == 0) {
        for (int64_t b = begin; b < end; b++) {
            partial[b] = 0;
            for (int64_t i = 256 * b; i < 256 * (b + 1) && i < call->sizes[0]; i++) partial[b] += x[i];
        }
        return NOYAU_OK;
    }
    *total = 0;
    for (int64_t b = 0; b < blocks(call->sizes); b++) *total += partial[b];
    *(float *)call->buffers[1] = (float)*total;
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 1}, ranks[] = {1, 0};
const noyau_kernel NAME_kernel = {
    "NAME", 1, 1, 2, 2, 1, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""

TAKE = """
/* out[i, :] = table[ids[i], :]; an index outside the table is refused. */
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) {
    return sizes[0] = shapes[0][0], sizes[1] = shapes[0][1], sizes[2] = shapes[1][0], 0;
}
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[2], dims[1] = sizes[1]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[2]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 8 * sizes[1] + 8; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const float *table = call->buffers[0];
    const int64_t *ids = call->buffers[1], width = call->sizes[1];
    float *out = call->buffers[2];
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = ids[i] < 0 ? ids[i] + call->sizes[0] : ids[i];
        if (id < 0 || id >= call->sizes[0]) return NOYAU_INDEX_OUT_OF_BOUNDS;
        for (int64_t c = 0; c < width; c++) out[i * width + c] = table[id * width + c];
    }
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 7, 1}, ranks[] = {2, 1, 2};
const noyau_kernel NAME_kernel = {
    "NAME", 2, 1, 0, 1, 3, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""

MIXED = """
/* Results of four types: a: f16[n] and b: bf16[n] negated by their sign bits, k: i64[n] where m: bool[n], not m. */
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) {
    sizes[0] = shapes[0][0];
    for (int32_t i = 1; i < 4; i++)
        if (shapes[i][0] != sizes[0]) return 1 + i;
    return 0;
}
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 26; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const uint16_t *a = call->buffers[0], *b = call->buffers[1];
    const int64_t *k = call->buffers[2];
    const uint8_t *m = call->buffers[3];
    uint16_t *minus_a = call->buffers[4], *minus_b = call->buffers[5];
    int64_t *chosen = call->buffers[6];
    uint8_t *not_m = call->buffers[7];
    for (int64_t i = begin; i < end; i++) {
        minus_a[i] = a[i] ^ 0x8000, minus_b[i] = b[i] ^ 0x8000;
        chosen[i] = m[i] ? -k[i] : k[i], not_m[i] = !m[i];
    }
    return NOYAU_OK;
}
static const int32_t dtypes[] = {10, 16, 7, 9, 10, 16, 7, 9}, ranks[] = {1, 1, 1, 1, 1, 1, 1, 1};
const noyau_kernel NAME_kernel = {
    "NAME", 4, 4, 0, 1, 1, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""


def kernel_text(text: str, name: str, extra: float = 0) -> str:
    """A kernel's text under a name; it compiles alone. `extra` is what SCALE_ADD adds, to be told from the body."""
    return f"{ABI}\n#define EXTRA {float(extra)!r}f\n{text.replace('NAME', name)}"


def build_library(
    kernels: Mapping[str, str],
    output: Path,
    options: c_compiler.CompilerOptions = c_compiler.DEFAULTS,
    simulated_level: int | None = None,
    domain: str = DOMAIN,
) -> None:
    """Write the library of these kernels; `simulated_level`: of which x86-64 level it believes that the CPU is."""
    simulated = "" if simulated_level is None else f"#define NOYAU_SIMULATED_LEVEL {simulated_level}\n"
    shim = simulated + write_back.shim_text(tuple(kernels), domain)
    c_compiler.link(write_back.objects(kernels, options, shim), output, options)


Type = tuple[int, tuple[int | str, ...]]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class StandIn:
    """A kernel, the nodes that mean the same, and arrays for it: `feeds(rng, n)` are small or, by n, large."""

    text: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    feeds: Callable[[np.random.Generator, int], Arrays]

    def types(self) -> tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
        infos = [[helper.make_tensor_value_info(name, *kind) for name, kind in ends.items()] for ends in self.ends()]
        return infos[0], infos[1]

    def ends(self) -> tuple[dict[str, Type], dict[str, Type]]:
        return self.inputs, self.outputs

    def plain(self) -> onnx.ModelProto:
        """The model of the nodes themselves."""
        return model_of(self.nodes, *self.types())

    def fused(self, name: str, with_body: bool = True) -> onnx.ModelProto:
        """The model of one node, and the function of the same name where `with_body`."""
        node = helper.make_node(name, list(self.inputs), list(self.outputs), name=name, domain="noyau")
        opsets = [helper.make_opsetid("", 18)]
        body = helper.make_function("noyau", name, list(self.inputs), list(self.outputs), list(self.nodes), opsets)
        return model_of([node], *self.types(), functions=[body] if with_body else [])


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of opset 18, with the domain of fused nodes where it is used."""
    domains = ["", *sorted({node.domain for node in nodes} - {""})]
    opsets = [helper.make_opsetid(domain, 1 if domain else 18) for domain in domains]
    graph = helper.make_graph(list(nodes), "model", list(inputs), list(outputs), list(initializers))
    return helper.make_model(graph, functions=list(functions), opset_imports=opsets, ir_version=8)


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), np.float32)


def _mixed_feeds(rng: np.random.Generator, n: int) -> Arrays:
    return {
        "a": _floats(rng, n).astype(np.float16),
        "b": _floats(rng, n).astype(ml_dtypes.bfloat16),
        "k": rng.integers(-(2**62), 2**62, n),
        "m": rng.random(n) < 0.5,
    }


F32, I64 = TensorProto.FLOAT, TensorProto.INT64
_N = ("n",)

takes_bfloat16 = pytest.mark.skipif(
    not hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type"),
    reason="an old onnxruntime takes no bfloat16 from Python: 1.18 does not, 1.22 does",
)

STAND_INS = {
    "scale_add": StandIn(
        SCALE_ADD,
        (helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "s"], ["out"])),
        {"x": (F32, ("r", "c")), "w": (F32, ("c",)), "s": (F32, ())},
        {"out": (F32, ("r", "c"))},
        lambda rng, n: {"x": _floats(rng, n, 40), "w": _floats(rng, 40), "s": np.array(0.25, np.float32)},
    ),
    "softmax": StandIn(
        SOFTMAX,
        (helper.make_node("Softmax", ["x"], ["out"], axis=-1),),
        {"x": (F32, ("a", "b", "n"))},
        {"out": (F32, ("a", "b", "n"))},
        lambda rng, n: {"x": _floats(rng, 2, n, 30)},
    ),
    "total": StandIn(
        SUM,
        (helper.make_node("ReduceSum", ["x"], ["out"], keepdims=0),),
        {"x": (F32, ("n",))},
        {"out": (F32, ())},
        lambda rng, n: {"x": _floats(rng, 257 * n)},
    ),
    "take": StandIn(
        TAKE,
        (helper.make_node("Gather", ["table", "ids"], ["out"]),),
        {"table": (F32, ("v", "d")), "ids": (I64, ("n",))},
        {"out": (F32, ("n", "d"))},
        lambda rng, n: {"table": _floats(rng, 50, 24), "ids": rng.integers(-50, 50, n)},
    ),
    "mixed": StandIn(
        MIXED,
        (
            helper.make_node("Neg", ["a"], ["minus_a"]),
            helper.make_node("Cast", ["b"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Neg", ["wide"], ["minus_wide"]),
            helper.make_node("Cast", ["minus_wide"], ["minus_b"], to=TensorProto.BFLOAT16),
            helper.make_node("Neg", ["k"], ["minus_k"]),
            helper.make_node("Where", ["m", "minus_k", "k"], ["chosen"]),
            helper.make_node("Not", ["m"], ["not_m"]),
        ),
        {"a": (10, _N), "b": (16, _N), "k": (I64, _N), "m": (9, _N)},
        {"minus_a": (10, _N), "minus_b": (16, _N), "chosen": (I64, _N), "not_m": (9, _N)},
        _mixed_feeds,
    ),
}
