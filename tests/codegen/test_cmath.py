"""The scalar functions of language c: as exact as they promise, right at the edges, and vectorised."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from noyau.codegen import cmath
from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph
from tests.codegen.values import FLOAT8

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-std=c11"]
COUNTS = {np.float32: 1 << 16, np.float64: 1 << 15}  # benchmarks/ulp_sweep.py goes over more
C_TYPES = {"float": np.float32, "double": np.float64, "uint16_t": np.uint16, "uint8_t": np.uint8}
CONVERSIONS = {name for name in cmath.NAMES if "_to_" in name}
SWEPT = sorted(cmath.NAMES - CONVERSIONS)
# Those of what is known promise nothing elsewhere.
LOOPS = sorted(cmath.NAMES | {"noyau_exp_negative_f32", "noyau_share_f32", "noyau_f32_to_f16_to_f32"})
# What is the C library's in float64. Everything else is vectorised, and all of float32.
LIBRARY = "cos erfc floor_divide floor_mod fmod sin tan"
STRICT = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
REMARKS = {"gcc": "-fopt-info-vec-optimized", "clang": "-Rpass=loop-vectorize", "zig": "-Rpass=loop-vectorize"}


def pointwise(function):
    """A function of the math module over arrays."""
    return lambda x: np.array([function(each) for each in x.tolist()])


# The meaning of each function in NumPy, at any width, where it is not NumPy's function of the same name.
MEANING = {
    "rounded": lambda x: x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "erf": lambda x: pointwise(math.erf)(x.astype(np.float64)),
    "erfc": lambda x: pointwise(math.erfc)(x.astype(np.float64)),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "round_even": np.rint,
    "floor_mod": np.remainder,
}
SPECIAL = [0.0, 1e-45, 1e-40, 1.1754942e-38, 1.1754944e-38, 1e-20, 0.1, 0.25, 0.5, 0.99999994, 1.0, 1.0000001, 1.5, 2.0]
SPECIAL += [2.5, 3.0, 3.1415927, 4.0, 17.0, 88.72283, 88.72284, 104.0, 127.0, 128.0, 149.0, 150.0, 709.8, 745.2]
SPECIAL += [16777215.0, 16777217.0, 1e20, 3.4028235e38, np.inf, np.nan]
SPECIAL += [1.000001907084772, 1.000475227603639, 1.0076399306927855]  # where acosh is furthest off


def signature(name):
    """The result type and the parameter types of a function."""
    found = re.search(rf"NOYAU_INLINE (\w+) {name}\((.*?)\) {{", cmath.SNIPPETS[name].text)
    return found[1], [parameter.split()[0] for parameter in found[2].split(", ")]


def loops():
    """C text with a plain loop over each function."""
    texts = [cmath.text(LOOPS)]
    for name in LOOPS:
        result, kinds = signature(name)
        parameters = "".join(f", const {kind} *restrict p{k}" for k, kind in enumerate(kinds))
        call = f"{name}({', '.join(f'p{k}[i]' for k in range(len(kinds)))})"
        texts.append(f"void loop_{name}({result} *restrict out{parameters}, int64_t n) {{")
        texts.append(f"    for (int64_t i = 0; i < n; i++) out[i] = {call};\n}}")
    return "\n".join(texts) + "\n"


@functools.cache
def compilers():
    """The compilers that are here: how each is called, and how it is told a level."""
    found = {name: ([name], "-march=x86-64-v{}") for name in ("gcc", "clang") if shutil.which(name)}
    zig = [sys.executable, "-m", "ziglang", "cc"]
    if subprocess.run([*zig, "--version"], capture_output=True, check=False).returncode == 0:
        found["zig"] = (zig, "-mcpu=x86_64_v{}")
    return found


def levels():
    """The x86-64 levels that this machine runs, of those with (3) and without (2) fused multiply-add."""
    cpu = Path("/proc/cpuinfo")
    features = cpu.read_text().split() if cpu.exists() else []
    return [level for level, feature in ((2, "sse4_2"), (3, "fma")) if feature in features]


@functools.cache
def compiled(name, level, folder):
    """What a compiler says about the loops, without a warning, and the path of the assembly that it makes of them."""
    command, march = compilers()[name]
    text, made = folder / f"{name}-{level}.c", folder / f"{name}-{level}.s"
    text.write_text(loops())
    arguments = [*FLAGS, *STRICT, march.format(level), REMARKS[name], "-fPIC", "-S", str(text), "-o", str(made)]
    said = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stderr
    return said, made


BUILDS = [(compiler, level) for compiler in compilers() for level in levels()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of all that this process compiles here: each compiler and level once, which takes seconds."""
    return tmp_path_factory.mktemp("cmath")


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: f"{build[0]}-v{build[1]}")
def run(request, folder):
    """Runs a function over arrays, as one compiler made it for one level."""
    _, assembly = compiled(*request.param, folder)
    command, _ = compilers()[request.param[0]]
    library_path = assembly.with_suffix(".so")
    subprocess.run([*command, "-shared", str(assembly), "-o", str(library_path), "-lm"], check=True)
    library = ctypes.CDLL(str(library_path))

    def call(name, *operands):
        result, kinds = signature(name)
        with np.errstate(invalid="ignore"):
            packed = [np.ascontiguousarray(each, C_TYPES[kind]) for each, kind in zip(operands, kinds, strict=True)]
        out = np.empty(packed[0].shape, C_TYPES[result])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (out, *packed)]
        library[f"loop_{name}"](*pointers, ctypes.c_int64(out.size))
        return out

    return call


