from __future__ import annotations

import math

import pytest

from noyau.toolchain import cache
from noyau.toolchain.cache import keep, recall

KEY = cache.digest("a record")


def test_a_record_is_kept_and_recalled(empty_cache):
    assert recall(KEY) is None
    keep(KEY, {"a": [1, 2.5, "b", None, math.inf]})
    assert recall(KEY) == {"a": [1, 2.5, "b", None, math.inf]}
    assert recall(cache.digest("another")) is None


def test_a_record_takes_the_place_of_the_one_before(empty_cache):
    for number in (1, 2, 2):
        keep(KEY, number)
    assert recall(KEY) == 2
    assert len(list(empty_cache.glob("*.json"))) == 1


@pytest.mark.parametrize("text", ["{", "", "\xff"])
def test_what_is_no_record_is_none(empty_cache, text):
    cache.store(KEY, ".json", lambda path: path.write_text(text, "latin1") and None)
    assert recall(KEY) is None


def test_a_record_that_was_changed_is_none(empty_cache):
    keep(KEY, [1])
    (entry,) = empty_cache.glob("*.json")
    entry.write_text("[2]")
    assert recall(KEY) is None
    assert not entry.exists()
