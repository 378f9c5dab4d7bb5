"""The scalar functions of language `c`: the compiler vectorises them in a plain loop, and each promises its ulp error.

The C text lies beside this file. A snippet is a comment and one function; its calls are read from its text, and its
promise from its comment ("1.0 ulp"), so that text and table cannot disagree. A function without a promise is a part of
others. All functions are inlined, need only <math.h> and <stdint.h>, keep infinities, NaN, -0 and denormals, and are
correct with or without fused multiply-add. benchmarks/minimax.py derives the coefficients."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from noyau.errors import UnsupportedError

_FUNCTION = re.compile(r"^NOYAU_INLINE \w+ (noyau_\w+)\(", re.MULTILINE)
_NAME = re.compile(r"\bnoyau_\w+(?=\()")
_PROMISE = re.compile(r"(\d+\.\d+) ulp")
_HEAD = """\
#include <math.h>
#include <stdint.h>

/* Always: a call that is left in a loop keeps it from being vectorised. */
#define NOYAU_INLINE static inline __attribute__((always_inline))
"""


@dataclass(frozen=True, slots=True)
class Snippet:
    """One C function: its text with its comment, the snippets it calls, and its largest error in ulp, if promised."""

    name: str
    text: str
    calls: tuple[str, ...]
    ulp: float | None


def _snippet(text: str) -> Snippet:
    """Make a snippet of a piece of C text."""
    (name,) = _FUNCTION.findall(text)
    comment = text[: text.index("NOYAU_INLINE")]
    calls = sorted(set(_NAME.findall(text, len(comment))) - {name})
    promise = _PROMISE.search(comment)
    return Snippet(name, text, tuple(calls), float(promise[1]) if promise else None)


_FILES = sorted(Path(__file__).parent.glob("*.c"))
_PIECES = [piece for file in _FILES for piece in file.read_text("ascii").strip().split("\n\n")]
SNIPPETS: Mapping[str, Snippet] = MappingProxyType({snippet.name: snippet for snippet in map(_snippet, _PIECES)})
ULP: Mapping[str, float] = MappingProxyType({s.name: s.ulp for s in SNIPPETS.values() if s.ulp is not None})
NAMES: frozenset[str] = frozenset(ULP)


def callees_first(names: Iterable[str], calls: Mapping[str, Iterable[str]], language: str) -> list[str]:
    """The named functions and all that they call, each once. UnsupportedError for a name that `calls` does not have."""
    order: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in calls:
            raise UnsupportedError(f"{language} has no function {name}; noyau.codegen.cmath.NAMES lists those it has")
        for callee in calls[name] if name not in order else ():
            add(callee)
        order[name] = None

    for name in sorted(set(names)):
        add(name)
    return list(order)


def text(names: Iterable[str]) -> str:
    """The C text of the named functions ("noyau_exp_f32") and of all that they call, each once, callees first.

    The same set of names gives the same bytes, in whichever order they come; no names give no text. The text opens with
    the #include and the macro that it needs. Raises UnsupportedError for a name that no snippet has."""
    pieces = snippets(names)
    return "\n".join([_HEAD, *(f"{piece}\n" for piece in pieces)]) if pieces else ""


def snippets(names: Iterable[str]) -> list[str]:
    """The functions of `text` without its opening lines, for a language that opens differently."""
    order = callees_first(names, {name: snippet.calls for name, snippet in SNIPPETS.items()}, "c")
    return [SNIPPETS[name].text for name in order]
