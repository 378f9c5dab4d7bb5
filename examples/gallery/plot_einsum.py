"""Session 4: an einsum, taken apart
====================================

``einsum("bi,ijk,bj->bk", x, core, y)`` is one nest of four loops, b i j k, with two multiplications in its middle. It
is also two products of two arrays each. Such a product is a transposition of axes, a sum over the letters that only one
array has, and a matrix product, which BLAS computes. The page takes an equation apart into such steps, counts the
operations and the memory of each order, and prints them. The broken twin sums over an index that a later operand still
needs.

Run it: ``python examples/gallery/plot_einsum.py`` (needs a C compiler).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

import noyau


@noyau.op("f32[b, i], f32[i, j, k], f32[b, j] -> f32[b, k]")
def bilinear(x, core, y):
    return np.einsum("bi,ijk,bj->bk", x, core, y)


# %%
# As one nest
# -----------
ONE_NEST = """
#include <stdint.h>

void one_nest(const float *x, const float *core, const float *y, float *out, int64_t i, int64_t j, int64_t k,
              int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t c = 0; c < k; c++) {
            double sum = 0;
            for (int64_t a = 0; a < i; a++)
                for (int64_t b = 0; b < j; b++)
                    sum += (double)x[row * i + a] * core[(a * j + b) * k + c] * y[row * j + b];
            out[row * k + c] = (float)sum;
        }
}
"""
bilinear.kernel(ONE_NEST, language="c", name="one_nest")


# %%
# Two at a time
# -------------
class Step(NamedTuple):
    """The product of two arrays, given by their places: the letters of each, and those of the result."""

    places: tuple[int, int]
    left: str
    right: str
    made: str

    def flops(self, sizes: Mapping[str, int]) -> int:
        return 2 * math.prod(sizes[letter] for letter in {*self.left, *self.right})

    def cells(self, sizes: Mapping[str, int]) -> int:
        return math.prod(sizes[letter] for letter in self.made)


def step(parts: Sequence[str], places: tuple[int, int], wanted: str) -> tuple[Step, list[str]]:
    """The product of two of the parts, and the remaining parts: a letter is summed once no other part needs it."""
    left, right = (parts[place] for place in places)
    others = [part for place, part in enumerate(parts) if place not in places]
    needed = {*wanted, *"".join(others)}
    made = wanted if not others else "".join(c for c in dict.fromkeys(left + right) if c in needed)
    return Step(places, left, right, made), [*others, made]


def orders(parts: Sequence[str], wanted: str) -> list[list[Step]]:
    """All orders in which an equation can be taken apart."""
    if len(parts) == 1:
        return [[]]
    return [
        [first, *rest]
        for places in combinations(range(len(parts)), 2)
        for first, left in [step(parts, places, wanted)]
        for rest in orders(left, wanted)
    ]


def product(step: Step, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """One step by a matrix product. Letters of both arrays that the result keeps are a batch; the product sums the
    others. Letters of one array alone that the result lacks are summed before."""
    both, kept = set(step.left) & set(step.right), set(step.made)
    left, own = alone(left, step.left, both | kept)
    right, others = alone(right, step.right, both | kept)
    batch = [c for c in own if c in both and c in kept]
    summed = [c for c in own if c in both and c not in kept]
    rows, columns = ([c for c in letters if c not in both] for letters in (own, others))
    sizes = {**dict(zip(own, left.shape, strict=True)), **dict(zip(others, right.shape, strict=True))}

    def matrices(array, letters, *groups):
        turned = array.transpose([letters.index(c) for group in groups for c in group])
        batched, *sides = ([sizes[c] for c in group] for group in groups)
        return turned.reshape(*batched, *(math.prod(side) for side in sides))

    made = matrices(left, own, batch, rows, summed) @ matrices(right, others, batch, summed, columns)
    letters = [*batch, *rows, *columns]
    return made.reshape([sizes[c] for c in letters]).transpose([letters.index(c) for c in step.made])


def alone(array: np.ndarray, letters: str, needed: set[str]) -> tuple[np.ndarray, str]:
    """The array summed over the letters that are no longer needed."""
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in needed)
    return array.sum(axes), "".join(letter for letter in letters if letter in needed)


def run(steps: Sequence[Step], arrays: Sequence[np.ndarray]) -> np.ndarray:
    waiting = list(arrays)
    for each in steps:
        left, right = (waiting[place] for place in each.places)
        waiting = [array for place, array in enumerate(waiting) if place not in each.places]
        waiting.append(product(each, left, right))
    return waiting[0]


EQUATION = ("bi", "ijk", "bj"), "bk"
ORDERS = {f"{each[0].left}_{each[0].right}_first": each for each in orders(*EQUATION)}
for name, steps in ORDERS.items():
    bilinear.kernel(lambda x, core, y, steps=steps: run(steps, (x, core, y)), name=name, returns=True)


def twin() -> noyau.Op:
    """The same op with a kernel that sums over j in the first product, although y still needs j."""
    broken = noyau.op(str(bilinear.signature), name="bilinear")(bilinear.reference)

    @broken.kernel(returns=True)
    def summed_too_early(x, core, y):
        return (x @ core.sum(1)) * y.sum(-1, keepdims=True)

    return broken


def others() -> None:
    """Equations of many kinds, against einsum in float64."""
    rng, sizes = np.random.default_rng(0), dict(zip("abcdefg", (2, 3, 4, 5, 3, 2, 6), strict=True))
    for equation in (
        "ab,bc->ac",
        "abc,cd,def->abf",
        "ab,ab->",
        "abc,b->ca",
        "ab,cd->dbca",
        "aab,b->a",
        "abc,abd,ae->ecd",
    ):
        read, wanted = equation.split("->")
        parts = read.split(",")
        if any(len(set(part)) < len(part) for part in parts):
            print(f"{equation}: a diagonal, which is a view and no product")
            continue
        arrays = [rng.standard_normal([sizes[c] for c in part]) for part in parts]
        ways = orders(parts, wanted)
        right = all(np.allclose(run(way, arrays), np.einsum(equation, *arrays)) for way in ways)
        print(f"{equation}: {len(ways)} orders, {'right' if right else 'WRONG'}")


def main() -> None:
    # %%
    # The orders
    # ----------
    sizes = {"b": 256, "i": 48, "j": 8, "k": 32}
    for name, steps in ORDERS.items():
        said = ", then ".join(f"{each.left} {each.right} -> {each.made}" for each in steps)
        flops, cells = (sum(getattr(each, what)(sizes) for each in steps) for what in ("flops", "cells"))
        print(f"{name}: {said}: {flops} operations, {cells} cells")
    print(f"one_nest: {3 * math.prod(sizes.values())} operations, {sizes['b'] * sizes['k']} cells")
    others()

    # %%
    # Right, and the twin
    # -------------------
    found = noyau.check(bilinear, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    rng = np.random.default_rng(0)
    given = [rng.standard_normal([sizes[c] for c in part], np.float32) for part in EQUATION[0]]
    print(noyau.bench(bilinear, tuple(given), budget_s=0.3, cold=False))


if __name__ == "__main__":
    main()
