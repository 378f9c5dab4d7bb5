"""The tools as the official client sees them: one server process for all of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from mcp import Client, StdioServerParameters, stdio_client

import noyau
from tools.schemas import MODEL

COUNTER = """
import numpy as np
from numba import cuda

@cuda.jit
def counter(c):
    c[0] += 1

c = np.zeros(1, np.int32)
counter[1, 8](c)
"""
OP = """
import noyau

@noyau.op("f32[n] -> f32[n]")
def twice(x):
    return x + x
"""


async def call(client: Any, name: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer of a tool."""
    return (await client.call_tool(name, arguments)).structured_content


async def mended(client: Any, script: Path) -> int:
    """Follow the answers of `check` alone: put each finding's change in the place of its line, until nothing is found;
    how many changes that took."""
    for changes in range(5):
        answer = await call(client, "check", target=str(script))
        if answer["exit_status"] == 0:
            return changes
        assert answer["exit_status"] == 1, answer["error"]
        finding = next(each for each in answer["record"]["findings"] if each["change"])
        lines = Path(finding["file"]).read_text().splitlines()
        line = lines[finding["line"] - 1]
        lines[finding["line"] - 1] = line[: len(line) - len(line.lstrip())] + finding["change"]
        Path(finding["file"]).write_text("\n".join(lines) + "\n")
    raise AssertionError("not mended after five changes")


async def session(folder: Path) -> None:
    root = str(Path(noyau.__file__).parent.parent)
    server = StdioServerParameters(command=sys.executable, args=["-m", "noyau", "mcp"], env={"PYTHONPATH": root})
    async with Client(stdio_client(server)) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert sorted(tools) == ["bench", "check", "explain", "optimize", "show"]
        assert "remedy" in (client.instructions or "") and "FILE.py::OP" in tools["check"].description

        assert await mended(client, folder / "counter.py") == 1
        assert "atomic" in (folder / "counter.py").read_text()

        timed = await call(client, "bench", target=f"{folder / 'op.py'}::twice", sizes=["n=100"], budget_s=0.05)
        assert timed["exit_status"] == 0 and timed["meaning"] == "right"
        assert {each["name"] for each in timed["record"]["at"][0]["candidates"]} >= {"reference", "generated c"}

        shown = await call(client, "show", target=f"{folder / 'op.py'}::twice", language="c")
        assert "void" in shown["text"]
        wrong = await call(client, "explain", target="--help")
        assert wrong["exit_status"] == 2 and "--help" in wrong["error"]


def test_a_client_checks_mends_times_and_reads_kernels(tmp_path):
    (tmp_path / "counter.py").write_text(COUNTER)
    (tmp_path / "op.py").write_text(OP)
    asyncio.run(session(tmp_path))


def test_a_line_that_is_no_request_is_answered_and_the_next_one_is_served():
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    lines = [
        "{ no JSON",
        "",
        '["JSON", "and no request"]',
        json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": version}),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(noyau.__file__).parent.parent)}
    words = [sys.executable, "-m", "noyau", "mcp"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        process.stdin.write("\n".join([*lines, ""]))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        assert process.wait(60) == 0
    by_id = {each["id"]: each for each in answers}
    assert by_id[7]["result"]["serverInfo"]["name"] == "noyau"
    assert [each["error"]["code"] for each in answers if each["id"] is None] == [-32700, -32600]


async def fused(model: Path, output: Path) -> dict[str, Any]:
    root = str(Path(noyau.__file__).parent.parent)
    server = StdioServerParameters(command=sys.executable, args=["-m", "noyau", "mcp"], env={"PYTHONPATH": root})
    async with Client(stdio_client(server)) as client:
        return await call(client, "optimize", model=str(model), output=str(output), dims=["n=1000"], within_s=60)


@pytest.mark.long
def test_a_client_optimizes_a_model(tmp_path):
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "small.onnx")
    answer = asyncio.run(fused(tmp_path / "small.onnx", tmp_path / "out" / "fused.onnx"))
    assert answer["exit_status"] == 0 and answer["record"]["kernels"], answer
    assert (tmp_path / "out" / "fused.onnx").exists() and "The whole model: " in answer["text"]
