# the kernel any_of_bools

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
    return 1 if cells <= 1024 else 2 if cells <= 2048 else 4 if cells <= 4096 else 8 if cells <= 8192 else 16


def at_once(tensor):
    """How many programs occupy the device."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1 << 31


@triton.jit
def any_of_bools_0(x, v1_2_any_of_piece, rows, n, rows_STEP: tl.constexpr, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, SHARE: tl.constexpr, SHARE_EVEN: tl.constexpr, ENDS: tl.constexpr):
    rows = tl.cast(rows, INDEX) * rows_STEP
    n = tl.cast(n, INDEX) * n_STEP
    item = tl.program_id(0).to(INDEX)
    piece_count = tl.cdiv(ALIGN + n - 1, SHARE)
    piece = item % piece_count
    i0 = item // piece_count
    lead = (i0 * n) % ALIGN
    r1 = SHARE * piece + tl.arange(0, SHARE) - lead
    r1_inside = noyau_inside(r1, n, ALIGN, SHARE_EVEN)
    r1_line = (i0 * n) // ALIGN * ALIGN
    r1_cells = SHARE * piece + tl.arange(0, SHARE)
    r1_near = noyau_near(r1_cells, lead, n, ALIGN)
    r1_at_end = noyau_at_end(SHARE * piece, lead, n, ALIGN, SHARE)
    r1_until = (piece + 1) * SHARE + i0 * n
    x_i = noyau_load(x + r1_line + r1_cells, r1_inside, r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "")
    v1_2_own_any_lanes = noyau_of_row(x_i, r1_inside, False, r1_at_end, ALIGN)
    v1_2_own_any = tl.max((v1_2_own_any_lanes).to(tl.int32), axis=0) != 0
    tl.store(v1_2_any_of_piece + piece * rows + i0, v1_2_own_any)


@triton.jit
def any_of_bools_1(v1, v1_2_any_of_piece, rows, n, rows_STEP: tl.constexpr, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, SHARE: tl.constexpr, PIECES: tl.constexpr, PIECES_EVEN: tl.constexpr, EARLY: tl.constexpr):
    rows = tl.cast(rows, INDEX) * rows_STEP
    n = tl.cast(n, INDEX) * n_STEP
    if EARLY: tl.extra.cuda.gdc_wait()
    i0 = tl.program_id(0).to(INDEX)
    piece_v1_2_any = tl.arange(0, PIECES)
    piece_v1_2_any_inside = noyau_inside(piece_v1_2_any, tl.cdiv(ALIGN + n - 1, SHARE), 1, PIECES_EVEN)
    v1_2_any_lanes = tl.where(piece_v1_2_any_inside, tl.load(v1_2_any_of_piece + piece_v1_2_any * rows + i0, mask=piece_v1_2_any_inside, other=0), False)
    v1_2_any = tl.max((v1_2_any_lanes).to(tl.int32), axis=0) != 0
    v1_2 = v1_2_any
    tl.store(v1 + i0, v1_2)


@triton.jit
def any_of_bools_2(x, v1, rows, n, rows_STEP: tl.constexpr, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, ROWS_EVEN: tl.constexpr, COLUMNS_EVEN: tl.constexpr, ENDS: tl.constexpr):
    rows = tl.cast(rows, INDEX) * rows_STEP
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = noyau_inside(i0, rows, 1, ROWS_EVEN)
    lead = (i0 * n) % ALIGN
    r1 = tl.arange(0, COLUMNS)[None, :] - lead
    r1_inside = noyau_inside(r1, n, ALIGN, COLUMNS_EVEN)
    r1_line = (i0 * n) // ALIGN * ALIGN
    r1_cells = tl.arange(0, COLUMNS)[None, :]
    r1_near = noyau_near(r1_cells, lead, n, ALIGN)
    r1_until = ((i0t + 1) * ROWS - 1) * n + COLUMNS
    x_i = noyau_load(x + r1_line + r1_cells, i0_inside & r1_inside, i0_inside & r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "")
    v1_2_any_lanes = tl.where(r1_inside, x_i, False)
    v1_2_any = tl.max((v1_2_any_lanes).to(tl.int32), axis=1, keep_dims=True) != 0
    v1_2 = v1_2_any
    tl.store(v1 + i0, v1_2, mask=i0_inside)


@triton.jit
def any_of_bools_3(x, v1, rows, n, rows_STEP: tl.constexpr, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr, ENDS: tl.constexpr):
    rows = tl.cast(rows, INDEX) * rows_STEP
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    lead = (i0 * n) % ALIGN
    v1_2_any_lanes = tl.full((BLOCK,), False, tl.int1)
    for r1t in range(0, tl.cdiv(lead + n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK) - lead
        r1_inside = noyau_inside(r1, n, ALIGN, BLOCK_EVEN)
        r1_line = (i0 * n) // ALIGN * ALIGN
        r1_cells = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_near = noyau_near(r1_cells, lead, n, ALIGN)
        r1_at_end = noyau_at_end(BLOCK * r1t, lead, n, ALIGN, BLOCK)
        r1_until = (r1t + 1) * BLOCK + i0 * n
        x_i = noyau_load(x + r1_line + r1_cells, r1_inside, r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "")
        v1_2_any_lanes = noyau_merge_any_bool(v1_2_any_lanes, noyau_of_row(x_i, r1_inside, False, r1_at_end, ALIGN))
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
    if ((rows <= 128) and (n <= 524288)) and (not (n <= 8192)):
        ALIGN = tiles.get("ALIGN", 1 if n % 16 == 0 else 16)
        SHARE = tiles.get("SHARE", min(8192, max(2048, triton.next_power_of_2(triton.cdiv((ALIGN + n - 1) * rows, at_once(x))))))
        SHARE_EVEN = ALIGN == 1 and n % SHARE == 0
        ENDS = (n * rows) % ALIGN != 0
        v1_2_any_of_piece = torch.empty((triton.cdiv(ALIGN + n - 1, SHARE), rows), dtype=torch.bool, device=x.device)
        programs = (((ALIGN + n - 2) // SHARE) + 1) * rows
        if programs > 0:
            any_of_bools_0[(programs,)](
                x, v1_2_any_of_piece, rows // step_of(rows), n // step_of(n), step_of(rows), step_of(n), INDEX, ALIGN, SHARE, SHARE_EVEN, ENDS, num_warps=tiles.get("num_warps", warps_of(2 * SHARE))
            )
        PIECES = min(65536, triton.next_power_of_2(max(1, triton.cdiv(ALIGN + n - 1, SHARE))))
        PIECES_EVEN = (triton.cdiv(ALIGN + n - 1, SHARE)) == PIECES
        EARLY = x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (9, 0)
        programs = rows
        if programs > 0:
            any_of_bools_1[(programs,)](
                v1, v1_2_any_of_piece, rows // step_of(rows), n // step_of(n), step_of(rows), step_of(n), INDEX, ALIGN, SHARE, PIECES, PIECES_EVEN, EARLY, num_warps=tiles.get("num_warps", warps_of(2 * PIECES)), **({"launch_pdl": True} if EARLY else {})
            )
    elif n <= 16384:
        ALIGN = tiles.get("ALIGN", 1 if n % 16 == 0 else 16)
        COLUMNS = min(65536, triton.next_power_of_2(max(1, ALIGN + n - 1)))
        ROWS = tiles.get("ROWS", max(1, 1024 // COLUMNS))
        ROWS_EVEN = rows % ROWS == 0
        COLUMNS_EVEN = ALIGN == 1 and n == COLUMNS
        ENDS = (n * rows) % ALIGN != 0
        programs = triton.cdiv(rows, ROWS)
        if programs > 0:
            any_of_bools_2[(programs,)](
                x, v1, rows // step_of(rows), n // step_of(n), step_of(rows), step_of(n), INDEX, ALIGN, COLUMNS, ROWS, ROWS_EVEN, COLUMNS_EVEN, ENDS, num_warps=tiles.get("num_warps", warps_of(COLUMNS * ROWS))
            )
    else:
        ALIGN = tiles.get("ALIGN", 1 if n % 16 == 0 else 16)
        BLOCK = tiles.get("BLOCK", 4096)  # or one of 1024, 2048, 4096, 8192, 16384
        BLOCK_EVEN = ALIGN == 1 and n % BLOCK == 0
        ENDS = (n * rows) % ALIGN != 0
        programs = rows
        if programs > 0:
            any_of_bools_3[(programs,)](
                x, v1, rows // step_of(rows), n // step_of(n), step_of(rows), step_of(n), INDEX, ALIGN, BLOCK, BLOCK_EVEN, ENDS, num_warps=tiles.get("num_warps", 8)
            )
    return v1
