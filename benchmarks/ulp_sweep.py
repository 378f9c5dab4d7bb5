"""How far is each scalar function of language `c` from the truth, in ulp, over its whole range; and how fast is it?

`python benchmarks/ulp_sweep.py [--only NAME ...] [--log2-count 24] [-o FILE]` compiles the text of
noyau/codegen/cmath for several CPU levels and compares it with the C library's long double functions (64 bits,
checked here against mpmath): float32 over 2**24 bit patterns evenly spaced over all exponents and both signs, float64
over 2**20 random bit patterns, and all pairs of special values. Two operands: the second is a scrambled pattern, or
lies where the result is interesting. Speed: a plain loop over 32768 values (256 KiB with the result: level 2 cache),
beside the same loop over the C library's function.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import itertools
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
from record import write as write_record

from noyau.codegen import cmath

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared", "-std=c11"]
RESULTS = Path(__file__).parent / "results" / "ulp_sweep.json"
CHUNK = 1 << 20
LOOP = 32768

# The truth, in long double, where it is not the C library's function of the same name.
TRUTH = {
    "rounded": "x",
    "rsqrt": "1 / sqrtl(x)",
    "reciprocal": "1 / x",
    "sigmoid": "1 / (1 + expl(-x))",
    "softplus": "x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x))",
    "round_even": "rintl(x)",
    "sign": "x > 0 ? 1 : x < 0 ? -1 : x + 0",
    "abs": "fabsl(x)",
    "maximum": "isnan(x) ? x : isnan(y) ? y : fmaxl(x, y)",
    "minimum": "isnan(x) ? x : isnan(y) ? y : fminl(x, y)",
    "floor_mod": "floor_mod(x, y)",
    "floor_divide": "floor_divide(x, y)",
}
FLOORED = """
static long double floor_mod(long double x, long double y) {
    const long double rest = fmodl(x, y);
    return rest == 0 ? copysignl(0, y) : (rest < 0) == (y < 0) ? rest : rest + y;
}

static long double floor_divide(long double x, long double y) {
    const long double rest = fmodl(x, y);
    const long double whole = rintl((x - rest) / y) - (rest != 0 && (rest < 0) != (y < 0));
    return y == 0 ? x / y : whole == 0 ? copysignl(0, x / y) : whole;
}
"""
BY_MPMATH = {"reciprocal": lambda x: 1 / x, "rsqrt": lambda x: 1 / mpmath.sqrt(x), "abs": abs, "pow": mpmath.power} | {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "fmod": lambda x, y: mpmath.sign(x) * mpmath.fmod(abs(x), abs(y)),
}
SPECIAL = [0.0, 1e-45, 1.1754942e-38, 1.1754944e-38, 1e-20, 0.1, 0.25, 0.5, 0.75, 0.99999994, 1.0, 1.0000001, 1.5, 2.0]
SPECIAL += [2.5, 3.0, 3.1415927, 4.0, 17.0, 88.72283, 88.72284, 103.97208, 104.0, 127.0, 128.0, 149.0, 150.0, 709.8]
SPECIAL += [745.2, 16777215.0, 16777217.0, 1e20, 3.4028235e38, float("inf"), float("nan")]


@dataclass(frozen=True, slots=True)
class Function:
    """A function to sweep: `noyau_<stem>_<dtype>` of `arity` operands."""

    name: str
    arity: int

    @property
    def stem(self) -> str:
        return self.name.removeprefix("noyau_")[: -len("_f32")]

    @property
    def dtype(self) -> type[np.floating]:
        return np.float32 if self.name.endswith("f32") else np.float64

    @property
    def c_type(self) -> str:
        return "float" if self.name.endswith("f32") else "double"

    @property
    def peer(self) -> str | None:
        """The C library's function of the same meaning and type, if it has one."""
        return None if self.stem in TRUTH else self.stem + ("f" if self.dtype is np.float32 else "")

    @property
    def operands(self) -> list[str]:
        return ["x", "y"][: self.arity]


def functions() -> list[Function]:
    """All that are promised, but for the conversions, whose every pattern is in the tests."""
    names = sorted(name for name in cmath.NAMES if "_to_" not in name)
    signatures = (re.search(rf"{name}\((.*)\) {{", cmath.SNIPPETS[name].text) for name in names)
    return [Function(name, found[1].count(",") + 1) for name, found in zip(names, signatures, strict=True) if found]