@np.errstate(all="ignore")
def every_size(dtype, arity):
    """Bit patterns over all exponents and both signs; a second operand near the first, near 1, or anywhere."""
    rng = np.random.default_rng(0)
    count, unsigned = COUNTS[dtype], {np.float32: np.uint32, np.float64: np.uint64}[dtype]
    step = (int(np.iinfo(unsigned).max) + 1) // count
    bits = np.arange(count, dtype=unsigned) * unsigned(step) + rng.integers(step, size=count, dtype=unsigned)
    x = bits.view(dtype) + dtype(0)  # a sum makes a signalling NaN quiet
    common = (rng.standard_normal(count) * np.exp2(rng.uniform(-12, 8, count))).astype(dtype)
    if arity == 1:
        return [np.where(rng.integers(2, size=count), x, common)]
    near = x * np.exp2(rng.uniform(-40, 40, count)).astype(dtype)
    kind = rng.integers(3, size=count)
    return [np.where(kind == 1, rng.permutation(common), x), np.choose(kind, [near, common, rng.permutation(x)])]


def edges(dtype, arity):
    """All pairs of special values of both signs."""
    values = np.array([*SPECIAL, *(-np.array(SPECIAL))]).astype(dtype)
    return [axis.ravel() for axis in np.meshgrid(*[values] * arity)]


@functools.cache
def cases(name):
    """Operands, and the truth in long double."""
    dtype, arity = C_TYPES[signature(name)[0]], len(signature(name)[1])
    stem = name.removeprefix("noyau_")[:-4]
    with np.errstate(all="ignore"):
        operands = [np.concatenate(pair) for pair in zip(every_size(dtype, arity), edges(dtype, arity), strict=True)]
        meaning = MEANING.get(stem) or getattr(np, stem)
        return operands, np.asarray(meaning(*(each.astype(np.longdouble) for each in operands)), np.longdouble)


def ulps(got, truth):
    """|got - truth| in units of got's last place at truth; infinity counts as the first value beyond the range."""
    info = np.finfo(got.dtype)
    beyond = np.ldexp(np.longdouble(1), info.maxexp)
    with np.errstate(invalid="ignore"):
        exponent = np.frexp(np.clip(truth, -info.max, info.max))[1].astype(np.int32)
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
        error = np.abs(np.clip(got.astype(np.longdouble), -beyond, beyond) - np.clip(truth, -beyond, beyond)) / unit
    wrong = (np.isnan(got) != np.isnan(truth)) | (~np.isnan(truth) & (np.signbit(got) != np.signbit(truth)))
    return np.where(wrong, np.inf, np.where(np.isnan(truth), 0, error))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float here to judge float64 by")
