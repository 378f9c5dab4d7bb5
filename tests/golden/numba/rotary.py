# the kernel rotary

import numba
import numpy as np
from numba import prange

i64 = np.int64
u64 = np.uint64
f32 = np.float32


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def rotary_0(x, v_sin, v_cos, v12, s, begin, end):
    for item in range(begin, end):
        i0 = item // (s * 2)
        i2 = item // 2 % s
        i1 = item % 2
        for i3 in range(4):
            x_i = x[i0, i2, u64(i1 * 8 + i3 + 4)]
            v6 = -x_i
            v_sin_i = v_sin[i2, i3]
            v11 = v6 * v_sin_i
            x_i_2 = x[i0, i2, u64(i1 * 8 + i3)]
            v_cos_i = v_cos[i2, i3]
            v9 = x_i_2 * v_cos_i
            v12[i0, i1, i2, i3] = v11 + v9
        for i3 in range(4):
            x_i = x[i0, i2, u64(i1 * 8 + i3)]
            v_sin_i = v_sin[i2, i3 + 4]
            v11 = x_i * v_sin_i
            x_i_2 = x[i0, i2, u64(i1 * 8 + i3 + 4)]
            v_cos_i = v_cos[i2, i3 + 4]
            v9 = x_i_2 * v_cos_i
            v12[i0, i1, i2, i3 + 4] = v11 + v9


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def rotary(x, v_sin, v_cos, v12):
    # x: f32[b, s, 16], input
    # v_sin: f32[s, 8], input
    # v_cos: f32[s, 8], input
    # v12: f32[b, 2, s, 8], output
    b = x.shape[0]
    s = x.shape[1]
    if x.shape != (b, s, 16):
        return 2
    if v_sin.shape != (s, 8):
        return 2
    if v_cos.shape != (s, 8):
        return 2
    if v12.shape != (b, 2, s, 8):
        return 2
    items = b * s * 2
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        rotary_0(x, v_sin, v_cos, v12, s, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
