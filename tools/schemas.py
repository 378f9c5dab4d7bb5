"""Write docs/schemas: a JSON Schema (draft 2020-12) of what each command writes with `--json`, from records of runs.

    python tools/schemas.py [COMMAND ...]

Each command runs on small examples. A key that every record has is required; further keys may come with a later noyau,
while `schema_version` stays: it grows when a key goes, or changes its meaning.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "schemas"
OPS = """
import numpy as np
import noyau

@noyau.op("f32[n] -> f32[n]")
def wave(x):
    return np.exp(x) + 1

@wave.kernel
def wrong(x, out):
    out[...] = np.exp(x) * FACTOR

@noyau.op("f32[n] -> f32")
def total(x):
    return x.sum()
"""
SCRIPT = """
import numpy as np
from numba import cuda

@cuda.jit
def counter(c):
    c[0] += 1

counter[1, 8](np.zeros(1, np.int32))
"""
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
small (float[n] x) => (float[n] y) { a = Exp(x) b = Sigmoid(a) c = Add(a, b) y = Tanh(c) }"""
# What stands in the table of a command: keys are names of a user's, or of this machine's, and not noyau's.
MAPS = {"sizes", "versions", "threads", "facts", "sources", "faults", "caches_bytes", "copy_bytes_per_s", "rates",
        "read_bytes_per_s", "values_per_s", "scaling", "sizes_by_name", "dims", "units"}  # fmt: skip
LONG = {"optimize", "profile", "machine", "stream", "extract"}  # commands that take seconds
_MODEL, _OTHER, _THIRD = "small.onnx", "other.onnx", "third.onnx"
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "bench": [
        ("ops.py::wave", "--sizes", "n=50", "--budget", "0.02", "--save", "main"),
        ("ops.py::wave", "--compare", "main", "--budget", "0.02"),
    ],
    "check": [
        ("ops.py", "--dim", "n=20"),
        ("counter.py",),
        (_MODEL, "--against", _OTHER),
        ("problem.py", "--solution", "new.py"),
    ],
    "diff": [(_MODEL, _OTHER), (_OTHER, _THIRD), (_MODEL, _MODEL)],
    "show": [("ops.py::wave",), ("ops.py::wave", "--stage", "text")],
    "doctor": [()],
    "cache": [()],
    "optimize": [(_MODEL, "--dim", "n=100", "--within", "20", "-o", "fused.onnx")],
    "profile": [(_MODEL, "--dim", "n=100"), ("work.py", "--no-native"), ("net.py::net",)],
    "machine": [("--device", "cpu")],
    "extract": [(_MODEL, "--between", "x:y", "--dim", "n=100")],
    "stream": [("ops.py::total", "numbers.npy", "--in-order")],
}


def run(command: str, words: tuple[str, ...], folder: Path) -> Any:
    """The record of one run. RuntimeError where there is none."""
    place = folder / "record.json"
    place.unlink(missing_ok=True)
    line = [sys.executable, "-m", "noyau", command, *words, "--json", str(place)]
    ended = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    if not place.exists():
        raise RuntimeError(f"{' '.join(line)}: {ended.stderr or ended.stdout}")
    return json.loads(place.read_text("utf-8"))


def records(command: str) -> list[Any]:
    """The records of a command's examples."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "ops.py").write_text(OPS.replace("FACTOR", "1"))
        (folder / "counter.py").write_text(SCRIPT)
        (folder / "work.py").write_text("print(1)\n")
        (folder / "net.py").write_text("import torch\nnet, inputs = torch.nn.GELU(), torch.ones(9)\n")
        (folder / "problem.py").write_text(PROBLEM)
        (folder / "new.py").write_text(PROBLEM.replace("Model(", "ModelNew("))
        np.save(folder / "numbers.npy", np.ones(1000, np.float32))
        last = {_MODEL: "Tanh", _OTHER: "LeakyRelu <alpha = 0.1>", _THIRD: "LeakyRelu <alpha = 0.2>"}
        for name, operator in last.items():
            text = MODEL.replace("Tanh", operator).replace("17", "17" if name == _MODEL else "18")
            onnx.save(onnx.parser.parse_model(text), folder / name)
        return [run(command, words, folder) for words in COMMANDS[command]]


def schema_of(values: list[Any], name: str = "") -> dict[str, Any]:
    """The schema that all of these values have."""
    kinds: dict[str, list[Any]] = {}
    for value in values:
        kinds.setdefault(_kind(value), []).append(value)
    if {"integer", "number"} <= kinds.keys():
        kinds["number"] += kinds.pop("integer")
    options = [_schema(kind, each, name) for kind, each in sorted(kinds.items())]
    return options[0] if len(options) == 1 else {"anyOf": options}


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _schema(kind: str, values: list[Any], name: str) -> dict[str, Any]:
    if kind == "array":
        inner = [each for value in values for each in value]
        return {"type": "array", "items": schema_of(inner)} if inner else {"type": "array"}
    if kind != "object":
        return {"type": "number" if kind == "integer" and name != "schema_version" else kind}
    keys = list(dict.fromkeys(key for value in values for key in value))
    if name in MAPS or (keys and all(key.isdecimal() for key in keys)):  # numbers of threads, of bytes
        inner = [each for value in values for each in value.values()]
        return {"type": "object", "additionalProperties": schema_of(inner) if inner else True}
    parts = {key: schema_of([value[key] for value in values if key in value], key) for key in keys}
    required = [key for key in keys if all(key in value for value in values)]
    return {"type": "object", "properties": parts, "required": required}


def loosened(schema: Any) -> Any:
    """The schema with null allowed wherever a number or a text was seen: what is not known is null."""
    if isinstance(schema, list):
        return [loosened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("number", "string", "null", "object") and "properties" not in schema:
        kinds = ["number", "string"] if schema["type"] == "null" else [schema["type"]]
        return {**{key: loosened(each) for key, each in schema.items()}, "type": [*kinds, "null"]}
    return {key: loosened(each) for key, each in schema.items()}


def written(command: str) -> dict[str, Any]:
    """The schema of a command, as its file has it."""
    found = records(command)
    shapes = {tuple(record): [] for record in found}
    for record in found:
        shapes[tuple(record)].append(record)
    schemas = [loosened(schema_of(each)) for each in shapes.values()]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"noyau {command} --json"}
    return {**head, **(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for command in sys.argv[1:] or COMMANDS:
        text = json.dumps(written(command), separators=(",", ":"))
        (FOLDER / f"{command}.json").write_text(text + "\n", "utf-8")
        print(f"{command}: {len(text)} bytes", flush=True)


if __name__ == "__main__":
    main()
