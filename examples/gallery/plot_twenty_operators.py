"""Session 4: twenty fused operators that nobody wrote
=====================================================

Collections of kernels for models offer fused operators by name: AddMul, MulSigmoid, ReplaceZero, TriMatrix and others.
Each is a file of its own, for the shapes that its author expected. Here is the list again. noyau contains none of them:
each is its plain subgraph, written in NumPy, and becomes one kernel, with all of NumPy's broadcasting, at any size,
also zero. One of them is written by hand as well. Its broken twin finds the cell of a smaller array by the remainder of
a division, as such collections do: that is right for a row, and wrong for a column.

Run it: ``python examples/gallery/plot_twenty_operators.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau
from noyau.functions import cast, sigmoid


# %%
# By hand
# -------
# (x + y) * z of a matrix, a column and a row.
@noyau.op("f32[rows, n], f32[rows, 1], f32[n] -> f32[rows, n]")
def add_mul(x, y, z):
    return (x + y) * z


@add_mul.kernel(returns=True)
def in_two_passes(x, y, z):
    """The unfused computation: the sum is written to memory and read again."""
    total = np.add(x, y)
    return np.multiply(total, z)


BY_ROWS = """
#include <stdint.h>

void by_rows(const float *x, const float *y, const float *z, float *out, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t k = 0; k < n; k++) out[row * n + k] = (x[row * n + k] + y[row]) * z[k];
}
"""
add_mul.kernel(BY_ROWS, language="c", name="by_rows")

BY_REMAINDER = """
#include <stdint.h>

void by_remainder(const float *x, const float *y, const float *z, float *out, int64_t rows, int64_t n)
{
    for (int64_t cell = 0; cell < rows * n; cell++)
        out[cell] = (x[cell] + y[cell % rows]) * z[cell % n];
}
"""


def twin() -> noyau.Op:
    """The same op with a kernel that repeats each smaller array cyclically."""
    broken = noyau.op(str(add_mul.signature), name="add_mul")(add_mul.reference)
    broken.kernel(BY_REMAINDER, language="c", name="by_remainder")
    return broken


# %%
# The twenty
# ----------
# Each operator has the shapes on which it is tried; some have a transposed or a negative form, as in collections.
def rotary(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def scattered(rows, at, *, n=8):
    out = np.zeros((n, rows.shape[-1]), np.float32)
    np.add.at(out, at, rows)
    return out


def scattered_masked(rows, at, *, n=8, masked=-1):
    out = np.zeros((n, rows.shape[-1]), np.float32)
    np.add.at(out, np.where(at == masked, 0, at), np.where((at == masked)[:, None], np.float32(0), rows))
    return out


TWENTY = {
    "AddAdd": lambda x, y, z: x + y + z,
    "AddAddAdd": lambda x, y, z, w: x + y + z + w,
    "MulMul": lambda x, y, z: x * y * z,
    "MulMulMul": lambda x, y, z, w: x * y * z * w,
    "AddMul": lambda x, y, z: (x + y) * z,
    "AddMul, transposed": lambda x, y, z: ((x + y) * z).swapaxes(0, 1),
    "MulAdd": lambda x, y, z: x * y + z,
    "MulAdd, transposed": lambda x, y, z: (x * y + z).swapaxes(0, 1),
    "SubMul": lambda x, y, z: (x - y) * z,
    "SubMul, negative": lambda x, y, z: (y - x) * z,
    "MulSub": lambda x, y, z: x * y - z,
    "MulSub, negative": lambda x, y, z: z - x * y,
    "AddSharedInput": lambda x, y, z: (x + y, x + z),
    "MulSharedInput": lambda x, y, z: (x * y, x * z),
    "MulSigmoid": lambda x: x * sigmoid(x),
    "MulMulSigmoid": lambda x, y: x * y * sigmoid(y),
    "NegXplus1": lambda x: 1 - x,
    "ReplaceZero": lambda x: np.where(x == 0, np.float32(7), x),
    "Rotary": rotary,
    "TriMatrix": lambda x: np.tril(x) + np.triu(np.ones_like(x), 1) * 9,
}
HALVES = {
    "Transpose2DCast to float16": (lambda x: cast(x.T, "f16"), np.float32),
    "Transpose2DCast from float16": (lambda x: cast(x.T, "f32"), np.float16),
}
SCATTERED = {"ScatterNDOfShape": scattered, "MaskedScatterNDOfShape": scattered_masked}


def missing(p, q, r):
    """Shapes of four arrays, some of which have fewer axes."""
    return (p, q, r), (q, r), (r,), (p, q, r)


SHAPES = (missing(3, 4, 6), missing(2, 1009, 3), missing(0, 4, 2))
AN_AXIS_EACH = ((5, 1, 8), (1, 7, 1), (5, 7, 8))


def derived() -> None:
    """Each operator on arrays of all these shapes, against NumPy."""
    rng = np.random.default_rng(0)

    def normal(shape, dtype=np.float32):
        return rng.standard_normal(shape).round(1).astype(dtype)

    for name, function in TWENTY.items():
        count = function.__code__.co_argcount
        shapes = (*SHAPES, AN_AXIS_EACH) if count == 3 else SHAPES
        square = [(5, 5), (17, 17), (0, 0)]
        calls = [[each] for each in square] if name == "TriMatrix" else [each[:count] for each in shapes]
        tell(name, function, [[normal(shape) for shape in each] for each in calls])
    for name, (function, dtype) in HALVES.items():
        tell(name, function, [[normal(shape, dtype)] for shape in ((64, 48), (1009, 3), (0, 3))])
    for name, function in SCATTERED.items():
        tell(name, function, [[normal((n, 4)), rng.integers(-1, 8, n)] for n in (9, 100, 0)])


def tell(name, function, calls) -> None:
    """Print whether an operator gives NumPy's results for all of the calls, and which kernel computes them."""
    op = noyau.op(function)
    same = all(alike(op(*arrays), function(*arrays)) for arrays in calls)
    how = str(op.explain(*calls[0])).splitlines()[1].split(",")[0].strip()
    print(f"{name:30} {'right' if same else 'WRONG'} at {len(calls)} shapes: {how}")


def alike(found, wanted) -> bool:
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True)
    return all(one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in pairs)


def main() -> None:
    # %%
    # Right, and the twin
    # -------------------
    found = noyau.check(add_mul, budget_s=1)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, np.float32) for shape in ((1024, 1024), (1024, 1), (1024,))]
    print(noyau.bench(add_mul, tuple(given), budget_s=0.5))

    # %%
    # Derived, each of them
    # ---------------------
    derived()


if __name__ == "__main__":
    main()
