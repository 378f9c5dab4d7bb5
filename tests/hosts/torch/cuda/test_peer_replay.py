"""Recorded calls of several GPUs as one: on fakes the order of launches and waits, on GPUs results of many calls."""

from __future__ import annotations

import ctypes
import gc
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import noyau
from noyau.engines import cuda_engine
from noyau.engines.cuda_engine import SplitOp
from noyau.errors import UnsupportedError
from noyau.hosts.torch.cuda import peer_replay
from noyau.hosts.torch.cuda.launch import ReplayPlan
from noyau.hosts.torch.cuda.launch_records import CallRecord, LaunchRecord

HOME, OTHER = torch.device("cpu", 0), torch.device("cpu", 1)


class Lane:
    """A stream, a compiled kernel and its launcher: what was done on it stands in a log."""

    function, packed_metadata = 7, "packed"

    def __init__(self, log, name):
        self.log, self.name, self.cuda_stream = log, name, 11

    def run(self, *arguments):
        self.log.append((self.name, *arguments[9:]))

    def wait_event(self, event):
        self.log.append((f"{self.name} waits", event))

    def record_event(self, event):
        self.log.append((f"{self.name} records", event))

    def synchronize(self):
        self.log.append((f"{self.name} ends",))


def plan_of(lane, device, launches, inputs, results):
    """A call of `inputs` tensors and one allocation of 3 floats each launch, which take tensors at these places."""
    record = CallRecord([torch.ones(3)] * inputs, "f")
    record.allocations = [((3,), torch.float32)] * len(launches)
    record.launched = [
        LaunchRecord(lane, (1, 1, 1), (None,) * len(places), tuple(enumerate(places))) for places in launches
    ]
    record.results = results
    return ReplayPlan("f", device, record)


@pytest.fixture
def log():
    return []


@pytest.fixture
def lanes(log, monkeypatch):
    lanes, names = {HOME: Lane(log, "home"), OTHER: Lane(log, "other")}, itertools.count()
    monkeypatch.setattr(peer_replay, "current_device", lambda: 5)
    monkeypatch.setattr(peer_replay, "set_device", lambda index: log.append(("device", index)))
    monkeypatch.setattr(torch.cuda, "current_stream", lanes.__getitem__)
    monkeypatch.setattr(torch.cuda, "Event", lambda: next(names))
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda device, home: True)
    return lanes


FREE, END = 0, 1  # events, in the order in which they are made


def replay_of(lanes):
    """Two folds of one tensor, and a launch that merges them with a number that is kept."""
    folds = [(plan_of(lane, device, [(0, 1)], 1, (1,)), [at]) for at, (device, lane) in enumerate(lanes.items())]
    merge = plan_of(lanes[HOME], HOME, [(0, 1, 2, 3)], 3, (3,)), [(0, 0), (1, 0), torch.ones(3)]
    return peer_replay.PeerReplay([*folds, merge])


def test_only_the_merge_waits_for_the_other_gpu_which_waits_for_buffers(log, lanes):
    replay, (x, y), buffers = replay_of(lanes), (torch.ones(3), torch.ones(3)), []
    for turn in range(3 * peer_replay.SLOTS):
        log.clear()
        result = replay([x.data_ptr(), y.data_ptr()])
        launches = [each for each in log if each[0] in ("home", "other")]
        (_, its, left), (_, own, mine), (_, first, second, _, out) = launches
        assert (its, own, out) == (y.data_ptr(), x.data_ptr(), result.data_ptr())
        assert (first, second) == (mine, left)
        buffers.append((mine, left))
        slot = turn % peer_replay.SLOTS
        want = ["device 1", *([f"other waits {FREE}"] if slot == 0 else []), "other", f"other records {END}"]
        want += ["device 0", "home", "device 0", f"home waits {END}", "home"]
        want += [f"home records {FREE}"] if slot == peer_replay.SLOTS - 1 else []
        shown = [each[0] if each in launches else " ".join(map(str, each)) for each in log if each != ("home ends",)]
        assert shown == [*want, "device 5"]
    assert len(set(buffers)) == peer_replay.SLOTS and buffers[: peer_replay.SLOTS] == buffers[-peer_replay.SLOTS :]


def test_devices_on_one_stream_need_no_events(log, lanes):
    lanes[OTHER] = lanes[HOME]
    replay_of(lanes)([1, 2])
    assert {each[0] for each in log} == {"home", "device", "home ends"}


