"""Session 9: quantile regression, by weights
==========================================

Least squares finds the mean. The pinball loss, which weighs residuals above by q and below by 1 - q, finds a quantile.
It has no derivative at 0, so it is minimised by repeated least squares: each residual has the weight that makes its
weighted square the loss. One step is a map (the weights), and sums over all rows of products of columns. Fused, the
weighted copy of the matrix is never stored. The broken twin divides by the residual as it is; a line through one point
exactly has no finite weight there.

Run it: ``python examples/gallery/plot_quantile_regression.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau

SMALLEST = 1e-6  # a smaller residual weighs no more


def drawn(rng, n=50):
    """Residuals on both sides of 0, one of them 0."""
    residual = rng.standard_normal(n)
    residual[: n // 2 : 7] = 0
    return residual, 0.25


@noyau.op("f64[n], f64 -> f64[n]", inputs=drawn)
def weights(residual, quantile):
    side = np.where(residual > 0, quantile, 1 - quantile)
    return side / np.maximum(np.abs(residual), SMALLEST)


@noyau.op("f64[n], f64 -> f64[]", inputs=drawn)
def pinball(residual, quantile):
    return np.maximum(quantile * residual, (quantile - 1) * residual).mean()


@noyau.op("f64[n, d], f64[n], f64[n] -> squares: f64[d, d], products: f64[d]")
def normal_equations(x, y, weight):
    weighed = weight[:, None] * x
    return (weighed[:, :, None] * x[:, None]).sum(0), (weighed * y[:, None]).sum(0)


# %%
# By hand
# -------
# The weights, by branch and by select; then the sums of all products in one pass over the rows.
weights.kernel(
    """
void select(const double *residual, double quantile, double *out, long n)
{
    for (long i = 0; i < n; i++) {
        const double r = residual[i], away = r < 0 ? -r : r;
        out[i] = (r > 0 ? quantile : 1 - quantile) / (away < 1e-6 ? 1e-6 : away);
    }
}
""",
    language="c",
    name="select",
)

ONE_PASS = """
void one_pass(const double *x, const double *y, const double *weight, double *squares, double *products, long n, long d)
{
    for (long j = 0; j < d * d; j++) squares[j] = 0;
    for (long j = 0; j < d; j++) products[j] = 0;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < d; j++) {
            const double weighed = weight[i] * x[i * d + j];
            for (long k = 0; k < d; k++) squares[j * d + k] += weighed * x[i * d + k];
            products[j] += weighed * y[i];
        }
}
"""
normal_equations.kernel(ONE_PASS, language="c", name="one_pass")


def twin() -> noyau.Op:
    """Weights without a floor: infinite where a residual is 0."""
    broken = noyau.op(str(weights.signature), inputs=drawn, name="weights")(weights.reference)

    @broken.kernel(name="without_floor", returns=True)
    def without_floor(residual, quantile):
        with np.errstate(divide="ignore"):
            return np.where(residual > 0, quantile, 1 - quantile) / np.abs(residual)

    return broken


# %%
# The fit
# -------
def fitted(x, y, quantile: float, steps: int = 60) -> np.ndarray:
    """The coefficients for which a share `quantile` of the residuals lies below 0."""
    weight = np.ones(len(y))
    for _ in range(steps):
        found = np.linalg.solve(*normal_equations(x, y, weight))
        weight = weights(y - x @ found, quantile)
    return found


def lines(n: int = 2000) -> None:
    """Quantiles of numbers alone, which NumPy has too; then lines through a cloud that widens."""
    rng = np.random.default_rng(0)
    at, noise = rng.random(n), rng.standard_normal(n)
    x, y = np.stack([np.ones(n), at], 1), 1 + 2 * at + (0.5 + at) * noise
    for quantile in (0.1, 0.5, 0.9):
        alone = fitted(np.ones((n, 1)), y, quantile)[0]
        line = fitted(x, y, quantile)
        below = np.mean(y < x @ line)
        known = np.quantile(y, quantile)
        print(f"{quantile}: {alone:.2f}, by NumPy {known:.2f}; the line {line.round(2)}, {below:.1%} below")
        assert abs(alone - known) < 0.02
        assert abs(below - quantile) < 0.01
        assert pinball(y - x @ line, quantile) <= pinball(y - alone, quantile)


def main() -> None:
    # %%
    # Right, and the twin
    # -------------------
    for op in (weights, pinball, normal_equations):
        found = noyau.check(op, budget_s=1)
        print(found)
        found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))
    lines()

    # %%
    # The clock
    # ---------
    rng = np.random.default_rng(0)
    inputs = rng.random((100_000, 4)), rng.random(100_000), rng.random(100_000)
    print(noyau.bench(normal_equations, inputs, budget_s=0.5))


if __name__ == "__main__":
    main()