def source(swept: Sequence[Function]) -> str:
    """C text with a loop over each function, and over its truth."""
    loops = [cmath.text(function.name for function in swept), FLOORED]
    for function in swept:
        expression = TRUTH.get(function.stem, f"{function.stem}l({', '.join(function.operands)})")
        values = "".join(f", const {function.c_type} *restrict p{name}" for name in function.operands)
        wide = "".join(f"const long double {name} = p{name}[i]; " for name in function.operands)
        arguments = ", ".join(f"p{name}[i]" for name in function.operands)
        for kind, made, body in (
            (function.c_type, f"loop_{function.name}", f"out[i] = {function.name}({arguments});"),
            (function.c_type, f"peer_{function.name}", f"out[i] = {function.peer}({arguments});"),
            ("long double", f"truth_{function.name}", f"{wide}out[i] = {expression};"),
        ):
            if function.peer is None and made.startswith("peer"):
                continue
            loops.append(
                f"void {made}({kind} *restrict out{values}, int64_t n) {{\n"
                f"    for (int64_t i = 0; i < n; i++) {{ {body} }}\n}}"
            )
    return "\n".join(loops)


@dataclass(frozen=True, slots=True)
class Build:
    """The loops as one compiler made them for one CPU level."""

    label: str
    library: ctypes.CDLL

    def run(self, function: str, operands: Sequence[np.ndarray], dtype: type[np.floating]) -> np.ndarray:
        """The loop over packed operands of one size."""
        out = np.empty(operands[0].size, dtype)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (out, *operands)]
        self.library[function](*pointers, ctypes.c_int64(out.size))
        return out


def compilers() -> list[list[str]]:
    """gcc, and clang where ziglang is installed."""
    zig = [sys.executable, "-m", "ziglang", "cc"]
    found = subprocess.run([*zig, "--version"], capture_output=True, check=False).returncode == 0
    return [["gcc"], *([zig] if found else [])]


def builds(swept: Sequence[Function], folder: Path) -> Iterator[Build]:
    """Each compiler, with fused multiply-add (x86-64-v3) and without (x86-64-v2)."""
    text = folder / "loops.c"
    text.write_text(source(swept))
    for compiler, level in itertools.product(compilers(), ("v3", "v2")):
        march = f"-march=x86-64-{level}" if compiler == ["gcc"] else f"-mcpu=x86_64_{level}"
        name = "gcc" if compiler == ["gcc"] else "clang"
        library = folder / f"{name}_{level}.so"
        subprocess.run([*compiler, *FLAGS, march, str(text), "-o", str(library), "-lm"], check=True)
        yield Build(f"{name} x86-64-{level}", ctypes.CDLL(str(library)))


def patterns(function: Function, log2_count: int) -> Iterator[list[np.ndarray]]:
    """The operands of the sweep, in chunks; the second operand in three ways."""
    rng = np.random.default_rng(1)
    for chunk in range(max(1, (1 << log2_count) // CHUNK)):
        size = min(CHUNK, 1 << log2_count)
        if function.dtype is np.float32:
            step = 1 << (32 - log2_count)
            bits = (np.arange(size, dtype=np.uint64) + chunk * size) * step + rng.integers(step)
            x: np.ndarray = bits.astype(np.uint32).view(np.float32)
        else:
            with np.errstate(invalid="ignore"):  # a sum makes signalling NaN quiet
                x = rng.integers(0, 1 << 64, size, np.uint64).view(np.float64) + 0.0
        if function.arity == 1:
            yield [x]
            continue
        width = np.uint32 if function.dtype is np.float32 else np.uint64
        with np.errstate(all="ignore"):
            near = x * np.exp2(rng.uniform(-40, 40, size)) * rng.choice([-1, 1], size)
            in_range = rng.uniform(-150, 130, size) / np.log2(np.abs(x.astype(np.float64)))
            wild = rng.permutation(x.view(width)).view(function.dtype)
            way = rng.integers(3, size=size)
            y = np.select([way == 0, way == 1], [near, in_range], wild)
            yield [x, np.where(rng.integers(8, size=size) == 0, np.rint(y), y).astype(function.dtype)]


def ordinary(function: Function) -> list[np.ndarray]:
    """Float64 operands of everyday size, which random bit patterns hardly meet."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(CHUNK) * np.exp2(rng.uniform(-12, 10, CHUNK))
    return [array.astype(function.dtype) for array in (x, rng.permutation(x))][: function.arity]


def special(function: Function) -> list[np.ndarray]:
    """All pairs of special values of both signs."""
    values = np.array([*SPECIAL, *(-np.array(SPECIAL))], function.dtype)
    return [axis.ravel().copy() for axis in np.meshgrid(*[values] * function.arity)]


def ulps(got: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """|got - truth| in units of got's last place at truth; infinity counts as the first value beyond the range."""
    info = np.finfo(got.dtype)
    beyond = np.ldexp(np.longdouble(1), int(info.maxexp))
    exponent = np.frexp(np.clip(truth, -info.max, info.max))[1]
    unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, info.minexp).astype(np.int32) - info.nmant)
    wide = np.clip(got.astype(np.longdouble), -beyond, beyond)
    error = np.abs(wide - np.clip(truth, -beyond, beyond)) / unit
    wrong = (np.isnan(got) != np.isnan(truth)) | (~np.isnan(truth) & (np.signbit(got) != np.signbit(truth)))
    return np.where(wrong, np.inf, np.where(np.isnan(truth), 0, error))


