from __future__ import annotations

import pytest

from noyau.errors import InputError
from noyau.jobs.command_line import share_of, size_of_each, sizes_of


def test_sizes_as_they_are_typed():
    assert sizes_of(["sequence=1,128", "a=b=3"]) == {"sequence": [1, 128], "a=b": [3]}
    assert size_of_each(["sequence=128", "a=b=3"]) == {"sequence": 128, "a=b": 3}
    assert sizes_of(["n=1e3:1e6:log", "m=0:100:lin:3", "k=1:64:log:4", "j=1e3,5"]) == {
        "n": [1000, 10_000, 100_000, 1_000_000], "m": [0, 50, 100], "k": [1, 4, 16, 64], "j": [1000, 5],
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        "n=1:5",
        "n=5:1:log",
        "n=0:5:log",
        "n=1:5:cubic",
        "n=1:5:lin:1",
        "n=1:5:lin:",
        "sequence",
        "=3",
        "n=",
        "n=1,,2",
        "n=-1",
        "n=1.5",
        f"n={'9' * 19}",
    ],
)
def test_what_is_no_size(wrong):
    with pytest.raises(InputError, match="is not NAME=N or NAME=N,N"):
        sizes_of([wrong])


def test_a_share_of_the_time():
    assert (share_of("5%", "--x"), share_of("0.5%", "--x")) == (0.05, 0.005)
    with pytest.raises(InputError, match="--x 5 is no share of the time: --x 5%"):
        share_of("5", "--x")


def test_a_size_is_given_once_and_its_option_is_named():
    with pytest.raises(InputError, match="--sizes n is given twice: give it once, as n=N,N for several"):
        sizes_of(["n=1", "n=2"], "--sizes")
    with pytest.raises(InputError, match="--dim n has 2 numbers, and here a size has one: --dim n=N"):
        size_of_each(["n=1,2"])
