"""Jupyter notebooks, cell by cell."""

import ast
import json
import linecache
import re
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noyau.errors import InputError, reason_of

# Groups: the indent, the assignment's target, the magic itself.
_MAGIC = re.compile(r"(\s*)([\w, ]+= *)?(%+\w.*|[!?].*|[\w.]+\?+\s*$)")
_TIMED = re.compile(r"%(?:time|timeit|prun) +(?:-[a-z]+ *\d* +)*")  # with its options; the timed statement follows


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell. `number`: its place among the code cells, from 1; `left_out`: the number of unrun IPython lines."""

    number: int
    text: str
    left_out: int = 0


def cells_of(path: Path) -> list[Cell]:
    """Return the code cells of a notebook, in order. InputError if the file is not a notebook."""
    try:
        book = json.loads(path.read_text(encoding="utf-8"))
        sources = [cell["source"] for cell in book["cells"] if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        reason = f"{type(fault).__name__}: {reason_of(fault)}"
        raise InputError(f"{path} is no notebook of Jupyter ({reason}); save it again") from None
    return [_cell(number, "".join(source)) for number, source in enumerate(sources, 1)]


def _cell(number: int, text: str) -> Cell:
    """Blank a cell's magic lines, which keeps the line numbers, and keep the statements that they time: `%timeit -n 3
    f(x)` runs f(x) once. Below a cell magic that times or checks (%%time, %%timeit, %%check, %%capture) the rest runs;
    %%writefile writes its file, which later cells may import; other cells (%%bash, %%html) do not run."""
    lines = text.splitlines()
    word, _, file = next((line.strip() for line in lines if line.strip()), "").partition(" ")
    if word == "%%writefile" and not file.startswith("-"):
        rest = text.lstrip().partition("\n")[2]
        written = f"__import__('pathlib').Path({file.strip()!r}).write_text({rest!r}, encoding='utf-8')"
        return Cell(number, f"{written} and None; __import__('importlib').invalidate_caches()")
    if word.startswith("%%") and word not in ("%%time", "%%timeit", "%%check", "%%capture", "%%prun"):
        return Cell(number, "", len(lines))
    code_lines, out = [], 0
    for line in lines:
        magic = _MAGIC.match(line)
        if magic is not None:
            indent, name, own = magic[1], magic[2] or "", magic[3]
            timed = _TIMED.match(own)
            line = indent + name + (own[timed.end() :].strip() if timed else "None" if name else "pass")
            out += timed is None
        code_lines.append(line)
    return Cell(number, "\n".join(code_lines), out)


def remember_cells(cells: Sequence[Cell], name: str) -> dict[str, str]:
    """Map each cell's name in reports to its text, and register the text with linecache under that name."""
    texts = {f"{name}[cell {cell.number}]": cell.text + "\n" for cell in cells}
    for file, text in texts.items():
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    return texts


def run_cells(cells: Sequence[Cell], name: str) -> list[str]:
    """Run cells in one namespace, with lines named as in `BOOK.ipynb[cell 3]:5`. Return notes on what was left out."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    space: dict[str, Any] = module.__dict__
    for file, text in remember_cells(cells, name).items():
        tree = ast.parse(text, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), space)  # noqa: S102  the user's own notebook
        if isinstance(last, ast.Expr):  # a notebook prints its value
            value = eval(compile(ast.Expression(last.value), file, "eval"), space)  # noqa: S307  as above
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
    left = sum(cell.left_out for cell in cells)
    many, verb = (f"{left} lines", "were") if left > 1 else ("a line", "was")
    return [f"{many} of IPython's own (%..., !...) {verb} not run"] if left else []
