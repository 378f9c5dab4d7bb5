# the kernel residual_rms_norm

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def noyau_rsqrt_f32(x):
    tiny = x < 2.0**-100
    made = libdevice.rsqrt(tl.where(tiny, x * 2.0**40, x))
    return tl.where(tiny, made * 2.0**20, made)


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


@triton.jit
def noyau_ahead(cells, inside, AHEAD: tl.constexpr):
    """What all rows have in common, on the way with a row, where it is short."""
    found = 0
    if AHEAD:
        found = tl.load(cells, mask=inside, other=0)
    return found


@triton.jit
def noyau_behind(found, cells, inside, AHEAD: tl.constexpr):
    """What was loaded ahead, or the same loaded now."""
    if not AHEAD:
        found = tl.load(cells, mask=inside, other=0)
    return found


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
def residual_rms_norm_0(x, r, v5_sum_of_piece, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, SHARE: tl.constexpr, SHARE_EVEN: tl.constexpr, ENDS: tl.constexpr):
    rows = tl.cast(rows, INDEX)
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
    v_r_i = noyau_load(r + r1_line + r1_cells, r1_inside, r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "")
    v3_2 = x_i + v_r_i
    v4 = v3_2 * v3_2
    v5_own_sum_lanes = noyau_of_row(v4, r1_inside, 0.0, r1_at_end, ALIGN)
    v5_own_sum = tl.sum(v5_own_sum_lanes, axis=0)
    tl.store(v5_sum_of_piece + piece * rows + i0, v5_own_sum)


