# the kernel any_of_bools

import numba
import numpy as np
from llvmlite import ir
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


noyau_merge_or_bool = _merging(lambda builder, a, b: builder.or_(a, b))


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
        noyau_merge_or_bool(v1_2_any, 64)
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
