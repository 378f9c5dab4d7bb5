# the kernel log_softmax_f64

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


noyau_merge_add_f64 = _merging(lambda builder, a, b: builder.fadd(a, b))
noyau_merge_max_f64 = _merging(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
noyau_merge_or_i32 = _merging(lambda builder, a, b: builder.or_(a, b))


def _bits(kind, result):
    """The bits of a scalar as another type of the same width."""

    @intrinsic
    def cast(context, x):
        return result(kind), lambda target, builder, signature, args: builder.bitcast(
            args[0], target.get_value_type(result)
        )

    return cast


noyau_bits_f64 = _bits(types.float64, types.uint64)
noyau_from_bits_f64 = _bits(types.uint64, types.float64)


# e^(most - rest) as high + *low, for |most| <= log(2)/2 and a rest below its last bits: e^r is 1 + r + r^2 p(r),
# p minimax, where 1 + r is high and what it was rounded by goes to low.
@scalar
def noyau_exp_reduced_f64(most, rest):
    r = most - rest
    p = 2.511554176208322e-08
    p = p * r + 2.76265487794339e-07
    p = p * r + 2.755722477418294e-06
    p = p * r + 2.4801503946616203e-05
    p = p * r + 0.00019841269906335115
    p = p * r + 0.0013888888932724966
    p = p * r + 0.0083333333333132
    p = p * r + 0.041666666666572906
    p = p * r + 0.16666666666666688
    p = p * r + 0.5000000000000006
    high = 1.0 + most
    low = most - (high - 1.0) + (p * (r * r) - rest)
    return high, low


# e^x as 2^n (high + *low), n in shifted as noyau_scale_f64 has it; log(2) in two parts.
@scalar
def noyau_exp_parts_f64(x):
    shifted = x * 1.4426950408889634 + (6755399441055744.0 + 2046.0)
    n = shifted - (6755399441055744.0 + 2046.0)
    high, rest = noyau_exp_reduced_f64(x - n * 0.6931471805598903, n * 5.497923018708371e-14)
    low = rest
    return high, low, shifted


# e^x. 0.8 ulp.
@scalar
def noyau_exp_f64(x):
    high, low, shifted = noyau_exp_parts_f64(x)
    value = high + low
    # value 2^n, where shifted is n + 2046 + 1.5 2^52: as noyau_scale_f32.
    bits = noyau_bits_f64(shifted)
    half = bits >> u64(1)
    y = value * noyau_from_bits_f64(half << u64(52)) * noyau_from_bits_f64((bits - half) << u64(52))
    tail = 0.0 if x < -746.0 else y
    return np.inf if x > 710.0 else tail


# f with x = 2^*n (1 + f), 1 + f from sqrt(1/2) to sqrt(2), for 0 < x < infinity.
@scalar
def noyau_log_split_f64(x):
    normal = (x * 1.8014398509481984e+16) if x < 2.2250738585072014e-308 else x
    bits = noyau_bits_f64(normal) + u64(4607182418800017408 - 4604544271217802189)
    whole = noyau_from_bits_f64((bits >> u64(52)) | u64(4841369599423283200)) - (4503599627370496.0 + 1023.0)
    n = whole - (54.0 if x < 2.2250738585072014e-308 else 0.0)
    return noyau_from_bits_f64((bits & u64(4503599627370495)) + u64(4604544271217802189)) - 1.0, n


# n log(2) + log(1 + f), log(2) in two parts. 1.0 ulp.
@scalar
def noyau_log_f64(x):
    f, n = noyau_log_split_f64(x)
    half = 0.5 * f * f
    # log(1 + f) - f + half, with half = f^2 / 2: as noyau_wide_log, with more terms.
    s = f / (f + 2.0)
    z = s * s
    p = 0.14796007714623774
    p = p * z + 0.15314050324702402
    p = p * z + 0.1818356405404158
    p = p * z + 0.2222219858558514
    p = p * z + 0.2857142874217077
    p = p * z + 0.3999999999941628
    p = p * z + 0.6666666666666734
    log_rest = s * (half + p * z)
    low = log_rest + n * 5.497923018708371e-14
    y = n * 0.6931471805598903 - (half - low - f)
    # y, or what the logarithm of x is where that is no number.
    most = y if x < np.inf else x
    none = -np.inf if x == 0.0 else np.nan
    log_ends = most if x > 0.0 else none
    return log_ends


@numba.njit(error_model="numpy", nogil=True, fastmath={"contract"})
def log_softmax_f64_0(x, v10, rows, n, begin, end):
    x_cells = noyau_flat(x)
    v1_max = noyau_cells(64, f64)
    v1_nan = noyau_cells(64, i32)
    v6_lanes_sum = noyau_cells(64, f64)
    v10_tile = noyau_cells(256, f64)
    for i0 in range(begin, end):
        for lane in range(64):
            v1_max[lane] = -np.inf
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
        noyau_merge_max_f64(v1_max, 64)
        noyau_merge_or_i32(v1_nan, 64)
        v1 = np.nan if v1_nan[0] != i32(0) else v1_max[0]
        v6_sum = 0.0
        for block in range((n + 511) // 512):
            length = min(512, n - block * 512)
            for lane in range(64):
                v6_lanes_sum[lane] = 0.0
            for r2 in range(length // 64):
                noyau_fetch(x_cells, (i0 + 1) * n + block * 512 + r2 * 64, 8)
                for lane in range(64):
                    x_i = x_cells[u64(i0 * n + block * 512 + r2 * 64 + lane)]
                    v4 = x_i - v1
                    v5 = noyau_exp_f64(v4)
                    v6_lanes_sum[lane] += v5
            for lane in range(length % 64):
                x_i = x_cells[u64(i0 * n + block * 512 + (length // 64) * 64 + lane)]
                v4 = x_i - v1
                v5 = noyau_exp_f64(v4)
                v6_lanes_sum[lane] += v5
            noyau_merge_add_f64(v6_lanes_sum, 64)
            v6_sum += v6_lanes_sum[0]
        v6 = v6_sum
        v8 = noyau_log_f64(v6)
        if 4194304 <= (n * rows * 8):
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
def log_softmax_f64(x, v10):
    # x: f64[rows, n], input
    # v10: f64[rows, n], output
    rows = x.shape[0]
    n = x.shape[1]
    if v10.shape != (rows, n):
        return 2
    items = rows
    parts = min(items, numba.get_num_threads())
    for part in prange(parts):
        log_softmax_f64_0(x, v10, rows, n, i64(part) * items // parts, (i64(part) + 1) * items // parts)
    return 0
