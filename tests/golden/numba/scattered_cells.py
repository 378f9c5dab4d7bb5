# the kernel scattered_cells

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

i32 = np.int32
i64 = np.int64
u64 = np.uint64
f32 = np.float32

# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(
    error_model="numpy", fastmath={"contract"}, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)


def _place(target, builder, kind, array, at):
    """The address of a cell of a packed array."""
    return builder.gep(arrayobj.make_array(kind)(target, builder, array).data, [at])


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


@intrinsic
def noyau_before_line(context, cells, at):
    """How many cells of a packed array, from this one on, lie before a line of 64 bytes begins."""

    def count(target, builder, signature, args):
        address = builder.ptrtoint(_place(target, builder, cells, *args), ir.IntType(64))
        size = target.get_abi_sizeof(target.get_data_type(cells.dtype))
        return builder.udiv(builder.and_(builder.neg(address), address.type(63)), address.type(size))

    return types.int64(cells, at), count


@intrinsic
def noyau_copy(context, cells, at, tile, start, count):
    """Cells of a tile to a packed array."""

    def copy(target, builder, signature, args):
        to, given = _place(target, builder, cells, *args[:2]), _place(target, builder, tile, *args[2:4])
        cgutils.raw_memcpy(builder, to, given, args[4], target.get_abi_sizeof(target.get_data_type(cells.dtype)))
        return target.get_dummy_value()

    return types.none(cells, at, tile, start, count), copy


@intrinsic
def noyau_line_around(context, cells, at, tile, start):
    """64 bytes of a tile to a line of a packed array, around the caches."""

    def store(target, builder, signature, args):
        half = ir.VectorType(ir.IntType(8), 32)
        to = builder.bitcast(_place(target, builder, cells, *args[:2]), half.as_pointer())
        given = builder.bitcast(_place(target, builder, tile, *args[2:]), half.as_pointer())
        for number in (ir.IntType(32)(0), ir.IntType(32)(1)):
            value = builder.load(builder.gep(given, [number]), align=1)
            stored = builder.store(value, builder.gep(to, [number]), align=32)
            stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return target.get_dummy_value()

    return types.none(cells, at, tile, start), store


@intrinsic
def noyau_written_around(context):
    """After the last of them, before another thread is told that they are there."""

    def wait(target, builder, signature, args):
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return types.none(), wait


# As many cells of a tile to their place in a packed array: what lies in whole lines is not read before it is written,
# and pushes nothing out of the caches. Few cells that do not begin with a line go through them.
@scalar
def noyau_write_around(cells, at, tile, count):
    line = 64 // tile.itemsize
    done = min(noyau_before_line(cells, at), count)
    if (done > 0) & (count < 8 * line):
        done = count
    if done > 0:
        noyau_copy(cells, at, tile, 0, done)
    while done + line <= count:
        noyau_line_around(cells, at + done, tile, done)
        done += line
    if done < count:
        noyau_copy(cells, at + done, tile, done, count - done)


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def scattered_cells_0(data, v3, a, n, begin, end):
    data_cells = data.reshape(-1)
    v3_cells = v3.reshape(-1)
    v3_tile = noyau_cells(256, f32)
    for i1w in range(begin, end):
        i1_count = min(256, a * n - i1w * 256)
        if 4194304 <= (a * n * 4):
            for i1 in range(i1_count):
                v3_tile[i1] = data_cells[u64(i1w * 256 + i1)]
            noyau_write_around(v3_cells, i1w * 256, v3_tile, i1_count)
        else:
            for i1 in range(i1_count):
                v3_cells[u64(i1w * 256 + i1)] = data_cells[u64(i1w * 256 + i1)]
    noyau_written_around()


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def scattered_cells_1(ids, x, v3, n, b, begin, end):
    for i0 in range(begin, end):
        for i1 in range(b):
            ids_i = ids[i0, i1]
            at = i64(ids_i)
            if not 0 <= at < n:
                return 1
            v3[i0, u64(at)] = x[i0, i1]
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def scattered_cells(data, ids, x, v3):
    # data: f32[a, n], input
    # ids: i32[a, b], input
    # x: f32[a, b], input
    # v3: f32[a, n], output
    a = data.shape[0]
    n = data.shape[1]
    b = ids.shape[1]
    if ids.shape != (a, b):
        return 2
    if x.shape != (a, b):
        return 2
    if v3.shape != (a, n):
        return 2
    items = (a * n + 255) // 256
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        scattered_cells_0(data, v3, a, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    items = a
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, scattered_cells_1(ids, x, v3, n, b, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
