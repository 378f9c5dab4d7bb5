"""The record of a command, arguments common to several commands, and the syntax of sizes."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from time import monotonic
from typing import Any

from noyau.errors import InputError, OutputError, output_errors, reason_of
from noyau.text import printable

MOST_THREADS = 4096  # onnxruntime starts as many as it is asked for, if it can
_created = set[Path]()  # folders that were missing
COLORS = {"always": {"FORCE_COLOR": "1", "NO_COLOR": ""}, "never": {"FORCE_COLOR": "", "NO_COLOR": "1"}}


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: one line of help, the function that declares its arguments, and the function that runs it.

    `run` returns the exit status; slow imports belong there, so that Ctrl-C works from the start."""

    summary: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def place_of(text: str) -> str:
    """The text. ArgumentTypeError for a blank one: as a path it would be the working folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no file")
    return text


def target_of(text: str) -> str:
    """A target, with a leading "noyau.reductions" replaced by the file of noyau's own reductions."""
    place, mark, name = place_of(text).partition("::")
    own = Path(__file__).parent.parent / "engines" / "reductions" / "__init__.py"
    return f"{own}{mark}{name}" if place == "noyau.reductions" else text


def declare_color(parser: argparse.ArgumentParser) -> None:
    text = "colour what is printed (default: auto, on a terminal, as NO_COLOR, FORCE_COLOR and CLICOLOR say)"
    parser.add_argument("--color", choices=("auto", *COLORS), default="auto", help=text)


def color_words(choice: str) -> Mapping[str, str]:
    """Environment variables for --color; CLICOLOR and CLICOLOR_FORCE decide if NO_COLOR and FORCE_COLOR are unset."""
    says = os.environ.get
    if choice == "auto" and not says("NO_COLOR") and not says("FORCE_COLOR"):
        is_forced = says("CLICOLOR_FORCE", "0") not in ("", "0")
        choice = "always" if is_forced else "never" if says("CLICOLOR") == "0" else choice
    return COLORS.get(choice, {})


def declare_inputs(parser: argparse.ArgumentParser, doing: str, sizes: str) -> None:
    """Declare `--inputs` and `--dim`; `doing`: the command's verb, such as "run"; `sizes`: help on several sizes."""
    add = parser.add_argument
    arrays = "these arrays, or with each dict of arrays that `inputs` of F.py yields (default: made-up ones)"
    add("--inputs", type=Path, metavar="F.npz|F.py", help=f"{doing} with {arrays}")
    add("--dim", action="append", default=[], metavar="NAME=N[,N...]", help=f"{doing} with this size, {sizes}")


def declare_between(parser: argparse.ArgumentParser, what: str = "work on {} alone", *, required: bool = False) -> None:
    """Declare `--between`; `what`: the help, with {} for the path."""
    path = what.format("the path from the values A and B to C")
    name = "(a \\ before a comma or colon: it is part of a name)"
    parser.add_argument("--between", required=required, metavar="A,B:C", help=f"{path} {name}")


def declare_record(parser: argparse.ArgumentParser, detail: str = "", *, page: bool = False) -> None:
    """Declare `--quiet` and `--json`, and with `page` `--html`; `detail`: the level of detail of the record."""
    message = f"write the full record here{f', {detail}' if detail else ''}"
    parser.add_argument("--json", type=Path, metavar="F", help=message)
    parser.add_argument("--quiet", action="store_true", help="print the verdict, in a line, and errors alone")
    if page:
        parser.add_argument("--html", type=Path, metavar="F.html", help="write a page for a browser here: one file")


def is_stream(path: Path) -> bool:
    """Whether a path exists and is neither a file nor a folder, such as /dev/stdout, which no file may replace."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. OutputError where that fails."""
    try:
        _created.update(each for each in (folder, *folder.parents) if not each.exists())
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        name = printable(str(folder))
        raise OutputError(f"{name} is no folder and cannot be made one: {error.strerror}; name another") from error


def remove_empty_folders() -> None:
    """Remove the folders that a command created for its results and left empty, since it failed or was interrupted."""
    for folder in sorted(_created, reverse=True):  # inner ones first
        with contextlib.suppress(OSError):
            folder.rmdir()
    _created.clear()


def require_writable(place: Path) -> None:
    """OutputError where no file can be created at a place, or take the place of one there, as a trial shows."""
    if os.path.isdir(place):
        raise OutputError(f"{place} cannot be written: it is a folder; name a file")
    with output_errors(place), tempfile.TemporaryFile(dir=place.parent), contextlib.suppress(FileNotFoundError):
        place.lstat()  # fails where the name is too long


def require_record_places(model: Path | None, *records: Path | None) -> None:
    """Check before any work that records can be written; OutputError where one cannot, or would replace the model."""
    for record in filter(None, records):
        if model is not None and os.path.realpath(record) == os.path.realpath(model):
            raise OutputError(f"the record would go to {record}, which is the model itself: name another file")
        if not is_stream(record):
            make_folder(record.parent)
            require_writable(record)


def require_models(arguments: argparse.Namespace) -> None:
    """InputError, before slow imports, where a file that a command reads cannot be read, or a model is not there."""
    for name in ("model", "target", "source", "against", "inputs", "calibration"):
        place = str(getattr(arguments, name, ""))
        file = place.partition("::")[0]
        try:
            if os.path.isfile(file):  # a pipe stays as it is
                open(file, "rb").close()
            elif place.endswith((".onnx", ".npz")):
                os.stat(place)
        except (OSError, ValueError) as error:
            raise InputError(f"{printable(file)} cannot be read: {reason_of(error)}") from error


