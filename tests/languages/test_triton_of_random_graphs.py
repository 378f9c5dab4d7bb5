"""Random graphs through language triton, in Triton's interpreter where there is no GPU: none comes out wrong."""

from __future__ import annotations

import pytest

from noyau.errors import UnsupportedError
from noyau.languages import triton
from noyau.schedules import grid_rows, grid_sums
from noyau.schedules.grid import on_gpu
from tests.trying import attempt

pytest.importorskip("noyau.builders.triton")

from noyau.runtimes.torch.triton_kernels import DeviceKernel

TILES = {"ROWS": 2, "BLOCK": 16, "DOWN": 4, "ACROSS": 8}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """So small that a few cells are several chunks, and rows of some cells are long."""
    monkeypatch.setattr(grid_rows, "KEPT", 4)
    monkeypatch.setattr(grid_sums, "CHUNK", 16)
    monkeypatch.setattr(grid_sums, "DEEP", 4)


def fault(seed: int) -> str | None:
    """What is wrong with the kernel of a seed, or None."""
    made = attempt(seed)
    if made is None:
        return None
    try:
        kernel = on_gpu(made.lowered)
        text = triton.source(kernel)
    except UnsupportedError:
        return None  # what has no strategy, or no spelling
    return made.wrong(kernel, DeviceKernel(text, kernel, tiles=TILES).call_guarded(*made.arrays(kernel)))


@pytest.mark.parametrize("seed", range(700, 716))
def test_graphs_of_seeds(seed):
    assert fault(seed) is None
