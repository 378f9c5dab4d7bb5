"""Derive the polynomial coefficients of noyau/codegen/cmath: `python benchmarks/minimax.py [NAME ...]`.

Each polynomial is the minimax one (Lawson's weighted least squares, 60 digits), for the weight that makes the error
relative to the value of the whole function. Coefficients are rounded to the type that holds them one after another,
lowest power first, and the rest is fitted again each time, so that they make up for the rounding. Exit status 1 if
the C text has others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp  # type: ignore[import-untyped]

TEXT = Path(__file__).resolve().parent.parent / "noyau" / "codegen" / "cmath"

Real = Callable[[mp.mpf], mp.mpf]
Values = list[mp.mpf]
mp.mp.dps = 60
FLOAT, DOUBLE = 24, 53
LN2 = mp.log(2)


@dataclass(frozen=True, slots=True)
class Fit:
    """`target(t)` as c0 + c1 t + ... + c_degree t^degree over [low, high], where an error counts `weight(t)` times."""

    target: Real
    degree: int
    low: mp.mpf
    high: mp.mpf
    weight: Real
    bits: int


def chebyshev(fit: Fit, count: int) -> list[mp.mpf]:
    """`count` Chebyshev points of the interval, ends included."""
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    return [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]


def least_squares(powers: range, points: Sequence[mp.mpf], wanted: Sequence[mp.mpf], mass: Sequence[mp.mpf]) -> Values:
    """The coefficients of `powers` with the least sum of mass * (polynomial - wanted)**2 over the points."""
    columns = [[t**k for t in points] for k in powers]
    heavy = [[m * c for m, c in zip(mass, column, strict=True)] for column in columns]
    matrix = mp.matrix([[mp.fdot(a, b) for b in columns] for a in heavy])
    return list(mp.lu_solve(matrix, mp.matrix([mp.fdot(a, wanted) for a in heavy])))


def refit(fit: Fit, fixed: Values, points: Values, values: Values, mass: Values, rounds: int) -> tuple[Values, Values]:
    """The coefficients above the `fixed` ones, and the mass they were found with."""
    weights = [fit.weight(t) for t in points]
    powers = range(len(fixed), fit.degree + 1)
    wanted = [value - horner(fixed, t) for t, value in zip(points, values, strict=True)]
    for _ in range(rounds):
        squares = [m * w * w for m, w in zip(mass, weights, strict=True)]
        free = least_squares(powers, points, wanted, squares)
        errors = [abs(e) for e in errors_of(fit, [*fixed, *free], points, values)]
        mass = [m * e for m, e in zip(mass, errors, strict=True)]
        total = mp.fsum(mass)
        mass = [m / total for m in mass]
    return free, mass


def horner(coefficients: Values, t: mp.mpf) -> mp.mpf:
    """c0 + c1 t + c2 t**2 + ..."""
    return mp.polyval([0, *reversed(coefficients)], t)


def errors_of(fit: Fit, coefficients: Values, points: Values, values: Values) -> Values:
    """The weighted error at each point."""
    pairs = zip(points, values, strict=True)
    return [(horner(coefficients, t) - value) * fit.weight(t) for t, value in pairs]


def rounded(value: mp.mpf, bits: int) -> mp.mpf:
    """`value` to the nearest number of `bits` significant bits."""
    with mp.workprec(bits):
        return +value


def minimax(fit: Fit) -> tuple[Values, mp.mpf]:
    """Rounded coefficients, lowest power first, and the greatest weighted error with them."""
    points = chebyshev(fit, 8 * (fit.degree + 2))
    values = [fit.target(t) for t in points]
    mass, rounds = [mp.mpf(1)] * len(points), 40
    fixed: Values = []
    while len(fixed) <= fit.degree:
        free, mass = refit(fit, fixed, points, values, mass, rounds)
        fixed, rounds = [*fixed, rounded(free[0], fit.bits)], 3
    fine = chebyshev(fit, 50 * (fit.degree + 2))
    return fixed, max(abs(error) for error in errors_of(fit, fixed, fine, [fit.target(t) for t in fine]))


def quotient(function: Real, power: int) -> Real:
    """`function(t) / t**power`, with enough digits to reach its limit at 0."""

    def value(t: mp.mpf) -> mp.mpf:
        with mp.workdps(150):
            t = t if abs(t) > mp.mpf("1e-30") else mp.mpf("1e-30")
            return function(t) / t**power

    return value


def odd(function: Real, power: int) -> Real:
    """`function(x) / x**power` by t = x**2."""
    by_x = quotient(function, power)
    return lambda t: by_x(mp.sqrt(t))


def per(function: Real) -> Real:
    """The weight that makes an error relative to `function`."""
    return lambda t: 1 / function(t)


def scaled_erfc(x: mp.mpf) -> mp.mpf:
    """erfc(x) exp(x**2)."""
    return mp.erfc(x) * mp.exp(x * x)


def folded(t: mp.mpf) -> mp.mpf:
    """The x > 0 of which t = (x - 3) / (x + 3), which brings a half-line into [-1, 1]."""
    return 3 * (1 + t) / (1 - t)


def small(power: int) -> Real:
    """abs(t)**power, kept above 0: the weight of a term that is added to larger ones."""
    return lambda t: abs(t) ** power + mp.mpf("1e-9")


def turn(function: Real, power: int) -> Real:
    """`function` of x turns, over x**power, by t = x**2."""
    return odd(lambda x: function(2 * mp.pi * x), power)


HALF = mp.mpf("0.501")
HALF_LN2 = LN2 / 2 * mp.mpf("1.002")
RATIO = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)  # of (m - 1) / (m + 1), for m from sqrt(1/2) to sqrt(2)
EIGHTH, QUARTER = mp.mpf("0.1251") ** 2, mp.mpf("0.2501") ** 2
E_TO_R = quotient(lambda r: mp.expm1(r) - r, 2)
NEAR_QUARTER = (mp.pi / 4 * mp.mpf("1.0005")) ** 2
SINE, COSINE = odd(lambda x: mp.sin(x) - x, 3), odd(lambda x: mp.cos(x) - 1 + x * x / 2, 4)
TWO_TO_R = quotient(lambda r: mp.power(2, r) - 1, 1)
LOG_OF_RATIO = odd(lambda s: 2 * mp.atanh(s) - 2 * s, 3)

# What each is, and where it is used, is said in the C text beside the coefficients.
FITS = {
    "exp_f32": Fit(E_TO_R, 4, -HALF_LN2, HALF_LN2, small(2), FLOAT),
    "exp2_f32": Fit(TWO_TO_R, 5, -HALF, HALF, small(1), FLOAT),
    "log_f32": Fit(
        quotient(lambda f: mp.log1p(f) - f + f * f / 2, 3), 7, -mp.mpf(1) / 3, mp.mpf(1) / 3, small(2), FLOAT
    ),
    "tanh_f32": Fit(odd(lambda x: mp.tanh(x) - x, 3), 5, mp.mpf(0), mp.mpf("0.8") ** 2, small(1), FLOAT),
    "erf_f32": Fit(odd(lambda x: mp.erf(x) - x, 1), 6, mp.mpf(0), mp.mpf(1), small(0), FLOAT),
    "erf_f32_tail": Fit(
        lambda x: mp.log(mp.erfc(x)), 6, mp.mpf(1), mp.mpf("4"), lambda x: mp.erfc(x) / mp.erf(x), FLOAT
    ),
    "wide_exp": Fit(TWO_TO_R, 5, -HALF, HALF, per(TWO_TO_R), DOUBLE),
    "wide_log": Fit(LOG_OF_RATIO, 5, mp.mpf(0), RATIO**2, small(1), DOUBLE),
    "wide_sin_half": Fit(turn(mp.sin, 1), 5, mp.mpf(0), QUARTER, per(turn(mp.sin, 1)), DOUBLE),
    "wide_sin": Fit(turn(mp.sin, 1), 4, mp.mpf(0), EIGHTH, per(turn(mp.sin, 1)), DOUBLE),
    "wide_cos": Fit(turn(mp.cos, 0), 4, mp.mpf(0), EIGHTH, per(turn(mp.cos, 0)), DOUBLE),
    "wide_asin": Fit(odd(lambda x: mp.asin(x) - x, 3), 7, mp.mpf(0), mp.mpf("0.25"), small(1), DOUBLE),
    "wide_atan": Fit(odd(lambda x: mp.atan(x) - x, 3), 11, mp.mpf(0), mp.mpf(1), small(1), DOUBLE),
    "erfc_f32": Fit(
        lambda t: scaled_erfc(folded(t)),
        13,
        mp.mpf(-1),
        mp.mpf(8) / 14,
        lambda t: 1 / scaled_erfc(folded(t)),
        DOUBLE,
    ),
    "exp_f64": Fit(E_TO_R, 9, -HALF_LN2, HALF_LN2, small(1), DOUBLE),
    "log_f64": Fit(LOG_OF_RATIO, 6, mp.mpf(0), RATIO**2, small(1), DOUBLE),
    "sin_f32": Fit(SINE, 2, mp.mpf(0), NEAR_QUARTER, small(1), FLOAT),
    "cos_f32": Fit(COSINE, 2, mp.mpf(0), NEAR_QUARTER, small(2), FLOAT),
    "tan_f32": Fit(odd(lambda x: mp.tan(x) - x, 3), 6, mp.mpf(0), NEAR_QUARTER, small(1), FLOAT),
    "sin_f64": Fit(SINE, 5, mp.mpf(0), NEAR_QUARTER, small(1), DOUBLE),
    "cos_f64": Fit(COSINE, 5, mp.mpf(0), NEAR_QUARTER, small(2), DOUBLE),
    "pow_f64": Fit(
        odd(lambda s: 3 * mp.atanh(s) / s - 3 - s * s, 4),
        6,
        mp.mpf(0),
        (RATIO * mp.mpf("1.0005")) ** 2,
        small(2),
        DOUBLE,
    ),
    "asin_f64": Fit(odd(lambda x: mp.asin(x) - x, 3), 12, mp.mpf(0), mp.mpf("0.25"), small(1), DOUBLE),
    "atan_f64": Fit(odd(lambda x: mp.atan(x) - x, 3), 12, mp.mpf(0), HALF**2, small(1), DOUBLE),
    "sinh_f64": Fit(odd(lambda x: mp.sinh(x) - x, 3), 6, mp.mpf(0), mp.mpf(1), small(1), DOUBLE),
    "erf_f64": Fit(odd(lambda x: mp.erf(x) - x, 1), 11, mp.mpf(0), mp.mpf(1), small(0), DOUBLE),
    "erf_f64_tail": Fit(
        lambda t: scaled_erfc(folded(t)),
        11,
        mp.mpf("-0.5"),
        mp.mpf(1) / 3,
        lambda t: mp.exp(-(folded(t) ** 2)) / mp.erf(folded(t)),
        DOUBLE,
    ),
}


def spelled(coefficient: mp.mpf, bits: int) -> str:
    """The shortest decimal that reads back as the coefficient, as C spells it."""
    digits: str = next(
        text for n in range(1, 20) if rounded(mp.mpf(text := mp.nstr(coefficient, n)), bits) == coefficient
    )
    return digits + ("f" if bits == FLOAT else "")


def coefficients(name: str) -> tuple[list[str], mp.mpf]:
    """The coefficients of a fit as C spells them, highest power first, and the greatest weighted error."""
    found, error = minimax(FITS[name])
    return [spelled(each, FITS[name].bits) for each in reversed(found)], error


def missing(name: str) -> list[str]:
    """The coefficients of a fit that are nowhere in the C text; a sign stands apart from its number there."""
    numbers = {number for path in TEXT.glob("*.c") for number in re.findall(r"[\d.]+(?:e-?\d+)?f?", path.read_text())}
    return [each for each in coefficients(name)[0] if each.lstrip("-") not in numbers]


def main(names: Sequence[str]) -> int:
    """Print the coefficients of each fit; 1 if the C text has others."""
    lost = 0
    for name in names or FITS:
        texts, error = coefficients(name)
        print(f"{name}: degree {FITS[name].degree}, error 2^{float(mp.log(error, 2)):.1f}")
        print("\n".join(f"    {each}" for each in texts), flush=True)
        if absent := missing(name):
            lost += len(absent)
            print(f"    not in the C text: {', '.join(absent)}")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
