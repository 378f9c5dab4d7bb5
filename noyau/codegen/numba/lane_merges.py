"""Lanes merged by halves, as one word of LLVM: a loop over halves takes Numba a tenth of a second to compile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from noyau.codegen.numba.tables import KINDS
from noyau.ir.dims import Dim
from noyau.ir.loops import Expr, Load, MergeLanes
from noyau.ir.monoids import MONOIDS, Symbolic

HEAD = '''\
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
PREFIX = "noyau_merge_"
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
    found = {name: word for name, word in zip(merge.buffers, words, strict=True) if word is not None}
    return found if len(found) == len(words) else None


def _word(value: Expr, lower: Load, upper: Load) -> str | None:
    """The word that merges two lanes into this value."""
    call: Callable[..., Expr] = Symbolic().call
    for word, kinds, function, _ in _MERGES:
        kind = KINDS[lower.dtype]
        made = call(function, lower, upper) if kind[0] in kinds else None
        if made and value in (made, call("where", made, lower, upper) if function in ("greater", "less") else None):
            return f"{PREFIX}{word}_{kind}"
    return None


def text(preludes: Iterable[str]) -> str:
    """The text of the intrinsics of lane merges among those; no text for none of them."""
    called = sorted(name.removeprefix(PREFIX).partition("_") for name in preludes if name.startswith(PREFIX))
    made = [
        f"{PREFIX}{word}_{kind} = _merging(lambda builder, a, b: {merge})"
        for word, _, kind in called
        for name, kinds, _, merge in _MERGES
        if name == word and kind[0] in kinds
    ]
    return "\n\n\n".join([HEAD, "\n".join(made)]) if made else ""
