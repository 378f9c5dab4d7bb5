import numpy as np


def rotary_f16(x, v_cos, v_sin):
    b = x.shape[0]
    s = x.shape[1]
    at_0, at_1, at_2, at_3 = np.ogrid[:b, :2, :s, :8]
    v3 = x[at_0, at_2, at_1 * 8 + at_3]
    v4 = v3[..., :4]
    v5 = v3[..., 4:]
    v6 = -v5
    v7 = np.concatenate([v6, v4], 3)
    v9 = v3 * v_cos
    v11 = v7 * v_sin
    v12 = v9 + v11
    return v12
