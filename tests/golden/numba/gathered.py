# the kernel gathered

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
def gathered_0(table, ids, v5, v2, words, n, b, s, begin, end):
    ids_cells = noyau_flat(ids)
    v5_cells = noyau_flat(v5)
    v2_cells = noyau_flat(v2)
    v4_lanes_sum = noyau_cells(64, f32)
    v2_tile = noyau_cells(256, f32)
    for i1 in range(begin, end):
        ids_i = ids_cells[u64(i1)]
        at = ids_i
        if not 0 <= at < words:
            return 1
        v4_sum = 0.0
        for block in range((n + 511) // 512):
            length = min(512, n - block * 512)
            for lane in range(64):
                v4_lanes_sum[lane] = f32(0.0)
            for r1 in range((length + 63) // 64):
                length_2 = min(64, length - r1 * 64)
                for lane in range(length_2):
                    table_i = table[at, block * 512 + r1 * 64 + lane]
                    v3 = table_i * table_i
                    v4_lanes_sum[lane] += v3
            noyau_merge_add_f32(v4_lanes_sum, 64)
            v4_sum += f64(v4_lanes_sum[0])
        v5_cells[u64(i1)] = f32(v4_sum)
        if 4194304 <= (b * n * s * 4):
            for i2w in range((n + 255) // 256):
                i2_count = min(256, n - i2w * 256)
                for i2 in range(i2_count):
                    v2_tile[i2] = table[at, i2w * 256 + i2]
                noyau_write_around(v2_cells, i1 * n + i2w * 256, v2_tile, 0, i2_count)
        else:
            for i2 in range(n):
                v2_cells[u64(i1 * n + i2)] = table[at, i2]
    noyau_written_around()
    return 0


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def gathered(table, ids, v5, v2):
    # table: f32[words, n], input
    # ids: i64[b, s], input
    # v5: f32[b, s, 1], output
    # v2: f32[b, s, n], output
    words = table.shape[0]
    n = table.shape[1]
    b = ids.shape[0]
    s = ids.shape[1]
    if v5.shape != (b, s, 1):
        return 2
    if v2.shape != (b, s, n):
        return 2
    items = b * s
    parts = min(items, numba.get_num_threads())
    status = 0
    for part in prange(parts):
        status = max(status, gathered_0(table, ids, v5, v2, words, n, b, s, i64(part) * items // parts, (i64(part) + 1) * items // parts))
    if status != 0:
        return status
    return 0
