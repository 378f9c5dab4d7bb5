# the kernel log_softmax_kept

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


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
def log_softmax_kept_0(x, v10, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = i0 < rows
    r1 = tl.arange(0, COLUMNS)[None, :]
    r1_inside = r1 < n
    x_i = tl.load(x + i0 * n + r1, mask=i0_inside & r1_inside, other=0)
    v1 = tl.reduce(tl.where(r1_inside, x_i, float("-inf")), 1, noyau_merge_max_f32, keep_dims=True)
    v4 = x_i - v1
    v5 = libdevice.exp(v4)
    v6 = tl.sum(tl.where(r1_inside, v5, 0.0), axis=1, keep_dims=True)
    v8 = libdevice.log(v6)
    v10_2 = v4 - v8
    tl.store(v10 + i0 * n + r1, v10_2, mask=i0_inside & r1_inside)


@triton.jit
def log_softmax_kept_1(x, v10, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    v1_top = tl.full((), float("-inf"), tl.float32)
    v6_scaled = tl.full((), 0.0, tl.float32)
    for r2t in range(0, tl.cdiv(n, BLOCK)):
        r2 = BLOCK * r2t + tl.arange(0, BLOCK)
        r2_inside = r2 < n
        x_i = tl.load(x + i0 * n + r2, mask=r2_inside, other=0)
        v1_here = tl.reduce(tl.where(r2_inside, x_i, float("-inf")), 0, noyau_merge_max_f32)
        v1_here_shift = tl.where(v1_here == float("-inf"), 0.0, v1_here)
        v4 = x_i - v1_here_shift
        v5 = libdevice.exp(v4)
        v6_here = tl.sum(tl.where(r2_inside, v5, 0.0), axis=0)
        v1_top, v6_scaled = noyau_merge_logsumexp_f32(v1_top, v6_scaled, v1_here, v6_here)
    v1 = v1_top
    v6 = tl.where((tl.abs(v1_top) == float("inf")) & (0 < n), float("nan"), v6_scaled)
    v8 = libdevice.log(v6)
    for i1t in range(0, tl.cdiv(n, BLOCK)):
        i1 = BLOCK * i1t + tl.arange(0, BLOCK)
        i1_inside = i1 < n
        x_i_2 = tl.load(x + i0 * n + i1, mask=i1_inside, other=0)
        v4_2 = x_i_2 - v1
        v10_2 = v4_2 - v8
        tl.store(v10 + i0 * n + i1, v10_2, mask=i1_inside)


def log_softmax_kept(x, **tiles):
    """x: f32[rows, n] -> v10: f32[rows, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x = x.contiguous()
    v10 = torch.empty((rows, n), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v10)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, n)))
        ROWS = tiles.get("ROWS", max(1, 2048 // COLUMNS))
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            log_softmax_kept_0[(programs,)](
                x, v10, rows, n // step_of(n), step_of(n), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(2 * COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 4096)  # or one of 1024, 2048, 4096, 8192, 16384
        programs = rows
        if programs > 0:
            log_softmax_kept_1[(programs,)](
                x, v10, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 4)
            )
    return v10
