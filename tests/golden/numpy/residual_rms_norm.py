import numpy as np


def residual_rms_norm(x, v_r, w, *, eps=1e-06):
    n = x.shape[1]
    v3 = x + v_r
    v4 = v3 * v3
    v5 = v4.sum(-1, keepdims=True)
    v9 = v5 / n
    v12 = v9 + np.float32(eps)
    v13 = 1 / np.sqrt(v12)
    v15 = v3 * v13
    v17 = v15 * w
    return v3, v17
