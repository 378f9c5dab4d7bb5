# the kernel full_sum

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


def _merging(merge):
    """Merges so many lanes, a power of two, into the first: the upper half into the lower one, again and again."""

    @intrinsic(prefer_literal=True)
    def merged(context, lanes, count):
        def halved(target, builder, signature, args):
            width, cell, number = count.literal_value, target.get_data_type(lanes.dtype), ir.IntType(32)
            first = arrayobj.make_array(lanes)(target, builder, args[0]).data
            place = builder.bitcast(first, ir.VectorType(cell, width).as_pointer())
            left = builder.load(place, align=target.get_abi_sizeof(cell))
            while width > 1:
                width //= 2
                picked = ir.VectorType(number, width)
                lower, upper = (picked([*range(begin, begin + width)]) for begin in (0, width))
                left = merge(builder, *(builder.shuffle_vector(left, left, half) for half in (lower, upper)))
            builder.store(builder.extract_element(left, number(0)), first)
            return target.get_dummy_value()

        return types.none(lanes, count), halved

    return merged


noyau_merge_add_f32 = _merging(lambda builder, a, b: builder.fadd(a, b))


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def full_sum_0(x, v1_2_sum_of_block, n, begin, end):
    v1_2_lanes_sum = noyau_cells(64, f32)
    for block in range(begin, end):
        length = min(65536, n - block * 65536)
        v1_2_sum = 0.0
        for block_2 in range((length + 511) // 512):
            length_2 = min(512, length - block_2 * 512)
            for lane in range(64):
                v1_2_lanes_sum[lane] = f32(0.0)
            for r1 in range((length_2 + 63) // 64):
                length_3 = min(64, length_2 - r1 * 64)
                for lane in range(length_3):
                    x_i = x[u64(block * 65536 + block_2 * 512 + r1 * 64 + lane)]
                    v1_2_lanes_sum[lane] += x_i
            noyau_merge_add_f32(v1_2_lanes_sum, 64)
            v1_2_sum += f64(v1_2_lanes_sum[0])
        v1_2_sum_of_block[u64(block)] = v1_2_sum


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def full_sum_1(v1, v1_2_sum_of_block, n):
    v1_2_sum = 0.0
    for block in range((n + 65535) // 65536):
        v1_2_sum += v1_2_sum_of_block[block]
    v1[()] = f32(v1_2_sum)


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def full_sum(x, v1):
    # x: f32[n], input
    # v1: f32[], output
    n = x.shape[0]
    v1_2_sum_of_block = np.empty(((n + 65535) // 65536,), np.float64)
    items = (n + 65535) // 65536
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        full_sum_0(x, v1_2_sum_of_block, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    full_sum_1(v1, v1_2_sum_of_block, n)
    return 0
