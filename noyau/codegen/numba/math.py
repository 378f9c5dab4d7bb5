"""The scalar functions of language `numba`: those of codegen/cmath, so that both languages keep one promise.

tools/numba_functions.py translates them from C when a release is made, into functions.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from noyau.errors import UnsupportedError

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


def text(names: Iterable[str]) -> str:
    """The Python text of the named functions ("noyau_exp_f32") and of all that they call, callees first; no text for
    no names. UnsupportedError for a name that codegen/cmath does not have."""
    order: dict[str, None] = {}
    for name in sorted(set(names)):
        _add(name, order)
    casts = [BIT_CASTS[name] for name in sorted(BIT_CASTS.keys() & order.keys())]
    parts = [BITS, "\n".join(casts)] if casts else []
    return "\n\n\n".join([*parts, *(functions()[name] for name in order if name not in BIT_CASTS)])


def _add(name: str, order: dict[str, None]) -> None:
    """Add a function to `order`, after those that it calls."""
    if name in order:
        return
    if name not in BIT_CASTS:
        if name not in functions():
            raise UnsupportedError(f"numba has no function {name}; noyau.codegen.cmath.NAMES lists those it has")
        for callee in sorted({*_CALLED.findall(functions()[name])} - {name}):
            _add(callee, order)
    order[name] = None
