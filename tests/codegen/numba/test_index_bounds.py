"""Whether an index is inside an axis: what is claimed is true, and the indices of schedules are known."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from noyau.codegen.numba.index_bounds import is_inside, out_of_tiles, tile_of
from noyau.compiler.schedules.primitives import minimum
from noyau.ir.dims import Dim

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


def test_the_length_of_a_tile_tells_where_it_begins_and_in_what_it_lies():
    tile, n = Dim.of("#tile"), Dim.of("n")
    assert tile_of(minimum(Dim.of(256), n - tile * 256), {}) == (tile * 256, n)
    backwards = minimum(Dim.of(256), n + tile * 256)  # from -256 tile on: not inside
    for length in (n, Dim.of(256), n - tile, minimum(Dim.of(256), n), backwards):
        assert tile_of(length, {}) is None


def test_a_tile_of_a_tile_lies_in_what_that_lies_in():
    block, strip, n = Dim.of("#block"), Dim.of("#strip"), Dim.of("n")
    within = minimum(Dim.of(64), Dim.of("#block_length") - strip * 64)
    known = {"#block_length": tile_of(minimum(Dim.of(512), n - block * 512), {})}
    assert tile_of(within, known) == (block * 512 + strip * 64, n)
    assert tile_of(within, {}) is None


def test_an_index_by_tiles_is_one_into_the_whole():
    begin, cell, n = Dim.of("#tile") * 256, Dim.of("#cell"), Dim.of("n")
    tiles, extents = {"#cell": (begin, n)}, {"#cell": Dim.of("#count"), "#tile": (n + 255) // 256}
    index, found = out_of_tiles(begin + cell, tiles, extents)
    assert is_inside(index, n, found)
    assert not is_inside(*out_of_tiles(begin + cell + 1, tiles, extents)[:1], n, found)
    assert out_of_tiles(cell, tiles, extents) == (cell, extents)  # of the tile alone
