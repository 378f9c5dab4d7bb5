"""What a shared library asks of the system's loader, read from its bytes. Support for tests."""

from __future__ import annotations

import struct
from pathlib import Path

LOADED, DYNAMIC = 1, 2  # kinds of segments
NEEDED, STRINGS, SEARCHED, SEARCHED_FIRST = 1, 5, 29, 15  # tags: DT_NEEDED, DT_STRTAB, DT_RUNPATH, DT_RPATH


def needs(library: Path) -> tuple[list[str], list[str]]:
    """The libraries that a 64-bit little-endian ELF file needs, and the folders in which it has them looked for."""
    content = library.read_bytes()
    assert content[:6] == b"\x7fELF\x02\x01"
    start, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    # type, flags, offset, virtual address, physical address, size in the file, in memory, alignment
    segments = [struct.unpack_from("<IIQQQQQQ", content, start + size * number) for number in range(count)]

    def in_file(address: int) -> int:
        kind, _, offset, begin, *_ = next(s for s in segments if s[0] == LOADED and s[3] <= address < s[3] + s[5])
        assert kind == LOADED
        return offset + address - begin

    table = next(segment for segment in segments if segment[0] == DYNAMIC)
    entries = list(struct.iter_unpack("<qQ", content[table[2] : table[2] + table[5]]))
    names = in_file(next(entry for tag, entry in entries if tag == STRINGS))

    def texts(*tags: int) -> list[str]:
        found = [content[names + entry :].split(b"\0", 1)[0] for tag, entry in entries if tag in tags]
        return [text.decode() for text in found]

    return texts(NEEDED), texts(SEARCHED, SEARCHED_FIRST)
