# the kernel scattered_cells

import torch
import triton
import triton.language as tl


def index_type(*tensors):
    """int64 where an offset into one of the tensors needs more than 31 bits."""
    reach = max(sum(abs(step) * (extent - 1) for step, extent in zip(t.stride(), t.shape)) for t in tensors)
    return tl.int64 if reach >= 2**31 - 2**20 else tl.int32


def warps_of(cells):
    """How many warps a program of so many cells has."""
    return 4 if cells <= 2048 else 8 if cells <= 4096 else 16 if cells <= 16384 else 32


@triton.jit
def scattered_cells_0(data, v3, a, n, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    a = tl.cast(a, INDEX)
    n = tl.cast(n, INDEX)
    i1t = tl.program_id(0).to(INDEX)
    i1 = BLOCK * i1t + tl.arange(0, BLOCK)
    i1_inside = i1 < a * n
    data_i = tl.load(data + i1, mask=i1_inside, other=0)
    tl.store(v3 + i1, data_i, mask=i1_inside)


@triton.jit
def scattered_cells_1(ids, x, v3, n, b, INDEX: tl.constexpr, ROWS: tl.constexpr):
    n = tl.cast(n, INDEX)
    b = tl.cast(b, INDEX)
    item = tl.program_id(0).to(INDEX)
    i1t_count = tl.cdiv(b, ROWS)
    i1t = item % i1t_count
    i0 = item // i1t_count
    i1 = ROWS * i1t + tl.arange(0, ROWS)
    i1_inside = i1 < b
    ids_i = tl.load(ids + b * i0 + i1, mask=i1_inside, other=0)
    at = ids_i.to(tl.int64)
    inside = (at >= 0) & (at < n)
    x_i = tl.load(x + b * i0 + i1, mask=i1_inside, other=0)
    tl.store(v3 + i0 * n + at, x_i, mask=i1_inside & inside)


def scattered_cells(data, ids, x, **tiles):
    """data: f32[a, n], ids: i32[a, b], x: f32[a, b] -> v3: f32[a, n]

    `tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""
    a = data.shape[0]
    n = data.shape[1]
    b = ids.shape[1]
    if tuple(ids.shape) != (a, b):
        raise ValueError(f"ids has shape {tuple(ids.shape)}, not {(a, b)}")
    if tuple(x.shape) != (a, b):
        raise ValueError(f"x has shape {tuple(x.shape)}, not {(a, b)}")
    data = data.contiguous()
    ids = ids.contiguous()
    x = x.contiguous()
    v3 = torch.empty((a, n), dtype=torch.float32, device=data.device)
    INDEX = index_type(data, ids, x, v3)
    BLOCK = tiles.get("BLOCK", 1024)  # or one of 256, 512, 1024, 2048, 4096
    programs = triton.cdiv(a * n, BLOCK)
    if programs > 0:
        scattered_cells_0[(programs,)](
            data, v3, a, n, INDEX, BLOCK, num_warps=tiles.get("num_warps", warps_of(BLOCK))
        )
    ROWS = tiles.get("ROWS", 32)  # or one of 8, 16, 32, 64, 128
    programs = (((b - 1) // ROWS) + 1) * a
    if programs > 0:
        scattered_cells_1[(programs,)](
            ids, x, v3, n, b, INDEX, ROWS, num_warps=tiles.get("num_warps", warps_of(ROWS))
        )
    return v3
