"""The functions that a job passes: `python -m tests.walks NAME ARGUMENT FILE` writes them in order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import noyau
from noyau.jobs import cli

PACKAGES = {"op": (), "optimize": ("onnx", "onnxruntime"), "check": ("torch", "numba")}
PACKAGE = f"{Path(noyau.__file__).parent}/"


def softmax(x):
    powers = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return powers / np.sum(powers, axis=-1, keepdims=True)


def call_of(name: str, argument: str) -> Callable[[], Any]:
    """The job of a walk: what it is called with stands in `argument`."""
    if name == "op":
        op = noyau.op("f32[*batch, n] -> f32[*batch, n]")(softmax)
        return lambda: op(np.ones((8, 100), np.float32))
    commands = {"optimize": ["optimize", argument, "--keep", "all"], "check": ["check", argument]}
    return lambda: cli.main(commands[name])


def main() -> None:
    passed: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed.append(f"{frame.f_code.co_filename.removeprefix(PACKAGE)} {frame.f_code.co_name}")

    job = call_of(*sys.argv[1:3])
    for package in PACKAGES[sys.argv[1]]:
        import_module(package)  # functions of packages are counted too, and an import calls thousands
    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    Path(sys.argv[3]).write_text("\n".join(passed), encoding="utf-8")


if __name__ == "__main__":
    main()
