"""The disk cache of compilers' results: private, content-addressed, bounded, safe with several processes; and of JSON
records of facts that hold until something changes, one for each key.

An entry is one file, `KEY-CONTENT.SUFFIX`: KEY is a digest of its inputs, CONTENT a digest of its bytes. A file that
does not match its name is removed and made again. Nothing is locked: an entry appears whole, by a rename."""

import atexit
import contextlib
import datetime
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from noyau.errors import NoyauError, OutputError, reason_of

T = TypeVar("T")
LIMIT_BYTES = 512 * 2**20
_STALE_S = 3600.0
_ENTRY = re.compile(r"[0-9a-f]{40}-[0-9a-f]{40}\.[a-z]+")
_WORKSPACE = "new-"
_MODULES = "numba"  # the folder of kernels in Python
KEPT = 512  # the most of them on disk
_SHRUNK_AT = 64  # entries: scanning a full cache takes as long as compiling a small kernel
_stored = itertools.count()  # entries stored by this process


def digest(*parts: str | bytes) -> str:
    """A key: 40 hexadecimal digits that differ where any part differs."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:40]


def folder() -> Path:
    """The cache folder, created with mode 0700 if it is missing.

    If the user's own cannot be created, written or trusted: a temporary one for this process, and a RuntimeWarning
    why."""
    home = Path("~/.cache/noyau")
    try:
        home = _home()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = _distrust(home.stat()) or (None if os.access(home, os.W_OK) else "it is read-only")
    except (OSError, RuntimeError) as error:
        reason = reason_of(error)
    if reason is None:
        return home
    message = f"the cache folder {home} is not used: {reason}; kernels are built again in each process"
    warnings.warn(message, RuntimeWarning, stacklevel=1)  # at this line, so that it is shown once
    return _private(os.getpid())


def lookup(key: str, suffix: str) -> Path | None:
    """The entry of a key, or None. An entry that is damaged, or that another user could have written, is removed."""
    home = folder()
    names, start = _names(str(home), home.stat().st_mtime_ns), f"\n{key}-"
    for at in [each.start() for each in re.finditer(start, names)]:
        path = home / names[at + 1 : names.index("\n", at + 1)]
        if path.suffix != suffix:
            continue
        if _is_sound(path):
            with contextlib.suppress(OSError):
                os.utime(path)  # the least recently used entries go first
            return path
        _remove(path)
    return None


def ensure(key: str, suffix: str, produce: Callable[[Path], object]) -> Path:
    """The entry of a key; it is stored if it is missing."""
    return lookup(key, suffix) or store(key, suffix, produce)


@lru_cache(maxsize=1)
def _names(home: str, _changed_ns: int) -> str:
    """The sorted entries of a folder, separated by line ends, memoised until it changes: a list would be far larger."""
    return "\n".join(["", *sorted(os.listdir(home)), ""])


def store(key: str, suffix: str, produce: Callable[[Path], object], limit_bytes: int = LIMIT_BYTES) -> Path:
    """Store the file that `produce` writes to the path it receives; the entry appears whole or not at all.

    The least recently used entries are then evicted until all are within `limit_bytes`; with the default limit, that is
    done at the first entry of a process and at each 64th. OutputError where nothing can be written; exceptions of
    `produce` propagate."""
    home = folder()
    try:
        # Beside the entries, so that a rename is enough.
        with tempfile.TemporaryDirectory(prefix=_WORKSPACE, dir=home, ignore_cleanup_errors=True) as workspace:
            file = Path(workspace) / f"made{suffix}"
            produce(file)
            file.chmod(0o600)
            entry = home / f"{key}-{_content(file)}{suffix}"
            file.replace(entry)
        _names.cache_clear()  # two changes within a clock tick have one time stamp
    except NoyauError:
        raise
    except OSError as error:
        place = error.filename2 or error.filename or f"the cache folder {home}"  # a copy names its source first
        raise OutputError(f"{place} cannot be written: {error.strerror}; make room there") from error
    if limit_bytes != LIMIT_BYTES or next(_stored) % _SHRUNK_AT == 0:
        _sweep(home)
        entries = _entries(home)
        surplus = sum(status.st_size for _, status in entries) - limit_bytes
        for path, status in entries:
            if surplus > 0 and path != entry and _remove(path):
                surplus -= status.st_size
    return entry


def size_bytes() -> int:
    """The size of all entries in bytes, including Numba's."""
    return sum(status.st_size for _, status in _entries(folder())) + sum(path.lstat().st_size for path in _modules())


def clear() -> int:
    """Remove every entry; return their number."""
    home = folder()
    _sweep(home)
    removed = sum(_remove(path) for path, _ in _entries(home)) + len(_modules())
    shutil.rmtree(home / _MODULES, ignore_errors=True)
    return removed


