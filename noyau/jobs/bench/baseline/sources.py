"""The source files of a bench: kept as texts, and run again from a folder of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from noyau.errors import InputError
from noyau.ops.op import Op
from noyau.text import printable

_OWN = "noyau"  # the package itself is never loaded twice


def root_of(file: Path) -> Path:
    """The root of the project of a file: the folder of its repository, else the folder that it lies in."""
    folders = file.resolve().parents
    return next((each for each in folders if (each / ".git").exists()), folders[0])


def sources_of(file: Path, what: object) -> dict[str, str]:
    """The text of a file that has run, of the modules of its project that are loaded, and of the texts of kernels that
    are attached to its op, by path from the root. InputError for a kernel outside of the project."""
    root = root_of(file)
    files = {file.resolve(), *(Path(each).resolve() for each in _module_files(root).values())}
    if isinstance(what, Op):
        for kernel in what.kernels.values():
            place = Path(kernel.place)
            if place.is_file() and not place.resolve().is_relative_to(root):
                problem = f"{place} lies outside of {root} and would not be kept"
                raise InputError(f"{what.name}[{kernel.name}]: {problem}; move it there")
            files |= {place.resolve()} if place.is_file() else set()
    try:
        return {each.relative_to(root).as_posix(): each.read_text("utf-8") for each in sorted(files)}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"a source of {file} cannot be kept: {error}") from error


def folders_of(file: Path) -> list[str]:
    """The folders beneath the root that imports are looked for in, as paths from it."""
    root, paths = root_of(file), [file.resolve().parent, *(Path(each or ".").resolve() for each in sys.path)]
    beneath = [each.relative_to(root).as_posix() for each in paths if each.is_relative_to(root)]
    return list(dict.fromkeys(each for each in beneath if "site-packages" not in PurePosixPath(each).parts))


def _module_files(root: Path) -> dict[str, str]:
    """The files of loaded modules that are of the project, by the name of the module."""
    files = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in (_OWN, "__main__") or not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        if path.is_relative_to(root) and "site-packages" not in path.parts:
            files[name] = file
    return files


def write_sources(sources: Mapping[str, str], folder: Path) -> None:
    """Write the texts of a baseline into a folder. InputError for paths that lead out of it."""
    for place, text in sources.items():
        target = folder / inner_path(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


@contextmanager
def imports_from(folder: Path, folders: Sequence[str], root: Path) -> Iterator[None]:
    """Within, imports are looked for in these folders beneath `folder` first, and the modules of the project at `root`
    that are loaded are out of sight; they are back afterwards, and those of `folder` live on in what uses them."""
    hidden = {name: sys.modules.pop(name) for name in _module_files(root)}
    path_before = list(sys.path)
    sys.path[:0] = [str(folder / inner_path(each)) for each in folders]
    try:
        yield
    finally:
        sys.path[:] = path_before
        for each in _module_files(folder):
            del sys.modules[each]
        sys.modules.update(hidden)


def inner_path(place: str) -> Path:
    """A path of a baseline. InputError where it leads out of the folder that it is put into."""
    path = PurePosixPath(place)
    if path.is_absolute() or ".." in path.parts or "\\" in place or "\0" in place:
        raise InputError(f"the baseline holds a path that leads elsewhere: {printable(place)}")
    return Path(path)
