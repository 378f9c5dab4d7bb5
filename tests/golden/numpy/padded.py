import numpy as np

from noyau.functions import cast


def padded(x):
    rows = x.shape[0]
    v5 = np.concatenate([np.full((rows, 2), cast(7, "f32")), x, np.full((rows, 2), cast(-7, "f32"))], 1)
    v6 = v5 * v5
    return v6
