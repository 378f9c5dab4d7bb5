"""Session 3: a matrix product, in every order of its loops
=========================================================

Three loops, six orders, and one of the loops over threads: all compute the same, most are slow, and some are wrong.
The order decides what the inner loop steps over, and so how fast it is. Which loop goes over threads decides whether
two of them write to one cell: over the rows or the columns of the result they never do, over the products that are
added up they always do. And with the second operand transposed another order is the best. BLAS, which also keeps tiles
in registers and caches, beats them all where it has its cores for itself: noyau generates no product, it calls BLAS.

Run it: ``python examples/gallery/plot_matrix_product.py`` (needs a C compiler).
"""

from __future__ import annotations

import itertools

import noyau
from noyau.ops.op import Op

M = 160
EXTENTS = {"i": "m", "j": "n", "k": "q"}


def text(order: str, parallel: str, b: str) -> str:
    """A kernel with its loops in an order, one of them over threads. `b`: a cell of the second operand."""
    loops = [
        f"    for (long {x} = {'begin' if x == parallel else 0}; {x} < {'end' if x == parallel else EXTENTS[x]}; {x}++)"
        for x in order
    ]
    return f"""
void product(const float *a, const float *b, float *out, long m, long q, long n, long begin, long end)
{{
{chr(10).join(loops)}
        out[i * n + j] += a[i * q + k] * {b};
}}
"""


def attach(op: Op, order: str, parallel: str, b: str) -> None:
    launch = EXTENTS[parallel]
    said = {"launch": launch, "init": {"out": 0}, "name": f"{order}_{parallel}"}
    op.kernel(text(order, parallel, b), language="c", **said)


PLAIN, TRANSPOSED = "b[k * n + j]", "b[j * q + k]"


@noyau.op("f32[m, q], f32[q, n] -> f32[m, n]")
def product(a, b):
    return a @ b


@noyau.op("f32[m, q], f32[n, q] -> f32[m, n]")
def product_with_transposed(a, b):
    return a @ b.T


for loops in map("".join, itertools.permutations("ijk")):
    attach(product, loops, "i", PLAIN)
attach(product, "ikj", "j", PLAIN)
for loops in ("ijk", "ikj", "kij"):
    attach(product_with_transposed, loops, "i", TRANSPOSED)


def racy() -> Op:
    """The product with the loop over threads that adds up: pieces of it write to the same cells."""
    broken = noyau.op("f32[m, q], f32[q, n] -> f32[m, n]", name="product")(product.reference)
    for loops in ("ikj", "kij"):
        attach(broken, loops, "k", PLAIN)
    return broken


def main() -> None:
    # %%
    # The safe ones are accepted
    # --------------------------
    # `check` cuts the work into pieces and runs them in another order, and by one, two and more threads.
    for op in (product, product_with_transposed):
        found = noyau.check(op, budget_s=0.3)
        print(found)
        found.raise_if_bad()

    # %%
    # The racy ones are refused
    # -------------------------
    # Two pieces add to one cell, and what one of them has read the other one has written since. Run by one thread they
    # would be right, so no test on one thread finds them.
    found = noyau.check(racy(), budget_s=0.3)
    print(found)
    assert not found.ok

    # %%
    # The clock
    # ---------
    # i, then k, then j: the inner loop steps from neighbour to neighbour in b and in the result, and vectorises. With
    # j, k, i inside out it jumps a row at a time in all three. With b transposed, i, j, k reads both along their rows,
    # but is a sum in one variable, a chain that does not vectorise.
    for op in (product, product_with_transposed):
        timed = noyau.bench(op, sizes={"m": M, "q": M, "n": M}, budget_s=0.4, cold=False)
        print(timed)
        print(f"the fastest here is {timed.best}; the reference is BLAS, and so is what is generated of it")


if __name__ == "__main__":
    main()
