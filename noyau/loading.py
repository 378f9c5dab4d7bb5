"""Ops out of files of Python, by `PATH.py::OP`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from noyau.errors import InputError, NoyauError
from noyau.ops import Op


def load_op(target: str) -> Op[Any, Any]:
    """The op of "path.py::name", or of "path.py" where it has one alone; the file is run, under a name of its own.

    InputError where there is no such file or op, or where the file fails."""
    place, _, wanted = target.partition("::")
    path = Path(place)
    if not path.is_file():
        raise InputError(f"there is no file {place!r}; give PATH.py::OP")
    found = {name: value for name, value in _run(path).items() if isinstance(value, Op)}
    known = ", ".join(found) or "none"
    if wanted and wanted not in found:
        raise InputError(f"{place} has no op {wanted!r}; its ops are: {known}")
    if not wanted and len(found) != 1:
        raise InputError(f"{place} has {len(found)} ops ({known}); say which: {place}::NAME")
    return found[wanted] if wanted else next(iter(found.values()))


def _run(path: Path) -> dict[str, Any]:
    """What a file of Python defines; its folder is where it imports from first, while it runs."""
    spec = importlib.util.spec_from_file_location(f"noyau_file_{path.stem}", path.absolute())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no file of Python; give PATH.py::OP")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except NoyauError:
        raise
    except (Exception, SystemExit) as fault:
        raise InputError(f"{path} fails with {type(fault).__name__}: {fault}") from fault
    finally:
        sys.path.remove(str(path.absolute().parent))
    return vars(module)