@pytest.mark.parametrize("name", SWEPT)
def test_a_function_keeps_its_promise(run, name):
    operands, truth = cases(name)
    error = ulps(run(name, *operands), truth)
    if re.search(r"max|min", name):
        error[(operands[0] == 0) & (operands[1] == 0)] = 0  # of -0 and 0, either
    worst = int(np.argmax(error))
    slack = 1 if re.search(r"erfc?_f64", name) else 0  # the truth is no wider than float64 there
    assert error[worst] <= cmath.ULP[name] + slack, [float(each[worst]).hex() for each in operands]


def test_e_to_what_is_never_above_0_is_e_to_anything(run):
    bits = np.arange(0x80000000, 0xFF800001, 4099, dtype=np.uint32)  # -0 to -inf
    nan, rounded_up = np.float32([np.nan]), np.float32([1e-7, 0.5, 60])
    x = np.concatenate([bits.view(np.float32), np.linspace(-105, 0, 100001, dtype=np.float32), nan, rounded_up])
    got, want = run("noyau_exp_negative_f32", x), run("noyau_exp_f32", x)
    normal = ~(want < 2**-120)  # below it the product with the scale is rounded apart
    assert np.array_equal(got[normal], want[normal], equal_nan=True)
    assert ulps(got[~normal], np.exp(x[~normal].astype(np.float64))).max() <= cmath.ULP["noyau_exp_f32"]


def test_a_share_is_the_quotient(run, request):
    """Its very bits where products are fused with sums; of denormals the last bit may be another one."""
    rng = np.random.default_rng(0)
    part = np.concatenate(
        [[0, 1, 1, np.nan], np.exp(-60 * rng.random(100000) ** 2), 2.0 ** -rng.uniform(100, 149, 1000)]
    )
    whole = np.concatenate([[1, 1, 3e38, 2], 2 ** rng.uniform(0, 20, 50000), rng.integers(1, 5000, part.size - 50004)])
    part, whole = part.astype(np.float32), whole.astype(np.float32)
    got, truth = run("noyau_share_f32", part, whole), part.astype(np.float64) / whole
    _, level = request.node.callspec.params["run"]
    normal = ~(truth < 2.0**-126)
    assert ulps(got, truth)[normal].max() <= (0.5 if level == 3 else 2)
    assert ulps(got, truth)[~normal].max() <= 1


def test_ulps_measures():
    got = np.array([1, 1 + 2**-23, 0.0, np.inf, np.nan, 1, 3.4028235e38, 2**-149], np.float32)
    truth = np.array([1 - 2**-26, 1, -0.0, 1e39, 1, np.nan, np.inf, 2**-150], np.longdouble)
    np.testing.assert_array_equal(ulps(got, truth), [0.25, 1, np.inf, 0, np.inf, np.inf, 1, 0.5])


