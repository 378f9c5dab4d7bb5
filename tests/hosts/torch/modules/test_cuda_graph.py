"""When a function of a GPU is recorded and used again; what is recorded here is a list, and no GPU is needed."""

from __future__ import annotations

import functools
import gc
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from noyau.hosts.torch.modules import cuda_graph
from noyau.hosts.torch.modules.cuda_graph import (
    MOST_COPIED,
    MOST_TRIES,
    PAUSE,
    WARM,
    GraphRecording,
    GraphReplay,
    capture_body,
    is_repeatable,
    is_small,
    lies_at,
    room_of,
    tensors_in,
)

WEIGHT, CACHE = torch.full((3,), 2.0), torch.zeros(3)


class Graph:
    """What a CUDA graph would do again: the function on what it was recorded with."""

    def __init__(self, known, given):
        self.known, self.given, self.replays, self.resets = known, given, 0, 0

    def reset(self):
        self.resets += 1

    def replay(self):
        self.replays += 1
        self.results[0].copy_(self.known(list(self.given))[0])


def known(arguments):
    x, weight, cache = arguments
    arguments.clear()
    cache.add_(1)
    return (x * weight + cache,)


@pytest.fixture
def recorded(monkeypatch):
    """The recordings that were made."""
    found = []

    def recording(known, arguments, moving, fixed, copied):
        rooms = {at: arguments[at].clone() for at in moving}
        graph = Graph(known, [rooms.get(at, each) for at, each in enumerate(arguments)])
        made = GraphRecording(graph, rooms, fixed, sorted([*moving, *fixed]))
        made.results = graph.results = (torch.empty(3),)
        made.lend(graph.given, frozenset({0}))
        found.append((moving, graph))
        return made

    class Clock(cuda_graph.LaunchClock):
        def time(self, known, arguments):
            return known(arguments)

        def is_decided(self):
            return True

        def spans_s(self):
            return [0.0]

    monkeypatch.setattr(cuda_graph, "record_graph", recording)
    monkeypatch.setattr(cuda_graph, "LaunchClock", Clock)
    monkeypatch.setattr(cuda_graph, "is_capturing", lambda: False)
    monkeypatch.setattr(cuda_graph, "stream_now", lambda: (0, 7))
    return found


def calls(run, rooms, count):
    """Results of calls whose tokens lie in turn in these rooms, and what they must be."""
    cache = CACHE.clone()
    for number in range(count):
        x = rooms[number % len(rooms)].fill_(number)
        (made,) = run([x, WEIGHT, cache])
        assert made.tolist() == [2.0 * number + number + 1] * 3


def test_what_lies_still_is_read_there_and_tokens_are_copied(recorded):
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    rooms = [torch.empty(3) for _ in range(2)]
    calls(run, rooms, 9)
    ((moving, graph),) = recorded
    assert moving == [0]
    assert graph.replays == 9 - WARM


def test_results_are_not_overwritten_by_the_next_call(recorded):
    run, cache = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2})), CACHE.clone()
    made = [run([WEIGHT, WEIGHT, cache])[0] for _ in range(7)]
    assert recorded
    assert [each[0].item() for each in made] == [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]


def test_a_cache_that_lies_elsewhere_each_time_is_never_copied(recorded):
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    kept = [torch.zeros(3) for _ in range(3 * MOST_TRIES)]
    for cache in kept:
        assert run([WEIGHT, WEIGHT, cache])[0].tolist() == [5.0] * 3
    assert not recorded
    assert run.is_over


