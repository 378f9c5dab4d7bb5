"""Running of Python files: their folder comes first in the import path, as when Python runs them; import hooks."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from noyau.errors import InputError, MissingExtraError, NoyauError

_EXTRAS = {"numba": "numba", "torch": "torch", "triton": "triton", "onnx": "onnx", "onnxruntime": "onnx"}


class _InstalledNamesake:
    """A finder of an installed package with the name of the file itself: `triton.py` may import triton."""

    def __init__(self, file: Path) -> None:
        self.name, self.folder = file.stem, str(file.parent)

    def find_spec(self, name: str, path: Sequence[str] | None = None, *_: object) -> ModuleSpec | None:
        if name != self.name or path is not None:
            return None
        return PathFinder.find_spec(name, [each for each in sys.path if each != self.folder])


@contextmanager
def import_path(file: Path) -> Iterator[None]:
    """Search imports in the folder of `file` first within the block; `file` itself hides no installed package."""
    absolute = file.absolute()
    finder, folder = _InstalledNamesake(absolute), str(absolute.parent)
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(folder)


class _ImportObserver:
    """A finder that finds nothing by itself: it calls a function once a package is imported."""

    def __init__(self, package: str, function: Callable[[], object]) -> None:
        self.package, self.function = package, function

    def find_spec(self, name: str, path: Sequence[str] | None = None, *_: object) -> ModuleSpec | None:
        if name != self.package:
            return None
        self.package = ""  # once
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self.function()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextmanager
def when_imported(package: str, function: Callable[[], object]) -> Iterator[None]:
    """Call `function` once a package is imported within the block."""
    observer = _ImportObserver(package, function)
    sys.meta_path.insert(0, observer)
    try:
        yield
    finally:
        sys.meta_path.remove(observer)


class LazyModule:
    """A package that is imported at its first use. ImportError where it is not installed."""

    def __init__(self, name: str) -> None:
        if find_spec(name) is None:
            raise ImportError(f"No module named {name!r}")
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def run_text(text: str, path: Path, name: str) -> dict[str, Any]:
    """Run a text that noyau generated, stored in a file, as a module of that name, and return its globals."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where Numba and Triton look up a function's module
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102  made by codegen
    return module.__dict__


def run_file(path: Path) -> dict[str, Any]:
    """Run a Python file and return its globals; imports are searched in its folder first, while it runs."""
    spec = spec_from_file_location(f"noyau_file_{path.stem}", path.absolute())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no file of Python; give PATH.py::OP")
    module = module_from_spec(spec)
    try:
        with import_path(path):
            spec.loader.exec_module(module)
    except NoyauError:
        raise
    except SystemExit as end:
        if end.code in (None, 0):  # it printed why, as pages do without their package
            raise InputError(f"{path} ends itself before all of it has run") from end
        raise InputError(f"{path} fails with SystemExit: {end}") from end
    except Exception as fault:
        missing = (fault.name or "").partition(".")[0] if isinstance(fault, ModuleNotFoundError) else ""
        if missing in _EXTRAS:
            remedy = f"run: pip install 'noyau-kernels[{_EXTRAS[missing]}]'"
            raise MissingExtraError(f"{path} needs {missing}, which is not installed; {remedy}") from fault
        raise InputError(f"{path} fails with {type(fault).__name__}: {fault}") from fault
    return vars(module)
