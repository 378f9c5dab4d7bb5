"""Functions that a text defines where it uses them: intrinsics of LLVM (arrays on the stack, prefetches, non-temporal
stores, lanes merged by halves), and the scalar functions.

A loop over halves takes Numba a tenth of a second to compile, an intrinsic does not. Their texts are in words.txt. The
scalar functions are those of codegen/cmath: one promise in both languages. A release translates them, by
tools/numba_functions.py, into functions.txt."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from noyau.codegen.cmath import callees_first
from noyau.codegen.numba.spellings import KINDS
from noyau.codegen.tables import snippets
from noyau.ir.dims import Dim
from noyau.ir.loops import Expr, Load, MergeLanes
from noyau.ir.monoids import MONOIDS, Symbolic

STACK_CELLS = 1024  # the most of one array that goes to the stack
FILE, WORDS = (Path(__file__).with_name(name) for name in ("functions.txt", "words.txt"))
_PLACES = frozenset({"noyau_fetch", "noyau_write_around", "noyau_turn"})  # which ask where a cell lies


def words(names: Collection[str]) -> str:
    """The text of the named intrinsics and of what they need; no text for none of them."""
    needed = {"_place"} if _PLACES.intersection(names) else set()
    needed |= {"noyau_written_around"} if "noyau_write_around" in names else set()
    return "\n\n\n".join(text for name, text in snippets(WORDS).items() if name in needed or name in names)


SCALAR = """\
# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(
    error_model="numpy", fastmath={"contract"}, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)"""
BIT_CASTS = {
    "noyau_bits_f32": "noyau_bits_f32 = _bits(types.float32, types.uint32)",
    "noyau_bits_f64": "noyau_bits_f64 = _bits(types.float64, types.uint64)",
    "noyau_from_bits_f32": "noyau_from_bits_f32 = _bits(types.uint32, types.float32)",
    "noyau_from_bits_f64": "noyau_from_bits_f64 = _bits(types.uint64, types.float64)",
}
_CALLED = re.compile(r"\bnoyau_\w+(?=\()")


def functions() -> Mapping[str, str]:
    """The Python text of each scalar function, by name."""
    return snippets(FILE)


def scalar_text(names: Iterable[str]) -> str:
    """The Python text of the named functions ("noyau_exp_f32") and of all that they call, callees first; no text for
    no names. UnsupportedError for a name that codegen/cmath does not have."""
    order = order_of(names)
    casts = [BIT_CASTS[name] for name in sorted(BIT_CASTS.keys() & {*order})]
    parts = [snippets(WORDS)["_bits"], "\n".join(casts)] if casts else []
    return "\n\n\n".join([*parts, *(functions()[name] for name in order if name not in BIT_CASTS)])


def order_of(names: Iterable[str]) -> list[str]:
    """The names of functions and of all that they call, callees first. UnsupportedError as `scalar_text`."""
    calls = {name: sorted({*_CALLED.findall(each)} - {name}) for name, each in functions().items()}
    return callees_first(names, {**calls, **dict.fromkeys(BIT_CASTS, ())}, "numba")


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


def merge_words(merge: MergeLanes) -> dict[str, str] | None:
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
    return "\n\n\n".join([snippets(WORDS)["_merging"], "\n".join(lines)]) if lines else ""
