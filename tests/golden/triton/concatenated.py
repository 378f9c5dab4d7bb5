# the kernel concatenated

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


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


@triton.jit
def concatenated_0(x, y, v3, n, a, b, a_STEP: tl.constexpr, b_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, ROWS_EVEN: tl.constexpr, COLUMNS_EVEN: tl.constexpr):
    n = tl.cast(n, INDEX)
    a = tl.cast(a, INDEX) * a_STEP
    b = tl.cast(b, INDEX) * b_STEP
    i0t = tl.program_id(0).to(INDEX)
    i0 = ROWS * i0t + tl.arange(0, ROWS)[:, None]
    i0_inside = noyau_inside(i0, n, 1, ROWS_EVEN)
    lead = ((i0 + 1) * a + b * i0) % ALIGN
    i1 = tl.arange(0, COLUMNS)[None, :] - lead
    i1_inside = noyau_inside(i1, a, ALIGN, COLUMNS_EVEN)
    i1_line = ((i0 + 1) * a + b * i0) // ALIGN * ALIGN
    i1_cells = tl.arange(0, COLUMNS)[None, :]
    x_i = tl.load(x + a * i0 + i1, mask=i0_inside & i1_inside, other=0)
    v3_2 = libdevice.exp(x_i)
    tl.store(v3 + a * i0 + b * i0 + i1, v3_2, mask=i0_inside & i1_inside)
    i1_inside_2 = noyau_inside(i1, b, ALIGN, COLUMNS_EVEN)
    i1_inside_2_lines = noyau_lines(i1_cells, lead, b, ALIGN)
    y_i = tl.load(y + b * i0 + i1, mask=i0_inside & i1_inside_2, other=0)
    v3_3 = libdevice.exp(y_i)
    noyau_store(v3 + i1_line + i1_cells, v3_3, i0_inside & i1_inside_2, i0_inside & i1_inside_2_lines, True, ALIGN, "")


@triton.jit
def concatenated_1(x, y, v3, a, b, a_STEP: tl.constexpr, b_STEP: tl.constexpr, INDEX: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr):
    a = tl.cast(a, INDEX) * a_STEP
    b = tl.cast(b, INDEX) * b_STEP
    i0 = tl.program_id(0).to(INDEX)
    lead = ((i0 + 1) * a + b * i0) % ALIGN
    for i1t in range(0, tl.cdiv(a + lead, BLOCK)):
        i1 = BLOCK * i1t + tl.arange(0, BLOCK) - lead
        i1_inside = noyau_inside(i1, a, ALIGN, BLOCK_EVEN)
        x_i = tl.load(x + a * i0 + i1, mask=i1_inside, other=0)
        v3_2 = libdevice.exp(x_i)
        tl.store(v3 + a * i0 + b * i0 + i1, v3_2, mask=i1_inside)
    for i1t_2 in range(0, tl.cdiv(b + lead, BLOCK)):
        i1t_back = tl.cdiv(b + lead, BLOCK) - i1t_2 - 1
        i1_2 = BLOCK * i1t_back + tl.arange(0, BLOCK) - lead
        i1_2_inside = noyau_inside(i1_2, b, ALIGN, BLOCK_EVEN)
        i1_2_line = ((i0 + 1) * a + b * i0) // ALIGN * ALIGN
        i1_2_cells = BLOCK * i1t_back + tl.arange(0, BLOCK)
        i1_2_lines = noyau_lines(i1_2_cells, lead, b, ALIGN)
        i1_2_at_end = noyau_at_end(BLOCK * i1t_back, lead, b, ALIGN, BLOCK)
        y_i = tl.load(y + b * i0 + i1_2, mask=i1_2_inside, other=0)
        v3_3 = libdevice.exp(y_i)
        noyau_store(v3 + i1_2_line + i1_2_cells, v3_3, i1_2_inside, i1_2_lines, i1_2_at_end, ALIGN, "")


def concatenated(x, y, **tiles):
    """x: f32[n, a], y: f32[n, b] -> v3: f32[n, a + b]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    n = x.shape[0]
    a = x.shape[1]
    b = y.shape[1]
    if tuple(y.shape) != (n, b):
        raise ValueError(f"y has shape {tuple(y.shape)}, not {(n, b)}")
    x = x.contiguous()
    y = y.contiguous()
    v3 = torch.empty((n, a + b), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, y, v3)
    if (a <= 16384) and (b <= 16384):
        ALIGN = tiles.get("ALIGN", 1 if a % 4 == 0 and b % 4 == 0 else 4)
        COLUMNS = min(65536, triton.next_power_of_2(max(1, max(ALIGN + a - 1, ALIGN + b - 1))))
        ROWS = tiles.get("ROWS", max(1, 512 // COLUMNS))
        ROWS_EVEN = n % ROWS == 0
        COLUMNS_EVEN = ALIGN == 1 and a == COLUMNS and ALIGN == 1 and b == COLUMNS
        programs = triton.cdiv(n, ROWS)
        if programs > 0:
            concatenated_0[(programs,)](
                x, y, v3, n, a // step_of(a), b // step_of(b), step_of(a), step_of(b), INDEX, ALIGN, COLUMNS, ROWS, ROWS_EVEN, COLUMNS_EVEN, num_warps=tiles.get("num_warps", warps_of(4 * COLUMNS * ROWS))
            )
    else:
        ALIGN = tiles.get("ALIGN", 1 if a % 4 == 0 and b % 4 == 0 else 4)
        BLOCK = tiles.get("BLOCK", max(1, block_of(ALIGN + a - 1) // (1 if ALIGN == 1 else 4)))
        BLOCK_EVEN = ALIGN == 1 and a % BLOCK == 0 and ALIGN == 1 and b % BLOCK == 0
        programs = n
        if programs > 0:
            concatenated_1[(programs,)](
                x, y, v3, a // step_of(a), b // step_of(b), step_of(a), step_of(b), INDEX, ALIGN, BLOCK, BLOCK_EVEN, num_warps=tiles.get("num_warps", min(32, max(1, BLOCK // (512 if ALIGN == 1 else 256))))
            )
    return v3
