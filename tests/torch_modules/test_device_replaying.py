"""When a function of a GPU is recorded and used again; what is recorded here is a list, and no GPU is needed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from noyau.torch_modules import device_replaying  # noqa: E402
from noyau.torch_modules.device_replaying import (  # noqa: E402
    MOST_TRIES,
    WARM,
    Recorded,
    Replaying,
    is_repeatable,
    lies_at,
    require_apart,
)

WEIGHT, CACHE = torch.full((3,), 2.0), torch.zeros(3)


class Graph:
    """What a CUDA graph would do again: the function on what it was recorded with."""

    def __init__(self, known, given):
        self.known, self.given, self.replays = known, given, 0

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

    def recording(known, arguments, moving, fixed, places):
        rooms = {at: arguments[at].clone() for at in moving}
        graph = Graph(known, [rooms.get(at, each) for at, each in enumerate(arguments)])
        made = Recorded(graph, rooms, fixed, places)
        made.results = graph.results = (torch.empty(3),)
        found.append((moving, graph))
        return made

    class Clock(device_replaying.Clock):
        def timed(self, known, arguments):
            return known(arguments)

    monkeypatch.setattr(device_replaying, "recording", recording)
    monkeypatch.setattr(device_replaying, "Clock", Clock)
    monkeypatch.setattr(device_replaying, "is_capturing", lambda: False)
    monkeypatch.setattr(device_replaying, "stream_now", lambda: (0, 7))
    return found


def calls(run, rooms, count):
    """Results of calls whose tokens lie in turn in these rooms, and what they must be."""
    cache = CACHE.clone()
    for number in range(count):
        x = rooms[number % len(rooms)].fill_(number)
        (made,) = run([x, WEIGHT, cache])
        assert made.tolist() == [2.0 * number + number + 1] * 3


def test_what_lies_still_is_read_there_and_tokens_are_copied(recorded):
    run = Replaying(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    rooms = [torch.empty(3) for _ in range(2)]
    calls(run, rooms, 9)
    ((moving, graph),) = recorded
    assert moving == [0]
    assert graph.replays == 9 - WARM


def test_results_are_not_overwritten_by_the_next_call(recorded):
    run, cache = Replaying(known, [CACHE, WEIGHT, CACHE], frozenset({2})), CACHE.clone()
    made = [run([WEIGHT, WEIGHT, cache])[0] for _ in range(7)]
    assert recorded
    assert [each[0].item() for each in made] == [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]


def test_a_cache_that_lies_elsewhere_each_time_is_never_copied(recorded):
    run = Replaying(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    kept = [torch.zeros(3) for _ in range(3 * MOST_TRIES)]
    for cache in kept:
        assert run([WEIGHT, WEIGHT, cache])[0].tolist() == [5.0] * 3
    assert not recorded
    assert run.is_over


def test_what_goes_wrong_is_launched_as_before(recorded, monkeypatch):
    def recording(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(device_replaying, "recording", recording)
    run = Replaying(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    calls(run, [torch.empty(3)], 9)
    assert run.is_over


def test_nothing_is_recorded_where_the_gpu_takes_longer_or_a_capture_runs(recorded, monkeypatch):
    run = Replaying(known, [CACHE, WEIGHT, CACHE], frozenset({2}))
    monkeypatch.setattr(device_replaying, "is_capturing", lambda: True)
    calls(run, [torch.empty(3)], 9)
    assert not run.calls
    monkeypatch.setattr(device_replaying, "is_capturing", lambda: False)
    mark = type("Mark", (), {"query": lambda self: True, "elapsed_time": lambda self, other: 3.0})()
    run.clock.marks, run.clock.host_s = (mark, mark), 0.001
    calls(run, [torch.empty(3)], 9)
    assert run.is_over
    assert not recorded


def test_on_another_stream_it_is_launched(recorded, monkeypatch):
    run, cache = Replaying(known, [CACHE, WEIGHT, CACHE], frozenset({2})), CACHE.clone()
    for _ in range(WARM + 1):
        run([WEIGHT, WEIGHT, cache])
    ((_, graph),) = recorded
    monkeypatch.setattr(device_replaying, "stream_now", lambda: (0, 8))
    assert run.recorded is not None
    assert not run.recorded.fits([lies_at(each) for each in (WEIGHT, WEIGHT, cache)])
    assert graph.replays == 1


def test_a_parameter_that_lies_otherwise_from_the_same_place_on(recorded):
    square = torch.arange(9.0).reshape(3, 3)

    def known(arguments):
        (x,) = arguments
        return (x[0].clone(),)

    run = Replaying(known, [square], frozenset({0}))
    for _ in range(WARM + 1):
        run([square])
    assert run.recorded is not None
    assert run.recorded.fits([lies_at(square)])
    assert not run.recorded.fits([lies_at(square.t())])


def test_results_that_copies_would_not_be():
    one, two = torch.zeros(4, 3), torch.zeros(3, 4).t()
    require_apart([one, two], set())
    for wrong in ([one, one[1:]], [one[:, :1].expand(4, 3)], [one[:, ::2]]):
        with pytest.raises(RuntimeError, match=r"shares memory|not side by side"):
            require_apart(wrong, set())
    with pytest.raises(RuntimeError, match="shares memory with its arguments"):
        require_apart([one], {one.untyped_storage().data_ptr()})


def test_what_draws_numbers_is_not_repeated():
    aten = torch.ops.aten

    def attends(q, dropout):
        return aten._scaled_dot_product_flash_attention.default(q, q, q, dropout)[0]

    assert is_repeatable(torch.fx.symbolic_trace(lambda q: attends(q, 0.0)).graph)
    assert not is_repeatable(torch.fx.symbolic_trace(lambda q: attends(q, 0.5)).graph)
    assert not is_repeatable(torch.fx.symbolic_trace(lambda x: aten.rand_like.default(x)).graph)
