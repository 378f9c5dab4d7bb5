# the kernel transposed_strided

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
def transposed_strided_0(x, v2, b, c, x_stride0, x_stride1, x_stride2, b_STEP: tl.constexpr, c_STEP: tl.constexpr, x_stride0_STEP: tl.constexpr, x_stride1_STEP: tl.constexpr, x_stride2_STEP: tl.constexpr, INDEX: tl.constexpr, ACROSS: tl.constexpr, DOWN: tl.constexpr, DOWN_EVEN: tl.constexpr, ACROSS_EVEN: tl.constexpr):
    b = tl.cast(b, INDEX) * b_STEP
    c = tl.cast(c, INDEX) * c_STEP
    x_stride0 = tl.cast(x_stride0, INDEX) * x_stride0_STEP
    x_stride1 = tl.cast(x_stride1, INDEX) * x_stride1_STEP
    x_stride2 = tl.cast(x_stride2, INDEX) * x_stride2_STEP
    item = tl.program_id(0).to(INDEX)
    i2t_count = tl.cdiv(b, ACROSS)
    i2t = item % i2t_count
    item = item // i2t_count
    i1t_count = tl.cdiv(c, DOWN)
    i1t = item % i1t_count
    i0 = item // i1t_count
    i1 = DOWN * i1t + tl.arange(0, DOWN)[:, None]
    i1_inside = noyau_inside(i1, c, 1, DOWN_EVEN)
    i2 = ACROSS * i2t + tl.arange(0, ACROSS)[None, :]
    i2_inside = noyau_inside(i2, b, 1, ACROSS_EVEN)
    x_i = tl.load(x + i0 * x_stride0 + i1 * x_stride2 + i2 * x_stride1, mask=i1_inside & i2_inside, other=0)
    v2_2 = -x_i
    tl.store(v2 + (c * i0 + i1) * b + i2, v2_2, mask=i1_inside & i2_inside)


def transposed_strided(x, **tiles):
    """x: f32[a, b, c] -> v2: f32[a, c, b]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    a = x.shape[0]
    b = x.shape[1]
    c = x.shape[2]
    x_stride0 = x.stride(0)
    x_stride1 = x.stride(1)
    x_stride2 = x.stride(2)
    v2 = torch.empty((a, c, b), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v2)
    ACROSS = tiles.get("ACROSS", 64)  # or one of 16, 32, 64, 128, 256
    DOWN = tiles.get("DOWN", 64)  # or one of 16, 32, 64, 128, 256
    DOWN_EVEN = c % DOWN == 0
    ACROSS_EVEN = b % ACROSS == 0
    programs = (((b - 1) // ACROSS) * ((c - 1) // DOWN) + ((b - 1) // ACROSS) + ((c - 1) // DOWN) + 1) * a
    if programs > 0:
        transposed_strided_0[(programs,)](
            x, v2, b // step_of(b), c // step_of(c), x_stride0 // step_of(x_stride0), x_stride1 // step_of(x_stride1), x_stride2 // step_of(x_stride2), step_of(b), step_of(c), step_of(x_stride0), step_of(x_stride1), step_of(x_stride2), INDEX, ACROSS, DOWN, DOWN_EVEN, ACROSS_EVEN, num_warps=tiles.get("num_warps", warps_of(ACROSS * DOWN))
        )
    return v2
