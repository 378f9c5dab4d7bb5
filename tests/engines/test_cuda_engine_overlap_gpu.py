"""noyau.overlap on a GPU: results in order, out=, the timeline; and noyau.split over all GPUs that there are."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import noyau
from noyau.engines.cuda_engine import PageableWarning
from noyau.errors import InputError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@noyau.op("f32[n] -> f32[n]")
def squares(x):
    return x * x


@noyau.op("f32[n, m] -> total: f32[m], high: f32")
def facts(x):
    return x.sum(axis=0), x.max()


@noyau.op("f32[n], f32 -> f32[n]")
def scaled(x, by):
    return np.tanh(x) * by


def pinned(count, n):
    return [torch.randn(n).pin_memory() for _ in range(count)]


def test_chunks_come_back_in_order_and_the_trace_has_each_stage(tmp_path, recwarn):
    chunks = pinned(7, 100_003)
    for chunk, result in zip(chunks, noyau.overlap(squares, chunks, trace=tmp_path / "t.json"), strict=True):
        assert torch.equal(result, chunk * chunk)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert len(events) == 21
    assert {each["tid"] for each in events} == {"stream 0", "stream 1", "stream 2"}
    assert not [each for each in recwarn if each.category is PageableWarning]


def test_arrays_and_numbers_of_pageable_memory_warn_once():
    chunks = [(np.full(1000, k, np.float32), 2.0) for k in range(5)]
    with pytest.warns(PageableWarning, match="scaled: chunk 0 is pageable memory") as seen:
        results = list(noyau.overlap(scaled, chunks))
    assert len(seen) == 1
    assert all(isinstance(each, np.ndarray) for each in results)
    assert np.allclose([each[0] for each in results], 2 * np.tanh(np.arange(5.0)), rtol=1e-6)


def test_out_is_filled_and_refused_where_it_does_not_fit():
    chunks, out = pinned(4, 1000), torch.empty(4000, pin_memory=True)
    assert noyau.overlap(squares, chunks, out=out) is out
    assert torch.equal(out, torch.cat(chunks) ** 2)
    with pytest.raises(InputError, match=r"out= has float64\[1000\] for rows 0 on, and a result is float32\[1000\]"):
        noyau.overlap(squares, chunks, out=torch.empty(4000, dtype=torch.float64))


def test_a_split_op_gives_what_one_gpu_does():
    count = torch.cuda.device_count()
    x, y = torch.randn(10_001, 33, device="cuda"), torch.randn(100_001, device="cuda")
    shards = [[piece.to(f"cuda:{at}") for at, piece in enumerate(each.tensor_split(count))] for each in (x, y)]
    total, high = noyau.split(facts)(shards[0])
    torch.testing.assert_close(total, x.sum(0), rtol=1e-4, atol=1e-3)
    assert high == x.max()
    results = noyau.split(scaled)(shards[1], 2.0)
    assert [each.device.index for each in results] == list(range(count))
    assert torch.equal(torch.cat([each.cuda() for each in results]), scaled(y, 2.0))
    with pytest.raises(InputError, match="the shards of x lie on cpu, and the op runs on cuda:0"):
        noyau.split(scaled, ["cuda:0"])([y.cpu()], 2.0)
