from __future__ import annotations

import pytest

from noyau.errors import UnansweredError, UnsupportedError
from noyau.toolchain.triton.programs import Programs


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
