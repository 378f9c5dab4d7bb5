"""The headers of the author's own that a text in C or C++ includes: they lie beside it, or where the flags say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">\n]+)[">]', re.MULTILINE)
_BY_NAME = re.compile(r"^\s*#\s*include\s*\w", re.MULTILINE)  # of a macro
_MACRO = re.compile(r'(?:^\s*#\s*define\s+\w+\s+|^-D\w+=)["<]([^">\n]+)[">]', re.MULTILINE)
_PLACE = re.compile(r"-(I|isystem|iquote|idirafter|include|imacros)=?(.*)")


def header_flags(text: str, flags: Sequence[str] = (), folder: Path | None = None) -> tuple[str, ...]:
    """More flags, with which a compiler finds the headers in `folder`, and a digest of all that are there and may be
    included, so that what was built or checked with others does not count; none where there are none."""
    folders, files = [folder] if folder else [], list[str]()
    words = iter(flags)
    for place in filter(None, map(_PLACE.fullmatch, words)):
        named = place[2] or next(words, "")
        files.append(named) if place[1] in ("include", "imacros") else folders.append(Path(named))
    lines = "\n".join([text, *flags, *(f'#include "{each}"' for each in files)])
    contents = dict(_headers(lines, folders, set())) if _INCLUDE.search(lines) or _BY_NAME.search(text) else {}
    if not contents and not _BY_NAME.search(text):
        return ()
    digest = hashlib.sha256(b"\0".join(contents[path] for path in sorted(contents))).hexdigest()
    return *(("-iquote", str(folder)) if folder else ()), f"-DNOYAU_HEADERS_{digest[:16]}"


def _headers(text: str, folders: Sequence[Path], seen: set[Path]) -> Iterator[tuple[Path, bytes]]:
    """The files of these folders that a text names, and those that they name, each once."""
    for name in (*_INCLUDE.findall(text), *_MACRO.findall(text)):
        for path in ((folder / name).resolve() for folder in folders):
            if path not in seen and path.is_file():
                seen.add(path)
                content = path.read_bytes()
                yield path, content
                yield from _headers(content.decode("utf-8", "replace"), [path.parent, *folders], seen)
