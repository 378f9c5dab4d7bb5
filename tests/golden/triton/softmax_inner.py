# the kernel softmax_inner

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def noyau_scale(divisor):
    size = tl.abs(divisor)
    return tl.where(size > 2.0**100, 2.0**-64, tl.where(size < 2.0**-100, 2.0**64, 1.0))


@triton.jit
def noyau_quotient(x, scale, divisor, inverse):
    x = x * scale
    near = x * inverse
    over = tl.fma(near, divisor, -x)
    return tl.where(tl.abs(near) < float("inf"), tl.fma(-over, inverse, near), near)


@triton.jit
def noyau_merge_logsumexp_f32(a0, a1, b0, b1):
    t0 = tl.maximum(a0, b0, propagate_nan=tl.PropagateNan.ALL)
    t1 = tl.where(a0 == t0, 1.0, libdevice.exp((a0 - t0)))
    t2 = tl.where(b0 == t0, 1.0, libdevice.exp((b0 - t0)))
    t3 = a1 * t1
    t4 = b1 * t2
    return t0, t3 + t4


@triton.jit
def noyau_merge_max_f32(a0, b0):
    return tl.maximum(a0, b0, propagate_nan=tl.PropagateNan.ALL)


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
def softmax_inner_0(x, v9, rows, n, x_stride0, n_STEP: tl.constexpr, x_stride0_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    x_stride0 = tl.cast(x_stride0, INDEX) * x_stride0_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = i0 < rows
    r1 = tl.arange(0, COLUMNS)[None, :]
    r1_inside = r1 < n
    x_i = tl.load(x + i0 * x_stride0 + r1, mask=i0_inside & r1_inside, other=0)
    v1 = tl.reduce(tl.where(r1_inside, x_i, float("-inf")), 1, noyau_merge_max_f32, keep_dims=True)
    v4 = x_i - v1
    v5 = libdevice.exp(v4)
    v6 = tl.sum(tl.where(r1_inside, v5, 0.0), axis=1, keep_dims=True)
    v6_scale = noyau_scale(v6)
    v6_scaled = v6 * v6_scale
    v6_inverse = tl.div_rn(1.0, v6_scaled)
    v6_finite = tl.where(tl.abs(v6_scaled) < float("inf"), v6_scaled, 0.0)
    v9_2 = noyau_quotient(v5, v6_scale, v6_finite, v6_inverse)
    tl.store(v9 + i0 * n + r1, v9_2, mask=i0_inside & r1_inside)


@triton.jit
def softmax_inner_1(x, v9, n, x_stride0, n_STEP: tl.constexpr, x_stride0_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    x_stride0 = tl.cast(x_stride0, INDEX) * x_stride0_STEP
    i0 = tl.program_id(0).to(INDEX)
    v1_top = tl.full((), float("-inf"), tl.float32)
    v6_scaled = tl.full((), 0.0, tl.float32)
    for r2t in range(0, tl.cdiv(n, BLOCK)):
        r2 = BLOCK * r2t + tl.arange(0, BLOCK)
        r2_inside = r2 < n
        x_i = tl.load(x + i0 * x_stride0 + r2, mask=r2_inside, other=0)
        v1_here = tl.reduce(tl.where(r2_inside, x_i, float("-inf")), 0, noyau_merge_max_f32)
        v1_here_shift = tl.where(v1_here == float("-inf"), 0.0, v1_here)
        v4 = x_i - v1_here_shift
        v5 = libdevice.exp(v4)
        v6_here = tl.sum(tl.where(r2_inside, v5, 0.0), axis=0)
        v1_top, v6_scaled = noyau_merge_logsumexp_f32(v1_top, v6_scaled, v1_here, v6_here)
    v1 = v1_top
    v6 = tl.where((tl.abs(v1_top) == float("inf")) & (0 < n), float("nan"), v6_scaled)
    for i1t in range(0, tl.cdiv(n, BLOCK)):
        i1 = BLOCK * i1t + tl.arange(0, BLOCK)
        i1_inside = i1 < n
        x_i_2 = tl.load(x + i0 * x_stride0 + i1, mask=i1_inside, other=0)
        v4_2 = x_i_2 - v1
        v5_2 = libdevice.exp(v4_2)
        v6_scale = noyau_scale(v6)
        v6_scaled_2 = v6 * v6_scale
        v6_inverse = tl.div_rn(1.0, v6_scaled_2)
        v6_finite = tl.where(tl.abs(v6_scaled_2) < float("inf"), v6_scaled_2, 0.0)
        v9_2 = noyau_quotient(v5_2, v6_scale, v6_finite, v6_inverse)
        tl.store(v9 + i0 * n + i1, v9_2, mask=i1_inside)


def softmax_inner(x, **tiles):
    """x: f32[rows, n] -> v9: f32[rows, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x_stride0 = x.stride(0)
    x = x if x.stride(-1) == 1 else x.contiguous()
    v9 = torch.empty((rows, n), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v9)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, n)))
        ROWS = tiles.get("ROWS", max(1, 2048 // COLUMNS))
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            softmax_inner_0[(programs,)](
                x, v9, rows, n // step_of(n), x_stride0 // step_of(x_stride0), step_of(n), step_of(x_stride0), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(2 * COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 4096)  # or one of 1024, 2048, 4096, 8192, 16384
        programs = rows
        if programs > 0:
            softmax_inner_1[(programs,)](
                x, v9, n // step_of(n), x_stride0 // step_of(x_stride0), step_of(n), step_of(x_stride0), INDEX, BLOCK, num_warps=tiles.get("num_warps", 4)
            )
    return v9