@pytest.mark.parametrize("error", [RuntimeError("bad"), KeyboardInterrupt()])
def test_half_a_call_is_waited_for_and_the_next_is_whole(log, lanes, monkeypatch, error):
    replay = replay_of(lanes)

    def fail(event):
        raise error

    monkeypatch.setattr(lanes[HOME], "wait_event", fail, raising=False)
    failing = replay_of(lanes)
    log.clear()
    with pytest.raises(type(error)):
        failing([1, 2])
    assert log[-4:] == [("home ends",), ("other ends",), ("home ends",), ("device", 5)]
    log.clear()
    replay([1, 2])
    assert [each[0] for each in log if each[0] in ("home", "other")] == ["other", "home", "home"]


def read(*arguments):
    return peer_replay.read_call([0, 0], arguments)


def test_calls_that_are_alike_have_one_key():
    x, y, z = torch.ones(2, 4), torch.zeros(3, 4), torch.ones(3, 4)
    known, addresses = read([x, y], 2.0)
    assert known is not None and known == read((x, z), 2.0)[0] and addresses[:2] == [x.data_ptr(), y.data_ptr()]
    others = [read([y, x], 2.0), read([x, y], 2), read([x, y], 3.0), read([x, y.double()], 2.0), read([x, y], True)]
    assert known not in [key for key, _ in others]
    assert read([x, y], 0.0)[0] != read([x, y], -0.0)[0]
    flat = torch.ones(9)
    assert read([x, flat[1:5]])[0] != read([x, flat[:4]])[0]  # another alignment


def test_calls_that_launches_alone_cannot_do():
    x = torch.ones(4)
    parameter, negated = torch.nn.Parameter(x), torch.tensor([1j]).conj().imag
    faults = [[x], [x, x, x], x, [x, 1.0], [x, parameter], [x, negated], [x, torch.ones(0)], np.ones(4), np.float32(2)]
    assert [read(each)[0] for each in faults] == [None] * len(faults)


def test_what_is_replayed(lanes, monkeypatch):
    plan = plan_of(lanes[OTHER], OTHER, [(0, 1)], 1, (1,))
    assert peer_replay.is_replayed(plan, HOME) and not peer_replay.is_replayed(None, HOME)
    twice = plan_of(lanes[OTHER], OTHER, [(0, 1)], 1, (1, 1))
    assert not peer_replay.is_replayed(twice, HOME)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda device, home: False)
    assert not peer_replay.is_replayed(plan, HOME) and peer_replay.is_replayed(plan, OTHER)
    monkeypatch.setattr(peer_replay, "MOST_BYTES", 11)
    assert not peer_replay.is_replayed(plan, OTHER)


@noyau.op("f32[n, m], f32 -> total: f32[m], mean: f32[m]")
def totals(x, by):
    return x.sum(0), x.mean(0) * by


@noyau.op("f32[n] -> f32")
def total(x):
    return x.sum()


@noyau.op("f32[n] -> i64")
def best(x):
    return x.argmax()


class HostKernel:
    """A graph on the CPU in the place of a compiled kernel, which takes addresses of inputs and results."""

    function, packed_metadata = 7, "packed"

    def __init__(self, run, tensors):
        self.graph_run = run
        self.ends = [*tensors, *self.results(tensors)]

    def results(self, tensors):
        results = self.graph_run(*tensors)
        return results if isinstance(results, tuple) else (results,)

    def run(self, *words):
        pairs, inputs = zip(words[9:], self.ends, strict=True), len(self.graph_run.graph.inputs)
        memory = [((ctypes.c_byte * each.nbytes).from_address(at), each) for at, each in pairs]
        tensors = [torch.frombuffer(cells, dtype=each.dtype).view(each.shape) for cells, each in memory]
        for to, result in zip(tensors[inputs:], self.results(tensors[:inputs]), strict=True):
            to.copy_(result)


def recorded(run, tensors):
    """A recorded call of a graph on the CPU."""
    kernel, inputs = HostKernel(run, tensors), len(tensors)
    record = CallRecord(tensors, "f")
    record.allocations = [(tuple(each.shape), each.dtype) for each in kernel.ends[inputs:]]
    places = tuple(enumerate(range(len(kernel.ends))))
    record.launched = [LaunchRecord(kernel, (1, 1, 1), (None,) * len(places), places)]
    record.results = tuple(range(inputs, len(kernel.ends)))
    return ReplayPlan("f", torch.device("cpu"), record)