def test_what_goes_wrong_is_launched_as_before(recorded, monkeypatch):
    def recording(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(cuda_graph, "record_graph", recording)
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    calls(run, [torch.empty(3)], 9)
    assert run.is_over


@pytest.mark.parametrize("kind", [tuple, list])
def test_results_of_a_file_are_a_list(kind, recorded):
    x = torch.ones(3)
    assert tensors_in(kind([x, None])) == [x]
    made = GraphRecording(Graph(lambda given: given, [x]), {}, {}, [])
    made.graph.results, made.results = (torch.empty(3),), kind([x, None])
    assert made.again([])[1] is None


@pytest.fixture
def lent(monkeypatch, recorded):
    """A function whose recordings are real but for the GPU: results that lie in the recording, two of them in one
    memory, one that is an argument, and one that is none."""

    def known(arguments):
        (x,) = arguments
        arguments.clear()
        double = x * 2
        return (double, x[1:], None, x.sum(), double[1:])

    class Replays(Graph):
        def replay(self):
            self.replays += 1
            for each, fresh in zip(self.results, self.known(list(self.given)), strict=True):
                if each is not None:
                    each.copy_(fresh)

    def recording(known, arguments, moving, fixed, copied):
        graph = Replays(known, list(arguments))
        made = GraphRecording(graph, {}, fixed, sorted([*moving, *fixed]))
        graph.results = made.results = known(list(arguments))
        made.lend(arguments, copied)
        return made

    monkeypatch.setattr(cuda_graph, "record_graph", recording)
    return GraphReplay(known, [CACHE])


def test_what_is_lent_is_used_again_when_nobody_holds_it(lent):
    run, x = lent, torch.arange(3.0)
    for _ in range(WARM):
        run([x])
    double, rest, none, *others = run([x])
    others.clear()
    assert none is None and rest.data_ptr() == x[1:].data_ptr()
    lies, replays = double.data_ptr(), run.recorded.graph.replays
    x.fill_(5)
    assert run([x])[0].tolist() == [10.0] * 3 and double.tolist() == [0.0, 2.0, 4.0]  # held: launched as before
    assert run.recorded.graph.replays == replays
    view = double[1:]
    del double
    assert run([x])[0].data_ptr() != lies
    del view
    assert run([x])[0].data_ptr() == lies and run.recorded.graph.replays == replays + 1


def test_what_is_held_in_every_call_is_copied_and_the_rest_stays_lent(lent):
    run, x = lent, torch.arange(3.0)
    kept = [run([x.fill_(number)])[3] for number in range(WARM + cuda_graph.MOST_MISSED + 9)]  # as losses are
    assert [each.item() for each in kept] == [3.0 * number for number in range(len(kept))]
    assert not run.is_over and run.copied == {2} and len(run.recorded.lent) == 1
    assert run.recorded.graph.replays == 7


def test_what_forward_saves_at_new_addresses_until_it_is_recorded_is_not_copied(recorded):
    cache, saved = CACHE.clone(), [torch.full((3,), 1.0 + number) for number in range(WARM + 2)]
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}), warm=2 * WARM)
    for number in range(2 * WARM + 3):
        at = min(number, WARM + 1)
        assert run([saved[at], WEIGHT, cache])[0][0].item() == 2.0 * (1 + at) + number + 1
    ((moving, _),) = recorded
    assert moving == []


def test_results_that_share_memory_share_it_in_their_copies(lent):
    run, x = lent, torch.arange(3.0)
    for number in range(WARM + 2 * cuda_graph.MOST_MISSED + 6):
        double, *_, part = run([x.fill_(number)])
    assert run.recorded.graph.replays and part.data_ptr() == double[1:].data_ptr()
    run([x.fill_(-1.0)])
    assert double.add_(1).tolist() == [2.0 * number + 1] * 3 and part.tolist() == [2.0 * number + 1] * 2


def test_large_results_that_are_held_end_the_recording(lent, monkeypatch):
    run, x = lent, torch.arange(3.0)
    monkeypatch.setattr(cuda_graph, "is_small", lambda results, own=(): not results)
    held = [run([x])[0] for _ in range(WARM + cuda_graph.MOST_MISSED + 2)]
    assert run.is_over and held[WARM].tolist() == [0.0, 2.0, 4.0]


def test_a_few_results_are_copied_with_all_their_memory_and_many_large_ones_lent(monkeypatch):
    monkeypatch.setattr(cuda_graph, "SMALL", 64)
    few, large = [torch.empty(16) for _ in range(cuda_graph.FEW)], torch.empty(cuda_graph.MOST_GIVEN // 4 + 1)
    assert is_small([*few[1:], torch.empty(17)[:2]]) and is_small([torch.empty(1) for _ in range(16)])
    assert not is_small([*few, torch.empty(16)]) and not is_small((large[:2], large[2:3]))
    assert is_small([large[:2], torch.ones(1)], {large.data_ptr()})


def test_a_recording_that_is_dropped_is_taken_apart(recorded):
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    calls(run, [torch.empty(3)], 9)
    ((_, graph),) = recorded
    run.drop("it is tried")
    assert graph.resets == 1 and run.recorded is None


def test_nothing_is_recorded_where_the_gpu_takes_longer_or_a_capture_runs(recorded, monkeypatch):
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    monkeypatch.setattr(cuda_graph, "is_capturing", lambda: True)
    calls(run, [torch.empty(3)], 9)
    assert not run.calls
    monkeypatch.setattr(cuda_graph, "is_capturing", lambda: False)
    run.clock.spans_s, run.clock.host_s = lambda: [0.003, 0.004], 0.001
    calls(run, [torch.empty(3)], WARM + 1 + PAUSE)
    assert not recorded
    calls(run, [torch.empty(3)], WARM + 1)  # others may have kept the GPU at work, which is looked at again
    assert len(recorded) == 1


def test_on_another_stream_it_is_launched(recorded, monkeypatch):
    run, cache = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2})), CACHE.clone()
    for _ in range(WARM + 1):
        run([WEIGHT, WEIGHT, cache])
    ((_, graph),) = recorded
    monkeypatch.setattr(cuda_graph, "stream_now", lambda: (0, 8))
    assert run.recorded is not None
    assert not run.recorded.fits([WEIGHT, WEIGHT, cache])
    assert graph.replays == 1


