# the kernel row_argmax

import torch
import triton
import triton.language as tl


@triton.jit
def noyau_merge_argmax_f32(a0, a1, b0, b1):
    t0 = b0 != b0
    t1 = a0 == a0
    t2 = t0 & t1
    t3 = (a0 != a0) & t0
    t4 = (b0 > a0) | t2
    t5 = (a0 == b0) | t3
    t6 = t4 & t1
    t7 = t5 & (b1 < a1)
    t8 = t6 | t7
    return tl.where(t8, b0, a0), tl.where(t8, b1, a1)


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
def row_argmax_0(x, v1, rows, n, rows_STEP: tl.constexpr, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.cast(rows, INDEX) * rows_STEP
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = i0 < rows
    r1 = tl.arange(0, COLUMNS)[None, :]
    r1_inside = r1 < n
    x_i = tl.load(x + i0 * n + r1, mask=i0_inside & r1_inside, other=0)
    v1_0, v1_1 = tl.reduce((tl.where(r1_inside, x_i, float("-inf")), tl.broadcast_to(tl.where(r1_inside, (r1).to(tl.int64), 9223372036854775807), (ROWS, COLUMNS))), 1, noyau_merge_argmax_f32, keep_dims=True)
    v1_2 = v1_1
    tl.store(v1 + i0, v1_2, mask=i0_inside)


@triton.jit
def row_argmax_1(x, v1, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    v1_2_best_lanes = tl.full((BLOCK,), float("-inf"), tl.float32)
    v1_2_at_lanes = tl.full((BLOCK,), 9223372036854775807, tl.int64)
    for r1t in range(0, tl.cdiv(n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_inside = r1 < n
        x_i = tl.load(x + i0 * n + r1, mask=r1_inside, other=0)
        v1_2_best_lanes, v1_2_at_lanes = noyau_merge_argmax_f32(v1_2_best_lanes, v1_2_at_lanes, tl.where(r1_inside, x_i, float("-inf")), tl.where(r1_inside, (r1).to(tl.int64), 9223372036854775807))
    v1_2_best_2, v1_2_at_2 = tl.reduce((v1_2_best_lanes, v1_2_at_lanes), 0, noyau_merge_argmax_f32)
    v1_2_best, v1_2_at = v1_2_best_2, v1_2_at_2
    v1_2 = v1_2_at
    tl.store(v1 + i0, v1_2)


def row_argmax(x, **tiles):
    """x: f32[rows, n] -> v1: i64[rows]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x = x.contiguous()
    v1 = torch.empty((rows,), dtype=torch.int64, device=x.device)
    INDEX = index_type(x, v1)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, n)))
        ROWS = tiles.get("ROWS", max(1, 2048 // COLUMNS))
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            row_argmax_0[(programs,)](
                x, v1, rows // step_of(rows), n // step_of(n), step_of(rows), step_of(n), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 8192)  # or one of 2048, 4096, 8192, 16384, 32768
        programs = rows
        if programs > 0:
            row_argmax_1[(programs,)](
                x, v1, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 32)
            )
    return v1
