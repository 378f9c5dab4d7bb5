"""compute-sanitizer, found and run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from noyau.errors import DeviceError
from noyau.sanitizer.compute_sanitizer.report_reader import ToolReport, read_reports

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TIME_S = 240.0  # of one run under one tool
_LIMIT = 40  # records that a run writes at most: the first of a kind say what it is
_SIMULATING = ("TRITON_INTERPRET", "NUMBA_ENABLE_CUDASIM")  # of the environment, with which nothing is launched
_HOMES = ("/usr/local/cuda/bin", "/opt/cuda/bin")


def find_tool(name: str = "compute-sanitizer") -> str | None:
    """The path of a program of the CUDA toolkit, None where it is not installed."""
    homes = [f"{os.environ[each]}/bin" for each in ("CUDA_HOME", "CUDA_PATH") if each in os.environ]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *homes, *_HOMES]))


def missing() -> str:
    """Why there is no second opinion here, in one line; nothing where there is."""
    if find_tool() is None:
        return "compute-sanitizer is not installed; it comes with NVIDIA's CUDA toolkit, and needs a GPU"
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return "compute-sanitizer needs a GPU of NVIDIA, and there is none here"
    return ""


def run_tools(
    command: Sequence[str], environment: Mapping[str, str] | None = None, tools: Sequence[str] = TOOLS
) -> list[ToolReport]:
    """Run a command under each tool and read the reports. DeviceError where a tool cannot look at it, or the command
    fails and none reports why."""
    program = find_tool()
    if program is None:
        raise DeviceError(missing())
    reports: list[ToolReport] = []
    plain = {name: value for name, value in os.environ.items() if name not in _SIMULATING}
    failed = ""
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        for tool in tools:
            record = Path(folder) / f"{tool}.xml"
            own = (program, "--tool", tool, "--xml", "--save", str(record), "--print-limit", str(_LIMIT))
            status, output = _run([*own, *command], {**plain, **(environment or {})})
            if not record.exists():
                end = " ".join(output.split())[-300:]
                raise DeviceError(f"compute-sanitizer {tool} did not look at the program: {end}")
            if status and not failed:
                failed = f"under compute-sanitizer {tool} the program ended with status {status}: {_last_line(output)}"
            reports += read_reports(record.read_text(encoding="utf-8", errors="replace"), tool)
    if failed and not reports:
        raise DeviceError(failed)
    return reports


def _last_line(printed: str) -> str:
    """The last line that the program printed, not the tool."""
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith("=========")]
    return lines[-1][-300:] if lines else "it printed nothing"


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Its status, and what it printed. DeviceError where it does not end; what it has started is ended with it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            printed = b"".join(process.communicate(timeout=TIME_S))
        except BaseException as fault:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(fault, subprocess.TimeoutExpired):
                raise DeviceError(f"compute-sanitizer did not end within {TIME_S:g} s; check smaller inputs") from None
            raise
    return process.returncode, printed.decode("utf-8", "replace")
