# the kernel any_of_bools

import numba
import numpy as np
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

i64 = np.int64
u64 = np.uint64


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
def any_of_bools_0(x, v1, n, begin, end):
    v1_2_any = noyau_cells(64, np.bool_)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_2_any[lane] = False
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x[i0, r1 * 64 + lane]
                v1_2_any[lane] = v1_2_any[lane] | x_i
        for lane in range(n % 64):
            x_i = x[i0, u64((n // 64) * 64 + lane)]
            v1_2_any[lane] = v1_2_any[lane] | x_i
        half = 32
        while half > 0:
            for lane in range(half):
                v1_2_any[lane] = v1_2_any[lane] | v1_2_any[u64(half + lane)]
            half //= 2
        v1[u64(i0)] = v1_2_any[0]


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def any_of_bools(x, v1):
    # x: bool[rows, n], input
    # v1: bool[rows], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (rows,):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        any_of_bools_0(x, v1, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
