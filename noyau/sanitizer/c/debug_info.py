"""The line table and the objects of a program, from its ELF file and its DWARF."""

import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from noyau.errors import BuildError, dependency


@dataclass(frozen=True, slots=True)
class LineRow:
    """A row of the line table: the file and the line of the code from `address` on; `ends`: no code follows."""

    address: int
    file: str
    line: int
    ends: bool = False


@dataclass(frozen=True, slots=True)
class ProgramObject:
    """An object of a program: a global, a static, or with `is_tls` a thread-local variable."""

    name: str
    offset: int
    size: int
    is_tls: bool
    is_local: bool
    group: int  # the linked file of a local object
    gap: int = 0  # bytes behind it that belong to no object, 64 at most


@dataclass(frozen=True, slots=True)
class LineTable:
    """The line table of a program. `own`: the name of the user's text in it."""

    rows: Sequence[LineRow]
    own: str

    def at(self, address: int) -> tuple[str, int]:
        """Return the file and the line of a return address, ("", 0) without one.

        Code that was inlined from a system file gets the last line before it in the user's files."""
        before = bisect.bisect_left(self.rows, address, key=lambda row: row.address)
        for row in reversed(self.rows[:before]):
            if row.ends:
                break
            if not self.is_foreign(row.file) and row.line:
                return row.file, row.line
        return "", 0

    def is_foreign(self, file: str) -> bool:
        """Whether a file is not one of the user's."""
        return file != self.own and (file.startswith(("/usr/", "/opt/")) or "/sanitizer/c/include/" in file)


def lines_of(path: Path, own: str) -> LineTable:
    """Read the line table of a program. BuildError if it has no readable one."""
    with _elf(path) as elf:
        if not elf.get_section_by_name(".debug_line"):
            raise BuildError(f"{path.name} says nothing of its lines; build it with gcc")
        rows = [row for unit in elf.get_dwarf_info().iter_CUs() for row in _rows(unit)]
    return LineTable(tuple(sorted(rows, key=lambda row: (row.address, not row.ends))), own)


def objects_of(path: Path) -> list[ProgramObject]:
    """Read the objects of a program or of an object file."""
    objects, group = [], 0
    with _elf(path) as elf:
        table = elf.get_section_by_name(".symtab")
        for symbol in table.iter_symbols() if table else ():
            kind, is_local = symbol["st_info"]["type"], symbol["st_info"]["bind"] == "STB_LOCAL"
            if kind == "STT_FILE":
                group += 1
            elif kind in ("STT_OBJECT", "STT_TLS") and symbol["st_size"] and symbol["st_shndx"] != "SHN_UNDEF":
                place = symbol["st_value"], symbol["st_size"]
                objects.append(ProgramObject(symbol.name, *place, kind == "STT_TLS", is_local, group))
    following = dict(pairwise(sorted({each.offset for each in objects if not each.is_tls})))
    gaps = (following.get(each.offset, 0) - each.offset - each.size for each in objects)
    return [replace(each, gap=min(max(gap, 0), 64)) for each, gap in zip(objects, gaps, strict=True)]


@contextmanager
def _elf(path: Path) -> Iterator[Any]:
    """Open an ELF file. BuildError for another file, or for a part that cannot be read; MissingExtraError without
    pyelftools, which checks of other languages do not need."""
    with dependency("pyelftools", "noyau-kernels[check-c]"):
        from elftools.common.exceptions import DWARFError, ELFError, ELFParseError
        from elftools.elf.elffile import ELFFile
    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
        except ELFError:
            raise BuildError("programs are watched on Linux, where they are 64-bit ELF files") from None
        try:
            yield elf
        except (ELFError, ELFParseError, DWARFError, AssertionError, KeyError) as fault:
            reason = f"{path.name} has debug information that pyelftools does not read ({fault})"
            raise BuildError(f"{reason}; build it with gcc") from None


def _rows(unit: Any) -> Iterator[LineRow]:
    program = unit.dwarfinfo.line_program_for_CU(unit)
    if program is None:
        return
    names = _file_names(program.header)
    for state in (entry.state for entry in program.get_entries()):
        if state is not None:
            yield LineRow(state.address, names[state.file], state.line, state.end_sequence)


def _file_names(header: Any) -> list[str]:
    """Return the files of a line table, by number. Before DWARF 5 these count from 1; folder 0 is the build's."""
    folders = [folder.decode("utf-8", "replace") for folder in header["include_directory"]]
    is_5 = header["version"] >= 5
    names = [] if is_5 else [""]
    for entry in header["file_entry"]:
        name, number = entry.name.decode("utf-8", "replace"), entry["dir_index"]
        # A file in the folder of the build keeps the name that the compiler was given.
        folder = folders[number if is_5 else number - 1] if number else ""
        names.append(f"{folder}/{name}" if folder and not name.startswith("/") else name)
    return names
