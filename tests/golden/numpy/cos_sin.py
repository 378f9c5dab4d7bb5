import numpy as np

from noyau.functions import cast


def cos_sin(position_ids, inv_freq):
    v2 = cast(position_ids, "f32")
    v3 = v2[:, None]
    v5 = v3 * inv_freq
    v6 = np.cos(v5)
    v7 = np.sin(v5)
    return v6, v7
