# the kernel rotary_f16

import numpy as np
from numba import cuda

f32 = np.float32
f16 = np.float16


def noyau_blocks(items, threads=1):
    """As many blocks as hold all items, or as an axis of a grid can have: each takes several rounds then."""
    return min((items + threads - 1) // threads, 65535)


@cuda.jit
def rotary_f16_0(x, v_sin, v_cos, v12, b, s):
    """Items: b x 2 x s, a thread for each."""
    across, down = cuda.grid(2)
    all_across, all_down = cuda.gridsize(2)
    for item in range(down, b * 2, all_down):
        i0 = item // 2
        i1 = item % 2
        for i2 in range(across, s, all_across):
            for i3 in range(4):
                x_i = f32(x[i0, i2, i1 * 8 + i3 + 4])
                v6 = -x_i
                v_sin_i = f32(v_sin[i2, i3])
                v11 = v6 * v_sin_i
                v_cos_i = f32(v_cos[i2, i3])
                x_i_2 = f32(x[i0, i2, i1 * 8 + i3])
                v9 = v_cos_i * x_i_2
                v12[i0, i1, i2, i3] = f16(v11 + v9)
            for i3 in range(4):
                x_i = f32(x[i0, i2, i1 * 8 + i3])
                v_sin_i = f32(v_sin[i2, i3 + 4])
                v11 = x_i * v_sin_i
                v_cos_i = f32(v_cos[i2, i3 + 4])
                x_i_2 = f32(x[i0, i2, i1 * 8 + i3 + 4])
                v9 = v_cos_i * x_i_2
                v12[i0, i1, i2, i3 + 4] = f16(v11 + v9)


def rotary_f16(x, v_sin, v_cos, v12, stream=0):
    """Launch the kernels on a stream, on arrays of the device:

    x: f16[b, s, 16], input
    v_sin: f16[s, 8], input
    v_cos: f16[s, 8], input
    v12: f16[b, 2, s, 8], output
    """
    b = x.shape[0]
    s = x.shape[1]
    if x.shape != (b, s, 16):
        raise ValueError(f"x has the shape {x.shape}, and not {(b, s, 16)}")
    if v_sin.shape != (s, 8):
        raise ValueError(f"v_sin has the shape {v_sin.shape}, and not {(s, 8)}")
    if v_cos.shape != (s, 8):
        raise ValueError(f"v_cos has the shape {v_cos.shape}, and not {(s, 8)}")
    if v12.shape != (b, 2, s, 8):
        raise ValueError(f"v12 has the shape {v12.shape}, and not {(b, 2, s, 8)}")
    if b * s * 2 > 0:
        grid = noyau_blocks(s, 32), noyau_blocks(b * 2, 8)
        rotary_f16_0[grid, (32, 8), stream](x, v_sin, v_cos, v12, b, s)
