"""Session 4: a chain of matrix products, and in which order
==========================================================

In a chain of four matrices any two neighbours can be multiplied first: five orders, one result. The page counts the
additions and multiplications of each order, and the cells of its intermediate results, chooses by either number, and
compares with the clock. Its broken twin keeps the intermediate results in half precision: half the memory, and the
digits are lost.

Run it: ``python examples/gallery/plot_matrix_chain.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import noyau

Order = int | tuple["Order", "Order"]  # a matrix by its place, or the product of two parts
ORDERS: dict[str, Order] = {
    "from_the_left": (((0, 1), 2), 3),
    "from_the_right": (0, (1, (2, 3))),
    "in_pairs": ((0, 1), (2, 3)),
    "middle_then_left": ((0, (1, 2)), 3),
    "middle_then_right": (0, ((1, 2), 3)),
}


@noyau.op("f32[a, b], f32[b, c], f32[c, d], f32[d, e] -> f32[a, e]")
def chain(p, q, r, s):
    return p @ q @ r @ s


# %%
# Five kernels
# ------------
# Each kernel has the order of its name; BLAS computes the products.
def multiplied(order: Order, matrices):
    if isinstance(order, int):
        return matrices[order]
    left, right = (multiplied(part, matrices) for part in order)
    return left @ right


for name, order in ORDERS.items():
    chain.kernel(lambda p, q, r, s, order=order: multiplied(order, (p, q, r, s)), name=name, returns=True)


# %%
# What an order costs
# -------------------
class Cost(NamedTuple):
    """The cost of a part of a chain in one order: flops, and the cells of all its products, the last one included."""

    flops: int
    cells: int
    order: Order


def joined(sizes: tuple[int, ...], first: int, middle: int, last: int, left: Cost, right: Cost) -> Cost:
    """The product of the matrices first..middle and middle..last, computed from both parts."""
    flops = left.flops + right.flops + 2 * sizes[first] * sizes[middle] * sizes[last]
    return Cost(flops, left.cells + right.cells + sizes[first] * sizes[last], (left.order, right.order))


def cost(order: Order, sizes: tuple[int, ...]) -> Cost:
    """The cost of an order of all matrices; matrix k is f32[sizes[k], sizes[k + 1]]."""

    def part(order: Order) -> tuple[int, int, Cost]:
        if isinstance(order, int):
            return order, order + 1, Cost(0, 0, order)
        (first, middle, left), (_, last, right) = map(part, order)
        return first, last, joined(sizes, first, middle, last, left, right)

    return part(order)[2]


def best(sizes: tuple[int, ...], counted: str = "flops") -> Cost:
    """The order of the least flops, or the least cells: for each part the best place of its last product, from short
    parts to long ones (Godbole, On efficient computation of matrix chain products, IEEE Trans. Comp., 1973)."""
    found = {(at, at + 1): Cost(0, 0, at) for at in range(len(sizes) - 1)}
    for length in range(2, len(sizes)):
        for first in range(len(sizes) - length):
            last = first + length
            ways = (
                joined(sizes, first, middle, last, found[first, middle], found[middle, last])
                for middle in range(first + 1, last)
            )
            found[first, last] = min(ways, key=lambda way: getattr(way, counted))
    return found[0, len(sizes) - 1]


def called(order: Order) -> str:
    return next(name for name, each in ORDERS.items() if each == order)


def twin() -> noyau.Op:
    """The same op with a kernel that keeps its first two products in half precision."""
    broken = noyau.op("f32[a, b], f32[b, c], f32[c, d], f32[d, e] -> f32[a, e]", name="chain")(chain.reference)

    @broken.kernel(returns=True)
    def in_half(p, q, r, s):
        left, right = (p @ q).astype(np.float16), (r @ s).astype(np.float16)
        return left.astype(np.float32) @ right.astype(np.float32)

    return broken


def main() -> None:
    # %%
    # Counted
    # -------
    # The first chain is narrow at its end: from the right everything is small. The second chain is quickest in one
    # order, and needs the least memory in another.
    for sizes in ((256, 512, 512, 256, 4), (2, 40, 6, 60, 3)):
        print(f"{sizes}:")
        for name, order in ORDERS.items():
            counts = cost(order, sizes)
            print(f"    {name}: {counts.flops} operations, {counts.cells} cells")
        for counted in ("flops", "cells"):
            least = best(sizes, counted)
            print(f"    least {counted}: {called(least.order)}")
            assert getattr(least, counted) == min(getattr(cost(each, sizes), counted) for each in ORDERS.values())

    # np.einsum chooses an order too, with `optimize`; without it einsum is one nest of five loops.
    sizes = (256, 512, 512, 256, 4)
    matrices = [np.random.default_rng(k).standard_normal(sizes[k : k + 2], np.float32) for k in range(4)]
    path, _ = np.einsum_path("ab,bc,cd,de->ae", *matrices, optimize="optimal")
    print("einsum's own:", path)

    # %%
    # All are right
    # -------------
    found = noyau.check(chain, budget_s=0.3)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twin
    # ---------------
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    timed = noyau.bench(chain, tuple(matrices), budget_s=0.2, cold=False)
    print(timed)
    quickest = min(ORDERS, key=lambda name: timed.at[0].time_s(name, temperature="hot"))
    print(f"counted: {called(best(sizes).order)}; the clock: {quickest}")


if __name__ == "__main__":
    main()
