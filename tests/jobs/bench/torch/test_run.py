"""noyau.bench and noyau.tune on a GPU: pytest -m gpu."""

from __future__ import annotations

import pytest
import torch

import noyau
from noyau.jobs.bench.record import COLD, HOT

pytestmark = pytest.mark.gpu
CELLS = 1 << 20


@noyau.op("float[n], float[n] -> float[n]")
def added(x, y):
    return x + y


def vectors():
    return tuple(torch.randn(CELLS, device="cuda") for _ in range(2))


def rows_of(found):
    return {row.name: row for row in found.at[0].rows}


def test_kernels_and_peers_are_timed_hot_and_cold():
    found = noyau.bench(added, vectors(), peers={"torch": torch.add}, budget_s=0.2)
    rows, at = rows_of(found), found.at[0]
    assert rows["reference"].skipped
    assert rows["generated triton"].out == rows["torch"].out == ""
    assert set(at.races) == {HOT, COLD}
    assert all(at.time_s("torch", temperature=each) > 0 for each in (HOT, COLD))
    assert rows["torch"].verified >= 1
    assert 0 < rows["torch"].host_s < 1e-3
    assert at.floor_s > 0
    assert found.to_json()["gpu"]["empty_pair_s"] > 0
    assert "host" in str(found)


@pytest.mark.parametrize(
    ("cheat", "told"),
    [
        (lambda x, y: x, "is a view of an input|another|wrong"),
        (lambda x, y: (x.half() + y.half()).float(), "wrong at"),
        (lambda x, y: torch.zeros_like(x), "wrong at"),
        (lambda x, y: (x + y).cpu().numpy(), "returned ndarray"),
    ],
)
def test_what_cheats_is_told_and_not_ranked(cheat, told):
    import re

    found = noyau.bench({"add": torch.add, "cheat": cheat}, vectors(), budget_s=0.2)
    row = rows_of(found)["cheat"]
    assert re.search(told, row.fault)
    assert [each.name for each in found.at[0].ranked] == ["add"]


def test_a_search_is_told_with_its_reasons_and_recorded(empty_cache):
    x, y = vectors()
    found = noyau.tune(added, x, y, budget_s=0.5)
    named = [row for row in found.benched[0].at[0].rows if row.name.startswith("generated triton (")]
    assert len(named) > 2
    assert all("blocks a multiprocessor" in " ".join(row.notes) for row in named if not row.out)
    assert found.winners[0].kernel == "triton"
    assert "the fastest at" in str(added.explain(x, y))
    assert torch.equal(added(x, y), x + y)


def test_nothing_is_timed_during_capture():
    x, y = vectors()
    added(x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(noyau.errors.UnsupportedError, match="CUDA graph is being captured"):
        noyau.tune(added, x, y)
