"""The tool is stood in for by a script that writes what the real one wrote."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from noyau.errors import DeviceError
from noyau.sanitizer.compute_sanitizer import tool
from noyau.sanitizer.compute_sanitizer.tool import missing, run_tools

FOLDER = Path(__file__).parent / "recorded"
SCRIPT = """#!/bin/sh
case "$2" in
    memcheck) cp {folder}/memcheck.outside.xml "$5";;
    racecheck) cp {folder}/racecheck.raced.xml "$5";;
    *) cp {folder}/racecheck.clean.xml "$5";;
esac
shift 7
exec "$@"
"""


@pytest.fixture
def standing_in(tmp_path, monkeypatch):
    made = tmp_path / "bin" / "compute-sanitizer"
    made.parent.mkdir()
    made.write_text(SCRIPT.format(folder=FOLDER))
    made.chmod(0o755)
    monkeypatch.setattr(tool, "find_tool", lambda name="compute-sanitizer": str(made))
    return made


def test_a_command_is_run_under_each_tool(standing_in, tmp_path):
    found = run_tools(["sh", "-c", f"echo $LANGUAGE_OF_IT >> {tmp_path}/runs"], {"LANGUAGE_OF_IT": "french"})
    assert [each.kind for each in found] == ["out-of-bounds", "race"]
    assert (tmp_path / "runs").read_text() == "french\n" * 4
    assert run_tools(["true"], tools=("initcheck",)) == []


def test_a_tool_that_does_not_look(standing_in, monkeypatch):
    standing_in.write_text("#!/bin/sh\necho Device not supported\n")
    with pytest.raises(DeviceError, match="memcheck did not look at the program: Device not supported"):
        run_tools(["true"])
    standing_in.write_text("#!/bin/sh\nexec sleep 9\n")
    monkeypatch.setattr(tool, "TIME_S", 0.1)
    with pytest.raises(DeviceError, match=r"did not end within 0\.1 s"):
        run_tools(["true"])


def test_a_program_that_fails_before_it_launches(standing_in):
    told = "under compute-sanitizer synccheck the program ended with status 3: no module of that name"
    with pytest.raises(DeviceError, match=f"^{told}$"):
        run_tools(["sh", "-c", "echo no module of that name >&2; exit 3"], tools=("synccheck",))
    with pytest.raises(DeviceError, match=r"with status 4: it printed nothing$"):
        run_tools(["sh", "-c", "exit 4"], tools=("synccheck",))
    assert [each.kind for each in run_tools(["sh", "-c", "exit 3"], tools=("memcheck",))] == ["out-of-bounds"]


def test_simulators_are_not_wished_for(standing_in, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    run_tools(["sh", "-c", f"echo $TRITON_INTERPRET$NUMBA_ENABLE_CUDASIM. > {tmp_path}/held"], tools=("memcheck",))
    assert (tmp_path / "held").read_text() == ".\n"


def test_what_a_tool_has_started_ends_with_it(standing_in, tmp_path, monkeypatch):
    standing_in.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/child\nwait\n")
    monkeypatch.setattr(tool, "TIME_S", 0.3)
    with pytest.raises(DeviceError, match="did not end"):
        run_tools(["true"])
    child, end_s = Path("/proc") / (tmp_path / "child").read_text().strip(), time.monotonic() + 5
    while is_running(child) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not is_running(child)


def is_running(process):
    """Whether it is there, and no zombie."""
    return process.exists() and " Z " not in (process / "stat").read_text()


def test_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(tool, "_HOMES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert missing() == "compute-sanitizer is not installed; it comes with NVIDIA's CUDA toolkit, and needs a GPU"
    with pytest.raises(DeviceError, match="compute-sanitizer is not installed"):
        run_tools(["true"])
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "compute-sanitizer")
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        assert missing() == "compute-sanitizer needs a GPU of NVIDIA, and there is none here"
