# the kernel gathered

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
def gathered_0(table, ids, v5, v2, words, n, b, s, n_STEP: tl.constexpr, s_STEP: tl.constexpr, INDEX: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    b = tl.cast(b, INDEX)
    s = tl.cast(s, INDEX) * s_STEP
    i1t = tl.program_id(0).to(INDEX)
    i1 = ROWS * i1t + tl.arange(0, ROWS)[:, None]
    i1_inside = i1 < b * s
    ids_i = tl.load(ids + i1, mask=i1_inside, other=0)
    at = ids_i
    inside = (at >= 0) & (at < words)
    r1 = tl.arange(0, COLUMNS)[None, :]
    r1_inside = r1 < n
    table_i = tl.load(table + at * n + r1, mask=i1_inside & r1_inside & inside, other=0)
    v3 = table_i * table_i
    v4 = tl.sum(tl.where(r1_inside, v3, 0.0), axis=1, keep_dims=True)
    tl.store(v5 + i1, v4, mask=i1_inside)
    tl.store(v2 + i1 * n + r1, table_i, mask=i1_inside & r1_inside)


@triton.jit
def gathered_1(table, ids, v5, v2, words, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i1 = tl.program_id(0).to(INDEX)
    ids_i = tl.load(ids + i1)
    at = ids_i
    inside = (at >= 0) & (at < words)
    v4_sum_lanes = tl.full((BLOCK,), 0.0, tl.float32)
    for r1t in range(0, tl.cdiv(n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_inside = r1 < n
        table_i = tl.load(table + at * n + r1, mask=r1_inside & inside, other=0)
        v3 = table_i * table_i
        v4_sum_lanes = v4_sum_lanes + tl.where(r1_inside, v3, 0.0)
    v4_sum = tl.sum(v4_sum_lanes, axis=0)
    v4 = v4_sum
    tl.store(v5 + i1, v4)
    for i2t in range(0, tl.cdiv(n, BLOCK)):
        i2 = BLOCK * i2t + tl.arange(0, BLOCK)
        i2_inside = i2 < n
        table_i_2 = tl.load(table + at * n + i2, mask=i2_inside & inside, other=0)
        tl.store(v2 + i1 * n + i2, table_i_2, mask=i2_inside)


def gathered(table, ids, **tiles):
    """table: f32[words, n], ids: i64[b, s] -> v5: f32[b, s, 1], v2: f32[b, s, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    words = table.shape[0]
    n = table.shape[1]
    b = ids.shape[0]
    s = ids.shape[1]
    table = table.contiguous()
    ids = ids.contiguous()
    v5 = torch.empty((b, s, 1), dtype=torch.float32, device=table.device)
    v2 = torch.empty((b, s, n), dtype=torch.float32, device=table.device)
    INDEX = index_type(table, ids, v5, v2)
    if n <= 32768:
        COLUMNS = min(32768, triton.next_power_of_2(max(1, n)))
        ROWS = tiles.get("ROWS", max(1, 2048 // COLUMNS))
        programs = triton.cdiv(b * s, ROWS)
        if programs > 0:
            gathered_0[(programs,)](
                table, ids, v5, v2, words, n // step_of(n), b, s // step_of(s), step_of(n), step_of(s), INDEX, COLUMNS, ROWS, num_warps=tiles.get("num_warps", warps_of(COLUMNS * ROWS))
            )
    else:
        BLOCK = tiles.get("BLOCK", 8192)  # or one of 2048, 4096, 8192, 16384, 32768
        programs = b * s
        if programs > 0:
            gathered_1[(programs,)](
                table, ids, v5, v2, words, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 32)
            )
    return v5, v2
