"""Loops of `#pragma omp simd` with calls that say where an iteration begins, for sanitizer/c/lanes.c.

A loop is left as it is where its lanes have variables of their own that live from iteration to iteration (reductions,
linear variables), where it is not one statement among others, or where its body is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from noyau.sanitizer.c.pragmas import bracket_end

_SIMD = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b((?:\\\n|[^\n])*\bsimd\b(?:\\\n|[^\n])*)", re.MULTILINE)
_LEFT = re.compile(r"\b(?:declare|taskloop|ordered|reduction|linear|inscan|nowait|atomic)\b")
_SAFE = re.compile(r"\bsafelen\s*\(\s*(\w+)\s*\)")
_COLLAPSE = re.compile(r"\bcollapse\s*\(\s*(\d+)\s*\)")
_HEAD = re.compile(r"\s*for\s*(?=\()")
_CONTROLS = re.compile(r"(?:for|if|while|do|switch|#)\b|#")
# Declared where they are called, by names that C and C++ spell alike.
_CALL = 'extern void {0}({1}) __asm__("{0}"); {0}({2});'
_LANE = _CALL.format("noyau_simd_iteration", "void", "")
_END = _CALL.format("noyau_simd_end", "void", "")


def simd_calls(clean: str) -> Iterator[tuple[int, str]]:
    """Places of a text, whose comments are blank, and what is to be written there."""
    for pragma in _SIMD.finditer(clean):
        before = clean[: pragma.start()].rstrip()
        head, span = pragma.end(), None
        safe = _SAFE.search(pragma[1])
        if _LEFT.search(pragma[1]) or before[-1:] not in tuple("{};") or (safe is None and "safelen" in pragma[1]):
            continue
        levels = _COLLAPSE.search(pragma[1])
        for _ in range(int(levels[1]) if levels else 1):
            loop = _HEAD.match(clean, head)
            end = bracket_end(clean, loop.end()) if loop else None
            if end is None:
                break
            head = end
        else:
            span = _body(clean, head)
        if span is None:
            continue
        most = safe[1] if safe else "1L << 31"
        yield len(before), f" {{ {_CALL.format('noyau_simd', 'long', most)} }}"
        yield span[0], f"{{ {_LANE} "
        yield span[1], f" }} {{ {_END} }}"


def _body(clean: str, place: int) -> tuple[int, int] | None:
    """The span of the statement that a loop repeats: a block, or one without words of control."""
    begin = re.compile(r"\s*").match(clean, place)
    start = begin.end() if begin else place
    if clean[start : start + 1] == "{":
        end = bracket_end(clean, start)
    elif _CONTROLS.match(clean, start):
        return None
    else:
        plain = re.compile(r"[^;{}#]*;").match(clean, start)
        end = plain.end() if plain else None
    return None if end is None else (start, end)
