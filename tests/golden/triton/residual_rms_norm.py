# the kernel residual_rms_norm

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def noyau_rsqrt_f32(x):
    tiny = x < 2.0**-100
    made = libdevice.rsqrt(tl.where(tiny, x * 2.0**40, x))
    return tl.where(tiny, made * 2.0**20, made)


def index_type(*tensors):
    """int64 where an offset into one of the tensors needs more than 31 bits."""
    reach = max(sum(abs(step) * (extent - 1) for step, extent in zip(t.stride(), t.shape)) for t in tensors)
    return tl.int64 if reach >= 2**31 - 2**20 else tl.int32


def step_of(size):
    """The largest power of two up to 16 that divides a size."""
    return 16 if size % 16 == 0 else size & -size


def warps_of(cells):
    """How many warps a program of so many cells has."""
    return 4 if cells <= 8192 else 8 if cells <= 16384 else 16 if cells <= 32768 else 32


@triton.jit
def residual_rms_norm_0(v10, x, r, w, v17, v3, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = i0 < rows
    v10_i = tl.load(v10)
    v8 = (n).to(tl.float32)
    r1 = tl.arange(0, COLUMNS)[None, :]
    r1_inside = r1 < n
    x_i = tl.load(x + i0 * n + r1, mask=i0_inside & r1_inside, other=0)
    v_r_i = tl.load(r + i0 * n + r1, mask=i0_inside & r1_inside, other=0)
    v3_2 = x_i + v_r_i
    v4 = v3_2 * v3_2
    v5 = tl.sum(tl.where(r1_inside, v4, 0.0), axis=1, keep_dims=True)
    v9 = tl.div_rn(v5, v8)
    v12 = v10_i + v9
    v13 = noyau_rsqrt_f32(v12)
    v15 = v13 * v3_2
    w_i = tl.load(w + r1, mask=r1_inside, other=0)
    v17_2 = v15 * w_i
    tl.store(v17 + i0 * n + r1, v17_2, mask=i0_inside & r1_inside)
    tl.store(v3 + i0 * n + r1, v3_2, mask=i0_inside & r1_inside)


@triton.jit
def residual_rms_norm_1(v10, x, r, w, v17, v3, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    v10_i = tl.load(v10)
    v8 = (n).to(tl.float32)
    v5_sum_lanes = tl.full((BLOCK,), 0.0, tl.float32)
    for r1t in range(0, tl.cdiv(n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_inside = r1 < n
        x_i = tl.load(x + i0 * n + r1, mask=r1_inside, other=0)
        v_r_i = tl.load(r + i0 * n + r1, mask=r1_inside, other=0)
        v3_2 = x_i + v_r_i
        v4 = v3_2 * v3_2
        v5_sum_lanes = v5_sum_lanes + tl.where(r1_inside, v4, 0.0)
    v5_sum = tl.sum(v5_sum_lanes, axis=0)
    v5 = v5_sum
    v9 = tl.div_rn(v5, v8)
    v12 = v10_i + v9
    v13 = noyau_rsqrt_f32(v12)
    for i1t in range(0, tl.cdiv(n, BLOCK)):
        i1 = BLOCK * i1t + tl.arange(0, BLOCK)
        i1_inside = i1 < n
        x_i_2 = tl.load(x + i0 * n + i1, mask=i1_inside, other=0)
        v_r_i_2 = tl.load(r + i0 * n + i1, mask=i1_inside, other=0)
        v3_3 = x_i_2 + v_r_i_2
        v15 = v13 * v3_3
        w_i = tl.load(w + i1, mask=i1_inside, other=0)
        v17_2 = v15 * w_i
        tl.store(v17 + i0 * n + i1, v17_2, mask=i1_inside)
        tl.store(v3 + i0 * n + i1, v3_3, mask=i1_inside)


def residual_rms_norm(v10, x, r, w, **tiles):
    """v10: f32[], x: f32[rows, n], r: f32[rows, n], w: f32[n] -> v17: f32[rows, n], v3: f32[rows, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    if tuple(r.shape) != (rows, n):
        raise ValueError(f"r has shape {tuple(r.shape)}, not {(rows, n)}")
    if tuple(w.shape) != (n,):
        raise ValueError(f"w has shape {tuple(w.shape)}, not {(n,)}")
    x = x.contiguous()
    r = r.contiguous()
    w = w.contiguous()
    v17 = torch.empty((rows, n), dtype=torch.float32, device=v10.device)
    v3 = torch.empty((rows, n), dtype=torch.float32, device=v10.device)
    INDEX = index_type(v10, x, r, w, v17, v3)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, n)))
        ROWS = tiles.get("ROWS", max(1, 2048 // COLUMNS))
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            residual_rms_norm_0[(programs,)](
                v10, x, r, w, v17, v3, rows, n // step_of(n), step_of(n), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 8192)  # or one of 2048, 4096, 8192, 16384, 32768
        programs = rows
        if programs > 0:
            residual_rms_norm_1[(programs,)](
                v10, x, r, w, v17, v3, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 32)
            )
    return v17, v3
