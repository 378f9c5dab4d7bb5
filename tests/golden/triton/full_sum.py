# the kernel full_sum

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
def full_sum_0(x, v1_2_sum_of_chunk, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    chunk_v1_2 = tl.program_id(0).to(INDEX)
    v1_2_sum_lanes = tl.full((BLOCK,), 0.0, tl.float32)
    for r1t in range(0, tl.cdiv(tl.minimum(32768, n - chunk_v1_2 * 32768), BLOCK)):
        r1 = BLOCK * r1t + tl.arange(0, BLOCK)
        r1_inside = r1 < tl.minimum(32768, n - chunk_v1_2 * 32768)
        x_i = tl.load(x + chunk_v1_2 * 32768 + r1, mask=r1_inside, other=0)
        v1_2_sum_lanes = v1_2_sum_lanes + tl.where(r1_inside, x_i, 0.0)
    v1_2_sum = tl.sum(v1_2_sum_lanes, axis=0)
    tl.store(v1_2_sum_of_chunk + chunk_v1_2, v1_2_sum)


@triton.jit
def full_sum_1(v1, v1_2_sum_of_chunk, n, n_STEP: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr, EARLY: tl.constexpr):
    n = tl.cast(n, INDEX) * n_STEP
    if EARLY: tl.extra.cuda.gdc_wait()
    v1_2_sum_lanes = tl.full((BLOCK,), 0.0, tl.float64)
    for chunk_v1_2t in range(0, tl.cdiv(tl.cdiv(n, 32768), BLOCK)):
        chunk_v1_2 = BLOCK * chunk_v1_2t + tl.arange(0, BLOCK)
        chunk_v1_2_inside = noyau_inside(chunk_v1_2, tl.cdiv(n, 32768), 1, BLOCK_EVEN)
        v1_2_sum_lanes = v1_2_sum_lanes + tl.where(chunk_v1_2_inside, (tl.load(v1_2_sum_of_chunk + chunk_v1_2, mask=chunk_v1_2_inside, other=0)).to(tl.float64), 0.0)
    v1_2_sum = tl.sum(v1_2_sum_lanes, axis=0)
    v1_2 = v1_2_sum.to(tl.float32)
    tl.store(v1, v1_2)


def full_sum(x, **tiles):
    """x: f32[n] -> v1: f32[]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    n = x.shape[0]
    x = x.contiguous()
    v1 = torch.empty((), dtype=torch.float32, device=x.device)
    v1_2_sum_of_chunk = torch.empty((triton.cdiv(n, 32768),), dtype=torch.float32, device=x.device)
    INDEX = index_type(x, v1, v1_2_sum_of_chunk)
    BLOCK = tiles.get("BLOCK", 8192)  # or one of 2048, 4096, 8192, 16384, 32768
    programs = triton.cdiv(n, 32768)
    if programs > 0:
        full_sum_0[(programs,)](
            x, v1_2_sum_of_chunk, n // step_of(n), step_of(n), INDEX, BLOCK, num_warps=tiles.get("num_warps", 8)
        )
    BLOCK = min(4096, triton.next_power_of_2(max(1, triton.cdiv(n, 32768))))
    BLOCK_EVEN = (triton.cdiv(n, 32768)) % BLOCK == 0
    EARLY = x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (9, 0)
    programs = 1
    if programs > 0:
        full_sum_1[(programs,)](
            v1, v1_2_sum_of_chunk, n // step_of(n), step_of(n), INDEX, BLOCK, BLOCK_EVEN, EARLY, num_warps=tiles.get("num_warps", 8), **({"launch_pdl": True} if EARLY else {})
        )
    return v1