@pytest.mark.parametrize(
    ("name", "operands", "wanted"),
    [
        ("exp_f32", [-100.0], 3.8e-44),
        ("exp_f32", [-np.inf], 0.0),
        ("exp_f64", [-745.0], 5e-324),
        ("exp2_f32", [-149.0], 2.0**-149),
        ("sigmoid_f32", [-100.0], 3.8e-44),
        ("log_f32", [1e-45], math.log(2.0**-149)),
        ("sin_f32", [3.4028235e38], -0.5218765),
        ("cos_f32", [1e30], math.cos(float(np.float32(1e30)))),
        ("sin_f64", [-0.0], -0.0),
        ("sin_f64", [1e22], -0.8522008497671888),
        ("tan_f64", [1.5707963267948966], 1.633123935319537e16),
        ("pow_f64", [-0.0, -3.0], -np.inf),
        ("pow_f64", [1.0, np.nan], 1.0),
        ("pow_f64", [2.0, -1074.0], 5e-324),
        ("pow_f64", [-8.0, 3.0], -512.0),
        ("pow_f32", [1.0, np.nan], 1.0),
        ("pow_f32", [np.nan, 0.0], 1.0),
        ("pow_f32", [-1.0, np.inf], 1.0),
        ("pow_f32", [-8.0, 3.0], -512.0),
        ("pow_f32", [-np.inf, -3.0], -0.0),
        ("pow_f32", [-8.0, 0.5], np.nan),
        ("atan2_f32", [-0.0, -0.0], -np.pi),
        ("floor_mod_f32", [-1.0, 3.0], 2.0),
        ("fmod_f32", [3.4028235e38, 1e-45], 0.0),
        ("maximum_f32", [np.nan, 1.0], np.nan),
        ("maximum_f32", [1.0, np.nan], np.nan),
        ("fmax_f32", [1.0, np.nan], 1.0),
        ("fmin_f32", [np.nan, 1.0], 1.0),
        ("round_even_f32", [2.5], 2.0),
    ],
)
def test_an_edge(run, name, operands, wanted):
    got = run(f"noyau_{name}", *([each] * 8 for each in operands))
    expected = np.full(8, wanted).astype(got.dtype)
    np.testing.assert_array_max_ulp(got, expected, 1)
    assert (np.signbit(got) == np.signbit(expected)).all() or np.isnan(wanted)


# dtype, bits after the point, least exponent, first power of two beyond the range
FORMATS = {"f16": (np.dtype(np.float16), 10, -14, 2.0**16), "bf16": (np.dtype(ml_dtypes.bfloat16), 7, -126, 2.0**128)}
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def nearest(x, tail, low, beyond):
    """float64 rounded to a format with `tail` bits after the point, halves to even, by exact arithmetic."""
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(x)[1] - 1, low) - tail
        value = np.ldexp(np.rint(np.ldexp(x, -exponent)), exponent)
        return np.where(np.abs(value) >= beyond, np.copysign(np.inf, x), value)


@pytest.mark.parametrize("dtype", FLOAT8, ids=lambda dtype: dtype.value)
def test_every_float8_is_a_float_and_floats_go_to_the_nearest(run, dtype):
    codes = np.arange(256, dtype=np.uint8)
    wide = run(f"noyau_{dtype.value}_to_f32", codes)
    want = codes.view(dtype.numpy).astype(np.float32)
    assert np.array_equal(wide, want, equal_nan=True)
    assert np.array_equal(np.signbit(wide[~np.isnan(wide)]), np.signbit(want[~np.isnan(want)]))
    numbers = np.unique(want[np.isfinite(want)]).astype(np.float64)
    between = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(between, np.float32(end)) for end in (-np.inf, np.inf)]
    x = np.concatenate([want, between, *near, 1.1 * want, (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)])
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        nearest = x.astype(dtype.numpy)
    assert np.array_equal(run(f"noyau_f32_to_{dtype.value}", x), nearest.view(np.uint8))


