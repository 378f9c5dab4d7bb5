"""Stand-ins while a script runs: their installation, detection of the script's own patches, failed comparisons."""

import ast
import linecache
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any

import numpy as np

from noyau.errors import FindingKind
from noyau.sanitizer.lint.diagnostics import HOST, Diagnostic, dotted_name, warnings_of
from noyau.verify.findings import Finding

_SHOWING = frozenset({"print", "debug", "info", "warning", "error"})
_MISSING = object()
_STAND_INS: dict[tuple[Any, str], Any] = {}
WATCHING = ("noyau", "numpy")


def patch(undone: ExitStack, holder: Any, name: str, value: Any) -> None:
    """Set `holder.name` to `value` until `undone` ends."""
    _STAND_INS[holder, name] = value
    undone.callback(_STAND_INS.pop, (holder, name), None)
    before = vars(holder).get(name, _MISSING)
    if before is _MISSING:
        undone.callback(delattr, holder, name)
    else:
        undone.callback(setattr, holder, name, before)
    setattr(holder, name, value)


class FunctionGuard:
    """Detector of patched functions: functions and methods of noyau and NumPy, compared with their first values, and
    the stand-ins. A patch stays on record when the script undoes it, as observations through it do not count."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, str], Any] = {}
        self._changed: dict[str, None] = {}

    def look(self, packages: Sequence[str] = ("noyau.sanitizer",)) -> str:
        """Return the names of functions that differ now or differed at an earlier look, within `packages`."""
        modules = [each for name, each in list(sys.modules.items()) if _is_of(name, packages)]
        classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
        holders = [*modules, *(each for each in classes if _is_of(str(each.__module__), packages))]
        now = {(each, name): value for each in holders for name, value in list(vars(each).items()) if callable(value)}
        changed = [key for key, value in now.items() if self._first.setdefault(key, value) is not value]
        changed += [key for key, value in _STAND_INS.items() if vars(key[0]).get(key[1]) is not value]
        self._changed |= dict.fromkeys(f"{getattr(each, '__name__', each)}.{name}" for each, name in changed)
        return ", ".join(self._changed)


def _is_of(name: str, packages: Sequence[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def patch_allclose(undone: ExitStack, tell: Callable[[str], None]) -> None:
    """Have np.allclose call `tell` with FILE:LINE of its call when it returns False, until `undone` ends."""
    holder = sys.modules[np.allclose.__wrapped__.__globals__["__name__"]]  # type: ignore[attr-defined]
    plain = holder.isclose

    def isclose(*args: Any, **named: Any) -> Any:
        cells, caller, at = plain(*args, **named), sys._getframe(1), sys._getframe(2)
        if caller.f_code.co_name == "allclose" and not np.all(cells):
            tell(f"{at.f_code.co_filename}:{at.f_lineno}")
        return cells

    patch(undone, holder, "isclose", isclose)  # np.allclose itself stays, since Numba recognises it


@cache  # a loop may compare a thousand times
def shown_difference(name: str, place: str, script: str) -> list[Finding]:
    """Warn about a comparison at FILE:LINE that returned False and whose result the script only shows. Assertions, and
    loops that run until two arrays agree, handle the result themselves."""
    file, _, line = place.rpartition(":")
    with suppress(SyntaxError, ValueError, RecursionError):
        if _is_shown(int(line), ast.parse("".join(linecache.getlines(file)), file), set()):
            message, mend = f"{name} says no here, and the script only shows it", "look at where the arrays differ"
            remark = Diagnostic(FindingKind.WRONG_VALUE, file, int(line), message, mend)
            return warnings_of([remark], script, "script", HOST)
    return []


def _is_shown(line: int, tree: ast.Module, past: set[int]) -> bool:
    """Whether a line's statement only shows its value: by print or a log, in branches that only show, or by a name.
    `past`: the lines that were examined before."""
    past.add(line)
    nodes = [each for each in ast.walk(tree) if isinstance(each, ast.stmt)]  # the inner ones last
    match [each for each in nodes if each.lineno <= line <= (each.end_lineno or 0)][-1:]:
        case [ast.Expr(value=ast.Call(func=function))]:
            return dotted_name(function).rpartition(".")[2] in _SHOWING
        case [ast.If(body=body, orelse=orelse)]:
            return all(_is_shown(each.lineno, tree, past) for each in (*body, *orelse))
        case [ast.Assign(targets=[ast.Name(id=name)])]:
            names = (each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == name)
            uses = {each.lineno for each in names if isinstance(each.ctx, ast.Load)} - {line}
            return bool(uses) and all(_is_shown(each, tree, past) for each in uses - past)
        case _:
            return False
