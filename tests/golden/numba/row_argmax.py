# the kernel row_argmax

import numba
import numpy as np
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

i64 = np.int64
u64 = np.uint64
f32 = np.float32


@intrinsic(prefer_literal=True)
def noyau_cells(context, count, kind):
    """Cells of this call alone, on its stack: no array is the same memory, so loops over them are vectorised."""
    result = types.Array(kind.instance_type, 1, "C")

    def made(target, builder, signature, args):
        cell = target.get_data_type(result.dtype)
        numbers = (count.literal_value, target.get_abi_sizeof(cell))
        memory = cgutils.alloca_once(builder, cell, count.literal_value)
        memory.align = 64
        extent, step = (target.get_constant(types.intp, number) for number in numbers)
        array = arrayobj.make_array(result)(target, builder)
        arrayobj.populate_array(array, memory, (extent,), (step,), step, None)
        return array._getvalue()

    return result(count, kind), made


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def row_argmax_0(x, v1, n, begin, end):
    v1_2_best = noyau_cells(64, f32)
    v1_2_at = noyau_cells(64, i64)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_2_best[lane] = f32(-np.inf)
            v1_2_at[lane] = 9223372036854775807
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x[i0, r1 * 64 + lane]
                part_0 = x_i != x_i
                part_1 = v1_2_best[lane] == v1_2_best[lane]
                part_2 = part_0 & part_1
                part_3 = (v1_2_best[lane] != v1_2_best[lane]) & part_0
                part_4 = (x_i > v1_2_best[lane]) | part_2
                part_5 = (v1_2_best[lane] == x_i) | part_3
                part_6 = part_4 & part_1
                part_7 = part_5 & ((r1 * 64 + lane) < v1_2_at[lane])
                part_8 = part_6 | part_7
                next_v1_2_best = x_i if part_8 else v1_2_best[lane]
                next_v1_2_at = (r1 * 64 + lane) if part_8 else v1_2_at[lane]
                v1_2_best[lane] = next_v1_2_best
                v1_2_at[lane] = next_v1_2_at
        for lane in range(n % 64):
            x_i = x[i0, u64((n // 64) * 64 + lane)]
            part_0 = x_i != x_i
            part_1 = v1_2_best[lane] == v1_2_best[lane]
            part_2 = part_0 & part_1
            part_3 = (v1_2_best[lane] != v1_2_best[lane]) & part_0
            part_4 = (x_i > v1_2_best[lane]) | part_2
            part_5 = (v1_2_best[lane] == x_i) | part_3
            part_6 = part_4 & part_1
            part_7 = part_5 & (((n // 64) * 64 + lane) < v1_2_at[lane])
            part_8 = part_6 | part_7
            next_v1_2_best = x_i if part_8 else v1_2_best[lane]
            next_v1_2_at = ((n // 64) * 64 + lane) if part_8 else v1_2_at[lane]
            v1_2_best[lane] = next_v1_2_best
            v1_2_at[lane] = next_v1_2_at
        half = 32
        while half > 0:
            for lane in range(half):
                part_0 = v1_2_best[u64(half + lane)] != v1_2_best[u64(half + lane)]
                part_1 = v1_2_best[lane] == v1_2_best[lane]
                part_2 = part_0 & part_1
                part_3 = (v1_2_best[lane] != v1_2_best[lane]) & part_0
                part_4 = (v1_2_best[u64(half + lane)] > v1_2_best[lane]) | part_2
                part_5 = (v1_2_best[lane] == v1_2_best[u64(half + lane)]) | part_3
                part_6 = part_4 & part_1
                part_7 = part_5 & (v1_2_at[u64(half + lane)] < v1_2_at[lane])
                part_8 = part_6 | part_7
                next_v1_2_best = v1_2_best[u64(half + lane)] if part_8 else v1_2_best[lane]
                next_v1_2_at = v1_2_at[u64(half + lane)] if part_8 else v1_2_at[lane]
                v1_2_best[lane] = next_v1_2_best
                v1_2_at[lane] = next_v1_2_at
            half //= 2
        v1[u64(i0)] = v1_2_at[0]


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def row_argmax(x, v1):
    # x: f32[rows, n], input
    # v1: i64[rows], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows,):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        row_argmax_0(x, v1, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
