"""noyau.overlap and noyau.split without a GPU: one line each; and what is split over two devices, which the CPU is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.engines import cuda_engine
from noyau.engines.cuda_engine import DeviceFolds, SplitOp
from noyau.errors import DeviceError, InputError, SignatureError, UnsupportedError

TWICE = [torch.device("cpu")] * 2
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@noyau.op("f32[n], f32 -> f32[n]")
def scaled(x, by):
    return np.tanh(x) * by


@noyau.op("f32[n, m] -> total: f32[m], high: f32")
def facts(x):
    return x.sum(axis=0), x.max()


@noyau.op("f32[n] -> f32")
def mean(x):
    return x.mean()


@noyau.op("f32[n] -> f32")
def squared(x):
    return x.sum() / (x.shape[0] * x.shape[0])


@no_gpu
def test_without_a_gpu_one_line_says_so():
    with pytest.raises(DeviceError, match=r"^noyau.overlap copies to a GPU, and .*; call the op on each chunk$"):
        noyau.overlap(mean, [np.zeros(3, np.float32)])
    with pytest.raises(InputError, match=r"^mean cannot be split: "):
        noyau.split(mean)
    with pytest.raises(SignatureError, match=r"^mean: stream= is of a GPU, and no tensor lies on one; leave it out$"):
        mean(torch.zeros(3), stream=3)


def test_what_is_no_op_and_no_stream():
    with pytest.raises(SignatureError, match=r"^noyau.overlap takes an op, and this is of the type function$"):
        noyau.overlap(lambda x: x, [])
    with pytest.raises(InputError, match=r"^scaled: streams=0; 3 overlap"):
        noyau.overlap(scaled, [], streams=0)


def test_rows_of_each_device_and_folds_of_all():
    x, y = torch.randn(101, 7), torch.randn(1001)
    parts = SplitOp(scaled, TWICE)(list(y.tensor_split(2)), 2.0)
    torch.testing.assert_close(torch.cat(parts), scaled(y, 2.0))
    total, high = SplitOp(facts, TWICE)(list(x.tensor_split(2)))
    torch.testing.assert_close(total, x.sum(0))
    assert high == x.max()


def test_a_call_while_a_cuda_graph_is_captured(monkeypatch):
    monkeypatch.setattr(cuda_engine, "is_captured", lambda device: True)
    with pytest.raises(UnsupportedError, match="mean is split, and a CUDA graph that is captured has one device"):
        SplitOp(mean, TWICE)([torch.ones(3), torch.ones(3)])
    assert SplitOp(mean, TWICE[:1])([torch.ones(3)]) == 1


@pytest.mark.parametrize("replay", [None, sum])
def test_the_second_of_calls_that_are_alike_is_recorded_once(monkeypatch, replay):
    split_op, recorded = SplitOp(mean, TWICE), []
    split_op.read = lambda arguments: (len(arguments[0][0]), [3, 4])
    monkeypatch.setattr(DeviceFolds, "replay", lambda folds, shards: recorded.append(shards) or replay)
    x = [torch.ones(3), torch.ones(3)]
    assert split_op(x) == 1 and not recorded
    assert split_op(x) == 1 and len(recorded) == 1
    assert split_op(x) == (7 if replay else 1) and len(recorded) == 1
    assert split_op([torch.ones(2), torch.ones(2)]) == 1 and len(recorded) == 1


def test_what_cannot_be_split():
    with pytest.raises(
        UnsupportedError, match=r"squared is not split: the value .* asks for more of the rows than their"
    ):
        SplitOp(squared, TWICE)([torch.ones(3), torch.ones(3)])
    with pytest.raises(InputError, match="the shards of x lie on cpu, and the op runs on cpu, cpu"):
        SplitOp(scaled, TWICE)([torch.ones(3)], 2.0)