def worst(function: Function, build: Build, operands: Sequence[np.ndarray], truth: np.ndarray) -> tuple[float, str]:
    """The greatest error and where it is. Between two zeros of different signs, max and min may take either."""
    error = ulps(build.run(f"loop_{function.name}", operands, function.dtype), truth)
    if function.stem in ("maximum", "minimum", "fmax", "fmin"):
        error[(operands[0] == 0) & (operands[1] == 0)] = 0
    at = int(np.argmax(error))
    return float(error[at]), ", ".join(float(array[at]).hex() for array in operands)


def truth_error(function: Function, build: Build) -> float:
    """The greatest error of the truth against mpmath over 200 everyday arguments, in ulp of long double."""
    if function.dtype is np.float32 or not (evaluate := by_mpmath(function.stem)):
        return 0.0
    operands = [array[:200] for array in ordinary(function)]
    got = build.run(f"truth_{function.name}", operands, np.longdouble)
    with mpmath.workdps(60):
        rows = [row for row in zip(got, *operands, strict=True) if np.isfinite(row[0]) and row[0] != 0]
        pairs = [(as_mpf(value), evaluate(*map(mpmath.mpf, row))) for value, *row in rows]
        return float(max(abs(value / exact - 1) for value, exact in pairs)) * 2.0**63


def as_mpf(value: np.longdouble) -> mpmath.mpf:
    """A long double, exactly."""
    mantissa, exponent = np.frexp(value)
    return mpmath.ldexp(mpmath.mpf(int(np.ldexp(mantissa, 64))), int(exponent) - 64)


def by_mpmath(stem: str) -> Callable[..., Any] | None:
    """The function of mpmath, where it has one."""
    return BY_MPMATH.get(stem) or getattr(mpmath, stem, None)


def sweep(function: Function, made: Sequence[Build], log2_count: int) -> dict[str, Any]:
    """The worst error of a function with each build."""
    found = {build.label: (-1.0, "") for build in made}
    count = log2_count if function.dtype is np.float32 else min(log2_count, 20)
    for operands in itertools.chain(patterns(function, count), [ordinary(function), special(function)]):
        truth = made[0].run(f"truth_{function.name}", operands, np.longdouble)
        for build in made:
            found[build.label] = max(found[build.label], worst(function, build, operands, truth))
    ulp, at = max(found.values())
    by_build = {label: round(error, 4) for label, (error, _) in found.items()}
    return {"ulp": round(ulp, 4), "promised": cmath.ULP[function.name], "worst_argument": at, "ulp_by_build": by_build}


def gigabytes_per_s(function: Function, build: Build, kind: str) -> float:
    """Bytes read and written a second by the loop or by its peer: the best of many short runs, over ordinary values."""
    x = np.random.default_rng(3).uniform(0.1, 4.0, LOOP).astype(function.dtype)
    out, loop = np.empty_like(x), build.library[f"{kind}_{function.name}"]
    arguments = [ctypes.c_void_p(array.ctypes.data) for array in [out, *[x] * function.arity]]
    best_s = float("inf")
    for _ in range(300):
        start_s = time.perf_counter()
        loop(*arguments, ctypes.c_int64(LOOP))
        best_s = min(best_s, time.perf_counter() - start_s)
    return round((1 + function.arity) * x.nbytes / best_s / 1e9, 2)


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    versions = [
        subprocess.run([*cc, "--version"], capture_output=True, text=True, check=True).stdout for cc in compilers()
    ]
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "compilers": "; ".join(version.splitlines()[0] for version in versions),
        "flags": " ".join(FLAGS),
        "libc": " ".join(platform.libc_ver()),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> int:
    """Sweep, print a line for each function, write the record; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--log2-count", type=int, default=24)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    swept = [each for each in functions() if not options.only or each.name in options.only]
    record: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        made = list(builds(swept, Path(folder)))
        for function in swept:
            record[function.name] = entry = sweep(function, made, options.log2_count)
            entry["gigabytes_per_s"] = gigabytes_per_s(function, made[0], "loop")
            if function.peer:
                entry["libm_gigabytes_per_s"] = gigabytes_per_s(function, made[0], "peer")
            entry["truth_ulp_of_long_double"] = round(truth_error(function, made[0]), 2)
            print(function.name, *entry.values(), sep="  ", flush=True)
    write_record({"machine": machine(), "functions": record}, options.output)
    return int(any(entry["ulp"] > entry["promised"] for entry in record.values()))


if __name__ == "__main__":
    sys.exit(main())
