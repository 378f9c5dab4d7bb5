"""Exam, by hand: one path of a LLaMA, and your own kernel in its place
====================================================================

The exam of the course, step by step: extract the path, write the kernel, check it, time it, put it back, and defend the
gain against its ceiling. The kernel is a residual RMSNorm in C; its broken twin forgets eps.

Run it: ``python examples/gallery/plot_own_kernel.py`` (needs ``pip install 'noyau-kernels[onnx]'`` and a C compiler).
"""

from __future__ import annotations

import tempfile
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

import noyau
from noyau.errors import InputError
from noyau.jobs.check.model_difference import model_difference
from noyau.ops.op_files import load_op

folder = Path(tempfile.mkdtemp(prefix="noyau-exam-"))
model = folder / "llama.onnx"
with as_file(files("noyau.jobs.demo.models") / "llama_tiny_dynamo.onnx") as tiny:
    model.write_bytes(tiny.read_bytes())

# %%
# The path
# --------
# The path leads from the residual stream and the output of attention to their sum and its norm. If the ends do not
# enclose a subgraph, the error names the value that leaks: here the other operand of the residual was forgotten.
try:
    noyau.extract(model, "embedding:add_306,mul_256")
except InputError as leak:
    print(leak)

PATH = "embedding,linear_3:add_306,mul_256"
noyau.extract(model, PATH, dims={"sequence": 64}).save(folder / "norm.py")
print((folder / "norm.py").read_text())

# %%
# The kernel
# ----------
# The kernel is plain C: its parameters are the inputs, the outputs, the sizes and the constants of the op, by name. It
# replaces the kernel that noyau generated as a start. Sixteen partial sums let the compiler vectorise a sum whose order
# it must keep. `begin` and `end` are the rows of one call, out of the number that `launch=` in norm.py gives:
# onnxruntime's threads share them. A function without these parameters is called once, for all rows, on one thread.
HEAD = """\
#include <math.h>
#include <stdint.h>

void norm(const float *embedding, const float *linear_3, const float *post_attention_layernorm_weight,
          float *add_306, float *mul_256, float eps, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *x = embedding + row * 64, *y = linear_3 + row * 64;
        float *total = add_306 + row * 64, *out = mul_256 + row * 64, lanes[16] = {0}, squares = 0;
        for (int k = 0; k < 64; k += 16)
            for (int lane = 0; lane < 16; lane++) {
                const float sum = x[k + lane] + y[k + lane];
                total[k + lane] = sum;
                lanes[lane] += sum * sum;
            }
        for (int lane = 0; lane < 16; lane++) squares += lanes[lane];
"""
TAIL = """\
        for (int k = 0; k < 64; k++) out[k] = total[k] * scale * post_attention_layernorm_weight[k];
    }
}
"""
right = f"{HEAD}        const float scale = 1 / sqrtf(squares / 64 + eps);\n{TAIL}"
twin = f"{HEAD}        const float scale = 1 / sqrtf(squares / 64);\n{TAIL}"


def attached(text: str) -> str:
    """The op with this text as its kernel, in the form that `--with` takes."""
    (folder / "norm.c").write_text(text)
    return f"{folder / 'norm.py'}::norm"


# %%
# Is it right?
# ------------
# On activations of the model both kernels look right, because eps is lost in the rounding. The certificate also tries
# rows of zeros, of denormals, and of one large number, and judges each cell against float64.
x, y, weight = load_op(attached(right)).make()
total = (x + y).astype(np.float64)
print("eps moves the norm by", np.abs(1 - np.sqrt((total**2).mean(-1)) / np.sqrt((total**2).mean(-1) + 1e-6)).max())

# %%
# Checked, timed, put back
# ------------------------
# `noyau optimize llama.onnx --with norm.py::norm` puts the kernel into each place of the model that computes the same,
# four here, if it is right and wins. The broken twin is left out, and the report names the cell that shows it.
for text in (twin, right):
    made = noyau.optimize(model, ops=[attached(text)], between=PATH, dims={"sequence": 64})
    print(made.candidates[0].planned.operator, "in", len(made.candidates[0].planned.groups), "places:")
    print("  ", made.candidates[0].reason or made.candidates[0].evidence)

# %%
# All threads
# -----------
# The certificate has also run the kernel in pieces, the last one first, and no two of them changed one cell: threads
# may share it. In a session with onnxruntime's defaults, on two cores, 64 rows take as long as in one call (6 us); 4096
# rows take 47 us instead of 78 us, 16384 rows 170 us instead of 320 us. A twin whose pieces write one cell is rejected
# for it.
meeting = right.replace("squares = 0;", "squares = 0;\n        if (row) mul_256[0] += 0.5f;", 1)
print(noyau.optimize(model, ops=[attached(meeting)], between=PATH, dims={"sequence": 64}).candidates[0].reason)
attached(right)

# %%
# The gain, against its ceiling
# The report has the ceiling, which is the most that fusing this path could gain (Amdahl, with each place as quick as a
# copy of its bytes), and the gain of the kernel. A model of this size is mostly calls, and a large one mostly MatMul.
print(made.report)

# %%
# The result is still the model: at every value that both have, and without the library too.
made.save(folder / "fused.onnx")
print(model_difference(model, folder / "fused.onnx").runs[0].first or "no value differs")
