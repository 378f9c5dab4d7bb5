import numpy as np


def layer_norm(x, w, b, *, eps=1e-05):
    n = x.shape[1]
    v3 = x.sum(-1, keepdims=True)
    v7 = v3 / n
    v9 = x - v7
    v10 = v9 * v9
    v11 = v10.sum(-1, keepdims=True)
    v15 = v11 / n
    v18 = v15 + np.float32(eps)
    v19 = np.sqrt(v18)
    v21 = v9 / v19
    v23 = v21 * w
    v25 = v23 + b
    return v25
