# the kernel any_of_bools

import torch
import triton
import triton.language as tl


@triton.jit
def noyau_merge_any_bool(a0, b0):
    return a0 | b0


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
def any_of_bools_0(x, v1, rows, n, rows_STEP: tl.constexpr, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.cast(rows, INDEX) * rows_STEP
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = i0 < rows
    r1 = tl.arange(0, COLUMNS)[None, :]
    r1_inside = r1 < n
    x_i = tl.load(x + i0 * n + r1, mask=i0_inside & r1_inside, other=0)
    v1_2 = tl.max((tl.where(r1_inside, x_i, False)).to(tl.int32), axis=1, keep_dims=True) != 0
    tl.store(v1 + i0, v1_2, mask=i0_inside)


@triton.jit
def any_of_bools_1(x, v1, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    v1_2_any_lanes = tl.full((BLOCK,), False, tl.int1)
    for r1t in range(0, tl.cdiv(n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_inside = r1 < n
        x_i = tl.load(x + i0 * n + r1, mask=r1_inside, other=0)
        v1_2_any_lanes = noyau_merge_any_bool(v1_2_any_lanes, tl.where(r1_inside, x_i, False))
    v1_2_any = tl.max((v1_2_any_lanes).to(tl.int32), axis=0) != 0
    v1_2 = v1_2_any
    tl.store(v1 + i0, v1_2)


def any_of_bools(x, **tiles):
    """x: bool[rows, n] -> v1: bool[rows]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x = x.contiguous()
    v1 = torch.empty((rows,), dtype=torch.bool, device=x.device)
    INDEX = index_type(x, v1)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, n)))
        ROWS = tiles.get("ROWS", max(1, 2048 // COLUMNS))
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            any_of_bools_0[(programs,)](
                x, v1, rows // step_of(rows), n // step_of(n), step_of(rows), step_of(n), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 8192)  # or one of 2048, 4096, 8192, 16384, 32768
        programs = rows
        if programs > 0:
            any_of_bools_1[(programs,)](
                x, v1, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 32)
            )
    return v1
