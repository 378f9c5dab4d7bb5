# the kernel column_sums

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

i64 = np.int64
u64 = np.uint64
f32 = np.float32
f64 = np.float64


@intrinsic
def noyau_row(context, count, kind):
    """Cells of this call alone, too many for its stack. (np.empty takes Numba a third of a second to compile.)"""
    result = types.Array(kind.instance_type, 1, "C")

    def made(target, builder, signature, args):
        cell = target.get_data_type(result.dtype)
        step = target.get_constant(types.intp, target.get_abi_sizeof(cell))
        memory = target.nrt.meminfo_alloc_aligned(builder, builder.mul(args[0], step), ir.IntType(32)(64))
        with builder.if_then(cgutils.is_null(builder, memory), likely=False):
            target.call_conv.return_user_exc(builder, MemoryError, ("there is not enough memory for a row",))
        data = builder.bitcast(target.nrt.meminfo_data(builder, memory), cell.as_pointer())
        array = arrayobj.make_array(result)(target, builder)
        arrayobj.populate_array(array, data, (args[0],), (step,), step, memory)
        return array._getvalue()

    return result(count, kind), made


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def column_sums_0(x, v1_2_sum_of_block, rows, n, begin, end):
    v1_2_sum = noyau_row(2048, f32)
    for item in range(begin, end):
        block = item // ((n + 2047) // 2048)
        i0t = item % ((n + 2047) // 2048)
        length = min(2048, n - i0t * 2048)
        length_2 = min(256, rows - block * 256)
        for i0 in range(2048):
            v1_2_sum[i0] = f32(0.0)
        for r1 in range(length_2):
            for i0 in range(length):
                x_i = x[u64(block * 256 + r1), u64(i0t * 2048 + i0)]
                v1_2_sum[i0] += x_i
        for i0 in range(length):
            v1_2_sum_of_block[block, u64(i0t * 2048 + i0)] = v1_2_sum[i0]


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def column_sums_1(v1, v1_2_sum_of_block, rows, n, begin, end):
    v1_2_sum = noyau_row(2048, f64)
    for i0t in range(begin, end):
        length = min(2048, n - i0t * 2048)
        for i0 in range(2048):
            v1_2_sum[i0] = 0.0
        for block in range((rows + 255) // 256):
            for i0 in range(length):
                v1_2_sum[i0] += f64(v1_2_sum_of_block[block, u64(i0t * 2048 + i0)])
        for i0 in range(length):
            v1[u64(i0t * 2048 + i0)] = f32(v1_2_sum[i0])


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def column_sums(x, v1):
    # x: f32[rows, n], input
    # v1: f32[n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v1.shape != (n,):
        return 2
    v1_2_sum_of_block = np.empty(((rows + 255) // 256, n), np.float32)
    items = ((n + 2047) // 2048) * ((rows + 255) // 256)
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        column_sums_0(x, v1_2_sum_of_block, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    items = (n + 2047) // 2048
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        column_sums_1(v1, v1_2_sum_of_block, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
