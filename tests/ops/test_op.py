from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import InputError, SignatureError

ROWS = """
#include <math.h>
#include <stdint.h>
void softmax(const float *x, float *out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r) {
        float top = -INFINITY, total = 0;
        for (int64_t i = 0; i < n; ++i) top = fmaxf(top, x[r * n + i]);
        for (int64_t i = 0; i < n; ++i) total += out[r * n + i] = expf(x[r * n + i] - top);
        for (int64_t i = 0; i < n; ++i) out[r * n + i] /= total;
    }
}
"""


def softmax_op():
    @noyau.op("float[*rows, n] -> float[*rows, n]")
    def softmax(x):
        """Rows that sum to 1."""
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return softmax


def scale_op(**said):
    @noyau.op("f32[n], f32 -> f32[n]", **said)
    def scale(x, by, *, shift=0.0):
        return x * by + np.float32(shift)

    return scale


def x(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_an_op_is_called_as_its_reference():
    softmax = softmax_op()
    given = x(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.allclose(softmax(given), softmax.reference(given))
    with noyau.reference():
        assert np.array_equal(softmax(given), softmax.reference(given))
    assert softmax.__name__ == softmax.name == "softmax"
    assert softmax.__doc__ == "Rows that sum to 1."
    assert str(softmax.signature) == "float[*rows, n] -> float[*rows, n]"
    assert repr(softmax) == '<op softmax "float[*rows, n] -> float[*rows, n]", kernels: none>'


def test_without_a_kernel_the_reference_runs_with_one_warning_that_names_the_line():
    @noyau.op("f32[n] -> f32[n]")
    def ordered(x):
        return np.sort(x)

    place = rf"ordered \(.*test_op\.py:{ordered.line}\)"
    told = rf"{place} runs as its reference: c(, numba)?: .* at line {ordered.line + 2} of .*"
    with pytest.warns(noyau.ReferenceWarning, match=told):
        assert np.array_equal(ordered(x(3)), np.sort(x(3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ordered(x(3))


def test_arguments_are_checked_at_the_fast_call():
    with pytest.raises(SignatureError, match=r"softmax: x: f32 does not fit float\[\*rows, n\]"):
        softmax_op()(np.float32(1))
    with pytest.raises(SignatureError, match=r"scale takes 2 inputs \(x, by\), and 1 is given"):
        scale_op()(x(3))
    with pytest.raises(SignatureError, match="scale: it has no parameter z; it takes x, by"):
        scale_op()(x(3), z=1)
    with pytest.raises(SignatureError, match="scale takes 2 inputs"):
        scale_op()(x(3), 1.0, 2.0)


def test_inputs_by_name_and_constants():
    scale = scale_op()
    with noyau.reference():
        assert np.allclose(scale(by=2.0, x=x(3)), 2 * x(3))
        assert np.allclose(scale(x(3), 2.0, shift=1.0), 2 * x(3) + 1)


def test_an_input_with_a_default_need_not_be_given():
    @noyau.op("f32[n], f32 -> f32[n]")
    def scale(x, by=2.0):
        return x * by

    given = x(3)
    for made in (scale(given), scale(x=given), scale(given, out=np.empty(3, np.float32))):
        assert np.array_equal(made, 2 * given)
    assert np.array_equal(scale(given, 3.0), np.float32(3) * given)
    with pytest.raises(SignatureError, match=r"scale takes 2 inputs \(x, by\), and 1 is given"):
        scale(by=3.0)


@noyau.op("f32[n] -> f32[n]")
def doubled(x):
    return x * 2


def test_an_op_is_copied_and_pickled_as_itself():
    assert copy.deepcopy([doubled])[0] is copy.copy(doubled) is pickle.loads(pickle.dumps(doubled)) is doubled


def test_a_trusted_kernel_runs_and_nothing_is_said():
    softmax = softmax_op()
    softmax.kernel(ROWS, language="c", trust=True)
    given = x(3, 2, 41)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = softmax(given)
    assert got.dtype == np.float32
    assert np.allclose(got, softmax.reference(given))


def test_a_kernel_that_was_not_checked_does_not_run():
    softmax = softmax_op()
    softmax.kernel(ROWS.replace("/= total", "= 7"), language="c")
    assert np.allclose(softmax(x(3, 4)).sum(-1), 1)
    assert "softmax may not: it has not been checked yet as it is" in str(softmax.explain(x(3, 4)))


def test_a_kernel_of_another_dtype_does_not_run():
    softmax = softmax_op()
    softmax.kernel(ROWS, language="c", trust=True)
    given = x(3, 4).astype(np.float64)
    assert softmax(given).dtype == np.float64
    assert "the parameter 'const float *x' cannot hold x: f64" in str(softmax.explain(given))


def test_a_kernel_that_does_not_take_a_changed_constant_does_not_run():
    scale = scale_op()
    scale.kernel(
        "void scale(const float *x, float by, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i] * by; }",
        language="c",
        trust=True,
    )
    assert np.allclose(scale(x(3), 2.0), 2 * x(3))
    assert np.allclose(scale(x(3), 2.0, shift=1.0), 2 * x(3) + 1)
    assert "it does not take the constant shift" in str(scale.explain(x(3), 2.0, shift=1.0))


def test_within_reference_everything_runs_as_written():
    softmax = softmax_op()
    softmax.kernel(ROWS.replace("/= total", "= 7"), language="c", trust=True)
    assert softmax(x(1, 4))[0, 0] == 7
    with noyau.reference():
        assert softmax(x(1, 4))[0, 0] != 7
    assert softmax(x(1, 4))[0, 0] == 7


def test_results_as_they_are_signed():
    @noyau.op("f32[n] -> low: f32, high: f32[]")
    def ends(x):
        return x.min(), x.max()

    with noyau.reference():
        low, high = ends(x(5))
    assert isinstance(low, np.float32)
    assert isinstance(high, np.ndarray)
    assert high.shape == ()


def test_what_a_reference_may_not_return():
    @noyau.op("f32[n] -> f32[n]")
    def halved(x):
        return x * np.full(3, 0.5)  # an array: to NumPy before 2 a float64 alone would be as x is

    with (
        noyau.reference(),
        pytest.raises(SignatureError, match="gives out as f64, and it is declared f32; cast it there"),
    ):
        halved(x(3))


def test_an_op_without_a_signature_runs_its_reference():
    @noyau.op
    def double(x):
        return x + x

    with pytest.warns(noyau.ReferenceWarning):
        assert double(3) == 6
    assert double.signature is None
    with pytest.raises(SignatureError, match="double has no signature; give it one"):
        double.instance([DType.F32], [1])
    with pytest.raises(SignatureError, match="double has no signature to make inputs from"):
        double.make()


def test_kernels_are_asked_for_by_dtypes_and_ranks_together():
    add = noyau.op("float[*b], float[*b] -> float[*b]")(lambda x, y: x + y)
    assert [each.dtype for each in add.instance([DType.F64] * 2, [2, 2]).inputs] == [DType.F64] * 2
    with pytest.raises(SignatureError, match=r"takes 2 inputs, and ranks= has 0; give both, each with one for each"):
        add.generate("c", dtypes=[DType.F64] * 2)
    with pytest.raises(SignatureError, match="takes 2 inputs, and dtypes= has 1"):
        add.generate("c", [DType.F64], [2, 2])


def test_without_a_signature_a_trusted_kernel_that_returns_runs():
    @noyau.op
    def double(x):
        return x + x

    double.kernel(lambda x: 7, name="seven")
    with pytest.warns(noyau.ReferenceWarning, match="seven: without a signature it cannot be checked: give it one, or"):
        assert double(3) == 6
    double.kernel(lambda x: 8, name="eight", trust=True)
    assert double(3) == 8
    with noyau.reference():
        assert double(3) == 6


def test_a_gradient_is_kept_once():
    scale = scale_op()

    @scale.gradient
    def slope(x, by, given):
        return given * by, None

    assert scale.description.gradient is slope
    with pytest.raises(SignatureError, match="scale: the gradient is a function, not 3"):
        scale.gradient(3)
    with pytest.raises(SignatureError, match="scale: n is 'a', and a size is an integer"):
        scale.make(n="a")
    with pytest.raises(SignatureError, match="scale has a gradient already: slope"):
        scale.gradient(slope)


def test_kernels_by_name_and_their_sources():
    softmax = softmax_op()
    made = softmax.kernel(ROWS, language="c", name="by_rows")
    assert list(softmax.kernels) == ["by_rows"]
    assert softmax.source("by_rows") == ROWS
    assert made.entry == "softmax"
    assert repr(softmax).endswith("kernels: by_rows[c]>")
    with pytest.raises(SignatureError, match="softmax has no kernel 'other'; there are: by_rows, c, numba"):
        softmax.source("other")
    with pytest.raises(TypeError):
        softmax.kernels["other"] = made


def test_a_callable_is_returned_as_it_was():
    scale = scale_op()

    @scale.kernel
    def fill(x, by, out):
        out[...] = x * by

    @scale.kernel(name="second", trust=True)
    def returned(x, by):
        return x * np.float32(by)

    assert list(scale.kernels) == ["fill", "second"]
    assert fill(x(3), 2.0, np.empty(3)) is None
    assert "def returned" in scale.source("second")
    assert np.allclose(scale(x(3), 2.0), returned(x(3), 2.0))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"sizes": {"bins": 10}}, "sizes= names bins, and .* has no such dim"),
        ({"sizes": 10}, "sizes= of .* is 10; give each dim a number"),
        ({"sizes": {"n": -1}}, "sizes=n is -1, and a size is never negative"),
        ({"sizes": {"n": 2.5}}, "sizes=n is 2.5, and a size is an integer"),
        ({"inputs": 5}, "inputs= of scale is a function of rng"),
        ({"inputs": lambda: ()}, "inputs= of scale is a function of rng"),
        ({"inputs": lambda rng, n: ()}, "sizes with usual values"),
    ],
)
def test_what_is_said_of_an_op_is_checked(said, told):
    with pytest.raises(SignatureError, match=told):
        scale_op(**said)


def test_every_dim_needs_a_number():
    def histogram(x):
        return np.zeros(10, np.int32)

    text = "f32[n] -> hist: i32[bins]"
    with pytest.raises(SignatureError, match=r"histogram: nothing gives the size bins of .*; say sizes=\{'bins'"):
        noyau.op(text)(histogram)
    made = noyau.op(text, sizes={"bins": 10})(histogram)
    with noyau.reference():
        assert made(x(3)).shape == (10,)


def test_a_dim_may_come_from_a_constant():
    @noyau.op("f32[n] -> f32[k]")
    def first(x, *, k=2):
        return x[:k]

    with noyau.reference():
        assert first(x(5)).shape == (2,)
        assert first(x(5), k=3).shape == (3,)
        with pytest.raises(SignatureError, match=r"first: k is 1.5, and a size is an integer"):
            first(x(5), k=1.5)


def test_inputs_are_made_from_the_signature_or_by_the_maker():
    given, by = scale_op().make(n=9)
    assert given.shape == (9,)
    assert by.dtype == np.float32
    with pytest.raises(SignatureError, match="scale has no size m; its sizes are: n"):
        scale_op().make(m=9)
    assert scale_op(inputs=lambda rng, n=4: (np.ones(n, np.float32), 2.0)).make(n=6)[0].shape == (6,)


def test_what_is_no_kernel():
    scale = scale_op()
    with pytest.raises(SignatureError, match="5 is no kernel; give a function, a path, or a text with language="):
        scale.kernel(5)
    with pytest.raises(SignatureError, match="entry= and language= are of texts"):
        scale.kernel(lambda x, by, out: None, entry="f")
    with pytest.raises(SignatureError, match="a kernel has no grid=; there are name, language, entry, launch, args"):
        scale.kernel(lambda x, by, out: None, grid=3)
    with pytest.raises(SignatureError, match="a kernel has no source=; there are name, language, entry, launch, args"):
        scale.kernel(source="void f(void) {}")  # which is no decorator that nobody applies
    with pytest.raises(SignatureError, match="None is no kernel; give a function, a path, or a text with language="):
        scale.kernel(language="c")


def test_a_path_is_from_the_file_of_the_op():
    with pytest.raises(InputError, match=r"tests/ops/nowhere\.c cannot be read: No such file"):
        scale_op().kernel("nowhere.c")


@pytest.mark.parametrize("what", [np.exp, "text", int])
def test_what_is_no_reference(what):
    with pytest.raises(SignatureError):
        noyau.op("f32[n] -> f32[n]")(what)


@pytest.mark.long
def test_every_form_passes_the_type_checker_and_the_linter_and_runs(tmp_path):
    from mypy import api as mypy

    from tests import signature_forms

    evaluated = tmp_path / "evaluated.py"  # annotations that Python evaluates
    text = Path(signature_forms.__file__).read_text()
    evaluated.write_text(text.replace("from __future__ import annotations\n", ""))
    exec(compile(evaluated.read_text(), str(evaluated), "exec"), {"__name__": "evaluated"})
    paths = [signature_forms.__file__, str(evaluated)]
    wrong = tmp_path / "wrong.py"  # a wrong call is a type error before it runs
    wrong.write_text("from tests.signature_forms import ends\nends(3)\nends().x\n")
    told, faults, status = mypy.run(["--strict", "--no-error-summary", "--follow-imports=silent", *paths, str(wrong)])
    assert (faults, status) == ("", 1)
    assert 'No overload variant of "__call__" of "Op" matches argument type "int"' in told
    assert [line for line in told.splitlines() if not line.startswith(str(wrong))] == []
    linted = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "E4,E7,E9,F,B,UP,C4", *paths],
        check=False,
        capture_output=True,
    )
    assert (linted.returncode, linted.stderr) == (0, b"")
    doubled, low, kernels = signature_forms.results()
    assert doubled.tolist() == [2, 2, 2]
    assert low == 1
    assert kernels == ["twice", "double", "other", "part", "twice"]


OPS_ALONE = """
import sys, numpy as np, noyau

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "onnxruntime", "torch", "numba", "triton", "rich"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocker())

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

text = "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = 2 * x[i]; }"
double.kernel(text, language="c")
noyau.check(double).raise_if_bad()
assert double(np.ones(3, np.float32)).tolist() == [2, 2, 2]
"""


def test_ops_need_the_core_alone():
    run = subprocess.run([sys.executable, "-W", "error", "-c", OPS_ALONE], capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")
