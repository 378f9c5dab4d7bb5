"""Lines and objects of programs, read without tools."""

from __future__ import annotations

import re
import struct
import subprocess
import sys

import pytest
from elftools.elf.elffile import ELFFile

from noyau.errors import BuildError, MissingExtraError
from noyau.sanitizer.c.debug_info import LineRow, LineTable, lines_of, objects_of
from noyau.toolchain.c import compiler as c_compiler

TEXT = """static int hidden[5];
int shown[3];
__thread char own[7];
int f(int i)
{
    shown[1] = i;

    return hidden[i] + own[2];
}
int main(void) { return f(1); }
"""


@pytest.fixture(scope="module", params=[2, 3, 4, 5])
def program(request):
    made = c_compiler.compile_object(
        TEXT, c_compiler.CompilerOptions(compiler="gcc", extra=("-O0", "-g", f"-gdwarf-{request.param}"))
    )
    return c_compiler.program([made], ["-no-pie"], c_compiler.CompilerOptions(compiler="gcc"))


def test_objects_are_found_with_their_sizes(program):
    held = {each.name: each for each in objects_of(program)}
    assert (held["hidden"].size, held["hidden"].is_local, held["hidden"].is_tls) == (20, True, False)
    assert (held["shown"].size, held["shown"].is_local) == (12, False)
    assert (held["own"].size, held["own"].is_tls) == (7, True)


def test_the_lines_of_addresses_are_those_of_a_tool(program):
    lines = lines_of(program, "kernel.c")
    assert {row.line for row in lines.rows if not row.ends} >= {5, 6, 8, 9, 10}
    told = subprocess.run(
        ["objdump", "-dl", "--no-show-raw-insn", program], capture_output=True, text=True, check=False
    )
    if told.returncode:
        pytest.skip("objdump is not there to compare with")
    line, seen = 0, 0
    for each in told.stdout.splitlines():
        mark, code = re.match(r".*kernel\.c:(\d+)", each), re.match(r"\s+([0-9a-f]+):\t", each)
        line = int(mark[1]) if mark else 0 if re.match(r"[0-9a-f]+ <", each) else line
        if code and line:
            assert lines.at(int(code[1], 16) + 1) == ("kernel.c", line)
            seen += 1
    assert seen > 10


def test_code_from_a_file_of_the_system_is_of_the_line_that_asked_for_it():
    rows = (
        LineRow(10, "kernel.c", 3),
        LineRow(20, "/usr/include/vector", 90),
        LineRow(30, "kernel.c", 4),
        LineRow(40, "", 0, True),
    )
    lines = LineTable(rows, "kernel.c")
    assert [lines.at(address) for address in (5, 11, 25, 35, 45)] == [
        ("", 0),
        ("kernel.c", 3),
        ("kernel.c", 3),
        ("kernel.c", 4),
        ("", 0),
    ]


def test_what_is_no_program_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"MZ" + bytes(100))
    with pytest.raises(BuildError, match="64-bit ELF"):
        objects_of(path)


def test_a_program_without_lines_is_refused(program, tmp_path):
    bare = tmp_path / "bare"
    bare.write_bytes(program.read_bytes().replace(b".debug_line\0", b".nothing_at\0"))
    with pytest.raises(BuildError, match="says nothing of its lines"):
        lines_of(bare, "kernel.c")


def test_lines_that_cannot_be_read_are_refused(program, tmp_path):
    data = program.read_bytes()
    with program.open("rb") as file:
        start = ELFFile(file).get_section_by_name(".debug_info")["sh_offset"]
    odd = tmp_path / "odd"
    odd.write_bytes(data[: start + 4] + struct.pack("<H", 9) + data[start + 6 :])
    with pytest.raises(BuildError, match=r"odd has debug information that pyelftools does not read .*gcc"):
        lines_of(odd, "kernel.c")


def test_a_program_is_of_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'noyau-kernels\[check-c\]'"):
        lines_of(tmp_path / "program", "kernel.c")
