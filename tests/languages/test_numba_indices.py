"""Whether an index is inside an axis: what is claimed is true, and the indices of schedules are known."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from noyau.ir.dims import Dim
from noyau.languages.numba_indices import is_inside

N, R, L = Dim.of("n"), Dim.of("#r"), Dim.of("#l")


@pytest.mark.parametrize(
    ("index", "extents"),
    [
        (L, {"#l": N}),
        (N - 1 - L, {"#l": N}),
        (R * 64 + L, {"#r": N // 64, "#l": Dim.of(64)}),
        (N // 64 * 64 + L, {"#l": N % 64}),
        (N // 2048 * 2048 + R * 64 + L, {"#r": N % 2048 // 64, "#l": Dim.of(64)}),
        (N // 2048 * 2048 + N % 2048 // 64 * 64 + L, {"#l": N % 2048 % 64}),
        (Dim.of("#b") * 2048 + R * 64 + L, {"#b": N // 2048, "#r": Dim.of(32), "#l": Dim.of(64)}),
    ],
)
def test_what_schedules_make_is_inside(index, extents):
    assert is_inside(index, N, extents)
    assert not is_inside(index + 1, N, extents)
    assert not is_inside(index - 1, N, extents)


def test_what_is_claimed_is_true():
    """Of random indices over random loops, those that are said to be inside are."""
    choose, claimed = Random(1), 0
    for _ in range(3000):
        step, more = choose.choice([1, 2, 3, 4]), choose.randint(-1, 2)
        extents = {"#r": choose.choice([N // step, N % step, N, Dim.of(step)]), "#l": choose.choice([Dim.of(step), N])}
        index = R * choose.choice([1, step]) + L * choose.choice([0, 1]) + more
        index = index + choose.choice([Dim.of(0), N // step * step])
        if not is_inside(index, N, extents):
            continue
        claimed += 1
        for n in range(9):
            counts = {name: extent.evaluate({"n": n}) for name, extent in extents.items()}
            for r, l in product(*(range(count) for count in counts.values())):  # noqa: E741
                assert 0 <= index.evaluate({"n": n, "#r": r, "#l": l}) < n
    assert claimed > 30
