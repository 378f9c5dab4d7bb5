"""Reductions over devices, with the CPU in their place: every fold that has a merge, and what a first device joins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.engines.cuda_engine import DeviceFolds, SplitOp
from noyau.ir.graph import Reduce


@noyau.op("f32[n, m] -> f32[m]")
def column_means(x):
    return x.mean(0)


@noyau.op("f32[n, m] -> f32")
def unbiased(x):
    return x.sum() / (x.size - 3)


@noyau.op("f32[n], f32[n], f32 -> f32")
def weighted(x, w, by):
    return (x * w).sum() * by / w.sum()


@noyau.op("f32[n, m] -> first: i64[m], low: i64, norm: f32")
def places(x):
    return x.argmax(0), x[:, 0].argmin(), np.sqrt((x * x).sum())


@noyau.op("i64[n] -> total: i64, product: i64, some: bool")
def integers(x):
    return x.sum(), x.prod(), (x > 2).any()


def shards_of(*arrays, count):
    return [list(torch.tensor(each).tensor_split(count)) if np.ndim(each) else each for each in arrays]


X = np.round(np.random.default_rng(0).normal(size=(101, 7)), 1).astype(np.float32)  # with ties
CASES = {
    column_means: (X,),
    unbiased: (X,),
    weighted: (X[:, 0], abs(X[:, 1]), 2.0),
    places: (X,),
    integers: (np.arange(1, 12),),
}


def are_near(got, want):
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (got, want)), strict=True)
    return all(np.allclose(one.numpy(), other, rtol=1e-5, atol=1e-6) for one, other in pairs)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_each_fold_is_that_of_one_device(op, count):
    got = SplitOp(op, [torch.device("cpu")] * count)(*shards_of(*CASES[op], count=count))
    assert are_near(got, op.reference(*CASES[op]))


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_one_graph_merges_what_devices_fold(op):
    split_op, shards = SplitOp(op, [torch.device("cpu")] * 3), shards_of(*CASES[op], count=3)
    split_op(*shards)
    (folds,) = split_op.plans.values()
    assert isinstance(folds, DeviceFolds) and len(folds.runs) == 4
    assert not any(isinstance(node.kind, Reduce) for node in folds.runs[-1].graph.nodes)


def test_a_name_of_an_input_that_a_part_would_have():
    @noyau.op("f32[n], f32 -> f32")
    def shifted(x, rows):
        return x.mean() + rows

    x = torch.arange(10.0)
    assert SplitOp(shifted, [torch.device("cpu")] * 2)(list(x.tensor_split(2)), 3.0) == 7.5
