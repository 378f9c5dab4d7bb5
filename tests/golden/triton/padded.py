# the kernel padded

import torch
import triton
import triton.language as tl


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
def padded_0(x, v6, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = i0 < rows
    i1 = tl.arange(0, COLUMNS)[None, :]
    i1_inside = i1 < 2
    v6_2 = tl.full((), 7.0, tl.float32) * tl.full((), 7.0, tl.float32)
    tl.store(v6 + i0 * n + i0 * 4 + i1, v6_2, mask=i0_inside & i1_inside)
    i1_inside_2 = i1 < n
    x_i = tl.load(x + i0 * n + i1, mask=i0_inside & i1_inside_2, other=0)
    v6_3 = x_i * x_i
    tl.store(v6 + i0 * n + i0 * 4 + i1 + 2, v6_3, mask=i0_inside & i1_inside_2)
    v6_4 = tl.full((), (-7.0), tl.float32) * tl.full((), (-7.0), tl.float32)
    tl.store(v6 + (i0 + 1) * n + i0 * 4 + i1 + 2, v6_4, mask=i0_inside & i1_inside)


@triton.jit
def padded_1(x, v6, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    for i1t in range(0, (1 // BLOCK) + 1):
        i1 = BLOCK * i1t + tl.arange(0, BLOCK)
        i1_inside = i1 < 2
        v6_2 = tl.full((), 7.0, tl.float32) * tl.full((), 7.0, tl.float32)
        tl.store(v6 + i0 * n + i0 * 4 + i1, v6_2, mask=i1_inside)
    for i1t_2 in range(0, tl.cdiv(n, BLOCK)):
        i1_2 = BLOCK * i1t_2 + tl.arange(0, BLOCK)
        i1_2_inside = i1_2 < n
        x_i = tl.load(x + i0 * n + i1_2, mask=i1_2_inside, other=0)
        v6_3 = x_i * x_i
        tl.store(v6 + i0 * n + i0 * 4 + i1_2 + 2, v6_3, mask=i1_2_inside)
    for i1t_3 in range(0, (1 // BLOCK) + 1):
        i1_3 = BLOCK * i1t_3 + tl.arange(0, BLOCK)
        i1_3_inside = i1_3 < 2
        v6_4 = tl.full((), (-7.0), tl.float32) * tl.full((), (-7.0), tl.float32)
        tl.store(v6 + (i0 + 1) * n + i0 * 4 + i1_3 + 2, v6_4, mask=i1_3_inside)


def padded(x, **tiles):
    """x: f32[rows, n] -> v6: f32[rows, n + 4]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x = x.contiguous()
    v6 = torch.empty((rows, n + 4), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v6)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, max(2, n))))
        ROWS = tiles.get("ROWS", max(1, 1024 // COLUMNS))
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            padded_0[(programs,)](
                x, v6, rows, n // step_of(n), step_of(n), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 8192)  # or one of 2048, 4096, 8192, 16384, 32768
        programs = rows
        if programs > 0:
            padded_1[(programs,)](
                x, v6, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 32)
            )
    return v6
