"""An op written in NumPy becomes an operator of onnxruntime: a generated kernel, and a body for where that is missing.

Run it: ``python examples/op_into_onnx.py`` (needs ``pip install 'noyau[onnx]'`` and a C compiler).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import noyau


@noyau.op("float[*batch, n], float[n] -> float[*batch, n]")
def rms_norm(x, weight, *, eps=1e-5):
    """x over the root of its mean square, scaled."""
    square = (x * x).mean(-1, keepdims=True)
    return x / np.sqrt(square + eps) * weight


folder = Path(tempfile.mkdtemp(prefix="noyau-op-"))
made = rms_norm.to_onnx(folder / "rms_norm.onnx", axes={"batch": 2}, constants={"eps": 1e-6})
for certificate in made.certificates:
    print(certificate.name, certificate.summary())

# From here on onnxruntime alone: with the library the kernel runs, without it the operators of the body.
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(folder / "rms_norm.so"))
with_kernel = onnxruntime.InferenceSession(str(folder / "rms_norm.onnx"), options)
without = onnxruntime.InferenceSession(str(folder / "rms_norm.onnx"))

rng = np.random.default_rng(0)
feeds = {"x": rng.standard_normal((2, 5, 64), np.float32), "weight": rng.standard_normal(64, np.float32)}
truth = rms_norm.reference(*(array.astype(np.float64) for array in feeds.values()), eps=1e-6)
for name, session in (("kernel", with_kernel), ("body", without)):
    got = session.run(None, feeds)[0]
    print(f"{name}: {got.shape}, {np.abs(got - truth).max():.1e} from float64")
    assert np.allclose(got, truth, rtol=1e-5, atol=1e-6)

print([node.op_type for node in made.model.functions[0].node])
