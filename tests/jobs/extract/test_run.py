"""A path as a file: it runs, its reference is the path's, what flows there lies beside it, and it is not lost."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import InputError, ModelError, OutputError, UnsupportedError
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.extract import run as extract_run
from noyau.jobs.extract.run import extract
from noyau.ops.op_files import load_op
from tests.control_flow import arrays, control_flow
from tests.jobs.extract.files import ENDS, embedded, normed
from tests.small_models import FLOAT, NODE, STRING, arrays_for, model_of, value, written

FLOAT16 = onnx.TensorProto.FLOAT16


@pytest.fixture
def model(tmp_path):
    return written(normed(), tmp_path)


def called(op, arrays):
    """What the reference gives."""
    with noyau.reference():
        return op(*arrays)


def test_the_file_reads_like_this(model, tmp_path):
    files = extract(model, ENDS).save(tmp_path / "norm.py")
    assert [file.name for file in files] == ["norm.py", "norm.npz", "norm.c"]
    text = (tmp_path / "norm.py").read_text()
    assert (
        text[text.index("from pathlib") :]
        == '''\
from pathlib import Path

import noyau
import numpy as np

# Where it lies in the model: from these values to those.
BETWEEN = (["a", "r"], ["s", "n"])


def captured(rng):
    """What it reads in the model, in one run of it."""
    # a f32[1, 6]: made up, standard normal
    # r f32[1, 6]: made up, standard normal
    with np.load(Path(__file__).with_suffix(".npz")) as arrays:
        return arrays["a"], arrays["v_r"], arrays["w1"]


@noyau.op("f32[rows, 6], f32[rows, 6], f32[6] -> s: f32[rows, 6], n: f32[rows, 6]", inputs=captured)
def norm(a, v_r, w1, *, eps=0.001):
    s = a + v_r
    n_p = s**2
    n_m = n_p.sum(-1, keepdims=True) / 6
    n_e = n_m + np.float32(eps)
    n_q = np.sqrt(n_e)
    n_d = s / n_q
    n = n_d * w1
    return s, n


# norm.c has the kernel that noyau generates; change it, or attach another one.
# In C a kernel is a function of the inputs, outputs, sizes and constants, by these names. One that takes
# int64_t begin and end is called for pieces of the first dim of the first result (launch= says another
# range), in any order and on any threads.
norm.kernel("norm.c", entry="norm")

# Next: check it; put it into the model, if it wins there; compare the two models, value by value.
#     noyau check norm.py::norm
#     noyau optimize model.onnx --with norm.py::norm -o fused.onnx
#     noyau check model.onnx --against fused.onnx
'''
    )


def test_the_op_is_the_path_and_has_what_flows_there(model, tmp_path):
    found = extract(model, ENDS, dims={"rows": 7}, seed=3)
    found.save(tmp_path / "norm.py")
    op = load_op(str(tmp_path / "norm.py"))
    arrays = op.make()
    assert [array.shape for array in arrays] == [(7, 6), (7, 6), (6,)]
    given = {node.output: found.arrays[node.output] for node in found.graph.inputs}
    want = evaluate(found.graph, given)
    for got, name in zip(called(op, arrays), found.graph.outputs, strict=True):
        assert np.allclose(got, want[name], 1e-6)
    assert set(op.kernels) == {"norm"}


def test_a_user_s_arrays_flow(model, tmp_path):
    np.savez(tmp_path / "mine.npz", a=np.ones((3, 6), np.float32), r=np.zeros((3, 6), np.float32))
    found = extract(model, (["s", "r2"], ["n2"]), inputs=tmp_path / "mine.npz")
    assert np.all(found.arrays["s"] == 1)
    assert found.arrays["r2"].shape == (3, 6)
    assert found.notes == ("a f32[3, 6]: from mine.npz", "r f32[3, 6]: from mine.npz")


def test_the_python_function_and_the_text_without_a_file(model):
    found = noyau.extract(model, "a,r:s,n")
    text = found.text(found.write("path"), model.with_name("path.py"), "")
    compile(text, "path.py", "exec")


def test_tables_and_indices_are_inputs(tmp_path):
    found = extract(written(embedded(), tmp_path), "ids:y", dims={"n": 9})
    found.save(tmp_path / "look.py")
    op = load_op(str(tmp_path / "look.py"))
    ids, table = op.make()
    assert (ids.dtype, ids.shape, table.shape) == (np.int64, (1, 9), (5, 6))
    assert np.allclose(called(op, (ids, table)), np.sin(table[ids]), 1e-6)


def test_bfloat16_is_loaded_as_such(tmp_path):
    import ml_dtypes

    ends = [value("x", ("n", 4), onnx.TensorProto.BFLOAT16)], [value("y", ("n", 4), onnx.TensorProto.BFLOAT16)]
    model = written(model_of([NODE("Neg", ["x"], ["t"]), NODE("Abs", ["t"], ["y"])], *ends), tmp_path)
    extract(model, "x:y").save(tmp_path / "half.py")
    op = load_op(str(tmp_path / "half.py"))
    (x,) = op.make()
    assert x.dtype == ml_dtypes.bfloat16
    assert called(op, (x,)).dtype == ml_dtypes.bfloat16


def test_the_kernel_to_begin_with_passes_its_check_also_in_mixed_precision(tmp_path):
    ends = [value("x", ("n", 4), FLOAT16)], [value("y", ("n", 4), FLOAT16)]
    nodes = [NODE("Cast", ["x"], ["w"], to=FLOAT), NODE("Exp", ["w"], ["e"]), NODE("Cast", ["e"], ["h"], to=FLOAT16)]
    model = written(model_of([*nodes, NODE("Add", ["h", "x"], ["y"])], *ends), tmp_path)
    extract(model, "x:y").save(tmp_path / "half.py")
    text = (tmp_path / "half.py").read_text()
    assert "np.exp(w)" in text
    assert 'cast(x, "f32")' in text
    op = load_op(str(tmp_path / "half.py"))
    found = noyau.check(op)
    assert found.ok, str(found)
    assert (
        op.description.reference.run(op.instance([DType.F16], [2]), [np.full((1, 4), 0.1)], {})[0].dtype == np.float64
    )


def test_the_file_is_clean(model, tmp_path):
    extract(model, ENDS).save(tmp_path / "norm.py")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,W,I,UP", "--ignore", "E501"]
    done = subprocess.run(
        [*command, str(tmp_path / "norm.py")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout


def test_the_kernel_to_begin_with_compiles_without_a_warning_and_is_right(model, tmp_path):
    extract(model, ENDS, dims={"rows": 5}).save(tmp_path / "norm.py")
    flags = ["-std=c11", "-Wall", "-Wno-unused-function", "-Wno-unknown-pragmas", "-Werror", "-c"]
    command = ["cc", *flags, str(tmp_path / "norm.c"), "-o", str(tmp_path / "norm.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = noyau.optimize(model, ops=[f"{tmp_path / 'norm.py'}::norm"], keep="all", budget_s=0.01, dims={"rows": 5})
    assert made.candidates[0].certificate.ok


def test_where_no_kernel_can_be_generated_there_is_none_and_it_says_so(model, tmp_path, monkeypatch):
    def refused(*_):
        raise UnsupportedError("it has no nest")

    monkeypatch.setattr(extract_run, "start_of", refused)
    files = extract(model, ENDS).save(tmp_path / "norm.py")
    assert [file.name for file in files] == ["norm.py", "norm.npz"]
    text = (tmp_path / "norm.py").read_text()
    assert "# No kernel could be generated (it has no nest).\n# Attach one of your own:" in text
    assert '\n# norm.kernel("norm.c", entry="norm")' in text
    assert load_op(str(tmp_path / "norm.py")).kernels == {}


@pytest.mark.parametrize("taken", ["norm.py", "norm.npz", "norm.c"])
def test_a_file_that_is_there_stays_unless_it_is_forced(model, tmp_path, taken):
    (tmp_path / taken).write_text("mine")
    found = extract(model, ENDS)
    with pytest.raises(OutputError, match=f"{taken} is there already: --force replaces it"):
        found.save(tmp_path / "norm.py")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["model.onnx", taken])
    found.save(tmp_path / "norm.py", force=True)
    assert (tmp_path / taken).read_bytes() != b"mine"


def test_all_files_appear_or_none(model, tmp_path, monkeypatch):
    from noyau.hosts.onnxruntime import model_files

    install = model_files._install

    def failing(fresh, final, *others):
        if final.suffix == ".c":
            raise OSError(28, "No space left on device")
        install(fresh, final, *others)

    monkeypatch.setattr(model_files, "_install", failing)
    (tmp_path / "norm.py").write_text("mine")
    with pytest.raises(OutputError, match="cannot be written: No space left"):
        extract(model, ENDS).save(tmp_path / "norm.py", force=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "norm.py"]
    assert (tmp_path / "norm.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "told"),
    [("norm", "end it in .py"), ("norm.onnx", "end it in .py"), ("model.onnx/norm.py", "is no folder")],
)
def test_a_place_that_cannot_be_is_refused(model, tmp_path, name, told):
    with pytest.raises(OutputError, match=told):
        extract(model, ENDS).save(tmp_path / name)


@pytest.mark.parametrize(
    ("between", "kind", "told"),
    [
        ("a:n", InputError, "s reads r, which is an input of the model"),
        ("a,r:n2", UnsupportedError, "r2 is made by MatMul, which has no text in NumPy: end the path there"),
        ("a,r:nonsense", InputError, "the model has no value nonsense"),
    ],
)
def test_a_path_that_cannot_be_extracted_is_refused(model, between, kind, told):
    with pytest.raises(kind, match=told):
        extract(model, between)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"no")
    with pytest.raises(ModelError):
        extract(tmp_path / "no.onnx", "a:b")


def test_strings_are_refused(tmp_path):
    nodes = [NODE("StringNormalizer", ["s"], ["t"]), NODE("Identity", ["t"], ["u"])]
    model = written(model_of(nodes, [value("s", (2,), STRING)], [value("u", (2,), STRING)]), tmp_path)
    with pytest.raises(UnsupportedError):
        extract(model, "s:u")


def test_a_model_that_does_not_run_so_far_is_refused(tmp_path):
    nodes = [NODE("Strange", ["x"], ["v"], domain="com.example"), NODE("Exp", ["v"], ["e"]), NODE("Neg", ["e"], ["y"])]
    model = model_of(nodes, [value("x")], [value("y")])
    model.graph.value_info.append(value("v", ("n",), FLOAT))
    with pytest.raises(InputError, match="v could not be captured"):
        extract(written(model, tmp_path), "v:y")


@pytest.mark.parametrize("name", ['"); import os #', "a,b", "a:b\n", "\\", "'''", '"""', "\u00e9", "def", "np"])
def test_hostile_names_are_only_names(tmp_path, name):
    nodes = [NODE("Exp", [name], ["t"]), NODE("Neg", ["t"], [f"{name}2"])]
    model = written(model_of(nodes, [value(name)], [value(f"{name}2")]), tmp_path, f"m{name[:1].strip('/')}.onnx")
    extract(model, ([name], [f"{name}2"]), dims={"n": 3}).save(tmp_path / "hostile.py")
    assert (tmp_path / "hostile.py").read_bytes().isascii()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op = load_op(str(tmp_path / "hostile.py"))
    assert op.reference.__globals__["BETWEEN"] == ([name], [f"{name}2"])
    x = arrays_for(onnx.load(model), size=3)[name]
    assert np.allclose(called(op, (x,)), -np.exp(x), 1e-6)


