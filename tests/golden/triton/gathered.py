# the kernel gathered

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


@triton.jit
def noyau_lines(cells, lead, extent, ALIGN: tl.constexpr):
    """Which cells lie in 16 bytes that are all of the row."""
    return (cells >= (lead + ALIGN - 1) // ALIGN * ALIGN) & (cells < (lead + extent) // ALIGN * ALIGN)


@triton.jit
def noyau_at_end(start, lead, extent, ALIGN: tl.constexpr, SIZE: tl.constexpr):
    """Whether a tile holds an end of a row that lies in 16 bytes with other cells."""
    return (start < (lead + ALIGN - 1) // ALIGN * ALIGN) | (start + SIZE > (lead + extent) // ALIGN * ALIGN)


@triton.jit
def noyau_near(cells, lead, extent, ALIGN: tl.constexpr):
    """Which cells lie in 16 bytes of which some are of the row."""
    return cells < (lead + extent + ALIGN - 1) // ALIGN * ALIGN


@triton.jit
def noyau_load(cells, inside, near, place, total, until, ALIGN: tl.constexpr, ENDS: tl.constexpr, KEEP: tl.constexpr):
    """Cells of a row, 16 bytes at once, with those beside it; where an array ends within 16 bytes, those one by one."""
    if ALIGN == 1:
        found = tl.load(cells, mask=inside, other=0, eviction_policy=KEEP)
    elif ENDS:
        whole = total // ALIGN * ALIGN
        found = tl.load(cells, mask=near & (place < whole), other=0, eviction_policy=KEEP)
        if until > whole:
            found = tl.where(place < whole, found, tl.load(cells, mask=inside & (place >= whole), other=0))
    else:
        found = tl.load(cells, mask=near, other=0, eviction_policy=KEEP)
    return found


@triton.jit
def noyau_store(cells, values, inside, lines, at_end, ALIGN: tl.constexpr, KEEP: tl.constexpr):
    """Cells of a row, as they are loaded."""
    if ALIGN > 1:
        tl.store(cells, values, mask=lines, eviction_policy=KEEP)
        if at_end:
            tl.store(cells, values, mask=inside & (lines == 0))
    else:
        tl.store(cells, values, mask=inside, eviction_policy=KEEP)


@triton.jit
def noyau_of_row(values, inside, empty, at_end, ALIGN: tl.constexpr):
    """Values of a tile, those outside its row empty: only a tile that holds an end of one has such."""
    if ALIGN == 1:
        values = tl.where(inside, values, empty)
    elif at_end:
        values = tl.where(inside, values, empty)
    return values


@triton.jit
def noyau_again(held, cells, inside, AGAIN: tl.constexpr):
    """What a program holds of a row, or the same loaded again from the L1, which leaves registers to other programs."""
    if AGAIN:
        held = tl.load(cells, mask=inside, other=0, eviction_policy="evict_first").to(held.dtype)
    return held


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


def block_of(cells):
    """How many cells of a row a program passes over at once."""
    most = triton.next_power_of_2(max(1, int((2048 * cells) ** 0.5)))
    return min(most, triton.next_power_of_2(max(1, cells)), 16384)


def at_once(tensor):
    """How many programs occupy the device."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1 << 31


def are_aligned(*tensors):
    """Whether each begins at a multiple of 16 bytes, so that as many are loaded at once."""
    return all(t.data_ptr() % 16 == 0 for t in tensors)


@triton.jit
def gathered_0(table, ids, v4_sum_of_piece, words, n, b, s, n_STEP: tl.constexpr, s_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, SHARE: tl.constexpr, SHARE_EVEN: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    b = tl.cast(b, INDEX)
    s = tl.cast(s, INDEX) * s_STEP
    item = tl.program_id(0).to(INDEX)
    piece_count = tl.cdiv(ALIGN + n - 1, SHARE)
    piece = item % piece_count
    i1 = item // piece_count
    lead = (i1 * n) % ALIGN
    ids_i = tl.load(ids + i1)
    at = ids_i
    inside = (at >= 0) & (at < words)
    r1 = SHARE * piece + tl.arange(0, SHARE) - lead
    r1_inside = noyau_inside(r1, n, ALIGN, SHARE_EVEN)
    r1_at_end = noyau_at_end(SHARE * piece, lead, n, ALIGN, SHARE)
    table_i = tl.load(table + at * n + r1, mask=r1_inside & inside, other=0)
    v3 = table_i * table_i
    v4_own_sum_lanes = noyau_of_row(v3, r1_inside, 0.0, r1_at_end, ALIGN)
    v4_own_sum = tl.sum(v4_own_sum_lanes, axis=0)
    tl.store(v4_sum_of_piece + b * piece * s + i1, v4_own_sum)


@triton.jit
def gathered_1(table, ids, v5, v2, v4_sum_of_piece, words, n, b, s, n_STEP: tl.constexpr, s_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, SHARE: tl.constexpr, PIECES: tl.constexpr, PIECES_EVEN: tl.constexpr, SHARE_EVEN: tl.constexpr, EARLY: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    b = tl.cast(b, INDEX)
    s = tl.cast(s, INDEX) * s_STEP
    if EARLY: tl.extra.cuda.gdc_wait()
    item = tl.program_id(0).to(INDEX)
    piece_count = tl.cdiv(ALIGN + n - 1, SHARE)
    piece = item % piece_count
    i1 = item // piece_count
    lead = (i1 * n) % ALIGN
    ids_i = tl.load(ids + i1)
    at = ids_i
    inside = (at >= 0) & (at < words)
    piece_v4_sum = tl.arange(0, PIECES)
    piece_v4_sum_inside = noyau_inside(piece_v4_sum, tl.cdiv(ALIGN + n - 1, SHARE), 1, PIECES_EVEN)
    v4_sum_lanes = tl.where(piece_v4_sum_inside, (tl.load(v4_sum_of_piece + b * piece_v4_sum * s + i1, mask=piece_v4_sum_inside, other=0)).to(tl.float64), 0.0)
    v4_sum = tl.sum(v4_sum_lanes, axis=0)
    v4 = v4_sum.to(tl.float32)
    holds = piece == 0
    tl.store(v5 + i1, v4, mask=holds)
    i2 = SHARE * piece + tl.arange(0, SHARE) - lead
    i2_inside = noyau_inside(i2, n, ALIGN, SHARE_EVEN)
    i2_line = (i1 * n) // ALIGN * ALIGN
    i2_cells = SHARE * piece + tl.arange(0, SHARE)
    i2_lines = noyau_lines(i2_cells, lead, n, ALIGN)
    i2_at_end = noyau_at_end(SHARE * piece, lead, n, ALIGN, SHARE)
    table_i = tl.load(table + at * n + i2, mask=i2_inside & inside, other=0)
    noyau_store(v2 + i2_line + i2_cells, table_i, i2_inside, i2_lines, i2_at_end, ALIGN, "")


@triton.jit
def gathered_2(table, ids, v5, v2, words, n, b, s, n_STEP: tl.constexpr, s_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, ROWS_EVEN: tl.constexpr, COLUMNS_EVEN: tl.constexpr, AGAIN: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    b = tl.cast(b, INDEX)
    s = tl.cast(s, INDEX) * s_STEP
    i1t = tl.program_id(0).to(INDEX)
    i1 = ROWS * i1t + tl.arange(0, ROWS)[:, None]
    i1_inside = noyau_inside(i1, b * s, 1, ROWS_EVEN)
    lead = (i1 * n) % ALIGN
    ids_i = tl.load(ids + i1, mask=i1_inside, other=0)
    at = ids_i
    inside = (at >= 0) & (at < words)
    r1 = tl.arange(0, COLUMNS)[None, :] - lead
    r1_inside = noyau_inside(r1, n, ALIGN, COLUMNS_EVEN)
    r1_line = (i1 * n) // ALIGN * ALIGN
    r1_cells = tl.arange(0, COLUMNS)[None, :]
    r1_lines = noyau_lines(r1_cells, lead, n, ALIGN)
    table_i = tl.load(table + at * n + r1, mask=i1_inside & r1_inside & inside, other=0, eviction_policy="evict_last" if AGAIN else "")
    v3 = table_i * table_i
    v4_sum_lanes = tl.where(r1_inside, v3, 0.0)
    v4_sum = tl.sum(v4_sum_lanes, axis=1, keep_dims=True)
    v4 = v4_sum
    tl.store(v5 + i1, v4, mask=i1_inside)
    table_i_2 = noyau_again(table_i, table + at * n + r1, i1_inside & r1_inside & inside, AGAIN)
    noyau_store(v2 + r1_line + r1_cells, table_i_2, i1_inside & r1_inside, i1_inside & r1_lines, True, ALIGN, "")


@triton.jit
def gathered_3(table, ids, v5, v2, words, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i1 = tl.program_id(0).to(INDEX)
    ids_i = tl.load(ids + i1)
    at = ids_i
    inside = (at >= 0) & (at < words)
    r1t_full = tl.cdiv(n, BLOCK) - 1
    v4_sum_lanes = tl.full((BLOCK,), 0.0, tl.float32)
    for r1t in range(0, r1t_full):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK)
        table_i = tl.load(table + at * n + r1, mask=inside, other=0, eviction_policy="evict_last")
        v3 = table_i * table_i
        v4_sum_lanes = v4_sum_lanes + v3
    r1_2 = BLOCK * r1t_full + tl.arange(0, BLOCK)
    r1_2_inside = noyau_inside(r1_2, n, 1, BLOCK_EVEN)
    table_i_2 = tl.load(table + at * n + r1_2, mask=r1_2_inside & inside, other=0)
    v3_2 = table_i_2 * table_i_2
    v4_sum_lanes = v4_sum_lanes + tl.where(r1_2_inside, v3_2, 0.0)
    v4_sum = tl.sum(v4_sum_lanes, axis=0)
    v4 = v4_sum
    tl.store(v5 + i1, v4)
    tl.store(v2 + i1 * n + r1_2, table_i_2, mask=r1_2_inside)
    for i2t in range(0, r1t_full):
        i2t_back = r1t_full - i2t - 1
        i2 = BLOCK * i2t_back + tl.arange(0, BLOCK)
        table_i_3 = tl.load(table + at * n + i2, mask=inside, other=0, eviction_policy="evict_first")
        tl.store(v2 + i1 * n + i2, table_i_3, eviction_policy="evict_first")


@triton.jit
def gathered_4(table, ids, v5, v2, words, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr):
    words = tl.cast(words, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i1 = tl.program_id(0).to(INDEX)
    lead = (i1 * n) % ALIGN
    ids_i = tl.load(ids + i1)
    at = ids_i
    inside = (at >= 0) & (at < words)
    v4_sum_lanes = tl.full((BLOCK,), 0.0, tl.float32)
    for r1t in range(0, tl.cdiv(lead + n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK) - lead
        r1_inside = noyau_inside(r1, n, ALIGN, BLOCK_EVEN)
        r1_at_end = noyau_at_end(BLOCK * r1t, lead, n, ALIGN, BLOCK)
        table_i = tl.load(table + at * n + r1, mask=r1_inside & inside, other=0, eviction_policy="evict_last")
        v3 = table_i * table_i
        v4_sum_lanes = v4_sum_lanes + noyau_of_row(v3, r1_inside, 0.0, r1_at_end, ALIGN)
    v4_sum = tl.sum(v4_sum_lanes, axis=0)
    v4 = v4_sum
    tl.store(v5 + i1, v4)
    for i2t in range(0, tl.cdiv(lead + n, BLOCK)):
        i2t_back = tl.cdiv(lead + n, BLOCK) - i2t - 1
        i2 = BLOCK * i2t_back + tl.arange(0, BLOCK) - lead
        i2_inside = noyau_inside(i2, n, ALIGN, BLOCK_EVEN)
        i2_line = (i1 * n) // ALIGN * ALIGN
        i2_cells = BLOCK * i2t_back + tl.arange(0, BLOCK)
        i2_lines = noyau_lines(i2_cells, lead, n, ALIGN)
        i2_at_end = noyau_at_end(BLOCK * i2t_back, lead, n, ALIGN, BLOCK)
        table_i_2 = tl.load(table + at * n + i2, mask=i2_inside & inside, other=0, eviction_policy="evict_first")
        noyau_store(v2 + i2_line + i2_cells, table_i_2, i2_inside, i2_lines, i2_at_end, ALIGN, "evict_first")


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
    if (((b * s) <= 128) and (n <= 524288)) and (not (n <= 8192)):
        ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)
        SHARE = tiles.get("SHARE", min(8192, max(2048, triton.next_power_of_2(triton.cdiv(((ALIGN + n - 1) * s) * b, at_once(table))))))
        SHARE_EVEN = ALIGN == 1 and n % SHARE == 0
        v4_sum_of_piece = torch.empty((triton.cdiv(ALIGN + n - 1, SHARE), b * s), dtype=torch.float32, device=table.device)
        programs = ((((ALIGN + n - 2) // SHARE) + 1) * s) * b
        if programs > 0:
            gathered_0[(programs,)](
                table, ids, v4_sum_of_piece, words, n // step_of(n), b, s // step_of(s), step_of(n), step_of(s), INDEX, ALIGN, SHARE, SHARE_EVEN, num_warps=tiles.get("num_warps", warps_of(2 * SHARE))
            )
        PIECES = min(65536, triton.next_power_of_2(max(1, triton.cdiv(ALIGN + n - 1, SHARE))))
        PIECES_EVEN = (triton.cdiv(ALIGN + n - 1, SHARE)) == PIECES
        EARLY = table.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(table.device) >= (9, 0)
        if programs > 0:
            gathered_1[(programs,)](
                table, ids, v5, v2, v4_sum_of_piece, words, n // step_of(n), b, s // step_of(s), step_of(n), step_of(s), INDEX, ALIGN, SHARE, PIECES, PIECES_EVEN, SHARE_EVEN, EARLY, num_warps=tiles.get("num_warps", warps_of(2 * SHARE)), **({"launch_pdl": True} if EARLY else {})
            )
    elif n <= 16384:
        ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)
        COLUMNS = min(65536, triton.next_power_of_2(max(1, ALIGN + n - 1)))
        ROWS = tiles.get("ROWS", max(1, 1024 // COLUMNS))
        ROWS_EVEN = (b * s) % ROWS == 0
        COLUMNS_EVEN = ALIGN == 1 and n == COLUMNS
        programs = triton.cdiv(b * s, ROWS)
        AGAIN = ALIGN == 1 and COLUMNS * 4 <= 32768 and (COLUMNS > 1024 or programs > 32768) and are_aligned(table)
        if programs > 0:
            gathered_2[(programs,)](
                table, ids, v5, v2, words, n // step_of(n), b, s // step_of(s), step_of(n), step_of(s), INDEX, ALIGN, COLUMNS, ROWS, ROWS_EVEN, COLUMNS_EVEN, AGAIN, num_warps=tiles.get("num_warps", warps_of(2 * COLUMNS * ROWS))
            )
    elif ((not (n <= 49151)) and (not ((n <= 65536) and ((n % 16384) <= 0)))) and ((n % 4) == 0):
        BLOCK = tiles.get("BLOCK", 32768)  # or one of 8192, 16384, 32768, 65536, 131072
        BLOCK_EVEN = n % BLOCK == 0
        programs = b * s
        if programs > 0:
            gathered_3[(programs,)](
                table, ids, v5, v2, words, n // step_of(n), step_of(n), INDEX, BLOCK, BLOCK_EVEN, num_warps=tiles.get("num_warps", 32)
            )
    else:
        ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)
        BLOCK = tiles.get("BLOCK", max(1, block_of(ALIGN + n - 1) // (1 if ALIGN == 1 else 4)))
        BLOCK_EVEN = ALIGN == 1 and n % BLOCK == 0
        programs = b * s
        if programs > 0:
            gathered_4[(programs,)](
                table, ids, v5, v2, words, n // step_of(n), step_of(n), INDEX, ALIGN, BLOCK, BLOCK_EVEN, num_warps=tiles.get("num_warps", min(32, max(1, BLOCK // (512 if ALIGN == 1 else 256))))
            )
    return v5, v2