class Step(str):
    """A step of some work as text, with `done` of `total` parts finished before it."""

    done: int
    total: int

    def __new__(cls, words: str, done: int, total: int) -> Step:
        step = super().__new__(cls, words)
        step.done, step.total = done, total
        return step


@contextlib.contextmanager
def progress(say: Callable[[str], None] | None = None, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that reports each step: `say`, or in a terminal one changing line on stderr, with the elapsed
    time and, for a `Step`, an estimate of the remaining time; else, or if `quiet`, a function that does nothing."""
    if say is not None or quiet or sys.stderr is None or not sys.stderr.isatty():
        yield say or (lambda step: None)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("passed, left"), TimeRemainingColumn())
    looks, console = (*times, TextColumn("{task.description}", markup=False)), Console(stderr=True)
    with Progress(*looks, console=console, transient=True, refresh_per_second=4) as shown:  # too rare to disturb clocks
        task = shown.add_task("starting", total=None)

        def tell(step: str) -> None:
            if isinstance(step, Step):
                shown.update(task, completed=step.done, total=step.total)
            shown.update(task, description=plain(step)[: max(console.width - 30, 20)])

        yield tell


def progress_lines(*, quiet: bool = False) -> Callable[[str], object]:
    """A function that reports each step in a line of its own on stderr, with the elapsed time: beside a program that
    prints too. It does nothing if stderr is no terminal, or if `quiet`."""
    begin, is_shown = monotonic(), not quiet and sys.stderr is not None and sys.stderr.isatty()
    return lambda step: is_shown and sys.stderr.write(f"noyau: {monotonic() - begin:.0f} s: {plain(step)}\n")


def plain(text: str) -> str:
    """The text as one line that is safe to print, even if it comes from a hostile file."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def sizes_of(texts: list[str], option: str = "--dim") -> dict[str, list[int]]:
    """`["sequence=1,128"]` as a mapping; InputError where one is no NAME=N[,N...] or sweep, or is repeated."""
    by_name = dict[str, list[int]]()
    for text in texts:
        name, _, values = text.rpartition("=")
        numbers = _sweep(values) if ":" in values else [_number(each) for each in values.split(",")]
        if not name or None in numbers or not numbers:
            forms = f"NAME=N or NAME=N,N..., with whole N from 0 to 10^18: {option} n=1,128, or a sweep: n=1e3:1e8:log"
            raise InputError(f"{option} {text} is not {forms}")
        if name in by_name:
            raise InputError(f"{option} {name} is given twice: give it once, as {name}=N,N for several")
        by_name[name] = [each for each in numbers if each is not None]
    return by_name


def _number(text: str) -> int | None:
    """A size, 1000 or 1e3; None for anything else."""
    if match := re.fullmatch(r"([0-9]{1,18})(?:[eE]\+?([0-9]{1,2}))?", text, re.ASCII):
        value = int(match[1]) * 10 ** int(match[2] or 0)
        return value if value < 10**18 else None
    return None


def _sweep(text: str) -> list[int | None]:
    """The distinct integers of a sweep, `A:B:log[:K]` (default: one a decade) or `A:B:lin[:K]` (default: five)."""
    first, last, kind, count = (*text.split(":"), "", "")[:4] if text.count(":") in (2, 3) else ("",) * 4
    low, high = _number(first), _number(last)
    if low is None or high is None or low >= high or kind not in ("log", "lin") or (kind == "log" and not low):
        return [None]
    usual = max(2, round(math.log10(high / max(low, 1))) + 1) if kind == "log" else 5
    steps = _number(count) if text.count(":") == 3 else usual
    if steps is None or not 2 <= steps <= 1000:
        return [None]
    at = [number / (steps - 1) for number in range(steps)]
    return list(dict.fromkeys(round(low * (high / low) ** x if kind == "log" else low + (high - low) * x) for x in at))


def require_amounts(options: object, *names: str) -> None:
    """InputError where one of these options is no number from 0 on: of seconds if its name ends in _s, else whole. Not
    more than MOST_THREADS threads."""
    for name in names:
        kind: Any = Real if name.endswith("_s") else Integral
        value, words = getattr(options, name), "number of seconds" if kind is Real else "whole number"
        end = MOST_THREADS if name == "threads" else math.inf
        if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value <= end:
            raise InputError(f"{name}={value!r} is no {words} from 0 {'on' if end == math.inf else f'to {end}'}")


def require_limit(option: str, value: float | None, unit: str = "seconds", most: float = math.inf) -> None:
    """InputError where the value of an option, if there is one, is no number above 0 and below `most`."""
    if value is not None and not 0 < value < most:
        raise InputError(f"{option} {value:g} is no limit: give a number of {unit} above 0")


def share_of(text: str, option: str) -> float:
    """`5%` as 0.05. InputError for anything but a percentage >= 0."""
    match = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]{1,6})?)%", text, re.ASCII)
    if match is None:
        raise InputError(f"{option} {text} is no share of the time: {option} 5%")
    return float(match[1]) / 100


def size_of_each(texts: list[str], option: str = "--dim") -> dict[str, int]:
    """One number for each size. InputError for several."""
    by_name = sizes_of(texts, option)
    for name, values in by_name.items():
        if len(values) > 1:
            raise InputError(f"{option} {name} has {len(values)} numbers, and here a size has one: {option} {name}=N")
    return {name: values[0] for name, values in by_name.items()}
