# the kernel running_sum

import torch
import triton
import triton.language as tl


@triton.jit
def noyau_inside(index, extent, ALIGN: tl.constexpr, EVEN: tl.constexpr):
    """Which cells of a tile are of its row, which it may begin before; EVEN: all are."""
    if EVEN:
        inside = tl.full(index.shape, 1, tl.int1)
    else:
        inside = index < extent
        if ALIGN > 1:
            inside = inside & (index >= 0)
    return inside


def index_type(*tensors):
    """int64 where an offset into one of the tensors needs more than 31 bits."""
    reach = max(sum(abs(step) * (extent - 1) for step, extent in zip(t.stride(), t.shape)) for t in tensors)
    return tl.int64 if reach >= 2**31 - 2**20 else tl.int32


def step_of(size):
    """The largest power of two up to 16 that divides a size."""
    return 16 if size % 16 == 0 else size & -size


def warps_of(cells):
    """How many warps a program of so many cells has."""
    return 1 if cells <= 1024 else 2 if cells <= 2048 else 4 if cells <= 4096 else 8 if cells <= 8192 else 16


@triton.jit
def running_sum_0(x, v1, v2, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, ROWS_EVEN: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)
    i0_inside = noyau_inside(i0, rows, 1, ROWS_EVEN)
    v1_sum = tl.full((ROWS,), 0.0, tl.float32)
    for i1 in range(0, n):
        x_i = tl.load(x + i0 * n + i1, mask=i0_inside, other=0)
        v1_sum = v1_sum + x_i
        v1_2 = v1_sum
        tl.store(v1 + i0 * n + i1, v1_2, mask=i0_inside)
        v2_2 = v1_2 * v1_2
        tl.store(v2 + i0 * n + i1, v2_2, mask=i0_inside)


def running_sum(x, **tiles):
    """x: f32[rows, n] -> v1: f32[rows, n], v2: f32[rows, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x = x.contiguous()
    v1 = torch.empty((rows, n), dtype=torch.float32, device=x.device)
    v2 = torch.empty((rows, n), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v1, v2)
    ROWS = tiles.get("ROWS", 32)  # or one of 8, 16, 32, 64, 128
    ROWS_EVEN = rows % ROWS == 0
    programs = triton.cdiv(rows, ROWS)
    if programs > 0:
        running_sum_0[(programs,)](
            x, v1, v2, rows, n // step_of(n), step_of(n), INDEX, ROWS, ROWS_EVEN, num_warps=tiles.get("num_warps", warps_of(ROWS))
        )
    return v1, v2
