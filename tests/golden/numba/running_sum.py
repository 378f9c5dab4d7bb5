# the kernel running_sum

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
def running_sum_0(x, v1, v2, rows, n, begin, end):
    v1_sum = noyau_cells(16, f32)
    for i0t in range(begin, end):
        length = min(16, rows - i0t * 16)
        for i0 in range(16):
            v1_sum[i0] = f32(0.0)
        for i1 in range(n):
            for i0 in range(length):
                x_i = x[u64(i0t * 16 + i0), i1]
                v1_sum[i0] += x_i
                v1_2 = v1_sum[i0]
                v1[u64(i0t * 16 + i0), i1] = v1_2
                v2[u64(i0t * 16 + i0), i1] = v1_2 * v1_2


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def running_sum(x, v1, v2):
    # x: f32[rows, n], input
    # v1: f32[rows, n], output
    # v2: f32[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows, n):
        return 2
    if v2.shape != (rows, n):
        return 2
    items = (rows + 15) // 16
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        running_sum_0(x, v1, v2, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
