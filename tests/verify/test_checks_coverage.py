from __future__ import annotations

import pytest

from noyau.verify.checks import Coverage, spell_lines


@pytest.mark.parametrize(
    ("lines", "told"), [((7,), "line 7"), ((8, 7), "lines 7-8"), ((3, 9, 10, 11, 14), "lines 3, 9-11, 14")]
)
def test_lines_next_to_each_other_are_one_range(lines, told):
    assert spell_lines(lines) == told


def test_what_no_size_was_past():
    coverage = Coverage({16: "T = 16", 33: "33", 512: "BLOCK = 512"})
    assert (coverage.spans, coverage.gaps) == ("", ())  # nothing ran: that is said elsewhere
    coverage.note({"m": 17, "n": 1})
    coverage.note({"m": 33, "n": 1})
    assert coverage.spans == "m 17 to 33, n = 1"
    assert coverage.gaps == ("never past 33, BLOCK = 512",)
    coverage.note({"m": 1, "n": 513})
    assert coverage.gaps == ()
