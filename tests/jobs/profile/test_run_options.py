from __future__ import annotations

from noyau.jobs.profile.run import bindings


def test_sizes_are_taken_side_by_side():
    assert bindings({}) == [{}]
    assert bindings({"a": 3, "b": [1, 2]}) == [{"a": 3, "b": 1}, {"a": 3, "b": 2}]
    assert bindings({"a": [3], "b": (1, 2), "c": (5, 6)}) == [{"a": 3, "b": 1, "c": 5}, {"a": 3, "b": 2, "c": 6}]
