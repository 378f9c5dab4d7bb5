import numpy as np


def masked(x, mask):
    v4 = x < 100
    v5 = mask & v4
    v8 = x % 7
    v11 = np.where(v5, v8, -2147483648)
    return v11, v5
