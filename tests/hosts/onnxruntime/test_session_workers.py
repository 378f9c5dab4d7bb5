from __future__ import annotations

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from noyau.errors import InputError, ModelError, UnsupportedError
from noyau.hosts.onnxruntime import session_workers
from noyau.hosts.onnxruntime.session_workers import Feed, Job, Workers
from noyau.timing.comparison import compare
from noyau.timing.sides import WorkerSide
from noyau.timing.verdict import Comparison
from tests.hosts.kernels import takes_bfloat16
from tests.small_models import compared

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def content(op_type: str, element: int = TensorProto.FLOAT, **attributes: object) -> bytes:
    ends = [helper.make_tensor_value_info(name, element, None) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], **attributes)], "it", ends[:1], ends[1:])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as made:
        yield made


def test_two_sessions_are_compared(workers):
    sides = workers.sides(Job(content("Neg"), {"x": X}), Job(content("Exp"), {"x": X}))
    found = compare(*sides, budget_s=0.1)
    assert found.pairs >= 6
    assert min(*found.before_s, *found.after_s) > 0
    for side in sides:
        told = side.tell()
        assert told["verified"] >= 3
        assert told["peak_bytes"] > 1 << 20
        assert told["open_s"] > 0
        assert told["bindings"] == 4


def test_cold_calls_go_round_twice_the_last_level_cache(workers):
    x = np.zeros(1 << 22, np.float32)
    sides = workers.sides(*(Job(content("Neg"), {"x": x}, cold=True) for _ in range(2)))
    assert sides[0].lasts(5) > 0
    assert sides[0].tell()["bindings"] >= 3


@pytest.mark.parametrize("x", [np.float32(3).reshape(()), np.ones((0, 3), np.float32), X.T])
def test_arrays_of_any_shape_and_layout_go_over(workers, x):
    side, _ = workers.sides(*(Job(content("Neg"), {"x": x}) for _ in range(2)))
    assert side.lasts(2) > 0


@takes_bfloat16
def test_bfloat16_goes_over(workers):
    x = np.ones(4, ml_dtypes.bfloat16)
    side, _ = workers.sides(*(Job(content("Identity", TensorProto.BFLOAT16), {"x": x}) for _ in range(2)))
    assert side.lasts(1) > 0


def test_sessions_are_compared_on_several_inputs_each_of_which_is_verified(workers, monkeypatch):
    facts, tell = [], WorkerSide.tell
    monkeypatch.setattr(WorkerSide, "tell", lambda side: facts.append(tell(side)) or facts[-1])
    jobs = [Job(content(name), {"x": X}) for name in ("Neg", "Exp")]
    others = [Feed({"x": np.zeros(number, np.float32)}, cold=number == 1 << 20) for number in (1 << 20, 7)]
    found = workers.compare_each(*jobs, others, budget_s=0.1)
    assert len(found) == 3
    assert all(len(comparison.openings) == 2 and sum(comparison.openings) == comparison.pairs for comparison in found)
    assert found[0].before_median_s < found[1].before_median_s
    # Both sides tell what a run takes, and then whether the runs that were timed were right: three times in each place.
    assert [side["verified"] > 0 for side in facts] == [False, False, True, True] * 6
    assert [side["bindings"] > 4 for side in facts[4:6]] == [True, True]


def test_behind_inputs_where_it_is_lost_nothing_is_timed_unless_the_places_made_it_seem_so(workers, monkeypatch):
    jobs = [Job(content("Neg"), {"x": X})] * 2
    ratios = iter([1.0, 0.5, 1.0, 0.5] + [1.0, 0.5, 1.0, 2.0] + [1.0] * 6)
    monkeypatch.setattr(session_workers, "half", lambda *_, **__: compared(next(ratios)))
    others = [Feed({"x": X}), Feed({"x": X})]
    first, second, third = workers.compare_each(*jobs, others, until_lost=True)
    assert first.pairs and second.is_lost and third == math.inf
    assert all(isinstance(one, Comparison) for one in workers.compare_each(*jobs, others, until_lost=True))
    assert next(ratios, None) is None


def test_inputs_that_would_take_too_long_are_left_out_but_the_first(workers):
    jobs = [Job(content("Neg"), {"x": X})] * 2
    found = workers.compare_each(*jobs, [Feed({"x": X}), Feed({"x": X})], budget_s=0.01, limit_s=0.0)
    assert [isinstance(each, float) and each > 0 for each in found] == [False, True, True]


def test_what_is_random_by_nature_is_not_compared(workers):
    job = Job(content("RandomNormalLike"), {"x": X})
    side, _ = workers.sides(job, job)
    side.lasts(3)
    side.tell()


def test_refusals_come_over_and_the_next_session_opens(workers):
    good = Job(content("Neg"), {"x": X})
    with pytest.raises(ModelError, match="the first process: onnxruntime does not open"):
        workers.sides(Job(b"nonsense", {"x": X}), good)
    with pytest.raises(InputError, match="the second process: onnxruntime does not run"):
        workers.sides(good, Job(content("Neg"), {"x": X.astype(np.float64)}))
    with pytest.raises(UnsupportedError, match="'x' holds object"):
        workers.sides(Job(content("Identity", TensorProto.STRING), {"x": np.array(["a"], object)}), good)
    assert workers.sides(good, good)[1].lasts(1) > 0


def test_the_folder_of_the_arrays_goes():
    with Workers() as made:
        made.sides(Job(content("Neg"), {"x": X}), Job(content("Neg"), {"x": X}))
        folder = made.folder
        assert list(folder.iterdir()) == []
    assert not folder.exists()