def test_a_path_in_a_body_is_read_in_the_middle_of_a_run(tmp_path):
    np.savez(tmp_path / "f.npz", **arrays(4, True, 5))
    model, file = written(control_flow(), tmp_path), tmp_path / "f.npz"
    found = extract(model, "Loop_4/body/f,Loop_4/body/h,x:Loop_4/body/r2", inputs=file)
    assert found.arrays["Loop_4/body/f"] == 2
    found.save(tmp_path / "gate.py")
    op = load_op(f"{tmp_path / 'gate.py'}::gate")
    f, h, x = found.arrays.values()
    np.testing.assert_allclose(called(op, (f, h, x)), 1 / (1 + np.exp(-(h + f) * x)), rtol=1e-5)
    for between, fault in (
        ("Loop_4/body/f:Loop_4/body/r2", "Loop_4/body/q reads Loop_4/body/h, which enters its body"),
        ("Loop_4/body/h,x:Loop_4/body/r2", "Loop_4/body/f, which comes from Loop_4/body/i by another way"),
        ("Loop_4/body/If_5/else_branch/a:zs", "no path leads from Loop_4/body/If_5/else_branch/a to zs"),
    ):
        with pytest.raises(InputError, match=fault):
            extract(model, between, inputs=file)
    np.savez(file, **arrays(4, True, 0))
    with pytest.raises(InputError, match="f could not be captured: Loop_4/body does not run with these inputs"):
        extract(model, "Loop_4/body/f,Loop_4/body/h,x:Loop_4/body/r2", inputs=file)
