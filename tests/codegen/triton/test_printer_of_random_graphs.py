"""Random graphs through language triton, in Triton's interpreter where there is no GPU: none comes out wrong."""

from __future__ import annotations

import pytest

from noyau.codegen.triton import printer as triton_printer
from noyau.compiler.schedules.gpu import rows, strategies
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.errors import UnsupportedError
from noyau.hosts.torch.cuda.array_kernels import DeviceKernel
from tests.trying import attempt

TILES = {"ROWS": 2, "BLOCK": 16, "DOWN": 4, "ACROSS": 8}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """So small that a few cells are several chunks, and rows of some cells are long."""
    monkeypatch.setattr(rows, "KEPT", 4)
    monkeypatch.setattr(strategies, "CHUNK", 16)
    monkeypatch.setattr(strategies, "DEEP", 4)
    monkeypatch.setattr(strategies, "MANY", 8)
    monkeypatch.setattr(strategies, "HIGH", 2)


def fault(seed: int) -> str | None:
    """What is wrong with the kernel of a seed, or None."""
    made = attempt(seed)
    if made is None:
        return None
    try:
        kernel = on_gpu(made.lowered)
        text = triton_printer.together([kernel])
    except UnsupportedError:
        return None  # what has no strategy, or no spelling
    return made.wrong(kernel, DeviceKernel(text, kernel, tiles=TILES).call_guarded(*made.arrays(kernel)))


@pytest.mark.parametrize("seed", range(700, 716))
def test_graphs_of_seeds(seed):
    assert fault(seed) is None
