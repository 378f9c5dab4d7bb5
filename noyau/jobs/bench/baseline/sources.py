"""The source files of a bench: kept as texts, and imported again from a folder of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from noyau.errors import InputError
from noyau.ops.op import Op
from noyau.text import printable


def root_of(file: Path) -> Path:
    """The root of the project of a file: the folder of its repository, else the folder that it lies in."""
    folders = file.resolve().parents
    return next((each for each in folders if (each / ".git").exists()), folders[0])


def sources_of(file: Path, what: object) -> dict[str, str]:
    """The texts of a file that has run, of the modules of its project that are loaded, and of kernels that are attached
    to its op, by path from the root. InputError for a kernel outside of the project."""
    root = root_of(file)
    files = {file.resolve(), *_modules(root).values()}
    for kernel in what.kernels.values() if isinstance(what, Op) else ():
        place = Path(kernel.place).resolve()
        if place.is_file() and not place.is_relative_to(root):
            raise InputError(f"{place} lies outside of {root}, and would not be kept: move it there")
        files |= {place} if place.is_file() else set()
    try:
        return {each.relative_to(root).as_posix(): each.read_text("utf-8") for each in sorted(files)}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"a source of {file} cannot be kept: {error}") from error


def folders_of(file: Path) -> tuple[str, ...]:
    """The folders beneath the root that imports are looked for in, as paths from it."""
    root, paths = root_of(file), [file.resolve().parent, *(Path(each or ".").resolve() for each in sys.path)]
    return tuple(dict.fromkeys(each.relative_to(root).as_posix() for each in paths if _is_own(each, root)))


def _is_own(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and "site-packages" not in path.parts


def _modules(root: Path) -> dict[str, Path]:
    """The files of loaded modules of the project, by name; noyau itself is never loaded twice."""
    named = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    files = {n: Path(file).resolve() for n, file in named if isinstance(file, str) and file.endswith(".py")}
    apart = ("noyau", "__main__")
    return {n: file for n, file in files.items() if n.partition(".")[0] not in apart and _is_own(file, root)}


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
    hidden, path_before = {name: sys.modules.pop(name) for name in _modules(root)}, list(sys.path)
    sys.path[:0] = [str(folder / inner_path(each)) for each in folders]
    try:
        yield
    finally:
        sys.path[:] = path_before
        for each in _modules(folder):
            del sys.modules[each]
        sys.modules.update(hidden)


def inner_path(place: str) -> Path:
    """A path of a baseline. InputError where it leads out of the folder that it is put into."""
    path = PurePosixPath(place)
    if path.is_absolute() or ".." in path.parts or "\\" in place or "\0" in place:
        raise InputError(f"the baseline holds a path that leads elsewhere: {printable(place)}")
    return Path(path)