@triton.jit
def residual_rms_norm_1(v10, x, r, w, v17, v3, v5_sum_of_piece, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, SHARE: tl.constexpr, PIECES: tl.constexpr, PIECES_EVEN: tl.constexpr, SHARE_EVEN: tl.constexpr, ENDS: tl.constexpr, EARLY: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    if EARLY: tl.extra.cuda.gdc_wait()
    item = tl.program_id(0).to(INDEX)
    piece_count = tl.cdiv(ALIGN + n - 1, SHARE)
    piece = item % piece_count
    i0 = item // piece_count
    lead = (i0 * n) % ALIGN
    v10_i = tl.load(v10)
    v8 = tl.cast(n, tl.float32)
    piece_v5_sum = tl.arange(0, PIECES)
    piece_v5_sum_inside = noyau_inside(piece_v5_sum, tl.cdiv(ALIGN + n - 1, SHARE), 1, PIECES_EVEN)
    v5_sum_lanes = tl.where(piece_v5_sum_inside, (tl.load(v5_sum_of_piece + piece_v5_sum * rows + i0, mask=piece_v5_sum_inside, other=0)).to(tl.float64), 0.0)
    v5_sum = tl.sum(v5_sum_lanes, axis=0)
    v5 = v5_sum.to(tl.float32)
    v9 = tl.div_rn(v5, v8)
    v12 = v10_i + v9
    v13 = noyau_rsqrt_f32(v12)
    i1 = SHARE * piece + tl.arange(0, SHARE) - lead
    i1_inside = noyau_inside(i1, n, ALIGN, SHARE_EVEN)
    i1_line = (i0 * n) // ALIGN * ALIGN
    i1_cells = SHARE * piece + tl.arange(0, SHARE)
    i1_lines = noyau_lines(i1_cells, lead, n, ALIGN)
    i1_near = noyau_near(i1_cells, lead, n, ALIGN)
    i1_at_end = noyau_at_end(SHARE * piece, lead, n, ALIGN, SHARE)
    i1_until = (piece + 1) * SHARE + i0 * n
    x_i = noyau_load(x + i1_line + i1_cells, i1_inside, i1_near, i1_line + i1_cells, n * rows, i1_until, ALIGN, ENDS, "")
    v_r_i = noyau_load(r + i1_line + i1_cells, i1_inside, i1_near, i1_line + i1_cells, n * rows, i1_until, ALIGN, ENDS, "")
    v3_2 = x_i + v_r_i
    v15 = v13 * v3_2
    w_i = tl.load(w + i1, mask=i1_inside, other=0)
    v17_2 = v15 * w_i
    noyau_store(v17 + i1_line + i1_cells, v17_2, i1_inside, i1_lines, i1_at_end, ALIGN, "")
    noyau_store(v3 + i1_line + i1_cells, v3_2, i1_inside, i1_lines, i1_at_end, ALIGN, "")


@triton.jit
def residual_rms_norm_2(v10, x, r, w, v17, v3, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, ROWS_EVEN: tl.constexpr, COLUMNS_EVEN: tl.constexpr, ENDS: tl.constexpr, AGAIN: tl.constexpr, AHEAD: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = noyau_inside(i0, rows, 1, ROWS_EVEN)
    lead = (i0 * n) % ALIGN
    v10_i = tl.load(v10)
    v8 = tl.cast(n, tl.float32)
    r1 = tl.arange(0, COLUMNS)[None, :] - lead
    r1_inside = noyau_inside(r1, n, ALIGN, COLUMNS_EVEN)
    r1_line = (i0 * n) // ALIGN * ALIGN
    r1_cells = tl.arange(0, COLUMNS)[None, :]
    r1_lines = noyau_lines(r1_cells, lead, n, ALIGN)
    r1_near = noyau_near(r1_cells, lead, n, ALIGN)
    r1_until = ((i0t + 1) * ROWS - 1) * n + COLUMNS
    x_i = noyau_load(x + r1_line + r1_cells, i0_inside & r1_inside, i0_inside & r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "evict_last" if AGAIN else "")
    v_r_i = noyau_load(r + r1_line + r1_cells, i0_inside & r1_inside, i0_inside & r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "evict_last" if AGAIN else "")
    v3_2 = x_i + v_r_i
    v4 = v3_2 * v3_2
    v5_sum_lanes = tl.where(r1_inside, v4, 0.0)
    w_ahead = noyau_ahead(w + r1, i0_inside & r1_inside, AHEAD)
    v5_sum = tl.sum(v5_sum_lanes, axis=1, keep_dims=True)
    v5 = v5_sum
    v8_scale = noyau_scale(v8)
    v8_scaled = v8 * v8_scale
    v8_inverse = tl.div_rn(1.0, v8_scaled)
    v8_finite = tl.where(tl.abs(v8_scaled) < float("inf"), v8_scaled, 0.0)
    v9 = noyau_quotient(v5, v8_scale, v8_finite, v8_inverse)
    v12 = v10_i + v9
    v13 = noyau_rsqrt_f32(v12)
    x_i_2 = noyau_again(x_i, x + r1_line + r1_cells, i0_inside & r1_inside, AGAIN)
    v_r_i_2 = noyau_again(v_r_i, r + r1_line + r1_cells, i0_inside & r1_inside, AGAIN)
    v3_3 = x_i_2 + v_r_i_2
    v15 = v13 * v3_3
    w_i = noyau_behind(w_ahead, w + r1, i0_inside & r1_inside, AHEAD)
    v17_2 = v15 * w_i
    noyau_store(v17 + r1_line + r1_cells, v17_2, i0_inside & r1_inside, i0_inside & r1_lines, True, ALIGN, "")
    noyau_store(v3 + r1_line + r1_cells, v3_3, i0_inside & r1_inside, i0_inside & r1_lines, True, ALIGN, "")


@triton.jit
def residual_rms_norm_3(v10, x, r, w, v17, v3, rows, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr, ENDS: tl.constexpr):
    rows = tl.cast(rows, INDEX)
    n = tl.cast(n, INDEX) * n_STEP
    i0 = tl.program_id(0).to(INDEX)
    lead = (i0 * n) % ALIGN
    v10_i = tl.load(v10)
    v8 = tl.cast(n, tl.float32)
    v5_sum_lanes = tl.full((BLOCK,), 0.0, tl.float32)
    for r1t in range(0, tl.cdiv(lead + n, BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK) - lead
        r1_inside = noyau_inside(r1, n, ALIGN, BLOCK_EVEN)
        r1_line = (i0 * n) // ALIGN * ALIGN
        r1_cells = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_near = noyau_near(r1_cells, lead, n, ALIGN)
        r1_at_end = noyau_at_end(BLOCK * r1t, lead, n, ALIGN, BLOCK)
        r1_until = (r1t + 1) * BLOCK + i0 * n
        x_i = noyau_load(x + r1_line + r1_cells, r1_inside, r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "evict_last")
        v_r_i = noyau_load(r + r1_line + r1_cells, r1_inside, r1_near, r1_line + r1_cells, n * rows, r1_until, ALIGN, ENDS, "evict_last")
        v3_2 = x_i + v_r_i
        v4 = v3_2 * v3_2
        v5_sum_lanes = v5_sum_lanes + noyau_of_row(v4, r1_inside, 0.0, r1_at_end, ALIGN)
    v5_sum = tl.sum(v5_sum_lanes, axis=0)
    v5 = v5_sum
    v9 = tl.div_rn(v5, v8)
    v12 = v10_i + v9
    v13 = noyau_rsqrt_f32(v12)
    for i1t in range(0, tl.cdiv(lead + n, BLOCK)):
        i1t_back = tl.cdiv(lead + n, BLOCK) - i1t - 1
        i1 = BLOCK * i1t_back + tl.arange(0, BLOCK) - lead
        i1_inside = noyau_inside(i1, n, ALIGN, BLOCK_EVEN)
        i1_line = (i0 * n) // ALIGN * ALIGN
        i1_cells = BLOCK * i1t_back + tl.arange(0, BLOCK)
        i1_lines = noyau_lines(i1_cells, lead, n, ALIGN)
        i1_near = noyau_near(i1_cells, lead, n, ALIGN)
        i1_at_end = noyau_at_end(BLOCK * i1t_back, lead, n, ALIGN, BLOCK)
        i1_until = (i1t_back + 1) * BLOCK + i0 * n
        x_i_2 = noyau_load(x + i1_line + i1_cells, i1_inside, i1_near, i1_line + i1_cells, n * rows, i1_until, ALIGN, ENDS, "evict_first")
        v_r_i_2 = noyau_load(r + i1_line + i1_cells, i1_inside, i1_near, i1_line + i1_cells, n * rows, i1_until, ALIGN, ENDS, "evict_first")
        v3_3 = x_i_2 + v_r_i_2
        v15 = v13 * v3_3
        w_i = tl.load(w + i1, mask=i1_inside, other=0)
        v17_2 = v15 * w_i
        noyau_store(v17 + i1_line + i1_cells, v17_2, i1_inside, i1_lines, i1_at_end, ALIGN, "evict_first")
        noyau_store(v3 + i1_line + i1_cells, v3_3, i1_inside, i1_lines, i1_at_end, ALIGN, "evict_first")


def residual_rms_norm(v10, x, r, w, **tiles):
    """v10: f32[], x: f32[rows, n], r: f32[rows, n], w: f32[n] -> v17: f32[rows, n], v3: f32[rows, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    rows = x.shape[0]
    n = x.shape[1]
    if tuple(r.shape) != (rows, n):
        raise ValueError(f"r has shape {tuple(r.shape)}, not {(rows, n)}")
    if tuple(w.shape) != (n,):
        raise ValueError(f"w has shape {tuple(w.shape)}, not {(n,)}")
    x = x.contiguous()
    r = r.contiguous()
    w = w.contiguous()
    v17 = torch.empty((rows, n), dtype=torch.float32, device=v10.device)
    v3 = torch.empty((rows, n), dtype=torch.float32, device=v10.device)
    INDEX = index_type(v10, x, r, w, v17, v3)
    if ((rows <= 128) and (n <= 524288)) and (not (n <= 8192)):
        ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)
        SHARE = tiles.get("SHARE", min(8192, max(2048, triton.next_power_of_2(triton.cdiv((ALIGN + n - 1) * rows, at_once(v10))))))
        SHARE_EVEN = ALIGN == 1 and n % SHARE == 0
        ENDS = (n * rows) % ALIGN != 0
        v5_sum_of_piece = torch.empty((triton.cdiv(ALIGN + n - 1, SHARE), rows), dtype=torch.float32, device=v10.device)
        programs = (((ALIGN + n - 2) // SHARE) + 1) * rows
        if programs > 0:
            residual_rms_norm_0[(programs,)](
                x, r, v5_sum_of_piece, rows, n // step_of(n), step_of(n), INDEX, ALIGN, SHARE, SHARE_EVEN, ENDS, num_warps=tiles.get("num_warps", warps_of(2 * SHARE))
            )
        PIECES = min(65536, triton.next_power_of_2(max(1, triton.cdiv(ALIGN + n - 1, SHARE))))
        PIECES_EVEN = (triton.cdiv(ALIGN + n - 1, SHARE)) == PIECES
        EARLY = v10.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(v10.device) >= (9, 0)
        if programs > 0:
            residual_rms_norm_1[(programs,)](
                v10, x, r, w, v17, v3, v5_sum_of_piece, rows, n // step_of(n), step_of(n), INDEX, ALIGN, SHARE, PIECES, PIECES_EVEN, SHARE_EVEN, ENDS, EARLY, num_warps=tiles.get("num_warps", warps_of(2 * SHARE)), **({"launch_pdl": True} if EARLY else {})
            )
    elif n <= 16384:
        ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)
        COLUMNS = min(65536, triton.next_power_of_2(max(1, ALIGN + n - 1)))
        ROWS = tiles.get("ROWS", max(1, 1024 // COLUMNS))
        ROWS_EVEN = rows % ROWS == 0
        COLUMNS_EVEN = ALIGN == 1 and n == COLUMNS
        ENDS = (n * rows) % ALIGN != 0
        programs = triton.cdiv(rows, ROWS)
        AGAIN = ALIGN == 1 and COLUMNS * 4 <= 32768 and (COLUMNS > 1024 or programs > 32768) and are_aligned(x, r)
        AHEAD = COLUMNS <= 2048
        if programs > 0:
            residual_rms_norm_2[(programs,)](
                v10, x, r, w, v17, v3, rows, n // step_of(n), step_of(n), INDEX, ALIGN, COLUMNS, ROWS, ROWS_EVEN, COLUMNS_EVEN, ENDS, AGAIN, AHEAD, num_warps=tiles.get("num_warps", warps_of(2 * COLUMNS * ROWS))
            )
    else:
        ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)
        BLOCK = tiles.get("BLOCK", max(1, block_of(((ALIGN * 2 + n * 2 + 1) // 3) - 1) if ALIGN == 1 else block_of(ALIGN * 2 + n * 2 - 2) // 4))
        BLOCK_EVEN = ALIGN == 1 and n % BLOCK == 0
        ENDS = (n * rows) % ALIGN != 0
        programs = rows
        warps = tiles.get("num_warps", min(32, max(1, BLOCK // 256)))
        registers = {"maxnreg": 64} if warps == 32 else {}
        if programs > 0:
            residual_rms_norm_3[(programs,)](
                v10, x, r, w, v17, v3, rows, n // step_of(n), step_of(n), INDEX, ALIGN, BLOCK, BLOCK_EVEN, ENDS, num_warps=warps, **registers
            )
    return v17, v3
