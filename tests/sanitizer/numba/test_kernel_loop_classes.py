"""What mends a race of a prange, by what its line says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.errors import FindingKind
from noyau.sanitizer.numba.kernel import REMEDIES, remedy_of
from noyau.sanitizer.records import Access, Observation, Site

BOTH = Observation(FindingKind.RACE, Access.WRITE, 0, 2, 0, 0, Access.WRITE, 0, 1)
RACES = (replace(BOTH, access=Access.READ), BOTH)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("c[0] += 1", "reduction"),
        ("self.c[0, -1] *= x[i]", "reduction"),
        ("c[()] += 1", "reduction"),
        ("hist[b[i]] += 1", "index"),
        ("hist[b[0]] += 1", "index"),
        ("hist[b[i]][0] += 1", "index"),
        ("rows(i)[0] += 1", "index"),
    ],
)
def test_an_update_of_one_cell_is_a_reduction(line, remedy):
    assert remedy_of(RACES[0], RACES, [Site("k.py", 3, line)]) == REMEDIES[remedy]


def test_a_race_on_no_line_is_not_that_of_the_last_one():
    races = [replace(each, site=-1, other_site=-1) for each in RACES]
    assert remedy_of(races[0], races, [Site("k.py", 3, "c[0] += 1")]) == REMEDIES["index"]
