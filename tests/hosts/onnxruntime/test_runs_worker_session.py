"""Runs of a session in a process of its own, and what a look at some of them tells."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from noyau.errors import CheckError
from noyau.hosts.onnxruntime.runs import BoundRun, ServedSession


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
