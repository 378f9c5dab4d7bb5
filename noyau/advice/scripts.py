"""What is said of the text of a script or of a notebook, of which nothing is run."""

from __future__ import annotations

import ast
import json
import linecache
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from noyau.advice.clocks import Reader, pending, remark, unwaited
from noyau.advice.remarks import HOST, Remark
from noyau.advice.uncalled import uncalled
from noyau.checking.findings import Finding
from noyau.scripts.notebooks import cells_of, remembered

_TIMED = re.compile(r"^\s*(%%?time(?:it)?)\b(?P<options>(?:\s+-\w+(?:\s*\d+)?)*)\s*(?P<rest>.*)$")


def advised(path: Path) -> tuple[Finding, ...]:
    """Warnings on the host's side of a script or a notebook: clocks that are read while a kernel may still run, and
    methods that are named and not called. Marks `noyau: allow(launch)` on a line silence it."""
    is_book = path.suffix == ".ipynb"
    linecache.checkcache(str(path))
    texts = _cells(path) if is_book else [(path.read_text(encoding="utf-8", errors="replace"), str(path))]
    trees = [(tree, file) for text, file in texts for tree in _parsed(text, file)]
    clocks, reader = unwaited(trees)
    found = [*clocks, *(each for tree, file in trees for each in uncalled(tree, file))]
    if is_book:
        found += _magics(path, texts, reader)
    kept = {(each.file, each.line, each.message): each for each in found if not each.is_allowed}
    return tuple(each.finding(path.name, each.about or "script", HOST) for each in kept.values())


def advised_text(text: str, name: str) -> tuple[Finding, ...]:
    """The same on one text: a cell that is being run."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    trees = [(tree, name) for tree in _parsed(text, name)]
    found = [*unwaited(trees)[0], *(each for tree, file in trees for each in uncalled(tree, file))]
    return tuple(each.finding(name, each.about or "cell", HOST) for each in found if not each.is_allowed)


def _cells(path: Path) -> list[tuple[str, str]]:
    return [(text, file) for file, text in remembered(cells_of(path), path.name).items()]


def _parsed(text: str, file: str) -> Iterator[ast.Module]:
    """The tree of a text; nothing where it is no Python, which running it tells."""
    with suppress(SyntaxError, ValueError):
        yield ast.parse(text, file)


def _magics(path: Path, texts: Sequence[tuple[str, str]], reader: Reader) -> Iterator[Remark]:
    """Remarks on %timeit, %%timeit, %time and %%time, whose lines a cell that is run has without their first word."""
    book = json.loads(path.read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    for source, (_, file) in zip(sources, texts, strict=True):
        lines = source.splitlines()
        for number, line in enumerate(lines, 1):
            found = _TIMED.match(line)
            if found:
                yield from _timed(found, number, lines, file, reader)


def _timed(found: re.Match[str], number: int, lines: Sequence[str], file: str, reader: Reader) -> Iterator[Remark]:
    is_cell = found[1].startswith("%%")
    text = "\n".join(lines[number:]) if is_cell else found["rest"]
    for tree in _parsed(text, file):
        ast.increment_lineno(tree, number if is_cell else number - 1)
        launch = pending(list(reader.events(tree.body, file)))
        if launch is not None:
            yield remark(launch, number, file, found[1], reader.wait)
        yield from uncalled(tree, file)
