"""Session 3: a matrix product, in every order of its loops
=========================================================

Three loops have six orders, and one of the loops may run on threads. All variants compute the same sums; most are slow,
and some are wrong. The order decides which axis the inner loop steps over, and so its speed. The parallel loop decides
whether two threads write to one cell: over the rows or the columns of the result they never do, over the axis that is
summed they always do. With the second operand transposed another order is the best. BLAS, which also keeps tiles in
registers and caches, beats them all if it has its cores to itself: noyau generates no product, it calls BLAS.

Run it: ``python examples/gallery/plot_matrix_product.py`` (needs a C compiler).
"""

from __future__ import annotations

import itertools

import noyau
from noyau.ops.op import Op

M = 160
EXTENTS = {"i": "m", "j": "n", "k": "q"}


def text(order: str, parallel: str, b: str) -> str:
    """A kernel with its loops in this order, one of them on threads. `b`: a cell of the second operand."""
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
    """The product with threads over the summed axis: pieces of it write to the same cells."""
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
    # Two pieces add to one cell, and one has changed the number that the other has read. On one thread they would be
    # right, so no test on one thread finds the race.
    found = noyau.check(racy(), budget_s=0.3)
    print(found)
    assert not found.ok

    # %%
    # The clock
    # ---------
    # i, then k, then j: the inner loop steps from neighbour to neighbour in b and in the result, and vectorises. With i
    # as the inner loop (j, k, i) each step jumps a row in a and in the result. With b transposed, i, j, k reads both
    # operands along their rows, but sums into one cell, a chain that does not vectorise.
    for op in (product, product_with_transposed):
        timed = noyau.bench(op, sizes={"m": M, "q": M, "n": M}, budget_s=0.4, cold=False)
        print(timed)
        print(f"the fastest here is {timed.best}; the reference is BLAS, and so is what is generated of it")


if __name__ == "__main__":
    main()
