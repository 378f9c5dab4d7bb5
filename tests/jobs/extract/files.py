"""Files of ops with kernels in C, right and spoilt, for a path of a small model. Support for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tests.small_models import INT64, NODE, model_of, value

COLUMNS, EPS = 6, 1e-3
ENDS = (["a", "r"], ["s", "n"])


def normed() -> onnx.ModelProto:
    """Two residual RMS norms with a MatMul between them: s = a + r, n = s / sqrt(mean(s^2) + eps) * w."""
    nodes = [*_norm("a", "r", "s", "n", "w1"), NODE("MatMul", ["n", "m"], ["r2"])]
    nodes += [*_norm("s", "r2", "s2", "n2", "w2"), NODE("Add", ["s2", "n2"], ["y"])]
    rng = np.random.default_rng(0)
    tensors = {
        "eps": np.array(EPS, np.float32),
        "two": np.array(2, np.float32),
        "axes": np.array([-1]),
        "w1": rng.standard_normal(COLUMNS).astype(np.float32),
        "w2": rng.standard_normal(COLUMNS).astype(np.float32),
        "m": rng.standard_normal((COLUMNS, COLUMNS)).astype(np.float32),
    }
    ends = [value("a", ("rows", COLUMNS)), value("r", ("rows", COLUMNS))], [value("y", ("rows", COLUMNS))]
    return model_of(nodes, *ends, [numpy_helper.from_array(array, name) for name, array in tensors.items()])


def _norm(one: str, other: str, total: str, result: str, weight: str) -> list[onnx.NodeProto]:
    return [
        NODE("Add", [one, other], [total]),
        NODE("Pow", [total, "two"], [f"{result}_p"]),
        NODE("ReduceMean", [f"{result}_p", "axes"], [f"{result}_m"], keepdims=1),
        NODE("Add", [f"{result}_m", "eps"], [f"{result}_e"]),
        NODE("Sqrt", [f"{result}_e"], [f"{result}_q"]),
        NODE("Div", [total, f"{result}_q"], [f"{result}_d"]),
        NODE("Mul", [f"{result}_d", weight], [result]),
    ]


def embedded() -> onnx.ModelProto:
    """A table looked into, and a sine of it; what is looked up is an input of integers."""
    table = np.random.default_rng(0).standard_normal((5, COLUMNS)).astype(np.float32)
    nodes = [NODE("Gather", ["table", "ids"], ["e"]), NODE("Sin", ["e"], ["y"])]
    ends = [value("ids", ("batch", "n"), INT64)], [value("y", ("batch", "n", COLUMNS))]
    return model_of(nodes, *ends, [numpy_helper.from_array(table, "table")])


REFERENCE = """\
import noyau
import numpy as np

BETWEEN = (["a", "r"], ["s", "n"])


@noyau.op("f32[rows, 6], f32[rows, 6], f32[6] -> s: f32[rows, 6], n: f32[rows, 6]")
def norm(a, r, w, *, eps=0.001):
    s = a + r
    return s, s / np.sqrt((s * s).mean(-1, keepdims=True) + np.float32(eps)) * w


norm.kernel("norm.c")
"""
RIGHT = """\
for (int64_t i = 0; i < rows; i++) {
    float total = 0;
    for (int k = 0; k < 6; k++) {
        s[i * 6 + k] = a[i * 6 + k] + r[i * 6 + k];
        total += s[i * 6 + k] * s[i * 6 + k];
    }
    const float root = sqrtf(total / 6 + eps);
    for (int k = 0; k < 6; k++) n[i * 6 + k] = s[i * 6 + k] / root * w[k];
}
"""


def written(folder: Path, body: str = RIGHT, reference: str = REFERENCE) -> str:
    """norm.py and norm.c in a folder; the result is what --with takes."""
    parameters = "const float *a, const float *r, const float *w, float *s, float *n, int64_t rows, float eps"
    head = f"#include <math.h>\n#include <stdint.h>\n\nvoid norm({parameters})\n{{\n"
    (folder / "norm.c").write_text(f"{head}{body}}}\n", "ascii")
    (folder / "norm.py").write_text(reference, "ascii")
    return f"{folder / 'norm.py'}::norm"
