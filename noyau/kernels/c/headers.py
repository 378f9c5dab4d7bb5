"""The headers of the author's own that a text in C includes: they lie beside it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from noyau.errors import InputError
from noyau.kernels.user_kernel import UserKernel

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"\n]+)"', re.MULTILINE)


def header_flags(kernel: UserKernel) -> tuple[str, ...]:
    """The flags with which a compiler finds the headers, and a digest of what they hold, so that what was built or
    checked with others does not count; none where the text includes none that is there."""
    folder = Path(kernel.place).parent
    contents = dict(_headers(kernel.text, folder, set())) if _INCLUDE.search(kernel.text) else {}
    if not contents:
        return ()
    digest = hashlib.sha256(b"\0".join(contents[path] for path in sorted(contents))).hexdigest()
    return "-iquote", str(folder), f"-DNOYAU_HEADERS_{digest[:16]}"


def require_plain_build(kernel: UserKernel) -> None:
    """InputError where a kernel cannot be built as all those of a model are: of one text, without flags."""
    if kernel.usage.options.get("flags"):
        raise InputError(f"{kernel.called} asks for flags, and kernels of a model are built alike: leave them out")
    if header_flags(kernel):
        raise InputError(f"{kernel.called} includes files of its own, and a model has one text: put them in there")


def _headers(text: str, folder: Path, seen: set[Path]) -> Iterator[tuple[Path, bytes]]:
    """The files that a text includes from its folder, and those that they include, each once."""
    for name in _INCLUDE.findall(text):
        path = (folder / name).resolve()
        if path not in seen and path.is_file():
            seen.add(path)
            content = path.read_bytes()
            yield path, content
            yield from _headers(content.decode("utf-8", "replace"), path.parent, seen)
