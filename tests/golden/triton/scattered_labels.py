# the kernel scattered_labels

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
def scattered_labels_0(x, ids, less, v14, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    ids_i = tl.load(ids + i0)
    at = tl.where(0 < n, ids_i, 0)
    holds = 0 < n
    inside = (at >= 0) & (at < n)
    v3_top = tl.full((), float("-inf"), tl.float32)
    v8_scaled = tl.full((), 0.0, tl.float32)
    for r2t in range(0, tl.cdiv(n, BLOCK)):
        r2 = BLOCK * r2t + tl.arange(0, BLOCK)
        r2_inside = r2 < n
        x_i = tl.load(x + i0 * n + r2, mask=r2_inside, other=0)
        v3_here = tl.reduce(tl.where(r2_inside, x_i, float("-inf")), 0, noyau_merge_max_f32)
        v3_here_shift = tl.where(v3_here == float("-inf"), 0.0, v3_here)
        v6 = x_i - v3_here_shift
        v7 = libdevice.exp(v6)
        v8_here = tl.sum(tl.where(r2_inside, v7, 0.0), axis=0)
        v3_top, v8_scaled = noyau_merge_logsumexp_f32(v3_top, v8_scaled, v3_here, v8_here)
    v3 = v3_top
    v8 = tl.where((tl.abs(v3_top) == float("inf")) & (0 < n), float("nan"), v8_scaled)
    less_i = tl.load(less + i0)
    v12 = -less_i
    for i1t in range(0, tl.cdiv(n, BLOCK)):
        i1 = BLOCK * i1t + tl.arange(0, BLOCK)
        i1_inside = i1 < n
        x_i_2 = tl.load(x + i0 * n + i1, mask=i1_inside, other=0)
        v6_2 = x_i_2 - v3
        v7_2 = libdevice.exp(v6_2)
        v8_scale = noyau_scale(v8)
        v8_scaled_2 = v8 * v8_scale
        v8_inverse = tl.div_rn(1.0, v8_scaled_2)
        v8_finite = tl.where(tl.abs(v8_scaled_2) < float("inf"), v8_scaled_2, 0.0)
        v11 = noyau_quotient(v7_2, v8_scale, v8_finite, v8_inverse)
        v13 = tl.where(i1 == at, v11 + v12, v11)
        v14_2 = v13 * v13
        tl.store(v14 + i0 * n + i1, v14_2, mask=i1_inside)


def scattered_labels(x, ids, less, **tiles):
    """x: f32[rows, n], ids: i64[rows], less: f32[rows] -> v14: f32[rows, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    if tuple(ids.shape) != (rows,):
        raise ValueError(f"ids has shape {tuple(ids.shape)}, not {(rows,)}")
    if tuple(less.shape) != (rows,):
        raise ValueError(f"less has shape {tuple(less.shape)}, not {(rows,)}")
    x = x.contiguous()
    ids = ids.contiguous()
    less = less.contiguous()
    v14 = torch.empty((rows, n), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, ids, less, v14)
    BLOCK = tiles.get("BLOCK", 4096)  # or one of 1024, 2048, 4096, 8192, 16384
    programs = rows
    if programs > 0:
        scattered_labels_0[(programs,)](
            x, ids, less, v14, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 4)
        )
    return v14
