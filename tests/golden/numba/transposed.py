# the kernel transposed

import numba
import numpy as np
from numba import prange, types
from numba.extending import intrinsic
from numba.np import arrayobj

i64 = np.int64
u64 = np.uint64
f32 = np.float32


@intrinsic
def noyau_flat(context, cells):
    """The cells of a packed array as one axis. (reshape takes Numba a tenth of a second to compile.)"""
    result = cells.copy(ndim=1)

    def made(target, builder, signature, args):
        given = arrayobj.make_array(cells)(target, builder, args[0])
        array = arrayobj.make_array(result)(target, builder)
        step = target.get_constant(types.intp, target.get_abi_sizeof(target.get_data_type(cells.dtype)))
        arrayobj.populate_array(array, given.data, (given.nitems,), (step,), step, None)
        return array._getvalue()

    return result(cells), made


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def transposed_0(x, v2, b, c, begin, end):
    x_cells = noyau_flat(x)
    v2_cells = noyau_flat(v2)
    for item in range(begin, end):
        i0 = item // ((b + 15) // 16)
        i2t = item % ((b + 15) // 16)
        for i1 in range(c):
            for i2 in range(min(16, b - i2t * 16)):
                x_i = x_cells[u64((b * i0 + i2t * 16 + i2) * c + i1)]
                v2_cells[u64((c * i0 + i1) * b + i2t * 16 + i2)] = -x_i


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def transposed(x, v2):
    # x: f32[a, b, c], input
    # v2: f32[a, c, b], output
    a = x.shape[0]
    b = x.shape[1]
    c = x.shape[2]
    if v2.shape != (a, c, b):
        return 2
    items = a * ((b + 15) // 16)
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        transposed_0(x, v2, b, c, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