def test_a_parameter_that_lies_otherwise_from_the_same_place_on(recorded):
    square = torch.arange(9.0).reshape(3, 3)

    def known(arguments):
        (x,) = arguments
        return (x[0].clone(),)

    run = GraphReplay(known, [square], frozenset({0}))
    for _ in range(WARM + 1):
        run([square])
    assert run.recorded is not None
    assert run.recorded.fits([square])
    assert not run.recorded.fits([square.t()])


@pytest.mark.parametrize("kind", [torch.conj, lambda x: x[:, :1].expand(4, 3), lambda x: x[:, ::2]])
def test_copies_are_what_the_results_were(kind, recorded):
    x = torch.randn(4, 3, dtype=torch.complex64)
    made = GraphRecording(Graph(lambda given: (), []), {}, {}, [])
    made.results = made.graph.results = (kind(x), x)
    made.graph.replay = lambda: None
    made.lend([], frozenset({0, 1}))
    for got, wanted in zip(made.again([]), made.results, strict=True):
        assert torch.equal(got, wanted) and got.stride() == wanted.stride() and got.is_conj() == wanted.is_conj()


def test_results_in_one_memory_of_two_dtypes_are_not_copied(recorded):
    x = torch.zeros(4)
    made = GraphRecording(Graph(lambda given: (), []), {}, {}, [])
    made.results = (x, x.view(torch.int32))
    with pytest.raises(RuntimeError, match="a result shares memory in another dtype"):
        made.lend([], frozenset({0, 1}))


class Mark:
    """An event of a GPU that has passed it, or has not."""

    def __init__(self, at_ms=0.0, is_past=True):
        self.at_ms, self.is_past = at_ms, is_past

    def query(self):
        return self.is_past

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


def test_what_takes_the_time_is_decided_by_two_calls_that_the_gpu_has_ended():
    clock = cuda_graph.LaunchClock()
    clock.host_s = 0.001
    clock.marks = [(Mark(), Mark(9.0)), (Mark(), Mark(is_past=False))]
    assert not clock.is_decided()
    assert not clock.waits_for_the_gpu()
    clock.marks[1] = Mark(), Mark(1.2)
    assert clock.is_decided()
    assert not clock.waits_for_the_gpu()
    clock.marks[1] = Mark(), Mark(8.0)
    assert clock.waits_for_the_gpu()


def test_nothing_is_recorded_until_that_is_decided(recorded):
    run = GraphReplay(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    run.clock.is_decided = lambda: False
    calls(run, [torch.empty(3)], 9)
    assert not recorded
    run.clock.is_decided = lambda: True
    calls(run, [torch.empty(3)], 2)
    assert not run.is_over


def test_rooms_lie_as_arguments_do():
    for x in (torch.arange(24).reshape(4, 6)[:, 2:3].t(), torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1)):
        room = room_of(x)
        assert room.stride() == x.stride()
        assert torch.equal(room, x)
    for wrong in (torch.zeros(3, 1).expand(3, 4), torch.zeros(9).as_strided((3, 3), (2, 1))):
        with pytest.raises(RuntimeError, match="overlap"):
            room_of(wrong)
    with pytest.raises(RuntimeError, match="far apart"):
        room_of(torch.zeros(2, MOST_COPIED)[:, :1])


def test_arguments_on_the_host_are_not_recorded(monkeypatch):
    monkeypatch.setattr(cuda_graph, "stream_now", lambda: (None, 7))
    with pytest.raises(RuntimeError, match="current GPU"):
        cuda_graph.record_graph(known, [WEIGHT], [], {0: lies_at(WEIGHT)}, [0])


def test_arguments_are_let_go_of_after_the_recording_is_launched(recorded):
    graph = Graph(known, [WEIGHT, WEIGHT, CACHE.clone()])
    made, given = GraphRecording(graph, {0: torch.empty(3)}, {}, [0]), [WEIGHT]
    made.results = graph.results = (torch.empty(3),)
    replay, seen = graph.replay, []
    graph.replay = lambda: seen.append(len(given)) or replay()
    made.again(given)
    assert seen == [1]
    assert given == []


def test_the_first_error_of_a_recording_is_told():
    class Broken:
        ended = 0

        def capture_begin(self, **_):
            pass

        def capture_end(self):
            self.ended += 1
            raise RuntimeError("capture was invalidated")

    def wrong(_):
        raise ValueError("the first")

    broken = Broken()
    with pytest.raises(ValueError, match="the first"):
        capture_body(broken, wrong, [])
    assert broken.ended == 1


