from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.objects import Reads, bound, record_reads, spell


def test_what_is_read_now_and_then_is_told():
    def function(self, x):
        return self.a * x if np.ndim(x) else self.b * x

    reads = record_reads(function, SimpleNamespace(a=np.ones(3), b=2), [np.ones(3)], {}, lambda value: value)
    assert reads.arrays == [("a",)]
    assert bound(function, reads, 1)(np.ones(3), np.full(3, 2.0)).tolist() == [2, 2, 2]
    with pytest.raises(UnsupportedError, match=r"it reads self\.b in some calls and not in others"):
        bound(function, reads, 1)(1.0, np.ones(3))


def test_an_object_that_is_otherwise_is_another_one():
    def function(self, x):
        return self.a[0] * x + self.c.d

    inner = SimpleNamespace(d=1.5)
    thing = SimpleNamespace(a=[1, 2], c=inner)
    reads = record_reads(function, thing, [np.ones(3)], {}, lambda value: value)
    assert isinstance(reads, Reads)
    assert reads.of(thing) is not None
    for name, value in (("a", (1, 2)), ("a", [1]), ("a", [1.0, 2]), ("c", None), ("c", SimpleNamespace(d=-1.5))):
        assert reads.of(SimpleNamespace(**{**vars(thing), name: value})) is None
    assert reads.of(inner) is None


def test_a_path_is_written_as_in_the_function():
    assert spell(("layers", 0, "weight")) == "self.layers[0].weight"
