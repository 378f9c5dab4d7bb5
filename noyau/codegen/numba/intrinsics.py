"""Functions that a text defines where it uses them: intrinsics of LLVM (arrays on the stack, prefetches, non-temporal
stores, lanes merged by halves), and the scalar functions.

A loop over halves takes Numba a tenth of a second to compile, an intrinsic does not. The scalar functions are those of
codegen/cmath: one promise in both languages. A release translates them by tools/numba_functions.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from pathlib import Path

from noyau.codegen.cmath import callees_first
from noyau.codegen.numba.spellings import KINDS
from noyau.ir.dims import Dim
from noyau.ir.loops import Expr, Load, MergeLanes
from noyau.ir.monoids import MONOIDS, Symbolic

HEAD = """\
def _place(target, builder, kind, array, at):
    \"\"\"The address of a cell of a packed array.\"\"\"
    return builder.gep(arrayobj.make_array(kind)(target, builder, array).data, [at])"""
WORDS = {
    "noyau_cells": """\
@intrinsic(prefer_literal=True)
def noyau_cells(context, count, kind):
    \"\"\"Cells of this call alone, on its stack: no array is the same memory, so loops over them are vectorised.\"\"\"
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

    return result(count, kind), made""",
    "noyau_row": """\
@intrinsic
def noyau_row(context, count, kind):
    \"\"\"Cells of this call alone, too many for its stack. (np.empty takes Numba a third of a second to compile.)\"\"\"
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

    return result(count, kind), made""",
    "noyau_fetch": """\
@intrinsic(prefer_literal=True)
def noyau_fetch(context, cells, at, count):
    \"\"\"A hint that lines of memory from a cell of a packed array on are read soon; they may lie outside.\"\"\"

    def hint(target, builder, signature, args):
        place = builder.bitcast(_place(target, builder, cells, *args[:2]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], function)
        for line in range(count.literal_value):
            here = builder.gep(place, [ir.IntType(64)(64 * line)])
            builder.call(fetch, [here, number(0), number(2), number(1)])  # to read, into the second cache, data
        return target.get_dummy_value()

    return types.none(cells, at, count), hint""",
    "noyau_flat": """\
@intrinsic
def noyau_flat(context, cells):
    \"\"\"The cells of a packed array as one axis. (reshape takes Numba a tenth of a second to compile.)\"\"\"
    result = cells.copy(ndim=1)

    def made(target, builder, signature, args):
        given = arrayobj.make_array(cells)(target, builder, args[0])
        array = arrayobj.make_array(result)(target, builder)
        step = target.get_constant(types.intp, target.get_abi_sizeof(target.get_data_type(cells.dtype)))
        arrayobj.populate_array(array, given.data, (given.nitems,), (step,), step, None)
        return array._getvalue()

    return result(cells), made""",
    "noyau_write_around": """\
@intrinsic
def noyau_write_around(context, cells, at, tile, first, count):
    \"\"\"As many cells of a tile, from one on, to their place in a packed array: what lies in whole lines of 64 bytes
    goes around the caches, is not read before it is written, and pushes nothing out of them. Few cells that do not
    begin with a line go through them.\"\"\"

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
    \"\"\"After the last of them, before another thread is told that they are there.\"\"\"

    def wait(target, builder, signature, args):
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return types.none(), wait""",
    "noyau_turn": """\
