"""The pragmas of OpenMP in a text whose comments are blank, the statement that each is of, and what a race between the
lines of two of them lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b((?:\\\n|[^\n])*)", re.MULTILINE)
_LINE = re.compile(r"\s*#(?:\\\n|[^\n])*\n")
_HEAD = re.compile(r"\s*(?:for|while|if|switch)\s*(?=\()")
_PLAIN = re.compile(r"\s*[^;{}#]*;")
_ELSE = re.compile(r"\s*else\b")
_PAIRS = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Pragma:
    """A pragma: its words, its line, and the lines of its statement, both counted."""

    words: str
    line: int
    first: int
    last: int


def bracket_end(clean: str, start: int) -> int | None:
    """The place behind the bracket that closes the one at `start`; None where none does."""
    closing: list[str] = []
    for place in range(start, len(clean)):
        letter = clean[place]
        if letter in _PAIRS:
            closing.append(_PAIRS[letter])
        elif closing and letter == closing[-1]:
            closing.pop()
            if not closing:
                return place + 1
    return None


def statement_end(clean: str, start: int) -> int | None:
    """The place behind the statement after `start`, pragmas before it left out; None where it is not read."""
    place: int | None = start
    while place is not None:
        if line := _LINE.match(clean, place):
            place = line.end()
        elif head := _HEAD.match(clean, place):
            place = bracket_end(clean, head.end())
            if head[0].strip().startswith("if") and place is not None:
                end = statement_end(clean, place)
                other = _ELSE.match(clean, end) if end is not None else None
                if other is None:
                    return end
                place = other.end()
        else:
            break
    if place is None:
        return None
    begin = len(clean) - len(clean[place:].lstrip())
    if clean[begin : begin + 1] == "{":
        return bracket_end(clean, begin)
    plain = _PLAIN.match(clean, place)
    return plain.end() if plain else None


def pragmas_of(clean: str) -> Iterator[Pragma]:
    """The pragmas of a text that are of a statement, in order."""
    for match in _PRAGMA.finditer(clean):
        end = statement_end(clean, match.end())
        if end is not None:
            lines = [clean.count("\n", 0, place) + 1 for place in (match.start(), match.end() + 1, end)]
            yield Pragma(match[1].strip(), *lines)


def remedy_of_race(clean: str, line: int, other: int, owners: tuple[str, ...]) -> str:
    """The construct that a race between two lines lacks, by the constructs that they are in and who came to them.

    It is empty where the kind of the finding says it."""
    if any("of a simd loop" in owner for owner in owners):
        return "leave simd out, or say with safelen(n) how far apart iterations are that may run together"
    tasks = sum(owner == "a task" for owner in owners)
    if tasks == len(owners) and line != other:
        return "order the two tasks: by depend(out:) and depend(in:), or with #pragma omp taskwait between them"
    if tasks == 1:
        return "wait for the task before: #pragma omp taskwait, a taskgroup around it, or depend on both"
    if tasks or line == other or not all(re.fullmatch(r"thread \d+ of \d+", owner) for owner in owners):
        return ""
    return _between_constructs(list(pragmas_of(clean)), *sorted((line, other)))


def _between_constructs(pragmas: list[Pragma], line: int, other: int) -> str:
    """The remedy where threads come from one construct to another, or out of one, and nobody waits between them."""
    around = [[each for each in pragmas if each.first <= at <= each.last] for at in (line, other)]
    regions = [max((each.line for each in each_ if "parallel" in each.words), default=0) for each_ in around]
    inner = [each for each in around[0] if each not in around[1] and "parallel" not in each.words]
    if regions[0] != regions[1] or not regions[0] or any("section" in each.words for each in inner):
        return ""
    free = next((each for each in inner if "nowait" in each.words), None)
    if free is not None:
        return f"line {free.line} says nowait: leave that out, or put #pragma omp barrier before line {other}"
    if any(re.match(r"mast|mask", each.words) for each in inner):
        return f"no thread waits for master: put #pragma omp barrier before line {other}"
    is_plain = not any(re.match(r"for|sections|single|critical", each.words) for part in around for each in part)
    is_loop = any(re.search(r"parallel\s+for\b|parallel\s+sections\b", each.words) for each in around[0])
    return f"put #pragma omp barrier before line {other}" if is_plain and not is_loop else ""