def test_each_recording_has_its_own_memory_of_blas_and_all_one_stream(monkeypatch):
    seen, made = [], []

    class Stream:
        def __init__(self, device):
            made.append(device)

        def wait_stream(self, other):
            seen.append("wait")

    class Graph:
        def capture_begin(self, **_):
            seen.append("begin")

        def capture_end(self):
            seen.append("end")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream("current"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: seen.append("forget"), raising=False)
    monkeypatch.setattr(cuda_graph, "_side", functools.cache(lambda device: torch.cuda.Stream(device)))
    for _ in range(2):
        assert cuda_graph.capture_graph(Graph(), lambda _: gc.isenabled(), [], CACHE.device) is False
    assert seen == ["wait", "forget", "begin", "end", "forget", "wait"] * 2
    assert made.count(CACHE.device) == 1
    assert gc.isenabled()


aten = torch.ops.aten


@torch.library.custom_op("noyau_tests::stateful", mutates_args=())
def stateful(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def repeats(function, *devices, made="cuda"):
    """Whether a graph is repeatable that calls a function of arguments on these devices and makes tensors on one."""
    graph = torch.fx.symbolic_trace(function).graph
    with FakeTensorMode():
        for node in graph.nodes:
            device = devices[0] if node.op == "placeholder" else made
            devices = devices[1:] if node.op == "placeholder" else devices
            if node.op in ("placeholder", "call_function"):
                node.meta["val"] = device if device is None else torch.empty(2, device=device)
    return is_repeatable(graph)


def test_what_draws_numbers_is_not_repeated():
    def attends(q, dropout):
        return aten._scaled_dot_product_flash_attention.default(q, q, q, dropout)[0]

    assert repeats(lambda q: attends(q, 0.0), "cuda")
    assert not repeats(lambda q: attends(q, 0.5), "cuda")
    assert not repeats(lambda x: aten.rand_like.default(x), "cuda")


def test_what_is_not_on_one_gpu_is_not_repeated():
    def product(x, t):
        return aten.mul.Tensor(x, t)

    assert repeats(product, "cuda", "cuda")
    for wrong in (("cuda", "cpu"), ("cuda:0", "cuda:1"), ("cpu", "cpu"), ("cuda", None)):
        assert not repeats(product, *wrong, made=wrong[0])
    assert not repeats(lambda x: aten.exp.default(aten.exp.default(x)), "cuda", made="cpu")
    graph = torch.fx.symbolic_trace(Held()).graph
    for node in graph.nodes:
        if node.op == "placeholder":
            with FakeTensorMode():
                node.meta["val"] = torch.empty(2, device="cuda")
    assert not is_repeatable(graph)


class Held(torch.nn.Module):
    """A module with a number on the host."""

    def __init__(self):
        super().__init__()
        self.number = torch.ones(())

    def forward(self, x):
        return aten.mul.Tensor(x, self.number)


def test_what_may_keep_a_state_is_not_repeated():
    assert not repeats(lambda x: torch.ops.noyau_tests.stateful.default(x), "cuda")
    assert not repeats(lambda x: aten.as_strided.default(x, [2], [1], 1), "cuda")
    graph = torch.fx.symbolic_trace(lambda x: aten.exp.default(x)).graph
    for target in (torch.ops.higher_order.cond, len):
        (node,) = (node for node in graph.nodes if node.op == "call_function")
        node.target = target
        for each in graph.nodes:
            with FakeTensorMode():
                each.meta["val"] = torch.empty(2, device="cuda")
        assert not is_repeatable(graph)


def test_where_dynamo_looks_at_strides_a_recording_asks_for_addresses_in_one_call(recorded, monkeypatch):
    def same(arguments, addresses, at):
        return all(arguments[each].data_ptr() == addresses[each] for each in at)

    monkeypatch.setattr(cuda_graph, "_SAME", same)
    square = torch.arange(9.0).reshape(3, 3)
    run = GraphReplay(lambda given: (given[1][0].clone(),), [square, square], is_guarded=True)
    for _ in range(WARM + 1):
        run([square.clone(), square])
    assert run.recorded is not None
    assert run.recorded.fits([square.clone(), square.t()], is_guarded=True)
    assert not run.recorded.fits([square, square.clone()], is_guarded=True)


@pytest.mark.parametrize("shows", [torch.conj, lambda x: torch._neg_view(x), lambda x: x.conj()[1:]])
def test_a_conjugate_of_an_argument_is_not_lent_as_the_argument(shows, recorded):
    x = torch.randn(3, dtype=torch.complex64)
    made = GraphRecording(Graph(lambda given: given, [x]), {}, {}, [])
    made.results = (shows(x),)
    with pytest.raises(RuntimeError, match="a result shares memory in another dtype, negated or conjugated"):
        made.lend([x])
