# the kernel log_softmax_kept

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

i32 = np.int32
i64 = np.int64
u32 = np.uint32
u64 = np.uint64
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
noyau_merge_max_f32 = _merging(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
noyau_merge_or_i32 = _merging(lambda builder, a, b: builder.or_(a, b))


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


# e^x for x <= 0, and up to 66, as right as for any x, by one factor, which may be denormal; at the limit it is 0. The
# factor comes of the bits and a constant, while the slope is computed.
@scalar
def noyau_exp_negative_f32(x):
    # x, but the limit where it is less; NaN stays. No compiler knows the limit: where it does, gcc computes what becomes
    # of it apart, and chooses between the two at the end of a function, by six instructions instead of one.
    # x, rounded: no compiler knows this -0, so that a product in x is fused with the sum, which is x, and with nothing
    # that follows. 0.0 ulp.
    least = f32(-110.2) + f32(-0.0)
    t = least if x < least else x
    shifted = t * f32(1.442695) + (f32(12582912.0) + f32(159.0))
    n = shifted - (f32(12582912.0) + f32(159.0))
    r = t - n * f32(0.69314575) - n * f32(1.4286068e-06)  # log(2) in two parts
    scale = noyau_from_bits_f32(u32(noyau_bits_f32(shifted) << u32(23))) * f32(2.3283064e-10)
    # (e^r - 1) / r for |r| <= log(2)/2: 1 + r p(r), p minimax.
    p = f32(0.001393817)
    p = p * r + f32(0.0083689885)
    p = p * r + f32(0.04166643)
    p = p * r + f32(0.16666518)
    p = p * r + f32(0.5)
    exp_slope = p * r + f32(1.0)
    return exp_slope * (r * scale) + scale


# f with x = 2^*n (1 + f), |f| <= 1/3, for 0 < x < infinity.
@scalar
def noyau_log_split_f32(x):
    normal = (x * f32(8388608.0)) if x < f32(1.1754944e-38) else x
    bits = u32(noyau_bits_f32(normal) - u32(1059760811))  # 2/3 becomes 0
    n = f32(i32(i32(bits) >> i32(23))) - (f32(23.0) if x < f32(1.1754944e-38) else f32(0.0))
    return noyau_from_bits_f32(u32(u32(bits & u32(8388607)) + u32(1059760811))) - f32(1.0), n


# log(x) = n log(2) + log(1 + f). 1.0 ulp.
@scalar
def noyau_log_f32(x):
    f, n = noyau_log_split_f32(x)
    # n log(2) + log(1 + f) for |f| <= 1/3.
    # log(1 + f) - f for |f| <= 1/3: -f^2/2 + f^3 p(f), p minimax.
    p = f32(-0.13200602)
    p = p * f + f32(0.1396217)
    p = p * f - f32(0.12113095)
    p = p * f + f32(0.14010991)
    p = p * f - f32(0.1668561)
    p = p * f + f32(0.20010038)
    p = p * f - f32(0.24999686)
    p = p * f + f32(0.33333224)
    log_rest = f * f * (p * f - f32(0.5))
    y = log_rest + n * f32(1.4286068e-06) + f + n * f32(0.69314575)
    # y, or what the logarithm of x is where that is no number.
    most = y if x < f32(np.inf) else x
    none = f32(-np.inf) if x == f32(0.0) else f32(np.nan)
    log_ends = most if x > f32(0.0) else none
    return log_ends


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def log_softmax_kept_0(x, v10, rows, n, begin, end):
    x_cells = noyau_flat(x)
    v1_max = noyau_cells(64, f32)
    v1_nan = noyau_cells(64, i32)
    v6_lanes_sum = noyau_cells(64, f32)
    v10_tile = noyau_cells(256, f32)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_max[lane] = f32(-np.inf)
            v1_nan[lane] = i32(0)
        for r1 in range(n // 64):
            for lane in range(64):
                x_i = x_cells[u64(i0 * n + r1 * 64 + lane)]
                v1_max[lane] = v1_max[lane] if v1_max[lane] > x_i else x_i
                v1_nan[lane] = i32(v1_nan[lane] | i32(x_i != x_i))
        for lane in range(n % 64):
            x_i = x_cells[u64(i0 * n + (n // 64) * 64 + lane)]
            v1_max[lane] = v1_max[lane] if v1_max[lane] > x_i else x_i
            v1_nan[lane] = i32(v1_nan[lane] | i32(x_i != x_i))
        noyau_merge_max_f32(v1_max, 64)
        noyau_merge_or_i32(v1_nan, 64)
        v1 = f32(np.nan) if v1_nan[0] != i32(0) else v1_max[0]
        v6_sum = 0.0
        for block in range((n + 511) // 512):
            length = min(512, n - block * 512)
            for lane in range(64):
                v6_lanes_sum[lane] = f32(0.0)
            for r2 in range(length // 64):
                noyau_fetch(x_cells, (i0 + 1) * n + block * 512 + r2 * 64, 4)
                for lane in range(64):
                    x_i = x_cells[u64(i0 * n + block * 512 + r2 * 64 + lane)]
                    v4 = x_i - v1
                    v5 = noyau_exp_negative_f32(v4)
                    v6_lanes_sum[lane] += v5
            for lane in range(length % 64):
                x_i = x_cells[u64(i0 * n + block * 512 + (length // 64) * 64 + lane)]
                v4 = x_i - v1
                v5 = noyau_exp_negative_f32(v4)
                v6_lanes_sum[lane] += v5
            noyau_merge_add_f32(v6_lanes_sum, 64)
            v6_sum += f64(v6_lanes_sum[0])
        v6 = f32(v6_sum)
        v8 = noyau_log_f32(v6)
        if 4194304 <= (n * rows * 4):
            for i1w in range((n + 255) // 256):
                i1_count = min(256, n - i1w * 256)
                for i1 in range(i1_count):
                    x_i = x_cells[u64(i0 * n + i1w * 256 + i1)]
                    v4 = x_i - v1
                    v10_tile[i1] = v4 - v8
                noyau_write_around(v10, i0 * n + i1w * 256, v10_tile, 0, i1_count)
        else:
            for i1 in range(n):
                x_i = x_cells[u64(i0 * n + i1)]
                v4 = x_i - v1
                v10[i0, i1] = v4 - v8
    noyau_written_around()


@numba.njit(parallel=True, error_model="numpy", nogil=True)
def log_softmax_kept(x, v10):
    # x: f32[rows, n], input
    # v10: f32[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v10.shape != (rows, n):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        log_softmax_kept_0(x, v10, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
