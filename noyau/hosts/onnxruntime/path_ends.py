"""The ends of a path, `A,B:C`: the values at which it begins, and the values to which it leads."""

import difflib
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass

from noyau.errors import InputError
from noyau.text import printable

LONGEST = 1 << 14  # most letters of a text that is parsed
SHOWN = 3  # most names that are suggested
_FORM = "the ends of a path are A,B:C, the values that it begins at and those that it leads to"


@dataclass(frozen=True, slots=True)
class Ends:
    """The values of a model at which a path begins, and those to which it leads; prints as `--between` takes it."""

    sources: tuple[str, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return ":".join(",".join(re.sub(r"[\\,:]", r"\\\g<0>", name) for name in names) for names in astuple(self))


Letter = tuple[str, bool]  # and whether a backslash stands before it
Between = str | tuple[Sequence[str], Sequence[str]] | Ends


def ends_of(between: Between, names: Collection[str]) -> Ends:
    """Parse the ends of a path as a user gives them; `names` are the known values of a model.

    A text is split at a colon and at commas. Names may contain both: of all ways to split, the one in which every
    name is known is taken; a backslash before a comma, a colon or a backslash makes it a part of a name. InputError
    for an unknown name (the closest are suggested), for one that occurs twice, or where several ways are possible."""
    match between:
        case str():
            ends = _parse(between, frozenset(names))
        case Ends():
            ends = between
        case (sources, results) if not isinstance(sources, str) and not isinstance(results, str):
            ends = Ends(tuple(sources), tuple(results))
        case _:
            raise InputError(f'between={between!r} is not (["A", "B"], ["C"])')
    _require(ends, names)
    return ends


def closest(name: str, names: Collection[str]) -> list[str]:
    """The known names that are similar to a name, or else contain it: at most three, the best first."""
    short = [each for each in names if len(each) <= 500]
    like = difflib.get_close_matches(name, short, SHOWN) if len(short) <= 20_000 and len(name) <= 500 else []
    inside = [each for each in short if name.lower() in each.lower()][: 2000 if len(name) > 2 else 0]
    return like or difflib.get_close_matches(name, inside, SHOWN, 0)


def no_value(name: str, names: Collection[str]) -> InputError:
    """The error for an unknown name, with the values that are most similar to it."""
    like = ", ".join(map(printable, closest(name, names)))
    return InputError(f"the model has no value {printable(name)}{f'; close to it are: {like}' if like else ''}")


def _require(ends: Ends, names: Collection[str]) -> None:
    everything = (*ends.sources, *ends.results)
    if not ends.sources or not ends.results or not all(everything):
        raise InputError(f"a path needs a value that it begins at and one that it leads to: {_FORM}")
    for name in everything:
        if name not in names:
            raise no_value(name, names)
        if everything.count(name) > 1:
            raise InputError(f"{printable(name)} is there twice: each end of a path is named once")


def _parse(text: str, names: frozenset[str]) -> Ends:
    """The only way to split the text into known names; else the plain way, so that its unknown names are reported."""
    letters = list(_letters(text))
    if len(letters) > LONGEST:
        raise InputError(f"--between has {len(letters)} letters, more than {LONGEST}: give fewer ends")
    splits = ((letters[:at], letters[at + 1 :]) for at in _places(letters, ":"))
    pairs = (pair for left, right in splits for pair in itertools.product(_lists(left, names), _lists(right, names)))
    entries = dict.fromkeys(Ends(*pair) for pair in pairs)
    if len(entries) > 1:
        first, second, *_ = entries
        raise InputError(f"{printable(text)} can be read as {first} and as {second}: give one of these")
    if entries:
        return next(iter(entries))
    if not (colons := _places(letters, ":")):
        raise InputError(f"--between {printable(text)} has no colon: {_FORM}")
    return Ends(_plain(letters[: colons[-1]]), _plain(letters[colons[-1] + 1 :]))


def _places(letters: Sequence[Letter], separator: str) -> list[int]:
    """Positions of separators that no backslash makes a part of a name."""
    return [at for at, letter in enumerate(letters) if letter == (separator, False)]


def _plain(letters: Sequence[Letter]) -> tuple[str, ...]:
    """The names between the commas."""
    stops = [-1, *_places(letters, ","), len(letters)]
    return tuple(_text(letters[start + 1 : end]) for start, end in itertools.pairwise(stops))


def _text(letters: Sequence[Letter]) -> str:
    return "".join(letter for letter, _ in letters)


def _letters(text: str) -> Iterator[Letter]:
    quoted = False
    for letter in text:
        if letter == "\\" and not quoted:
            quoted = True
            continue
        if quoted and letter not in "\\,:":
            yield "\\", False
        yield letter, quoted and letter in "\\,:"
        quoted = False
    if quoted:
        yield "\\", False


def _lists(letters: Sequence[Letter], known: frozenset[str]) -> list[tuple[str, ...]]:
    """At most two ways to split at commas into known names."""
    text = _text(letters)
    ways: dict[int, list[tuple[str, ...]]] = {0: [()]}  # by the end of a prefix, the names in it
    for end in (*_places(letters, ","), len(letters)):
        starts = [start for start in ways if text[start:end] in known]
        if results := [(*names, text[start:end]) for start in starts for names in ways[start]]:
            ways[end + 1] = results[:2]
    return ways.get(len(letters) + 1, [])
