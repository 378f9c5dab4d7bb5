from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnansweredError, UnsupportedError
from noyau.toolchain.triton.programs import BATCH, Batch, Programs


def grid_of(count, body):
    """The order in which programs of a grid end; a body is called with the programs and its number."""
    ended, entered = [], []

    def run():
        own = entered[-1]
        body(programs, own)
        ended.append(own)

    programs = Programs((count, 1, 1), lambda place: entered.append(place[0]), run)
    programs()
    return ended


def test_one_after_the_other():
    assert grid_of(4, lambda programs, own: None) == [0, 1, 2, 3]


def test_one_that_waits_lets_others_go_on():
    flags = set()

    def body(programs, own):
        while own == 0 and 2 not in flags:
            programs.turn()
        flags.add(own)

    assert grid_of(4, body) in ([1, 2, 0, 3], [1, 2, 3, 0])


def test_all_meet_at_two_barriers():
    came = [0, 0]

    def body(programs, own):
        for barrier in range(2):
            came[barrier] += 1
            while came[barrier] < 4:
                programs.turn()

    assert sorted(grid_of(4, body)) == [0, 1, 2, 3]


def test_what_never_comes_is_said_and_what_a_program_raises_is_raised():
    def forever(programs, own):
        while True:
            programs.turn()

    with pytest.raises(UnansweredError, match=r"none makes progress$"):
        grid_of(3, forever)
    with pytest.raises(UnsupportedError, match="with at most 64 programs"):
        grid_of(100, forever)

    def third(programs, own):
        while own == 0:
            programs.turn()
        assert own < 2, "the third"

    with pytest.raises(AssertionError, match="the third"):
        grid_of(3, third)


def test_programs_of_a_batch_go_apart_where_their_values_differ():
    """What a batch that goes apart stored is put back; programs of one way come again as one, no batch of 2^n."""
    here, stored, ways = [], [], []

    def run():
        stored.append(len(here))
        if BATCH.size:
            BATCH.undo.append(stored.pop)
            BATCH.one_value(np.asarray(here) % 4 < 3)
        ways.append(list(here))

    def settle(is_whole):
        while BATCH.undo:
            restore = BATCH.undo.pop()
            if not is_whole:
                restore()

    Programs((40, 1, 1), lambda place: here.__setitem__(slice(None), np.atleast_1d(place[0])), run, settle)()
    assert sorted(each for way in ways for each in way) == list(range(40))
    assert len(stored) == len(ways) < 12
    assert all(len({each % 4 < 3 for each in way}) == 1 for way in ways)
    assert not any(len(way) > 1 and len(way).bit_count() == 1 for way in ways)
    assert max(map(len, ways)) == 24


def test_whoever_raises_in_a_batch_raises_by_itself():
    def run():
        assert not BATCH.size and here[0] < 20, "the twentieth"

    here = []
    with pytest.raises(AssertionError, match="the twentieth"):
        Programs(
            (40, 1, 1), lambda place: here.__setitem__(slice(None), np.atleast_1d(place[0])), run, lambda _: None
        )()
    assert (here[0], BATCH.size) == (20, 0)


@pytest.mark.parametrize("cells", [1 << power for power in range(18)])
def test_as_many_programs_are_one_as_no_extent_of_a_block_is(cells):
    batch = Batch()
    batch.meet(np.zeros((1, cells)))
    assert batch.width.bit_count() > 1
