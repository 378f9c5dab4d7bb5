"""compute-sanitizer, found and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from noyau.errors import DeviceError
from noyau.sanitizing.reading import Reported, reported

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TIME_S = 240.0  # of one run under one tool
_LIMIT = 40  # records that a run writes at most: the first of a kind say what it is
_HOMES = ("/usr/local/cuda/bin", "/opt/cuda/bin")


def found_tool(name: str = "compute-sanitizer") -> str | None:
    """The path of a program of the CUDA toolkit, None where it is not installed."""
    homes = [f"{os.environ[each]}/bin" for each in ("CUDA_HOME", "CUDA_PATH") if each in os.environ]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *homes, *_HOMES]))


def missing() -> str:
    """Why there is no second opinion here, in one line; nothing where there is."""
    if found_tool() is None:
        return "compute-sanitizer is not installed; it comes with NVIDIA's CUDA toolkit, and needs a GPU"
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return "compute-sanitizer needs a GPU of NVIDIA, and there is none here"
    return ""


def sanitized(
    command: Sequence[str], environment: Mapping[str, str] | None = None, tools: Sequence[str] = TOOLS
) -> list[Reported]:
    """What the tools report of a command, each in a run of its own. DeviceError where one cannot look at it."""
    program = found_tool()
    if program is None:
        raise DeviceError(missing())
    found: list[Reported] = []
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        for tool in tools:
            record = Path(folder) / f"{tool}.xml"
            own = (program, "--tool", tool, "--xml", "--save", str(record), "--print-limit", str(_LIMIT))
            told = _run([*own, *command], {**os.environ, **(environment or {})})
            if not record.exists():
                raise DeviceError(f"compute-sanitizer {tool} did not look at the program: {told}")
            found += reported(record.read_text(encoding="utf-8", errors="replace"), tool)
    return found


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The end of what it printed. DeviceError where it does not end."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=TIME_S, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"compute-sanitizer did not end within {TIME_S:g} s; check smaller inputs") from None
    printed = (done.stdout + done.stderr).decode("utf-8", "replace").split()
    return " ".join(printed)[-300:]