@pytest.mark.parametrize("half", FORMATS)
def test_every_half_is_a_float_and_comes_back(run, half):
    dtype = FORMATS[half][0]
    wide = run(f"noyau_{half}_to_f32", PATTERNS)
    finite = ~np.isnan(PATTERNS.view(dtype).astype(np.float32))
    wanted = PATTERNS.view(dtype)[finite].astype(np.float32)
    np.testing.assert_array_equal(wide[finite].view(np.uint32), wanted.view(np.uint32))
    assert np.isnan(wide[~finite]).all()
    for kind in ("f32", "f64"):
        back = run(f"noyau_{kind}_to_{half}", wide)
        np.testing.assert_array_equal(back[finite], PATTERNS[finite])
        assert np.isnan(back.view(dtype)[~finite].astype(np.float32)).all()


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("half", FORMATS)
def test_a_float_goes_to_the_nearest_half(run, half, kind):
    dtype, *format_ = FORMATS[half]
    float_type = {"f32": np.float32, "f64": np.float64}[kind]
    exact = np.sort(PATTERNS[: np.array(np.inf, dtype).view(np.uint16)].view(dtype).astype(np.float64))
    ties = (exact[1:] + exact[:-1]) / 2
    top = exact[-1] + np.ldexp(exact[-1] - exact[-2], -1)
    edge = np.concatenate([exact, ties, [top]]).astype(float_type)
    around = [np.nextafter(edge, float_type(way)) for way in (-np.inf, np.inf)]
    values = np.concatenate([edge, *around, every_size(float_type, 1)[0]])
    x = np.concatenate([values, -values]).astype(float_type)
    got = run(f"noyau_{kind}_to_{half}", x).view(dtype).astype(np.float64)
    np.testing.assert_array_equal(got, nearest(x.astype(np.float64), *format_))
    zero = got == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(x[zero]))


def test_a_float_through_float16_is_what_both_conversions_give(run):
    wide = np.sort(PATTERNS[:0x7C00].view(np.float16).astype(np.float32))
    edge = np.concatenate([wide, (wide[1:] + wide[:-1]) / 2, np.array([65504, 65520, 65536, 2**127, np.inf], "f4")])
    around = [np.nextafter(edge, np.float32(way)) for way in (-np.inf, np.inf)]
    values = np.concatenate([edge, *around, every_size(np.float32, 1)[0], np.array([np.nan], "f4")])
    x = np.concatenate([values, -values])
    got, wanted = run("noyau_f32_to_f16_to_f32", x), run("noyau_f16_to_f32", run("noyau_f32_to_f16", x))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(got[number].view(np.uint32), wanted[number].view(np.uint32))
    assert np.isnan(got[~number]).all()


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("compiler", compilers())
def test_every_loop_is_vectorised_without_a_warning(compiler, level, folder):
    remarks, path = compiled(compiler, level, folder)
    assembly = path.read_text("latin-1")
    starts = [re.match(r"void loop_noyau_(\w+)", line) for line in loops().splitlines()]
    lines = {int(line) for line in re.findall(rf"{compiler}-{level}\.c:(\d+):\d+: .*\bvectorized\b.*", remarks)}
    vectorised = {start[1] for at, start in enumerate(starts) if start and lines & {at + 1, at + 2}}
    bodies = re.findall(r"^loop_noyau_(\w+):.*?\n(.*?)^\s*\.size\s+loop_noyau_\1", assembly, re.MULTILINE | re.DOTALL)
    scalar = {f"{stem}_f64" for stem in LIBRARY.split()}
    assert {name for name, _ in bodies} == {name.removeprefix("noyau_") for name in LOOPS}
    assert {name for name, body in bodies if re.search(r"\b(call|jmp)q?\s+[a-z]", body)} == scalar
    assert {name for name, _ in bodies} - vectorised - scalar == set()


@pytest.mark.skipif("gcc" not in compilers(), reason="gcc gives special cases of a known exponent a path")
@pytest.mark.parametrize("level", [3, 4])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_power_of_a_known_exponent_is_a_loop_of_vectors(dtype, level, tmp_path):
    builder = GraphBuilder()
    x = builder.add_input("x", dtype, shape_of(["n"]))
    power = builder.call("power", x, builder.expand(builder.constant(2.2, dtype), x.shape))
    text = c_printer.source(schedule(lower(normalise(Graph(tuple(builder.nodes), (power.output,))), "powers")))
    assert re.search(r"noyau_pow_f\d+\(\w+, 2\.2f?\)", text)
    file, assembly = tmp_path / "power.c", tmp_path / "power.s"
    file.write_text(text)
    command = ["gcc", *FLAGS, f"-march=x86-64-v{level}", REMARKS["gcc"], "-S", str(file), "-o", str(assembly)]
    remarks = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    loop = text[: text.index("for (int64_t i0 = 0")].count("\n") + 1
    assert re.search(rf"power\.c:{loop}:\d+: .*vectorized using {16 * 2 ** (level - 2)} byte vectors", remarks)
    assert not re.search(r"\bcall\s+(pow|exp|log)", assembly.read_text())


