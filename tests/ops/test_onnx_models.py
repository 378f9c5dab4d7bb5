"""Ops as ONNX models: with the library onnxruntime runs the kernels, without it the body; both are right."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import noyau
from noyau.dtypes import DType
from noyau.errors import CheckError, FindingKind, InputError, SignatureError, UnsupportedError
from noyau.hosts.onnxruntime import model_files, runs
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.ops import onnx_models
from noyau.ops.onnx_models import to_onnx
from noyau.ops.op import OnnxKeywords
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.failures import Failure


@noyau.op("float[*batch, n] -> float[*batch, n]")
def softmax(x):
    """Rows that sum to 1."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@noyau.op("f32[m, k], f32[k, n], f32[n] -> f32[m, n]")
def dense(x, w, b, *, slope=0.5):
    y = x @ w + b
    return np.where(y > 0, y, slope * y)


@noyau.op("f32[n], f32 -> low: f32[n], high: f32")
def clipped(x, bound):
    return np.minimum(x, bound), x.max()


@noyau.op("i64[n], i64 -> i64[bins]")
def histogram(x, bins):
    return (x[None, :] == np.arange(bins)[:, None]).sum(1)


SCALE = """
#include <stdint.h>
void twice(const float *x, float by, float *out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = FACTOR * by * x[i];
}
"""


def scale(**said):
    @noyau.op("f32[n], f32 -> f32[n]")
    def scaled(x, by):
        return x * by * np.float32(2)

    scaled.kernel(SCALE, language="c", constants={"FACTOR": 2}, **said)
    return scaled


def arrays_of(model: onnx.ModelProto, **sizes: int) -> dict[str, np.ndarray]:
    rng, made = np.random.default_rng(0), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.integers(0, 9, shape) if dtype.kind == "i" else rng.standard_normal(shape)
        made[value.name] = np.asarray(drawn).astype(dtype)
    return made


CASES = {
    "softmax": (softmax, {}, {"batch_0": 3, "n": 37}, []),
    "softmax of f16": (
        softmax,
        {"dtypes": {"float": "f16"}, "axes": {"batch": 2}},
        {"batch_0": 2, "batch_1": 3, "n": 9},
        [],
    ),
    "softmax of f64, fixed": (softmax, {"dtypes": {"float": "f64"}, "dims": {"n": 8}}, {"batch_0": 3}, []),
    "dense": (dense, {"constants": {"slope": 0.125}}, {"m": 3, "k": 5, "n": 7}, ["MatMul"]),
    "clipped": (clipped, {}, {"n": 50}, []),
    "histogram": (histogram, {"dims": {"bins": 6}}, {"n": 40}, []),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_and_body_give_what_the_reference_gives(name):
    op, said, sizes, others = CASES[name]
    made = to_onnx(op, **said)
    feeds = arrays_of(made.model, **sizes)
    extra = [said["dims"]["bins"]] if op is histogram else []
    wanted = op.reference(*feeds.values(), *extra, **said.get("constants", {}))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert [node.op_type for node in made.model.graph.node if not is_own(node.domain)] == others
    assert all(certificate.ok for certificate in made.certificates)
    assert made.texts
    plain = to_onnx(op, kernel=None, **said)
    assert plain.library is None
    found = [runs.run(session, feeds) for session in (made.session(), made.session(kernels=False), plain.session())]
    found += [dict(zip(found[0], ReferenceEvaluator(made.model).run(None, feeds), strict=True))]
    for results in found:
        for want, got in zip(wanted, results.values(), strict=True):
            assert np.asarray(got).dtype == np.asarray(want).dtype
            np.testing.assert_allclose(np.asarray(got, float), np.asarray(want, float), rtol=2e-3, atol=1e-6)


def test_a_file_and_its_library(tmp_path):
    made = to_onnx(softmax, tmp_path / "softmax.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"softmax.onnx", "softmax.so"}
    model = onnx.load(tmp_path / "softmax.onnx")
    onnx.checker.check_model(model)
    found = model_files.provenance_of(model)
    assert (found.version, found.library_sha256) == (noyau.__version__, model_files.sha256_of(tmp_path / "softmax.so"))
    assert found.source_sha256 == model_files.sha256_of(softmax.file)
    assert model_files.library_state(tmp_path / "softmax.onnx", found) == "as written"
    assert model.functions[0].doc_string.startswith("certificate: right on ")
    assert model.functions[0].name in made.texts
    code = (
        "import numpy, onnxruntime, sys; options = onnxruntime.SessionOptions();"
        "options.register_custom_ops_library('./softmax.so');"
        "session = onnxruntime.InferenceSession('softmax.onnx', options);"
        "print(session.run(None, {'x': numpy.zeros((1, 4), 'f')})[0].tolist(), 'noyau' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[0.25, 0.25, 0.25, 0.25]] False"


def test_it_prints_what_it_is():
    first, kernel, known = str(to_onnx(softmax)).splitlines()
    assert first == "softmax: a model of opset 18"
    assert kernel.startswith("  with the kernel softmax_")
    assert known.startswith("    right on ")
    assert repr(to_onnx(softmax, kernel=None)) == first


def test_an_op_says_so_itself(tmp_path):
    made = softmax.to_onnx(tmp_path / "softmax.onnx", kernel=None, dims={"n": 4})
    assert [value.name for value in onnx.load(tmp_path / "softmax.onnx").graph.input] == ["x"]
    assert made.model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 4


def test_without_onnx_the_message_names_the_extra():
    code = "import sys; sys.modules['onnx'] = None; import noyau.ops.onnx_models"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("onnx is not installed; run: pip install 'noyau-kernels[onnx]'")


def test_it_is_taken_apart_and_optimised_like_any_model(tmp_path):
    to_onnx(dense, tmp_path / "dense.onnx")
    opened = open_model(tmp_path / "dense.onnx")
    assert opened.written is not None
    assert opened.operators == ("MatMul", "Add", "Less", "Mul", "Where")
    assert len(opened.cut().groups) == 1


def test_a_kernel_of_one_s_own():
    made = to_onnx(scale(trust=True), kernel="twice")
    x = np.arange(5, dtype=np.float32)
    assert "void twice(" in next(iter(made.texts.values()))
    assert made.certificates == ()
    assert made.model.functions[0].doc_string == "certificate: written by hand; see noyau.check"
    for kernels in (True, False):
        got = runs.run(made.session(kernels=kernels), {"x": x, "by": np.float32(3)})
        assert got["out"].tolist() == (x * 6).tolist()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: to_onnx(scale(), kernel="twice"),
            r"scaled\[twice\] does not go into a model: it has not been checked",
        ),
        (lambda: to_onnx(scale(options={"flags": ["-O1"]}), kernel="twice"), "asks for flags, and kernels of a model"),
    ],
)
def test_kernels_that_may_not_run(make, told):
    with pytest.raises(InputError, match=told):
        make()


