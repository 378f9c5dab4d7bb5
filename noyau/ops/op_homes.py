"""The home of an op, its module or its file, by which another process finds the op."""

import contextlib
import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from noyau.errors import InputError
from noyau.ops.op import Op
from noyau.workers.import_path import import_path

_IS_LOADING = [False]  # whether this process runs a file only for its ops


class Enough(BaseException):
    """The end of the run of a file for its ops alone, at its first check, timing or tuning."""


def end_loading() -> None:
    """End the run of a file that is only run for its ops; called where a check, a timing or a tuning begins."""
    if _IS_LOADING[0]:
        raise Enough


@dataclass(frozen=True, slots=True)
class Home:
    """The place where an op is defined: `module` by name, or else `file`; its `name` there; a `digest` of it."""

    module: str
    file: str
    name: str
    digest: str


def home_of(op: Op[..., Any]) -> Home | None:
    """The place where another process finds the op, a global of a module that has a file; None if there is none."""
    scope: Mapping[str, Any] = op.reference.__globals__
    name = next((name for name, value in scope.items() if value is op), None) or _origin(op, scope)
    file, module = scope.get("__file__"), scope.get("__name__", "")
    if name is None or not isinstance(file, str) or not Path(file).is_file():
        return None
    loaded = sys.modules.get(module)
    is_known = module != "__main__" and loaded is not None and vars(loaded) is scope
    return Home(module if is_known else "", str(Path(file).absolute()), name, digest_of(scope[name]))


def _origin(op: Op[..., Any], scope: Mapping[str, Any]) -> str | None:
    """The global of which an op is a part: an op of the same reference, with its kernels among others."""
    texts = {kernel.text for kernel in op.kernels.values()}
    ops = {name: value for name, value in scope.items() if isinstance(value, type(op))}
    alike = [name for name, value in ops.items() if value.reference is op.reference]
    return next((name for name in alike if texts <= {kernel.text for kernel in ops[name].kernels.values()}), None)


def runs_as_script(op: Op[..., Any]) -> bool:
    """Whether an op is defined in the script that runs now, all of which another process would run again."""
    return op.reference.__globals__.get("__name__") == "__main__"


@lru_cache(maxsize=8)
def reload_op(home: Home) -> Op[..., Any]:
    """The op, from a run of its file up to its first check or timing. InputError where it is missing or has changed."""
    module = _module_of(home)
    _IS_LOADING[0] = True
    try:
        with import_path(Path(home.file)), contextlib.suppress(Enough):
            module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]
    except (Exception, SystemExit) as fault:
        raise InputError(f"{home.file} fails when it is loaded again, with {type(fault).__name__}: {fault}") from fault
    finally:
        _IS_LOADING[0] = False
    op: Op[..., Any] | None = vars(module).get(home.name)
    if op is None or digest_of(op) != home.digest:
        raise InputError(f"{home.file} has no such {home.name} when it is loaded again")
    return op


def digest_of(op: Op[..., Any]) -> str:
    """A digest that tells whether a reloaded op is the same: of its reference, its signature, its kernels."""
    code = op.reference.__code__
    parts = [op.name, str(op.signature), code.co_code, repr(code.co_names)]
    parts += [f"{kernel.name} {kernel.language} {kernel.text}" for kernel in op.kernels.values()]
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()


def _module_of(home: Home) -> ModuleType:
    """The module, not yet executed."""
    spec = None
    if home.module:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(home.module)
    spec = spec or importlib.util.spec_from_file_location(f"noyau_file_{Path(home.file).stem}", home.file)
    if spec is None or spec.loader is None:
        raise InputError(f"{home.file} cannot be loaded again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    return module
