import numpy as np

from noyau.functions import cast


def residual_rms_norm_bf16(x, v_r, w, *, eps=9.98377799987793e-07):
    n = x.shape[1]
    v3 = x + v_r
    v4 = v3 * v3
    v5 = cast(cast(v4, "f32").sum(-1, keepdims=True), "bf16")
    v8 = cast(cast(n, "i64"), "bf16")
    v9 = v5 / v8
    v12 = v9 + cast(eps, "bf16")
    v13 = cast(1 / np.sqrt(cast(v12, "f32")), "bf16")
    v15 = v3 * v13
    v17 = v15 * w
    return v3, v17
