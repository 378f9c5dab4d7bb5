"""OpenMP pragmas in a text whose comments are blanked, the statement of each, and the remedy of a race between the
lines of two of them; and calls at the iterations of `simd` loops, for lanes.c."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b((?:\\\n|[^\n])*)", re.MULTILINE)
_LINE = re.compile(r"\s*#(?:\\\n|[^\n])*\n")
_HEAD = re.compile(r"\s*(?:for|while|if|switch)\s*(?=\()")
_PLAIN = re.compile(r"\s*[^;{}#]*;")
_ELSE = re.compile(r"\s*else\b")
_BRACKET = re.compile(r"[][(){}]")


@dataclass(frozen=True, slots=True)
class Pragma:
    """A pragma: its words, its line, and the first and the last line of its statement."""

    words: str
    line: int
    first: int
    last: int


def bracket_end(clean: str, start: int) -> int | None:
    """Return the place behind the bracket that closes the one at `start`; None if none does."""
    depth = 0
    for bracket in _BRACKET.finditer(clean, start):
        depth += 1 if bracket[0] in "([{" else -1
        if depth == 0:
            return bracket.end()
    return None


def statement_end(clean: str, start: int) -> int | None:
    """Return the place behind the statement after `start` and its pragmas; None if it is not read."""
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
    return None if place is None else simple_end(clean, len(clean) - len(clean[place:].lstrip()))


def simple_end(clean: str, start: int) -> int | None:
    """Return the place behind a block at `start`, or behind a statement without others in it."""
    if clean[start : start + 1] == "{":
        return bracket_end(clean, start)
    plain = _PLAIN.match(clean, start)
    return plain.end() if plain else None


def pragmas_of(clean: str) -> Iterator[Pragma]:
    """Yield the pragmas of a text that apply to a statement, in order."""
    for match in _PRAGMA.finditer(clean):
        end = statement_end(clean, match.end())
        if end is not None:
            lines = [clean.count("\n", 0, place) + 1 for place in (match.start(), match.end() + 1, end)]
            yield Pragma(match[1].strip(), *lines)


def remedy_of_race(clean: str, line: int, other: int, owners: tuple[str, ...]) -> str:
    """Return the construct that a race between two lines lacks, from the constructs around them and the owners; "" if
    the remedy of its kind applies."""
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
    """Return the remedy for threads that pass from one construct to another, or out of one, without a wait."""
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


_LEFT = re.compile(r"\b(?:declare|taskloop|ordered|reduction|linear|inscan|nowait|atomic)\b")
_SAFE = re.compile(r"\bsafelen\s*\(\s*(\w+)\s*\)")
_COLLAPSE = re.compile(r"\bcollapse\s*\(\s*(\d+)\s*\)")
_OF_LOOPS = re.compile(r"[\sa-z]*\b(?:for|simd|taskloop|distribute|loop)\b")
_FOR_HEAD = re.compile(r"\s*for\s*(?=\()")
_CONTROLS = re.compile(r"(?:for|if|while|do|switch|#)\b|#")
_NOT_OPENED = re.compile(r"\b(?:simd|sections|ordered|inscan|atomic|declare|tile|unroll)\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PRIVATE = re.compile(r"\b(first|last|)private\s*\(([\w\s,]*)\)")
_ASSIGNED = re.compile(r"(?<![\w.>])(?!operator)([A-Za-z_]\w*)\s*(?:[-+*/|&^]?=(?!=)|\+\+|--)")
# Declared at the call, by names that C and C++ spell alike.
_CALL = 'extern void {0}({1}) __asm__("{0}"); {0}({2});'


def _body_start(clean: str, pragma: re.Match[str]) -> tuple[int, str] | None:
    """Return the place where the body of a construct begins, for a loop that of its iterations, and the heads of its
    loops; None if it is not read."""
    place, heads, levels = pragma.end(), "", _COLLAPSE.search(pragma[1])
    for _ in range(int(levels[1]) if levels else 1) if _OF_LOOPS.match(pragma[1]) else ():
        loop = _FOR_HEAD.match(clean, place)
        end = bracket_end(clean, loop.end()) if loop else None
        if end is None:
            return None
        place, heads = end, heads + clean[place:end]
    return len(clean) - len(clean[place:].lstrip()), heads


def simd_calls(clean: str) -> Iterator[tuple[int, str]]:
    """Yield places of a text, and the calls to insert there. A loop is left out if its lanes have variables of their
    own that live from iteration to iteration (reductions, linear variables), if it is not one statement among others,
    or if its body, a block or a statement without control flow, is not read."""
    for pragma in _PRAGMA.finditer(clean):
        before, words = clean[: pragma.start()].rstrip(), pragma[1]
        if not re.search(r"\bsimd\b", words) or _LEFT.search(words) or before[-1:] not in tuple("{};"):
            continue
        safe, body = _SAFE.search(words), _body_start(clean, pragma)
        if body is None or (safe is None and "safelen" in words):
            continue
        start = body[0]
        end = None if _CONTROLS.match(clean, start) else simple_end(clean, start)
        if end is not None:
            yield len(before), f" {{ {_CALL.format('noyau_simd', 'long', safe[1] if safe else '1L << 31')} }}"
            begin = _CALL.format("noyau_simd_iteration", "void", "")
            yield start, f"{{ {begin} {_addresses(clean[start:end], body[1])}"
            yield end, f" }} {{ {_CALL.format('noyau_simd_end', 'void', '')} }}"


def variable_calls(clean: str, *, is_cpp: bool) -> Iterator[tuple[int, str]]:
    """Yield places of a text, and the text to insert there: a private variable of a construct has no value where its
    body begins. Variables that a region with tasks changes get an address, else gcc copies them into tasks."""
    size = "__is_trivial(__typeof__({0})) ? sizeof {0} : 0" if is_cpp else "sizeof {0}"
    empties = _CALL.format("noyau_private", "void *, unsigned long", f"(void *)&{{0}}, {size}")
    macros = re.findall(r"#\s*define\s+(\w+)", clean)
    for pragma in _PRAGMA.finditer(clean):
        body = _inner_body(clean, pragma)
        end = statement_end(clean, body[0]) if body else None
        if body is None or end is None:
            continue
        start, clauses = body[0], [(kind, _WORD.findall(names)) for kind, names in _PRIVATE.findall(pragma[1])]
        left = {*macros, *_WORD.findall(body[1])}.union(*(names for kind, names in clauses if kind == "first"))
        private = {name for _, names in clauses for name in names} - left
        calls = " ".join(empties.format(each) for each in sorted(private) if not _is_set_first(clean[start:end], each))
        if "parallel" in pragma[1] and re.search(r"#\s*pragma\s+omp\s+task", clean[start:end]):
            calls += _addresses(clean[start:end], body[1])
        if calls:
            yield start, f"{{ {calls} "
            yield end, " }"


def _is_set_first(body: str, name: str) -> bool:
    """Whether the first use of a variable in a body sets it, in a statement of its own or as a loop counter; calls
    would slow such a loop, and it never reads an unset value."""
    before, *rest = re.split(rf"\b{name}\b", body, maxsplit=1)
    assigns = re.match(r"\s*=(?!=)([^;]*)", rest[0]) if rest else None
    if assigns is None or name in _WORD.findall(assigns[1]):
        return not rest
    is_alone = before.rstrip()[-1:] in ("", *"{;}") and before.count("{") - before.count("}") <= 1
    return is_alone or re.search(r"\bfor\s*\(\s*$", before) is not None


def _addresses(region: str, heads: str) -> str:
    """Return text that takes the address of each variable that a region assigns to, so that its accesses are seen,
    unless the region or the `heads` of its loops declare it, with a word, a star or a comma before the name."""
    region = _PRAGMA.sub("", region)  # a clause names variables, and declares none
    declared = r"(?:\w\s|[>*&,\[])[\s*&]*{}\s*[=;:,({{\[)]"
    names = set(_ASSIGNED.findall(re.sub(r"\benum\b[^;{}]*\{[^{}]*\}", "", region))) - set(_WORD.findall(heads))
    return " ".join(f"(void)&{each};" for each in sorted(names) if not re.search(declared.format(each), region))


def _inner_body(clean: str, pragma: re.Match[str]) -> tuple[int, str] | None:
    """Return the body of a construct, as `_body_start` does, or that of the construct that its body is."""
    body = None if _NOT_OPENED.search(pragma[1]) else _body_start(clean, pragma)
    inner = _PRAGMA.match(clean, clean.rfind("\n", 0, body[0]) + 1) if body and clean.startswith("#", body[0]) else None
    if body is None or inner is None:
        return body
    return (deeper[0], body[1] + deeper[1]) if (deeper := _inner_body(clean, inner)) else None
