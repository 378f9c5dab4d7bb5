"""A program for `noyau check`: one of the Triton puzzles, `triton_puzzle.py FILE NUMBER`, where FILE has the solutions
and lies beside the modules that it imports. The launch and the comparison are made here: the puzzles' own put another
interpreter in the place of Triton's."""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton

_BLOCK = 32


def judge(
    kernel: Any, specification: Callable[..., Any], nelem: Mapping[str, int], B: Mapping[str, int] = {}, **rest: Any
) -> bool:
    """A kernel on tensors of the shapes of its specification, whose results it has to give."""
    extents = [name for name in ("N0", "N1", "N2") if name in nelem]
    blocks = {**{f"B{name[1]}": _BLOCK for name in extents}, **B}
    signature = inspect.signature(specification)
    torch.manual_seed(0)
    inputs = [_tensor(each.annotation) for each in signature.parameters.values()]
    result = torch.empty(*signature.return_annotation.dims, device="cuda")
    kernel[[triton.cdiv(nelem[name], blocks[f"B{name[1]}"]) for name in extents]](*inputs, result, **blocks, **nelem)
    torch.testing.assert_close(result, specification(*inputs), rtol=1e-3, atol=1e-3, check_device=False)
    return True


def _tensor(kind: Any) -> torch.Tensor:
    if kind.dtype == "int32":
        return torch.randint(-100_000, 100_000, kind.dims, dtype=torch.int32, device="cuda")
    return torch.rand(*kind.dims, device="cuda") - 0.5


if __name__ == "__main__":
    file, number = sys.argv[1:]
    sys.path.insert(0, str(Path(file).parent))
    sys.modules["test_puzzle"] = ModuleType("test_puzzle")
    sys.modules["test_puzzle"].test = judge  # type: ignore[attr-defined]
    runpy.run_path(file)["run_puzzles"](SimpleNamespace(log=False, device="cuda"), [int(number)])
