"""What a program says of itself: the lines of its machine code, and the objects that it holds.

A small reader of ELF (64 bit, little-endian) and of the line tables of DWARF 4, so that nothing but the compiler is
needed. Format: System V ABI, chapter 4; DWARF Debugging Information Format, version 4, section 6.2.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from noyau.errors import BuildError

_OBJECT, _FILE, _TLS, _LOCAL = 1, 4, 6, 0
_STANDARD = 4  # the version of DWARF


@dataclass(frozen=True, slots=True)
class Row:
    """From `address` on, machine code is of this file and line; `ends`: there is none any more."""

    address: int
    file: str
    line: int
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """An object that a program holds: a global, a static, or with `is_tls` one of each thread."""

    name: str
    offset: int
    size: int
    is_tls: bool
    is_local: bool
    group: int  # which of the linked files it is of, where it is local


@dataclass(frozen=True, slots=True)
class Lines:
    """The line table of a program. `own`: what the user's text is called there."""

    rows: Sequence[Row]
    own: str

    def at(self, address: int) -> tuple[str, int]:
        """The file and the line of a return address. Code that was taken in from a file of the system is of the last
        line before it that is of no such file; nothing where there is none."""
        position = bisect.bisect_left(self.rows, address, key=lambda row: row.address) - 1
        for row in reversed(self.rows[: position + 1]):
            if row.ends:
                break
            if not self.is_foreign(row.file) and row.line:
                return row.file, row.line
        return "", 0

    def is_foreign(self, file: str) -> bool:
        """Whether a file is none of the user's."""
        return file != self.own and (file.startswith(("/usr/", "/opt/")) or "/sanitizer/c/include/" in file)


def lines_of(path: Path, own: str) -> Lines:
    """The line table of a program. BuildError where it has none that can be read."""
    data = path.read_bytes()
    section = next((each for each in _sections(data) if each.name == ".debug_line"), None)
    if section is None:
        raise BuildError(f"{path.name} says nothing of its lines; build it with gcc")
    start, size = section.start, section.size
    rows: list[Row] = []
    at = start
    while at < start + size:
        at = _unit(data, at, rows)
    return Lines(tuple(sorted(rows, key=lambda row: (row.address, not row.ends))), own)


def held_by(path: Path) -> list[Held]:
    """The objects of a program or of an object file."""
    data = path.read_bytes()
    sections = _sections(data)
    table = next((each for each in sections if each.name == ".symtab"), None)
    if table is None:
        return []
    found, group, start, size = [], 0, table.start, table.size
    texts = sections[table.link].start
    for at in range(start, start + size, 24):
        name, info, _, index, value, length = struct.unpack_from("<IBBHQQ", data, at)
        kind, is_local = info & 15, info >> 4 == _LOCAL
        if kind == _FILE:
            group += 1
        elif kind in (_OBJECT, _TLS) and length and index:
            word = _text(data, texts + name)
            found.append(Held(word, value, length, kind == _TLS, is_local, group))
    return found


@dataclass(frozen=True, slots=True)
class _Section:
    """Where a section lies, its size, and the number of the section that it is linked to."""

    name: str
    start: int
    size: int
    link: int


def _sections(data: bytes) -> list[_Section]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise BuildError("programs are watched on Linux, where they are 64-bit ELF files")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    each, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQII", data, table + number * each) for number in range(count)]
    words = heads[names][4]
    return [_Section(_text(data, words + head[0]), head[4], head[5], head[6]) for head in heads]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")


def _leb(data: bytes, at: int, *, signed: bool = False) -> tuple[int, int]:
    """A number in LEB128, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            break
    return (value - (1 << shift) if signed and byte & 64 else value), at


@dataclass(slots=True)
class _Head:
    """Of a unit: what its program is written with."""

    step: int
    base: int
    span: int
    first: int
    lengths: bytes
    files: list[str]


def _unit(data: bytes, at: int, rows: list[Row]) -> int:
    """Add the rows of a unit; the place after it."""
    length, version, header = (int(each) for each in struct.unpack_from("<IHI", data, at))
    end, program = at + 4 + length, at + 10 + header
    if version != _STANDARD:
        raise BuildError(f"a line table of DWARF {version}, where {_STANDARD} was asked for; build it with gcc")
    step, _, _, base, span, first = struct.unpack_from("<BBBbBB", data, at + 10)
    lengths = data[at + 16 : at + 15 + first]
    folders, place = [""], at + 15 + first
    while data[place]:
        folders.append(_text(data, place))
        place = data.index(b"\0", place) + 1
    files, place = [""], place + 1
    while data[place]:
        name = _text(data, place)
        folder, place = _leb(data, data.index(b"\0", place) + 1)
        for _ in range(2):
            _, place = _leb(data, place)
        files.append(f"{folders[folder]}/{name}" if folder and not name.startswith("/") else name)
    rows.extend(_rows(data, program, end, _Head(step, base, span, first, lengths, files)))
    return end


def _rows(data: bytes, at: int, end: int, head: _Head) -> Iterator[Row]:
    """Run the program of a unit."""
    address, file, line = 0, 1, 1
    while at < end:
        code, at = data[at], at + 1
        if code >= head.first:
            address += (code - head.first) // head.span * head.step
            line += head.base + (code - head.first) % head.span
            yield Row(address, head.files[file], line)
        elif code == 0:
            size, at = _leb(data, at)
            if data[at] == 1:
                yield Row(address, head.files[file], line, ends=True)
                address, file, line = 0, 1, 1
            elif data[at] == 2:
                (address,) = struct.unpack_from("<Q", data, at + 1)
            at += size
        elif code == 1:
            yield Row(address, head.files[file], line)
        elif code == 2:
            step, at = _leb(data, at)
            address += step * head.step
        elif code == 3:
            step, at = _leb(data, at, signed=True)
            line += step
        elif code == 4:
            file, at = _leb(data, at)
        elif code == 8:
            address += (255 - head.first) // head.span * head.step
        elif code == 9:
            address, at = address + struct.unpack_from("<H", data, at)[0], at + 2
        else:
            for _ in range(head.lengths[code - 1]):
                _, at = _leb(data, at)
