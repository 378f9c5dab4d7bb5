import numpy as np


def quantise(x, *, v4=1e-06):
    v1 = np.abs(x)
    v2 = v1.max(-1, keepdims=True, initial=-np.inf)
    v6 = np.maximum(v2, np.float32(v4))
    v9 = v6 / 127
    v11 = x / v9
    v12 = np.rint(v11)
    v17 = np.maximum(v12, -127)
    v18 = np.minimum(v17, 127)
    v19 = v18.astype(np.int8)
    return v19
