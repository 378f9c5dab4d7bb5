"""The file of a baseline: machine, sizes and source texts, which are imported again from a separate folder."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from noyau.errors import InputError, reason_of
from noyau.ops.op import Op
from noyau.text import fields_json, from_json, printable
from noyau.timing.machine import Machine

VERSION = 1
KIND = "noyau bench baseline"
_FOLDER = Path(".noyau") / "bench"
_DECIDES = ("cpu", "cores", "level")  # facts that identify a machine for timings


@dataclass(frozen=True, slots=True)
class Baseline:
    """A saved bench. `target`: the file, as a path relative to the root of the project, and the names in it; `sources`:
    the texts of the file and of the project files that it imports, by relative path; `folders`: the import path below
    the root; `sizes`: those timed. It contains no times, since none would be used."""

    name: str
    target: str
    date: str
    machine: Machine
    sources: Mapping[str, str]
    folders: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": VERSION, "kind": KIND, **fields_json(self)}

    def require_machine(self, machine: Machine) -> None:
        """InputError where it is of another machine."""
        pairs = {each: (getattr(self.machine, each), getattr(machine, each)) for each in _DECIDES}
        pairs["os"] = (self.machine.os.partition(" ")[0], machine.os.partition(" ")[0])
        facts = ", ".join(f"{e} {printable(str(old))}, here {now}" for e, (old, now) in pairs.items() if old != now)
        if facts:
            advice = "a commit may be slower on one machine and faster on another: save it on this one"
            raise InputError(f"the baseline {printable(self.name)} is of another machine ({facts}); {advice}")


def baseline_path(name: str) -> Path:
    """The file of a baseline: a plain name is in `.noyau/bench`; one with a folder or the suffix `.json` is a path.
    InputError without a name."""
    path = Path(name)
    if not path.name:
        raise InputError("a baseline has a name or a path: --save NAME, --compare NAME")
    return path if len(path.parts) > 1 or path.suffix == ".json" else _FOLDER / f"{name}.json"


def read_baseline(name: str) -> Baseline:
    """Read the baseline of a name or a path. InputError if there is none, or the file is something else."""
    path = baseline_path(name)
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        remedy = f"save one with --save {printable(name)}"
        raise InputError(f"there is no baseline {printable(name)} ({path}): {remedy}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"the baseline {path} cannot be read: {reason_of(error)}") from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise InputError(f"{path} is no baseline of noyau bench: name one that --save wrote")
    if (version := data.get("schema_version")) != VERSION:
        problem = f"has the format {version!r}, and this noyau reads {VERSION}"
        raise InputError(f"the baseline {path} {problem}: save it anew with this noyau")
    try:
        return from_json(Baseline, {each: data[each] for each in Baseline.__slots__})  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the baseline {path} is damaged ({type(error).__name__}: {error}): save it anew") from error


def root_of(file: Path) -> Path:
    """The root of the project of a file: the folder of its git repository, else its own folder."""
    folders = file.resolve().parents
    return next((each for each in folders if (each / ".git").exists()), folders[0])


def sources_of(file: Path, what: object) -> dict[str, str]:
    """The texts of an executed file, of the loaded modules of its project, and of kernels attached to its op, by path
    relative to the root. InputError for a kernel outside the project."""
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
        raise InputError(f"a source of {file} cannot be kept: {reason_of(error)}") from error


def folders_of(file: Path) -> tuple[str, ...]:
    """The folders of the import path that are below the root, as relative paths."""
    root, paths = root_of(file), [file.resolve().parent, *(Path(each or ".").resolve() for each in sys.path)]
    return tuple(dict.fromkeys(each.relative_to(root).as_posix() for each in paths if _is_own(each, root)))


def _is_own(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and path.exists() and "site-packages" not in path.parts


def _modules(root: Path) -> dict[str, Path]:
    """The files of the project's loaded modules, by name, without noyau and `__main__`. Modules may have no file."""
    named = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    files = {n: Path(file).resolve() for n, file in named if isinstance(file, str) and file.endswith(".py")}
    apart = ("noyau", "__main__")
    return {n: file for n, file in files.items() if n.partition(".")[0] not in apart and _is_own(file, root)}


@contextmanager
def imports_from(folder: Path, folders: Sequence[str], root: Path) -> Iterator[None]:
    """A block in which imports search these folders below `folder` first, and loaded modules of the project at `root`
    are hidden. Afterwards these are restored, and modules of `folder` are only kept by the objects that use them."""
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
    """A relative path of a baseline. InputError where it leaves the folder."""
    path = PurePosixPath(place)
    if path.is_absolute() or ".." in path.parts or "\\" in place or "\0" in place:
        raise InputError(f"the baseline holds a path that leads elsewhere: {printable(place)}")
    return Path(path)
