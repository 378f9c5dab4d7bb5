"""The command `noyau mcp`: a server of the Model Context Protocol, whose tools are noyau's commands."""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from noyau.errors import dependency
from noyau.jobs.command_line import Command, require_limit
from noyau.version import __version__

_INSTRUCTIONS = """Write a kernel, check it, then time it. An op is a NumPy function under @noyau.op("f32[n] -> f32[n]")
in a file; a kernel is attached to it with @op.kernel or op.kernel("file.c"). check says what is wrong: each finding has
a file, a line, a remedy and, where it is certain, a change, the text that takes the line's place. Check again until
exit_status is 0; then bench, with save before a change and compare after it. explain says what is fused and why not."""
_MEANINGS = {0: "right", 1: "wrong, racy, or slower than asked", 2: "unusable arguments", 3: "not all was checked"}
_LONGEST, _MOST_NUMBERS = 20_000, 64
Reply = dict[str, Any]


class Tools:
    """The tools; each takes JSON and gives `exit_status`, its `meaning`, the command's `record` and `text`, `error`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    async def check(self, target: str, against: str = "", arguments: Sequence[str] = ()) -> Reply:
        """Check kernels against float64 and watch their accesses. target: FILE.py or FILE.py::OP (every kernel of the
        op), SCRIPT.py, BOOK.ipynb, PROGRAM.c, .cpp or .cu (as it is), MODEL.onnx (against another model). arguments:
        further options of `noyau check`, such as --gradient."""
        return await self._run("check", target, [*_options({"--against": against}), *arguments])

    async def bench(
        self, target: str, sizes: Sequence[str] = (), budget_s: float = 1.0, save: str = "", compare: str = ""
    ) -> Reply:
        """Time every kernel of an op, or functions (FILE.py::OP, FILE.py::f,g), side by side, verified. sizes:
        "n=1000,2000" or a sweep "n=1e3:1e6:log". save: keep it as a baseline of this name; compare: time what was
        saved beside what it is now, exit_status 1 where that is slower by more than 5 %."""
        each = [option for size in sizes for option in ("--sizes", size)]
        named = _options({"--save": save, "--compare": compare})
        return await self._run("bench", target, ["--budget", str(budget_s), *each, *named])

    async def optimize(self, model: str, output: str = "", dims: Sequence[str] = (), within_s: float = 0.0) -> Reply:
        """Fuse an ONNX model, certify and time each kernel, write the model and its library. dims: "sequence=128"."""
        options = _options({"-o": output, "--within": str(within_s or "")})
        return await self._run("optimize", model, [*options, *(each for dim in dims for each in ("--dim", dim))])

    async def explain(self, target: str) -> Reply:
        """Say what of MODEL.onnx, FILE.py::OP or FILE.py::MODULE is fused into which kernel, and why not more."""
        return await self._run("show", target, [])

    async def show(self, target: str, kernel: str = "", stage: str = "", language: str = "") -> Reply:
        """Print the generated source of an op or a model's kernel, or a stage of the compiler: graph, normal, loops,
        scheduled, text, all. language: c, numba, triton, cuda."""
        options = _options({"--kernel": kernel, "--stage": stage, "--language": language})
        return await self._run("show", target, options or ["--stage", "text"])

    async def _run(self, command: str, target: str, options: Sequence[str]) -> Reply:
        import asyncio

        with TemporaryDirectory(prefix="noyau-mcp-") as folder:
            record = Path(folder, "record.json")
            words = [sys.executable, "-m", "noyau", command, *options, "--json", str(record), "--", target]
            pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
            # Use a separate process: output of kernels stays out of the protocol, and a crash or hang is isolated.
            process = await asyncio.create_subprocess_exec(*words, stdin=none, stdout=pipe, stderr=pipe)
            try:
                out, err = await asyncio.wait_for(process.communicate(), self.limit_s)
            except TimeoutError:
                return {"exit_status": None, "meaning": "ended", "error": f"it took longer than {self.limit_s:g} s"}
            finally:  # a client that cancels its call ends the command too
                if process.returncode is None:
                    process.terminate()
            status, text = process.returncode or 0, out.decode("utf-8", "replace")[-_LONGEST:]
            last = (err.decode("utf-8", "replace").splitlines() or [""])[-1] if status not in (0, 1, 3) else ""
            data = json.loads(record.read_text("utf-8")) if record.exists() else None
        meaning = _MEANINGS.get(status, "crashed")
        return {"exit_status": status, "meaning": meaning, "record": _brief(data), "text": text, "error": last}


def _options(values: dict[str, str]) -> list[str]:
    return [word for option, value in values.items() if value for word in (option, value)]


def _brief(value: Any) -> Any:
    """A record with its long lists of numbers, such as samples, replaced by their lengths."""
    if isinstance(value, dict):
        return {name: _brief(each) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    is_long = len(value) > _MOST_NUMBERS and all(isinstance(each, int | float) for each in value)
    return {"numbers_left_out": len(value)} if is_long else [_brief(each) for each in value]


def server(limit_s: float) -> Any:
    """The server with its tools, whose calls may take `limit_s`. MissingExtraError without the package mcp."""
    with dependency("noyau mcp needs the package mcp, which", "noyau-kernels[mcp]"):
        from mcp.server import MCPServer
    tools, serving = Tools(limit_s), MCPServer("noyau", instructions=_INSTRUCTIONS, version=__version__)
    for tool in (tools.check, tools.bench, tools.optimize, tools.explain, tools.show):
        serving.add_tool(tool)
    return serving


class _Requests(io.RawIOBase):
    """Input stream of request lines. A line that is no JSON, or no JSON-RPC object, is answered here with an error: the
    package mcp ignores it, and a client would wait."""

    def __init__(self, lines: BinaryIO, answers: int) -> None:
        self.lines, self.answers, self.left = lines, answers, b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self.left and (line := self.lines.readline()):
            try:
                request = json.loads(line) if line.strip() else None
                is_known = isinstance(request, dict) and request.get("jsonrpc") == "2.0"
                error = None if is_known else {"code": -32600, "message": "it is no request of JSON-RPC 2.0"}
            except (ValueError, RecursionError) as fault:
                error = {"code": -32700, "message": f"the line is no JSON: {fault}"}
            self.left = line if error is None else b""
            if error is not None and line.strip():
                os.write(self.answers, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode() + b"\n")
        part, self.left = self.left[: len(into)], self.left[len(into) :]
        into[: len(part)] = part
        return len(part)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--time", type=float, default=600.0, metavar="S", help="seconds a call may take (default: 600)")


def _run(arguments: argparse.Namespace) -> int:
    require_limit("--time", arguments.time)
    serving, answers = server(arguments.time), os.dup(1)  # a copy, since the server redirects stdout
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_Requests(sys.stdin.buffer, answers)), "utf-8", "replace")
    serving.run("stdio")
    return 0


COMMAND = Command("tools for agents, over stdin and stdout (MCP)", _declare, _run)
