# the kernel column_sums

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
def column_sums_0(x, v1_2_sum_of_chunk, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS_EVEN: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    item = tl.program_id(0).to(INDEX)
    i0t_count = tl.cdiv(n, COLUMNS)
    i0t = item % i0t_count
    chunk_v1_2 = item // i0t_count
    i0 = COLUMNS * i0t + tl.arange(0, COLUMNS)[:, None]
    i0_inside = noyau_inside(i0, n, 1, COLUMNS_EVEN)
    v1_2_sum_lanes = tl.full((COLUMNS, ROWS), 0.0, tl.float32)
    for r1t in range(0, tl.cdiv(tl.minimum(1024, rows - chunk_v1_2 * 1024), ROWS)):
        r1 = ROWS * r1t + tl.arange(0, ROWS)[None, :]
        r1_inside = r1 < tl.minimum(1024, rows - chunk_v1_2 * 1024)
        x_i = tl.load(x + (chunk_v1_2 * 1024 + r1) * n + i0, mask=i0_inside & r1_inside, other=0, eviction_policy="evict_first")
        v1_2_sum_lanes = v1_2_sum_lanes + tl.where(r1_inside, x_i, 0.0)
    v1_2_sum = tl.sum(v1_2_sum_lanes, axis=1, keep_dims=True)
    tl.store(v1_2_sum_of_chunk + chunk_v1_2 * n + i0, v1_2_sum, mask=i0_inside)


@triton.jit
def column_sums_1(v1, v1_2_sum_of_chunk, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS_EVEN: tl.constexpr, ROWS_EVEN: tl.constexpr, EARLY: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    if EARLY: tl.extra.cuda.gdc_wait()
    i0t = tl.program_id(0).to(INDEX)
    i0 = COLUMNS * i0t + tl.arange(0, COLUMNS)[:, None]
    i0_inside = noyau_inside(i0, n, 1, COLUMNS_EVEN)
    v1_2_sum_lanes = tl.full((COLUMNS, ROWS), 0.0, tl.float64)
    for chunk_v1_2t in range(0, tl.cdiv(tl.cdiv(rows, 1024), ROWS)):
        chunk_v1_2 = ROWS * chunk_v1_2t + tl.arange(0, ROWS)[None, :]
        chunk_v1_2_inside = noyau_inside(chunk_v1_2, tl.cdiv(rows, 1024), 1, ROWS_EVEN)
        v1_2_sum_lanes = v1_2_sum_lanes + tl.where(chunk_v1_2_inside, (tl.load(v1_2_sum_of_chunk + chunk_v1_2 * n + i0, mask=i0_inside & chunk_v1_2_inside, other=0)).to(tl.float64), 0.0)
    v1_2_sum = tl.sum(v1_2_sum_lanes, axis=1, keep_dims=True)
    v1_2 = v1_2_sum.to(tl.float32)
    tl.store(v1 + i0, v1_2, mask=i0_inside)


def column_sums(x, **tiles):
    """x: f32[rows, n] -> v1: f32[n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    x = x.contiguous()
    v1 = torch.empty((n,), dtype=torch.float32, device=x.device)
    v1_2_sum_of_chunk = torch.empty((triton.cdiv(rows, 1024), n), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v1, v1_2_sum_of_chunk)
    COLUMNS = min(128, triton.next_power_of_2(max(1, n)))
    ROWS = tiles.get("ROWS", max(1, 8192 // COLUMNS))
    COLUMNS_EVEN = n % COLUMNS == 0
    programs = triton.cdiv(rows, 1024) * ((n - 1) // COLUMNS) + triton.cdiv(rows, 1024)
    if programs > 0:
        column_sums_0[(programs,)](
            x, v1_2_sum_of_chunk, rows, n // step_of(n), step_of(n), INDEX, COLUMNS, ROWS, COLUMNS_EVEN, num_warps=tiles.get("num_warps", 4)
        )
    ROWS = min(64, triton.next_power_of_2(max(1, triton.cdiv(rows, 1024))))
    ROWS_EVEN = (triton.cdiv(rows, 1024)) % ROWS == 0
    EARLY = x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (9, 0)
    programs = triton.cdiv(n, COLUMNS)
    if programs > 0:
        column_sums_1[(programs,)](
            v1, v1_2_sum_of_chunk, rows, n // step_of(n), step_of(n), INDEX, COLUMNS, ROWS, COLUMNS_EVEN, ROWS_EVEN, EARLY, num_warps=tiles.get("num_warps", 4), **({"launch_pdl": True} if EARLY else {})
        )
    return v1