@pytest.mark.parametrize(("op", "shape", "more"), [(totals, (11, 3), (2.0,)), (total, 11, ()), (best, 11, ())])
def test_a_replay_gives_the_results_of_the_tensors_of_each_call(lanes, monkeypatch, op, shape, more):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: lanes[HOME])
    monkeypatch.setattr(cuda_engine, "_record", recorded)
    split_op = SplitOp(op, [torch.device("cpu")] * 3)
    split_op.read = lambda arguments: peer_replay.read_call([0] * 3, arguments)
    for shards, want in cases(op, split_op.devices, shape, more):
        assert is_same(split_op(shards, *more), want)
    assert len(split_op.replays) == 1 and all(isinstance(e, peer_replay.PeerReplay) for e in split_op.replays.values())


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def gpus():
    """All GPUs; twice the one that there is."""
    places = [torch.device("cuda", at) for at in range(torch.cuda.device_count())]
    return places if len(places) > 1 else places * 2


def cases(op, devices, shape, more=(), count=10):
    """Shards of random arrays, and what one call of the copying way gives for each."""
    arrays = [np.random.default_rng(seed).integers(-99, 99, shape).astype(np.float32) for seed in range(count)]
    pieces = [np.array_split(each, len(devices)) for each in arrays]
    shards = [[torch.tensor(p).to(d) for p, d in zip(each, devices, strict=True)] for each in pieces]
    return [(each, op.reference(array, *more)) for each, array in zip(shards, arrays, strict=True)]


def is_same(got, want):
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (got, want)), strict=True)
    return all(np.allclose(one.cpu().numpy(), other, rtol=1e-6) for one, other in pairs)


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "shape", "more"), [(totals, (70_001, 3), (2.0,)), (total, 300_001, ()), (best, 999, ())]
)
def test_each_of_many_calls_in_a_row_has_its_own_results(op, shape, more):
    """Of whole numbers, so that a sum has the same bits in any order."""
    split_op = SplitOp(op, gpus())
    pairs = cases(op, split_op.devices, shape, more)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            results = [split_op(pairs[at % 10][0], *more) for at in range(200)]
            assert all(is_same(got, pairs[at % 10][1]) for at, got in enumerate(results))
    if op is total:
        kept = list(split_op.replays.values())
        assert len(kept) == 2 and all(isinstance(each, peer_replay.PeerReplay) for each in kept)


@gpu
@pytest.mark.gpu
def test_replays_have_the_bits_of_the_first_call():
    split_op, x = SplitOp(total, gpus()), [torch.randn(300_001, device=device) for device in gpus()]
    assert len({split_op(x).item() for _ in range(5)}) == 1
    assert any(split_op.replays.values())


@gpu
@pytest.mark.gpu
def test_calls_of_threads_on_streams_of_their_own_and_on_one():
    split_op = SplitOp(total, gpus())
    pairs = cases(total, split_op.devices, 300_001)
    torch.cuda.synchronize()

    def call(own):
        with torch.cuda.stream(torch.cuda.Stream() if own else None):
            results = [split_op(pairs[at % 10][0]) for at in range(100)]
            return all(is_same(got, pairs[at % 10][1]) for at, got in enumerate(results))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, [True, True, False, False]))


@gpu
@pytest.mark.gpu
def test_inputs_that_are_freed_and_results_on_another_stream():
    split_op, devices, other = SplitOp(total, gpus()), gpus(), torch.cuda.Stream()
    sums = []
    for at in range(50):
        x = [torch.full((1_000_003,), float(at), device=device) for device in devices]
        result = split_op(x)
        del x
        [torch.full((1_000_003,), -1.0, device=device) for device in devices]  # in the memory that is free now
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            sums.append(result.item() / 1_000_003 / len(devices))
    assert sums == pytest.approx(list(range(50)), rel=1e-5)
    del split_op, result
    gc.collect()
    torch.cuda.synchronize()


@gpu
@pytest.mark.gpu
def test_devices_without_peer_access_copy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *devices: False)
    split_op = SplitOp(total, gpus())
    pairs = cases(total, split_op.devices, 5_001)
    assert all(is_same(split_op(shards), want) for shards, want in pairs)
    if torch.cuda.device_count() > 1:
        assert not any(split_op.replays.values())


@gpu
@pytest.mark.gpu
def test_a_cuda_graph_is_refused():
    split_op, x = SplitOp(total, gpus()), [torch.ones(99, device=device) for device in gpus()]
    for _ in range(3):
        split_op(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x[0] + 1
        with pytest.raises(UnsupportedError, match="total is split, and a CUDA graph"):
            split_op(x)
    assert split_op(x) == 99 * len(x)
