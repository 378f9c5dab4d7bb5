# the kernel scattered_rows

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


@intrinsic
def noyau_write_around(context, cells, at, tile, first, count):
    """As many cells of a tile, from one on, to their place in a packed array: what lies in whole lines of 64 bytes
    goes around the caches, is not read before it is written, and pushes nothing out of them. Few cells that do not
    begin with a line go through them."""

    def write(target, builder, signature, args):
        size, width = ir.IntType(64), target.get_abi_sizeof(target.get_data_type(cells.dtype))
        to, given = (_place(target, builder, *each) for each in ((cells, *args[:2]), (tile, *args[2:4])))
        line, count = size(64 // width), args[4]

        def copy(begin, many):
            with builder.if_then(builder.icmp_signed(">", many, size(0))):  # a call takes as long as a line
                places = [builder.gep(place, [begin]) for place in (to, given)]
                cgutils.raw_memcpy(builder, *places, many, width)

        address = builder.ptrtoint(to, size)
        before = builder.udiv(builder.and_(builder.neg(address), size(63)), size(width))
        before = builder.select(builder.icmp_signed("<", before, count), before, count)
        is_few = builder.icmp_signed("<", count, builder.mul(line, size(8)))
        is_apart = builder.icmp_signed(">", before, size(0))
        before = builder.select(builder.and_(is_few, is_apart), count, before)
        copy(size(0), before)
        lines = builder.udiv(builder.sub(count, before), line)
        half = ir.VectorType(ir.IntType(8), 32)
        with cgutils.for_range(builder, lines) as loop:
            here = builder.add(before, builder.mul(loop.index, line))
            onto, taken = (builder.bitcast(builder.gep(place, [here]), half.as_pointer()) for place in (to, given))
            for number in (ir.IntType(32)(0), ir.IntType(32)(1)):
                value = builder.load(builder.gep(taken, [number]), align=1)
                stored = builder.store(value, builder.gep(onto, [number]), align=32)
                stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        after = builder.add(before, builder.mul(lines, line))
        copy(after, builder.sub(count, after))
        return target.get_dummy_value()

    return types.none(cells, types.int64, tile, types.int64, types.int64), write


@intrinsic
def noyau_written_around(context):
    """After the last of them, before another thread is told that they are there."""

    def wait(target, builder, signature, args):
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return types.none(), wait


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def scattered_rows_0(data, v6, words, n, begin, end):
    data_cells = noyau_flat(data)
    v6_cells = noyau_flat(v6)
    v6_tile = noyau_cells(256, f32)
    for i1w in range(begin, end):
        i1_count = min(256, n * words - i1w * 256)
        if 4194304 <= (n * words * 4):
            for i1 in range(i1_count):
                v6_tile[i1] = data_cells[u64(i1w * 256 + i1)]
            noyau_write_around(v6_cells, i1w * 256, v6_tile, 0, i1_count)
        else:
            for i1 in range(i1_count):
                v6_cells[u64(i1w * 256 + i1)] = data_cells[u64(i1w * 256 + i1)]
    noyau_written_around()


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def scattered_rows_1(ids, scale, x, v6, words, n, rows, begin, end):
    x_cells = noyau_flat(x)
    v6_cells = noyau_flat(v6)
    for i1t in range(begin, end):
        for i0 in range(rows):
            ids_i = ids[i0]
            at = ids_i
            if not 0 <= at < words:
                return 1
            scale_i = scale[i0]
            for i1 in range(min(1024, n - i1t * 1024)):
                x_i = x_cells[u64(i0 * n + i1t * 1024 + i1)]
                v5 = scale_i * x_i
                v6_cells[u64(at * n + i1t * 1024 + i1)] += v5
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def scattered_rows(data, ids, scale, x, v6):
    # data: f32[words, n], input
    # ids: i64[rows], input
    # scale: f32[rows], input
    # x: f32[rows, n], input
    # v6: f32[words, n], output
    words = data.shape[0]
    n = data.shape[1]
    rows = ids.shape[0]
    if scale.shape != (rows,):
        return 2
    if x.shape != (rows, n):
        return 2
    if v6.shape != (words, n):
        return 2
    items = (n * words + 255) // 256
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        scattered_rows_0(data, v6, words, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    items = (n + 1023) // 1024
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, scattered_rows_1(ids, scale, x, v6, words, n, rows, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
