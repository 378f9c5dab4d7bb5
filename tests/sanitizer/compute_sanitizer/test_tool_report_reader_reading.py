"""Records that compute-sanitizer 2025.3 wrote on an H200, of a program with planted faults (host frames left out)."""

from __future__ import annotations

from pathlib import Path

import pytest

from noyau.errors import InputError
from noyau.sanitizer.compute_sanitizer.tool import in_files, read_reports

FOLDER = Path(__file__).parent / "recorded"


def of(name):
    return read_reports((FOLDER / f"{name}.xml").read_text(encoding="utf-8"), name.partition(".")[0])


@pytest.mark.parametrize(
    ("name", "kind", "line", "other", "owners"),
    [
        ("memcheck.outside", "out-of-bounds", 5, None, ("thread 36 of block 1",)),
        ("memcheck.outside_shared", "out-of-bounds", 13, None, ("thread 63 of block 0",)),
        ("memcheck.misaligned", "crash", 18, None, ("thread 0 of block 0",)),
        ("racecheck.raced", "race", 23, 24, ()),
        ("racecheck.raced_writes", "race", 28, 28, ()),
        ("initcheck.unset", "uninitialised", 33, None, ("thread 0 of block 0",)),
    ],
)
def test_a_record_is_one_finding_by_kind_and_line(name, kind, line, other, owners):
    (found,) = of(name)
    assert (found.kind, found.site.line, found.other and found.other.line, found.owners) == (kind, line, other, owners)
    made = found.finding("op", "kernel", "cuda", "kernel.cu:1", "n = 100")
    assert made.place == f"/somewhere/planted.cu:{line}"
    assert (made.severity, made.witnesses) == ("error", ("compute-sanitizer",))
    assert made.to_json()["witnesses"] == ["compute-sanitizer"]
    assert made.remedy


def test_what_is_said():
    (outside,) = of("memcheck.outside")
    told = outside.finding("op", "kernel", "cuda", "", "").message
    assert told == "thread 36 of block 1: invalid __global__ read of size 4 bytes is out of bounds (4 times)"
    (race,) = of("racecheck.raced")
    assert race.message == (
        "a thread writes shared memory which another reads on line 24, and no barrier lies between them"
    )
    assert race.count == 256
    assert of("racecheck.clean") == ()


API = """<ComputeSanitizerOutput><record><kind>Api</kind><what><api>cudaLaunchKernel</api>
<message>invalid configuration argument</message></what></record></ComputeSanitizerOutput>"""
ELSEWHERE = """<ComputeSanitizerOutput><record><kind>Precise</kind><who><threadIdx><x>1</x><y>2</y><z>0</z></threadIdx>
<blockIdx><x>0</x><y>0</y><z>3</z></blockIdx></who><what><text>Invalid __global__ write of size 4 bytes</text></what>
<where><func>add</func><path>/usr/lib/site-packages/torch/x.cu</path><line>7</line></where></record>
<record><kind>Leak</kind></record><record><kind>Precise</kind><what><text>Invalid read</text></what></record>
</ComputeSanitizerOutput>"""


def test_a_launch_that_fails_is_told_where_nothing_else_is():
    (found,) = read_reports(API, "memcheck")
    assert (found.kind, found.message) == ("launch", "cudaLaunchKernel failed: invalid configuration argument")
    assert found.finding("op", "kernel", "cuda", "kernel.cu:1", "").place == "kernel.cu:1"


def test_lines_of_installed_packages_are_left_out():
    found = read_reports(ELSEWHERE, "memcheck")
    assert [each.owners for each in found] == [("thread (1, 2) of block (0, 0, 3)",), ()]
    assert [each.message for each in in_files(found, [Path("/usr/lib/site-packages")])] == ["a thread: invalid read"]


def test_what_is_no_record():
    with pytest.raises(InputError, match=r"^the record of compute-sanitizer memcheck is not read: "):
        read_reports("<ComputeSanitizerOutput>", "memcheck")
