"""What a session shows of a record."""

from __future__ import annotations

import pytest

from noyau.text import TextRecord, free_name


def below(kind: type) -> list[type]:
    return [kind, *(each for child in kind.__subclasses__() for each in below(child))]


@pytest.mark.parametrize("kind", below(TextRecord), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_record_is_shown_as_it_prints(kind):
    assert kind.__repr__ is TextRecord.__repr__  # and not what a dataclass makes without repr=False


def test_it_is_the_text_of_print():
    class Told(TextRecord):
        def __str__(self) -> str:
            return "right on 3 cases"

    assert repr(Told()) == "right on 3 cases"


def test_an_unused_name_is_numbered():
    assert free_name("a", set()) == "a"
    assert free_name("a", {"a", "a_2"}) == "a_3"
