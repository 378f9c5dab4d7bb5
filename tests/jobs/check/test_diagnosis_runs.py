from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import CheckError
from noyau.jobs.check.diagnosis import TwoRuns, thorough, why_unlike
from noyau.toolchain.guard_zones import OTHER, PLAIN, How

X = np.ones(4, np.float32)


class Kernel:
    """What gives an array that depends on how it is run."""

    def __init__(self, result, threads=()):
        self.result, self.threads, self.in_pieces, self.seen = result, threads, False, []
        self.is_replayed = False

    def run(self, instance, arrays, how):
        self.seen.append(how)
        return [np.asarray(self.result(how, len(self.seen)), np.float32)]


def runs_of(result, threads=()):
    made = TwoRuns(Kernel(result, threads), None, "sliced")
    made([X])
    return made


def test_two_runs_differ_in_threads_and_in_what_is_around():
    found = runs_of(lambda how, turn: X, (1, 2, 7))
    assert found.candidate.seen == [How("sliced", 1, OTHER), How("sliced", 7, PLAIN, PLAIN)]
    assert found.alike
    assert why_unlike(found, [X]) is None
    assert thorough(found, [X]) is None


def test_what_gives_the_same_in_each_run_is_run_once():
    kernel = Kernel(lambda how, turn: X * turn)
    kernel.is_replayed = True
    found = TwoRuns(kernel, None)
    assert found([X])[0].tolist() == X.tolist()
    assert found.alike and thorough(found, [X]) is None
    assert len(kernel.seen) == 1


def test_what_is_called_for_pieces_is_run_in_pieces():
    kernel = Kernel(lambda how, turn: X * how.pieces, (1, 2))
    kernel.in_pieces = True
    found = TwoRuns(kernel, None)
    found([X])
    assert kernel.seen[1] == How(threads=1, around=PLAIN, outputs=PLAIN, pieces=3)
    assert why_unlike(found, [X]).description == "runs whole and in 3 pieces, the last first, differ"


@pytest.mark.parametrize(
    ("result", "kind", "told"),
    [
        (
            lambda how, turn: X * (how.threads + 1),
            "order-dependent",
            "runs with 1 and 2 threads differ, in 4 of 4 cells",
        ),
        (lambda how, turn: X + (how.around == PLAIN), "out-of-bounds", "depend on what lies outside its inputs"),
        (lambda how, turn: X + (how.outputs == PLAIN), "uninitialised", "depend on what its outputs held before"),
        (lambda how, turn: X * turn, "order-dependent", "two runs on the same inputs differ"),
        (lambda how, turn: X * (turn % 2), "order-dependent", "two runs on the same inputs differ"),
    ],
)
def test_why_two_runs_differ(result, kind, told):
    found = runs_of(result, (1, 2, 4))
    assert not found.alike
    unlike = why_unlike(found, [X])
    assert unlike.kind == kind
    assert told in str(unlike)


def test_what_is_alike_once_is_looked_at_again():
    found = runs_of(lambda how, turn: X + (turn == 5), (1, 4))
    assert found.alike
    assert thorough(found, [X]).description == "runs with 1 and 4 threads differ"


def test_a_run_that_is_refused_shows_nothing():
    def result(how, turn):
        if turn > 2:
            raise CheckError("no")
        return X * turn

    found = runs_of(result)
    assert thorough(found, [X]) is None
    unlike = why_unlike(found, [X])
    assert unlike.description == "two runs on the same inputs differ"
