"""Launches whose programs are run as one: they give the same findings and the same cells as one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from noyau.sanitizer.access_map import TracingShadow
from noyau.sanitizer.triton.run import launch_watched, watch_call
from noyau.toolchain.triton import programs


@triton.jit
def rows(x, out, counts, n, COLS: tl.constexpr, SHIFT: tl.constexpr):
    row = tl.program_id(0)
    cells = tl.arange(0, COLS)
    block = tl.load(x + row * n + cells, mask=cells < n, other=0.0)
    if row % 3 == 0:
        block = block * 2
    for _ in range(row % 2):
        block += tl.sum(block, axis=0)
    pair = tl.trans(tl.reshape(block, (2, COLS // 2)))
    tl.atomic_add(counts, 1)
    tl.store(out + row * n + cells + SHIFT, tl.reshape(tl.trans(pair), (COLS,)), mask=cells < n)


@pytest.mark.parametrize("shift", [0, 1])
def test_the_same_as_one_by_one(monkeypatch, shift):
    results = []
    for width in (1, 31):
        monkeypatch.setattr(programs, "_BATCH", width)
        x = torch.arange(50 * 12, dtype=torch.float32).reshape(50, 12)
        out, counts = torch.zeros(50, 12), torch.zeros(1, dtype=torch.int32)
        watched = watch_call(rows, (x, out, counts, 12, 16, shift), (50,), "", "op")
        findings = [(each.kind, each.place, each.owners, each.message) for each in watched.findings]
        results.append((findings, watched.accesses, counts.item(), out.numpy().copy()))
    (findings, *numbers, cells), (batched, *batched_numbers, batched_cells) = results
    assert sorted(map(str, findings)) == sorted(map(str, batched)) if not shift else len(batched) == len(findings)
    assert bool(findings) == bool(shift)
    assert numbers == batched_numbers
    assert shift or np.array_equal(cells, batched_cells)


def test_the_writes_of_a_batch_are_on_the_map_of_the_launch():
    x, out, counts = torch.ones(64, 12), torch.zeros(64, 12), torch.zeros(1, dtype=torch.int32)
    traced = TracingShadow()
    launch = launch_watched(rows[(64,)], rows, (x, out, counts, 12, 16, 0), {}, shadow=traced)
    arrays = {each.name: each for each in launch.access_map("rows", traced).arrays}
    assert arrays["out"].owners == tuple(cell // 12 for cell in range(64 * 12))
    assert set(arrays["out"].others) == {0}
    assert arrays["counts"].others == (63,)