def test_text_has_each_snippet_once_after_what_it_calls():
    text = cmath.text(["noyau_tanh_f32", "noyau_pow_f32", "noyau_exp_f32"])
    defined = re.findall(r"^NOYAU_INLINE \w+ (noyau_\w+)\(", text, re.MULTILINE)
    assert len(defined) == len(set(defined)) > 3
    for position, name in enumerate(defined):
        assert set(cmath.SNIPPETS[name].calls) <= set(defined[:position])


def test_text_is_the_same_for_the_same_set():
    assert cmath.text(["noyau_exp_f32", "noyau_log_f32"]) == cmath.text(("noyau_log_f32", "noyau_exp_f32") * 2)
    assert cmath.text([]) == ""


def test_an_unknown_function_is_refused():
    with pytest.raises(UnsupportedError, match="c has no function noyau_gamma_f32"):
        cmath.text(["noyau_gamma_f32"])


@pytest.mark.skipif("gcc" not in compilers(), reason="the others take a second for each")
def test_each_function_compiles_alone(tmp_path):
    files = [tmp_path / f"{name}.c" for name in sorted(cmath.NAMES)]
    for file in files:
        file.write_text(cmath.text([file.stem]))
    subprocess.run(["gcc", "-std=c11", "-Werror", "-fsyntax-only", *map(str, files)], check=True)


def test_the_text_is_narrow_ascii():
    text = cmath.text(cmath.NAMES)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 120


def test_every_promised_function_promises_little():
    assert cmath.ULP.keys() == cmath.NAMES
    assert max(ulp for name, ulp in cmath.ULP.items() if name.endswith("f32")) <= 2.5


@pytest.mark.skipif("gcc" not in compilers(), reason="no gcc here")
@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("kind", ["float", "double"])
def test_powers_of_one_exponent_are_added_in_vectors(kind, level, tmp_path):
    """Conditions in the exponent are the same in all rounds: gcc 12 has no vectors for a choice by one."""
    name = {"float": "noyau_pow_f32", "double": "noyau_pow_f64"}[kind]
    head = f"void powers({kind} *restrict sums, const {kind} *restrict x, long n) {{ for (; n > 0; n--, x += 16)"
    loop = f"for (int lane = 0; lane < 16; lane++) sums[lane] += {name}(x[lane], 2.2);"
    lines = [*cmath.text([name]).splitlines(), head, loop, "}"]
    path = tmp_path / "powers.c"
    path.write_text("\n".join(lines) + "\n")
    arguments = [*FLAGS, compilers()["gcc"][1].format(level), REMARKS["gcc"], "-S", str(path), "-o", "/dev/null"]
    remarks = subprocess.run(["gcc", *arguments], check=True, capture_output=True, text=True).stderr
    assert re.search(rf"powers\.c:{len(lines) - 1}:\d+: optimized: loop vectorized", remarks)


@pytest.mark.parametrize("fit", ["exp_f32", "wide_exp", "wide_log"])
def test_the_coefficients_are_those_of_benchmarks_minimax(fit, monkeypatch):
    path = ROOT / "benchmarks" / "minimax.py"
    spec = importlib.util.spec_from_file_location("minimax", path)
    minimax = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "minimax", minimax)
    spec.loader.exec_module(minimax)
    assert minimax.missing(fit) == []


def test_no_function_of_floats_is_called_with_an_integer():
    """C++ has overloads of these, of which none is the nearest for an int and a float."""
    texts = "".join(path.read_text() for path in Path(cmath.__file__).parent.glob("*.c"))
    calls = r"\b(?:copysign|fmod|fmax|fmin|pow|atan2|hypot)f?\((?:[^(),]+, )?-?\d+[,)]"
    assert "copysign(" in texts and not re.findall(calls, texts)
