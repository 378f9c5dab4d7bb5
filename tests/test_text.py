"""What a session shows of a record."""

from __future__ import annotations

import pytest

from noyau.text import Printed, unused


def below(kind: type) -> list[type]:
    return [kind, *(each for child in kind.__subclasses__() for each in below(child))]


@pytest.mark.parametrize("kind", below(Printed), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_record_is_shown_as_it_prints(kind):
    assert kind.__repr__ is Printed.__repr__  # and not what a dataclass makes without repr=False


def test_it_is_the_text_of_print():
    class Told(Printed):
        def __str__(self) -> str:
            return "right on 3 cases"

    assert repr(Told()) == "right on 3 cases"


def test_an_unused_name_is_numbered():
    assert unused("a", set()) == "a"
    assert unused("a", {"a", "a_2"}) == "a_3"