def _modules() -> list[Path]:
    """Kernels in Python, and Numba's compiled files of them: it names its own files."""
    return [path for path in (folder() / _MODULES).rglob("*") if path.is_file()]


def _home() -> Path:
    """`noyau` in the platform's folder for caches of the user."""
    from platformdirs import user_cache_path  # imported late, for calls of ops never need it

    return user_cache_path("noyau", appauthor=False, opinion=False)


def _distrust(status: os.stat_result) -> str | None:
    """The reason why a file of this status could have been written by another user, or None."""
    if not hasattr(os, "geteuid"):
        return None  # Windows keeps a profile's folders private by its access lists
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o}; chmod 700 would do)"
    return None


@cache
def _private(process: int) -> Path:
    """A temporary folder of this process; `process` separates a forked child from its parent."""
    home = Path(tempfile.mkdtemp(prefix="noyau-"))
    atexit.register(lambda: shutil.rmtree(home, ignore_errors=True) if os.getpid() == process else None)
    return home


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:40]


def _is_sound(path: Path) -> bool:
    """Whether a path is a plain file of ours whose content matches its name."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        is_ours = stat.S_ISREG(status.st_mode) and _distrust(status) is None
        return is_ours and path.stem.partition("-")[2] == _content(path)
    return False


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):  # another process removed it, or Windows has it loaded
        path.unlink()
        return True
    return False


def _entries(home: Path) -> list[tuple[Path, os.stat_result]]:
    """The entries, the least recently used first."""
    entries = []
    with os.scandir(home) as files:
        for file in files:
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                if _ENTRY.fullmatch(file.name):
                    entries.append((Path(file.path), file.stat(follow_symlinks=False)))
    return sorted(entries, key=lambda entry: entry[1].st_mtime_ns)


def _sweep(home: Path) -> None:
    """Remove the workspaces of processes that were killed."""
    for path in home.glob(f"{_WORKSPACE}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _STALE_S:
                shutil.rmtree(path, ignore_errors=True)


_SUFFIX = ".json"
OLDEST_DAYS = 30


def today() -> str:
    """The current day, in the form of records."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def is_recent(day: str) -> bool:
    """Whether a day of a record is at most 30 days ago: machines change. ValueError for a malformed day."""
    return (datetime.date.fromisoformat(today()) - datetime.date.fromisoformat(day)).days <= OLDEST_DAYS


def recall(key: str) -> Any:
    """The record of a key, or None if it is missing, damaged, or could have been written by another user."""
    path = lookup(key, _SUFFIX)
    with contextlib.suppress(OSError, ValueError):
        return None if path is None else json.loads(path.read_text("ascii"))
    return None


def recall_as(key: str, read: Callable[[Any], T]) -> T | None:
    """The record of a key, converted by `read`; None if there is none, or if `read` rejects it."""
    record = recall(key)
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return None if record is None else read(record)
    return None


def keep(key: str, record: Any) -> None:
    """Store a record in place of the key's previous one. Numbers that are not finite are kept as they are.

    OutputError where the cache cannot be written."""
    old = lookup(key, _SUFFIX)
    new = store(key, _SUFFIX, lambda path: path.write_text(json.dumps(record), encoding="ascii"))
    if old is not None and old != new:
        _remove(old)


# Kernels in Python, as files: Numba stores compiled code beside them, Triton reads their source.


def file_of(text: str, *made_for: str) -> Path:
    """A cached file with the text, one for each version of its reader. OutputError where it cannot be written."""
    home = folder() / _MODULES / digest(text, *made_for)
    path = home / "kernel.py"
    if not _has_text(path, text):
        fresh = home / f"new-{os.getpid()}-{id(text)}"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(text, "ascii")
            fresh.replace(path)
        except OSError as error:
            _remove(fresh)
            reason = f"cannot be written: {error.strerror}; make room there"
            raise OutputError(f"the cache folder {home} {reason}") from error
        _shrink_modules(home.parent, home)
    return path


def _has_text(path: Path, text: str) -> bool:
    """Whether a file with this text exists."""
    with contextlib.suppress(OSError, ValueError):  # it is missing, removed by another process, or damaged
        return path.read_text("ascii") == text
    return False


def _shrink_modules(home: Path, newest: Path) -> None:
    """Remove the oldest modules beyond the limit."""
    aged = sorted((path for path in home.iterdir() if path != newest), key=_creation_ns)
    for path in aged[: max(0, len(aged) + 1 - KEPT)]:
        with contextlib.suppress(OSError):  # another process removes it too
            for file in [*path.glob("__pycache__/*"), *path.glob("*.py")]:
                file.unlink(missing_ok=True)
        for folder_left in (path / "__pycache__", path):
            with contextlib.suppress(OSError):  # it is missing, or another process removed it
                folder_left.rmdir()


def _creation_ns(path: Path) -> int:
    """The time of a module's creation; 0 if another process has removed it meanwhile."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0
