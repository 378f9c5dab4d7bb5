"""A program for `noyau check`: a tutorial of Triton of which what it times is left out, `PATH`. Where it calls its
kernels for their times alone, or on tensors that take an hour, its own tests are called on small ones."""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton

_ATTENTION = {"Z": 1, "H": 2, "HEAD_DIM": 64, "mode": "bwd", "provider": "triton-fp16", "warp_specialize": False}
# The tests of a tutorial, with their arguments.
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "06-fused-attention": [
        ("test_op", {**_ATTENTION, "N_CTX": 256, "causal": False}),
        ("test_op", {**_ATTENTION, "N_CTX": 128, "causal": True}),
    ],
    "08-grouped-gemm": [],
    "09-persistent-matmul": [
        ("validate", {"M": 32, "N": 32, "K": 32, "dtype": torch.float16}),
        ("validate", {"M": 256, "N": 384, "K": 128, "dtype": torch.float16}),
    ],
}


def main(path: Path) -> None:
    """Run it."""
    triton.testing.perf_report = lambda *_: lambda _: SimpleNamespace(run=lambda **_: None)
    calls = CALLS[path.stem]
    names = runpy.run_path(str(path), run_name="tutorial" if calls else "__main__")
    for name, arguments in calls:
        takes = inspect.signature(names[name]).parameters
        if "mode" in takes or arguments.get("causal", True):  # older ones have no gradient that is not causal
            names[name](**{key: arguments[key] for key in takes if key in arguments})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