def test_kernels_that_are_not_in_c():
    op = scale(trust=True)
    op.kernel(lambda x, by, out: None, name="python")
    with pytest.raises(InputError, match=r"scaled\[python\] is in python; a model takes kernels in C alone"):
        to_onnx(op, kernel="python")
    with pytest.raises(SignatureError, match="scaled has no kernel 'cuda' for a model; there are: c, twice, python"):
        to_onnx(op, kernel="cuda")


@pytest.mark.parametrize(
    ("op", "said", "told"),
    [
        (softmax, {"dtypes": {"float": "i32"}}, "dtypes= has 'i32' for float, which is one of f16, bf16, f32, f64"),
        (softmax, {"dtypes": {"int": "i32"}}, "softmax has no family 'int'; there are: float"),
        (softmax, {"axes": 3}, "softmax: axes=3 names nothing; give a dict of names and values"),
        (softmax, {"dims": {"k": 3}}, "softmax has no size 'k'; there are: n"),
        (softmax, {"dims": {"batch": 3}}, "softmax has no size 'batch'; there are: n"),
        (softmax, {"dims": {"n": -3}}, "softmax: n is -3, and it is a number from 0 on"),
        (softmax, {"axes": {"batch": 1.5}}, "softmax: batch is 1.5, and it is a number from 0 on"),
        (softmax, {"axes": {"n": 3}}, "softmax has no axes 'n'; there are: batch"),
        (dense, {"constants": {"eps": 3}}, "dense has no constant 'eps'; there are: slope"),
        (histogram, {}, r"histogram: bins gives a size of a result; fix it: dims=\{'bins': 10\}"),
    ],
)
def test_what_does_not_fit_the_op(op, said, told):
    with pytest.raises(SignatureError, match=told):
        to_onnx(op, **said)


def test_what_cannot_become_a_model():
    @noyau.op
    def unsigned(x):
        return x

    @noyau.op("f32[n] -> f32[n]")
    def looped(x):
        for _ in range(int(x[0])):
            x = x + 1
        return x

    @noyau.op("f32[n] -> f32[n]")
    def running(x):
        return np.maximum.accumulate(x)

    with pytest.raises(SignatureError, match="unsigned has no signature; give it one"):
        to_onnx(unsigned)
    with pytest.raises(UnsupportedError, match="looped cannot be traced at line "):
        to_onnx(looped)
    with pytest.raises(UnsupportedError, match="the running max has no ONNX operator in onnxruntime"):
        to_onnx(running)
    with pytest.raises(UnsupportedError, match="softmax does not become a model of opset 17: opsets 18 to "):
        to_onnx(softmax, opset=17)


def test_a_generated_kernel_that_is_wrong_is_refused(monkeypatch):
    wrong = Outcome(
        "made up", False, 1, failures=(Failure(FindingKind.WRONG_VALUE, "made up", "x: f32[1]", "is wrong"),)
    )
    monkeypatch.setattr(onnx_models, "judge", lambda task: Certificate(f"{task.operator}[c]", (wrong,)))
    with pytest.raises(CheckError, match=r"softmax_\w+\[c\] is wrong"):
        to_onnx(softmax)


def test_newer_opsets(tmp_path):
    newest = min(onnx.defs.onnx_opset_version(), 23)
    made = to_onnx(softmax, opset=newest, kernel=None)
    assert made.model.opset_import[0].version == newest
    assert runs.run(made.session(), {"x": np.zeros((1, 2), np.float32)})["out"].tolist() == [[0.5, 0.5]]


def test_a_model_of_bfloat16():
    made = to_onnx(softmax, dtypes={"float": "bf16"})
    x = np.zeros((1, 4), DType.BF16.numpy)
    for kernels in (True, False):
        got = runs.run(made.session(kernels=kernels), {"x": x})["out"]
        assert (got.dtype, got.tolist()) == (x.dtype, [[0.25] * 4])


def test_the_method_of_an_op_takes_the_keywords_of_the_function():
    parameters = inspect.signature(to_onnx).parameters.values()
    assert {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} == OnnxKeywords.__annotations__.keys()
