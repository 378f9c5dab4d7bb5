"""Runs of a session in a process of its own, and what a look at some of them tells."""

from __future__ import annotations

from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from noyau.errors import CheckError
from noyau.hosts.onnxruntime.runs import BoundRun, PlainRun, ServedSession
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.workers.array_files import write_arrays
from tests.hosts.kernels import takes_bfloat16


class Fickle(BoundRun):
    """A run that writes something else once it has been called often enough."""

    left: ClassVar = [5]

    def __call__(self) -> None:
        self.left[0] -= 1
        self.outputs["y"][:] = 1 if self.left[0] > 0 else 2


@pytest.mark.parametrize(
    ("cold", "run_s", "places", "calls", "runs"),
    [
        (False, 0.001, 1, 1, [2]),
        (False, 0.001, 2, 1, [2, 0]),
        (False, 0.001, 2, 3, [3, 2]),
        (False, 0.05, 2, 3, [2, 1]),
        (True, 0.001, 3, 1, [1, 0, 0]),
    ],
)
def test_short_runs_that_are_not_to_be_cold_happen_once_before_they_are_timed(cold, run_s, places, calls, runs):
    class Counted(BoundRun):
        def __call__(self) -> None:
            self.outputs["y"][:] += 1

        def poison(self) -> None:
            """Its outputs are its count."""

    made = [Counted(None, None, {"y": np.zeros(1)}, ()) for _ in range(places)]
    session = ServedSession(made, 0.0, run_s, samples=3, rng=np.random.default_rng(1), cold=cold)
    session.lasts(calls)
    assert [int(each.outputs["y"][0]) for each in made] == runs


def test_a_timed_run_that_gives_something_else_is_told():
    session = ServedSession([Fickle(None, None, {"y": np.zeros(4)}, ())], 0.0, expected={"y": np.ones(4).tobytes()})
    session.lasts(1)
    assert session.tell()["verified"] == 1
    for _ in range(2):
        session.lasts(2)
    with pytest.raises(CheckError, match="another 'y' than the first"):
        session.tell()


@pytest.mark.parametrize("random", [False, True])
def test_whether_a_long_run_is_random_is_found_out_where_it_differs(random):
    class Drawn(BoundRun):
        values: ClassVar = iter(range(2, 99))

        def __call__(self) -> None:
            self.outputs["y"][:] = next(self.values) if random else 2

    expected = {"y": np.ones(4).tobytes()}
    session = ServedSession([Drawn(None, None, {"y": np.zeros(4)}, ())], 0.0, expected=expected, unsure=True)
    session.lasts(1)
    assert bool(session.wrong) is not random


def test_cells_that_a_timed_run_does_not_write_are_told():
    class Idle(BoundRun):
        def __call__(self) -> None:
            """It leaves what is there."""

    session = ServedSession([Idle(None, None, {"y": np.zeros(4)}, ())], 0.0, expected={"y": np.ones(4).tobytes()})
    session.lasts(1)
    with pytest.raises(CheckError, match="another 'y'"):
        session.tell()


@pytest.mark.parametrize(
    ("whole", "cells", "dtype", "kind"),
    [
        (True, 4, np.float32, PlainRun),
        (False, 4, np.float32, BoundRun),
        (True, 1 << 14, np.float32, BoundRun),
        (True, (1 << 14) - 1, np.float32, PlainRun),
        pytest.param(True, 4, ml_dtypes.bfloat16, BoundRun, marks=takes_bfloat16),
    ],
)
def test_a_whole_model_is_called_as_users_call_it_where_its_outputs_are_small(tmp_path, whole, cells, dtype, kind):
    """Outputs that are bound beforehand hide what making them anew costs, which is more for some models than others."""
    x, element = np.arange(cells).astype(dtype), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info(name, element, None) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "it", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = ServedSession([], 0.0, opened=open_session(model.SerializeToString(), threads=1), whole=whole)
    session.feed(write_arrays({"x": x}, tmp_path), cold=False)
    assert {type(run) for run in session.runs} == {kind}
    for _ in range(4):
        assert session.lasts(3) > 0
    assert session.tell()["verified"] >= 3
    session.runs[0].poison()
    session.runs[0]()
    assert session.runs[0].results()["y"].tobytes() == x.tobytes()


def test_a_plain_run_that_was_timed_is_looked_at():
    class Named:
        name = "y"

    class Drifting:
        calls = 0

        def get_outputs(self):
            return [Named]

        def run(self, _, arrays):
            self.calls += 1
            return [arrays["x"] + (self.calls > 4)]

    x = np.zeros(3)
    session = ServedSession([PlainRun(Drifting(), {"x": x})], 0.0, expected={"y": x.tobytes()})
    session.lasts(1)
    assert session.tell()["verified"] == 1
    session.lasts(1)
    session.lasts(1)
    with pytest.raises(CheckError, match="another 'y' than the first"):
        session.tell()
