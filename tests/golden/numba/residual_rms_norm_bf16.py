# the kernel residual_rms_norm_bf16

import math

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

i64 = np.int64
u16 = np.uint16
u32 = np.uint32
f32 = np.float32
f64 = np.float64

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


@intrinsic(prefer_literal=True)
def noyau_fetch(context, cells, at, count):
    """A hint that lines of memory from a cell of a packed array on are read soon; they may lie outside."""

    def hint(target, builder, signature, args):
        place = builder.bitcast(_place(target, builder, cells, *args[:2]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], function)
        for line in range(count.literal_value):
            here = builder.gep(place, [ir.IntType(64)(64 * line)])
            builder.call(fetch, [here, number(0), number(2), number(1)])  # to read, into the second cache, data
        return target.get_dummy_value()

    return types.none(cells, at, count), hint


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


def _bits(kind, result):
    """The bits of a scalar as another type of the same width."""

    @intrinsic
    def cast(context, x):
        return result(kind), lambda target, builder, signature, args: builder.bitcast(
            args[0], target.get_value_type(result)
        )

    return cast


noyau_bits_f32 = _bits(types.float32, types.uint32)
noyau_from_bits_f32 = _bits(types.uint32, types.float32)


# A bfloat16 is the upper half of a float. 0.0 ulp.
@scalar
def noyau_bf16_to_f32(x):
    return noyau_from_bits_f32(u32(u32(x) << u32(16)))


# To the nearest, halves to even. 0.5 ulp.
@scalar
def noyau_f32_to_bf16(x):
    bits = noyau_bits_f32(x)
    rounded = u32(u32(bits + u32(32767)) + u32(u32(bits >> u32(16)) & u32(1)))
    return u16(u32((u32(bits | u32(4194304)) if x != x else rounded) >> u32(16)))


# 1 / sqrt(x). 1.5 ulp.
@scalar
def noyau_rsqrt_f32(x):
    return f32(1.0) / math.sqrt(x)


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def residual_rms_norm_bf16_0(x, r, w, v10, v3, v17, rows, n, begin, end):
    v5_lanes_sum = noyau_cells(64, f32)
    v3_tile = noyau_cells(256, u16)
    v17_tile = noyau_cells(256, u16)
    for i0 in range(begin, end):
        v8 = f32(n)
        v10_i = noyau_bf16_to_f32(v10)
        v5_sum = 0.0
        for block in range((n + 511) // 512):
            length = min(512, n - block * 512)
            for lane in range(64):
                v5_lanes_sum[lane] = f32(0.0)
            for r1 in range((length + 63) // 64):
                length_2 = min(64, length - r1 * 64)
                for lane in range(length_2):
                    x_i = noyau_bf16_to_f32(x[i0, block * 512 + r1 * 64 + lane])
                    v_r_i = noyau_bf16_to_f32(r[i0, block * 512 + r1 * 64 + lane])
                    v3_2 = x_i + v_r_i
                    v4 = v3_2 * v3_2
                    v5_lanes_sum[lane] += v4
            noyau_merge_add_f32(v5_lanes_sum, 64)
            v5_sum += f64(v5_lanes_sum[0])
        v5 = f32(v5_sum)
        v9 = v5 / v8
        v12 = v9 + v10_i
        v13 = noyau_rsqrt_f32(v12)
        if 4194304 <= (n * rows * 2):
            for i1w in range((n + 255) // 256):
                i1_count = min(256, n - i1w * 256)
                for i1p in range(8):
                    noyau_fetch(x, (i0 + 1) * n + i1w * 256 + i1p * 32, 1)
                for i1p in range(8):
                    noyau_fetch(r, (i0 + 1) * n + i1w * 256 + i1p * 32, 1)
                for i1 in range(i1_count):
                    x_i = noyau_bf16_to_f32(x[i0, i1w * 256 + i1])
                    v_r_i = noyau_bf16_to_f32(r[i0, i1w * 256 + i1])
                    v3_2 = x_i + v_r_i
                    v3_tile[i1] = noyau_f32_to_bf16(v3_2)
                    w_i = noyau_bf16_to_f32(w[i1w * 256 + i1])
                    v15 = v3_2 * v13
                    v17_tile[i1] = noyau_f32_to_bf16(w_i * v15)
                noyau_write_around(v3, i0 * n + i1w * 256, v3_tile, 0, i1_count)
                noyau_write_around(v17, i0 * n + i1w * 256, v17_tile, 0, i1_count)
        else:
            for i1 in range(n):
                x_i = noyau_bf16_to_f32(x[i0, i1])
                v_r_i = noyau_bf16_to_f32(r[i0, i1])
                v3_2 = x_i + v_r_i
                v3[i0, i1] = noyau_f32_to_bf16(v3_2)
                w_i = noyau_bf16_to_f32(w[i1])
                v15 = v3_2 * v13
                v17[i0, i1] = noyau_f32_to_bf16(w_i * v15)
    noyau_written_around()


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def residual_rms_norm_bf16(x, r, w, v10, v3, v17):
    # x: bf16[rows, n], input
    # r: bf16[rows, n], input
    # w: bf16[n], input
    # v10: bf16[], input
    # v3: bf16[rows, n], output
    # v17: bf16[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if r.shape != (rows, n):
        return 2
    if w.shape != (n,):
        return 2
    if v3.shape != (rows, n):
        return 2
    if v17.shape != (rows, n):
        return 2
    v10_value = v10[()]
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        residual_rms_norm_bf16_0(x, r, w, v10_value, v3, v17, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
