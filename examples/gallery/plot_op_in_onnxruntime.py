"""Exam, beside the model: your own op in onnxruntime
==================================================

An op written in NumPy becomes an operator of onnxruntime: a model with the operator, a kernel in a library beside it,
and a body of plain operators for machines without the library. The kernel is generated, or your own; your own kernel
has to be checked first. Its broken twin forgets eps: right on everything but rows of zeros, such as padding.

Run it: ``python examples/gallery/plot_op_in_onnxruntime.py`` (needs ``pip install 'noyau-kernels[onnx]'`` and a C
compiler).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import noyau


@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def rms_norm(x, weight, *, eps=1e-5):
    """x divided by the root of its mean square, scaled."""
    square = (x * x).mean(-1, keepdims=True)
    return x / np.sqrt(square + eps) * weight


# %%
# Your own kernel
# ---------------
# Rows from `begin` to `end`: the threads of onnxruntime share them. The sum of squares has lanes, so it vectorises.
TEXT = """
#include <math.h>
#include <stdint.h>
void by_rows(const float *x, const float *weight, float *out, float eps, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *in = x + row * n;
        float lanes[32] = {0}, squares = 0;
        int64_t k = 0;
        for (; k + 32 <= n; k += 32)
            for (int lane = 0; lane < 32; lane++) lanes[lane] += in[k + lane] * in[k + lane];
        for (; k < n; k++) squares += in[k] * in[k];
        for (int lane = 0; lane < 32; lane++) squares += lanes[lane];
        const float scale = 1 / sqrtf(squares / n + EPS);
        for (k = 0; k < n; k++) out[row * n + k] = in[k] * scale * weight[k];
    }
}
"""
rms_norm.kernel(TEXT.replace("EPS", "eps"), language="c", name="by_rows")


def twin(*, trust: bool = False) -> noyau.Op:
    """The same op with a kernel that divides by the root alone."""
    broken = noyau.op("f32[rows, n], f32[n] -> f32[rows, n]", name="rms_norm")(rms_norm.reference)
    broken.kernel(TEXT.replace("EPS", "0 * eps"), language="c", name="without_eps", entry="by_rows", trust=trust)
    return broken


def main() -> None:
    import onnxruntime

    from noyau.errors import InputError

    # %%
    # Right, by the same certificate as every kernel
    # ----------------------------------------------
    found = noyau.check(rms_norm, budget_s=0.5, generated=False)
    print(found)
    found.raise_if_bad()

    # %%
    # Into a model
    # ------------
    # From here on onnxruntime runs alone: with the library it runs the kernel, without it the operators of the body.
    folder = Path(tempfile.mkdtemp(prefix="noyau-op-"))
    made = rms_norm.to_onnx(folder / "rms_norm.onnx", constants={"eps": 1e-6}, kernel="by_rows")
    print("body:", ", ".join(node.op_type for node in made.model.functions[0].node))
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(folder / "rms_norm.so"))
    with_kernel = onnxruntime.InferenceSession(str(folder / "rms_norm.onnx"), options)
    without = onnxruntime.InferenceSession(str(folder / "rms_norm.onnx"))

    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((512, 1024), np.float32), rng.standard_normal(1024, np.float32)
    truth = rms_norm.reference(x.astype(np.float64), weight.astype(np.float64), eps=1e-6)
    for name, session in (("kernel", with_kernel), ("body", without)):
        got = session.run(None, {"x": x, "weight": weight})[0]
        far = float(np.abs(got - truth).max() / np.abs(truth).max())
        print(f"{name}: within {far:.0e} of float64: {'right' if far < 1e-6 else 'wrong'}")

    # %%
    # The broken twin
    # ---------------
    # It is not put into a model before it is checked, and it does not pass.
    broken = twin()
    try:
        broken.to_onnx(kernel="without_eps")
    except InputError as refusal:
        print(refusal)
    print(noyau.check(broken, budget_s=1, generated=False))
    # If you trust it, it goes in; the result of the model then depends on whether its library is there.
    trusted = twin(trust=True).to_onnx(kernel="without_eps")
    feeds = {"x": np.zeros((1, 64), np.float32), "weight": np.ones(64, np.float32)}
    for name, kernels in (("trusted kernel", True), ("its body", False)):
        print(f"{name} of a row of zeros:", trusted.session(kernels=kernels).run(None, feeds)[0][0, 0])

    # %%
    # The clock
    # ---------
    # The same session with the kernel and without it.
    sessions = {"kernel": with_kernel, "body": without}
    calls = {
        name: lambda x, w, run=session.run: run(None, {"x": x, "weight": w})[0] for name, session in sessions.items()
    }
    print(noyau.bench(calls, (x, weight), budget_s=0.3))


if __name__ == "__main__":
    main()
