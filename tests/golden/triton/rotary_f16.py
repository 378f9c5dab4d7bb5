# the kernel rotary_f16

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
def rotary_f16_0(x, v_sin, v_cos, v12, s, INDEX: tl.constexpr, COLUMNS: tl.constexpr, OUTER: tl.constexpr, ROWS: tl.constexpr, OUTER_EVEN: tl.constexpr, ROWS_EVEN: tl.constexpr, COLUMNS_EVEN: tl.constexpr):
    s = tl.cast(s, INDEX)
    item = tl.program_id(0).to(INDEX)
    i2t_count = tl.cdiv(s, ROWS)
    i2t = item % i2t_count
    item = item // i2t_count
    i1t_count = (1 // OUTER) + 1
    i1t = item % i1t_count
    i0 = item // i1t_count
    i1 = OUTER * i1t + tl.arange(0, OUTER)[:, None, None]
    i1_inside = noyau_inside(i1, 2, 1, OUTER_EVEN)
    i2 = ROWS * i2t + tl.arange(0, ROWS)[None, :, None]
    i2_inside = noyau_inside(i2, s, 1, ROWS_EVEN)
    i3 = tl.arange(0, COLUMNS)[None, None, :]
    i3_inside = noyau_inside(i3, 4, 1, COLUMNS_EVEN)
    x_i = tl.load(x + i0 * s * 16 + i2 * 16 + i1 * 8 + i3 + 4, mask=i1_inside & i2_inside & i3_inside, other=0).to(tl.float32)
    v6 = -x_i
    v_sin_i = tl.load(v_sin + i2 * 8 + i3, mask=i2_inside & i3_inside, other=0).to(tl.float32)
    v11 = v6 * v_sin_i
    v_cos_i = tl.load(v_cos + i2 * 8 + i3, mask=i2_inside & i3_inside, other=0).to(tl.float32)
    x_i_2 = tl.load(x + i0 * s * 16 + i2 * 16 + i1 * 8 + i3, mask=i1_inside & i2_inside & i3_inside, other=0).to(tl.float32)
    v9 = v_cos_i * x_i_2
    v12_2 = v11 + v9
    v_sin_i_2 = tl.load(v_sin + i2 * 8 + i3 + 4, mask=i2_inside & i3_inside, other=0).to(tl.float32)
    v11_2 = x_i_2 * v_sin_i_2
    v_cos_i_2 = tl.load(v_cos + i2 * 8 + i3 + 4, mask=i2_inside & i3_inside, other=0).to(tl.float32)
    v9_2 = v_cos_i_2 * x_i
    v12_3 = v11_2 + v9_2
    tl.store(v12 + (i0 * 16 + i1 * 8) * s + i2 * 8 + i3, v12_2, mask=i1_inside & i2_inside & i3_inside, eviction_policy="evict_first")
    tl.store(v12 + (i0 * 16 + i1 * 8) * s + i2 * 8 + i3 + 4, v12_3, mask=i1_inside & i2_inside & i3_inside, eviction_policy="evict_first")


def rotary_f16(x, v_sin, v_cos, **tiles):
    """x: f16[b, s, 16], v_sin: f16[s, 8], v_cos: f16[s, 8] -> v12: f16[b, 2, s, 8]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    b = x.shape[0]
    s = x.shape[1]
    if tuple(x.shape) != (b, s, 16):
        raise ValueError(f"x has shape {tuple(x.shape)}, not {(b, s, 16)}")
    if tuple(v_sin.shape) != (s, 8):
        raise ValueError(f"v_sin has shape {tuple(v_sin.shape)}, not {(s, 8)}")
    if tuple(v_cos.shape) != (s, 8):
        raise ValueError(f"v_cos has shape {tuple(v_cos.shape)}, not {(s, 8)}")
    x = x.contiguous()
    v_sin = v_sin.contiguous()
    v_cos = v_cos.contiguous()
    v12 = torch.empty((b, 2, s, 8), dtype=torch.float16, device=x.device)
    INDEX = index_type(x, v_sin, v_cos, v12)
    COLUMNS = min(65536, triton.next_power_of_2(max(1, 4)))
    OUTER = min(2, triton.next_power_of_2(max(1, 2)))
    ROWS = tiles.get("ROWS", max(1, 1024 // (COLUMNS * OUTER)))
    OUTER_EVEN = 2 % OUTER == 0
    ROWS_EVEN = s % ROWS == 0
    COLUMNS_EVEN = 4 == COLUMNS
    programs = (((s - 1) // ROWS) * (1 // OUTER) + ((s - 1) // ROWS) + (1 // OUTER) + 1) * b
    if programs > 0:
        rotary_f16_0[(programs,)](
            x, v_sin, v_cos, v12, s, INDEX, COLUMNS, OUTER, ROWS, OUTER_EVEN, ROWS_EVEN, COLUMNS_EVEN, num_warps=tiles.get("num_warps", warps_of(4 * COLUMNS * OUTER * ROWS))
        )
    return v12