@intrinsic
def noyau_turn(context, tile, at, there, cells, begin, here):
    \"\"\"A tile of 16 x 16 cells of 4 bytes with its axes exchanged, eight lines of eight cells at a time in
    registers. Lines lie `there` cells apart where they are written, `here` where they are read.\"\"\"

    def turned(builder, lines):
        for apart in (1, 2, 4):  # what two lines that are so far apart have of each other's cells
            mixed = list(lines)
            for low in (line for line in range(8) if not line & apart):
                pair, places = (lines[low], lines[low + apart]), [k for k in range(8) if not k & apart]
                for half, line in ((0, low), (apart, low + apart)):
                    picked = [k - k % (2 * apart) + k % apart + half + (8 if k & apart else 0) for k in range(8)]
                    mask = ir.Constant(ir.VectorType(ir.IntType(32), 8), picked)
                    mixed[line] = builder.shuffle_vector(*pair, mask)
            lines = mixed
        return lines

    def turn(target, builder, signature, args):
        size, eight = ir.IntType(64), ir.VectorType(ir.IntType(32), 8).as_pointer()
        to, given = _place(target, builder, tile, *args[:2]), _place(target, builder, cells, *args[3:5])

        def line(place, row, step, column):
            here = builder.add(builder.mul(step, size(row)), size(column))
            return builder.bitcast(builder.gep(place, [here]), eight)

        for row in (0, 8):
            for column in (0, 8):
                lines = [builder.load(line(given, row + k, args[5], column), align=4) for k in range(8)]
                for k, made in enumerate(turned(builder, lines)):
                    builder.store(made, line(to, column + k, args[2], row), align=4)
        return target.get_dummy_value()

    return types.none(tile, types.int64, types.int64, cells, types.int64, types.int64), turn""",
}
STACK_CELLS = 1024  # the most of one array that goes to the stack


def words(names: Container[str]) -> str:
    """The text of the named intrinsics; no text for none of them."""
    places = HEAD if any(name in names for name in ("noyau_fetch", "noyau_write_around", "noyau_turn")) else ""
    texts = [text for name, text in WORDS.items() if name in names]
    return "\n\n\n".join(part for part in [places, *texts] if part)


FILE = Path(__file__).with_name("functions.txt")
SCALAR = """\
# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(
    error_model="numpy", fastmath={"contract"}, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)"""
BITS = """\
def _bits(kind, result):
    \"\"\"The bits of a scalar as another type of the same width.\"\"\"

    @intrinsic
    def cast(context, x):
        return result(kind), lambda target, builder, signature, args: builder.bitcast(
            args[0], target.get_value_type(result)
        )

    return cast"""
BIT_CASTS = {
    "noyau_bits_f32": "noyau_bits_f32 = _bits(types.float32, types.uint32)",
    "noyau_bits_f64": "noyau_bits_f64 = _bits(types.float64, types.uint64)",
    "noyau_from_bits_f32": "noyau_from_bits_f32 = _bits(types.uint32, types.float32)",
    "noyau_from_bits_f64": "noyau_from_bits_f64 = _bits(types.uint64, types.float64)",
}
_CALLED = re.compile(r"\bnoyau_\w+(?=\()")


@cache
def functions() -> Mapping[str, str]:
    """The Python text of each function, by name."""
    texts = FILE.read_text("ascii").rstrip("\n").split("\n\n\n")
    return {re.findall(r"^def (\w+)", each, re.MULTILINE)[0]: each for each in texts}


def scalar_text(names: Iterable[str]) -> str:
    """The Python text of the named functions ("noyau_exp_f32") and of all that they call, callees first; no text for
    no names. UnsupportedError for a name that codegen/cmath does not have."""
    order = order_of(names)
    casts = [BIT_CASTS[name] for name in sorted(BIT_CASTS.keys() & {*order})]
    parts = [BITS, "\n".join(casts)] if casts else []
    return "\n\n\n".join([*parts, *(functions()[name] for name in order if name not in BIT_CASTS)])


def order_of(names: Iterable[str]) -> list[str]:
    """The names of functions and of all that they call, callees first. UnsupportedError as `scalar_text`."""
    calls = {name: sorted({*_CALLED.findall(each)} - {name}) for name, each in functions().items()}
    return callees_first(names, {**calls, **dict.fromkeys(BIT_CASTS, ())}, "numba")


MERGING = '''\
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

    return merged'''

LEAST_LANES = 8  # fewer are merged by statements
MERGE_PREFIX = "noyau_merge_"
# What merges two lanes: a word, the first letter of the types that it takes, the function that it is, in LLVM.
_MERGES = (
    ("add", "f", "add", "builder.fadd(a, b)"),
    ("add", "iu", "add", "builder.add(a, b)"),
    ("multiply", "f", "multiply", "builder.fmul(a, b)"),
    ("multiply", "iu", "multiply", "builder.mul(a, b)"),
    ("max", "f", "greater", 'builder.select(builder.fcmp_ordered(">", a, b), a, b)'),
    ("max", "i", "maximum", 'builder.select(builder.icmp_signed(">", a, b), a, b)'),
    ("max", "u", "maximum", 'builder.select(builder.icmp_unsigned(">", a, b), a, b)'),
    ("min", "f", "less", 'builder.select(builder.fcmp_ordered("<", a, b), a, b)'),
    ("min", "i", "minimum", 'builder.select(builder.icmp_signed("<", a, b), a, b)'),
    ("min", "u", "minimum", 'builder.select(builder.icmp_unsigned("<", a, b), a, b)'),
    ("or", "i", "bitwise_or", "builder.or_(a, b)"),
    ("or", "b", "logical_or", "builder.or_(a, b)"),
    ("and", "b", "logical_and", "builder.and_(a, b)"),
)


def merged_by(merge: MergeLanes) -> dict[str, str] | None:
    """The word that merges the lanes of each array, where there is one for all of them."""
    arrays = list(zip(merge.buffers, merge.dtypes, strict=True))
    lower, upper = (tuple(Load(name, (Dim.of(lane),), dtype) for name, dtype in arrays) for lane in (0, 1))
    values = MONOIDS[merge.monoid].merge(Symbolic(), lower, upper)
    words = [_word(*each) for each in zip(values, lower, upper, strict=True)]
    by_array = {name: word for name, word in zip(merge.buffers, words, strict=True) if word is not None}
    return by_array if len(by_array) == len(words) else None


def _word(value: Expr, lower: Load, upper: Load) -> str | None:
    """The word that merges two lanes into this value."""
    call: Callable[..., Expr] = Symbolic().call
    for word, kinds, function, _ in _MERGES:
        kind = KINDS[lower.dtype]
        merge = call(function, lower, upper) if kind[0] in kinds else None
        if merge and value in (merge, call("where", merge, lower, upper) if function in ("greater", "less") else None):
            return f"{MERGE_PREFIX}{word}_{kind}"
    return None


def merge_text(preludes: Iterable[str]) -> str:
    """The text of the intrinsics of lane merges among those; no text for none of them."""
    merges = (name for name in preludes if name.startswith(MERGE_PREFIX))
    called = sorted(name.removeprefix(MERGE_PREFIX).partition("_") for name in merges)
    lines = [
        f"{MERGE_PREFIX}{word}_{kind} = _merging(lambda builder, a, b: {merge})"
        for word, _, kind in called
        for name, kinds, _, merge in _MERGES
        if name == word and kind[0] in kinds
    ]
    return "\n\n\n".join([MERGING, "\n".join(lines)]) if lines else ""
