"""What a session shows of a record, and its plain data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from noyau.text import TextRecord, as_json, fields_json, free_name, from_json, plain_names
from noyau.timing.gpu_rate_cache import GpuRates
from noyau.timing.rates import MachineRates
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.checks import Coverage
from noyau.verify.floats import Errors


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


@dataclass(frozen=True)
class Timed:
    """A record whose plain data has other names, another order, and a property."""

    PLAIN: ClassVar[str] = "twice_s median_s=seconds name"
    name: str
    seconds: float
    events: tuple[int, ...] = ()

    @property
    def twice_s(self) -> float:
        return 2 * self.seconds


def test_plain_names_order_and_rename_the_data_of_a_record():
    plain = as_json([Timed("a", 1.5, (1, 2))])
    assert list(plain[0].items()) == [("twice_s", 3.0), ("median_s", 1.5), ("name", "a")]
    assert fields_json(Timed("a", 1.5), without=("twice_s", "name")) == {"median_s": 1.5}
    assert from_json(Timed, {"median_s": 2, "name": "b"}) == Timed("b", 2.0)


@pytest.mark.parametrize("kind", [Errors, Outcome, Certificate, Coverage, MachineRates, GpuRates], ids=str)
def test_plain_names_are_attributes(kind):
    assert {*plain_names(kind).values()} <= {*dir(kind), *(each.name for each in fields(kind))}
