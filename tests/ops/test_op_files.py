from __future__ import annotations

import sys

import pytest

from noyau.errors import InputError, MissingExtraError, SignatureError
from noyau.ops.op_files import load_op, load_ops

FILE = """
import noyau
from beside import two

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x * two

double.kernel("double.c")
"""
TEXT = "void double_(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = 2 * x[i]; }"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "beside.py").write_text("two = 2")
    (tmp_path / "path.py").write_text(FILE)
    (tmp_path / "double.c").write_text(TEXT)
    yield tmp_path
    sys.modules.pop("beside", None)


def test_an_op_by_its_name_or_alone(folder):
    found = load_op(f"{folder}/path.py::double")
    assert found.name == load_op(f"{folder}/path.py").name == "double"
    assert found.file == folder / "path.py"
    assert found.source("double_") == TEXT
    assert found.kernels["double_"].place == str(folder / "double.c")
    assert str(folder) not in sys.path


@pytest.mark.parametrize(
    ("text", "target", "told"),
    [
        (FILE, "path.py::triple", "has no op 'triple'; its ops are: double"),
        (FILE, "nowhere.py::double", r"there is no file '.*nowhere\.py'; give PATH\.py::OP$"),
        (FILE, "", r"'.*' is a folder, not a file; give PATH\.py::OP$"),
        ("x = 1", "path.py", "path.py has no op; an op is a function under @noyau.op"),
        ("def f(): 1", "path.py::f", "path.py has no op 'f'; an op is a function under @noyau.op"),
        (
            FILE + FILE.replace("double", "again").replace("again.kernel", "# "),
            "path.py",
            r"has 2 ops \(double, again\)",
        ),
        ("1 / 0", "path.py", r"path\.py fails with ZeroDivisionError: division by zero"),
        ("exit(3)", "path.py", "fails with SystemExit: 3"),
        ("raise SystemExit", "path.py", r"path\.py ends itself before all of it has run"),
        ("def f(:", "path.py", "fails with SyntaxError"),
    ],
)
def test_what_is_not_there_or_fails(folder, text, target, told):
    (folder / "path.py").write_text(text)
    with pytest.raises(InputError, match=told):
        load_op(f"{folder}/{target}")


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("numba.cuda", r"path\.py needs numba, which is not installed; run: pip install 'noyau-kernels\[numba\]'"),
        ("onnxruntime", r"needs onnxruntime, which is not installed; run: pip install 'noyau-kernels\[onnx\]'"),
        ("of_my_own", r"fails with ModuleNotFoundError: No module named 'of_my_own'"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(folder, monkeypatch, module, told):
    for name in ("numba", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    (folder / "path.py").write_text(f"import {module}\n")
    with pytest.raises((InputError, MissingExtraError), match=told):
        load_op(str(folder / "path.py"))


def test_errors_of_noyau_come_through(folder):
    (folder / "path.py").write_text(FILE.replace("f32[n] ->", "f32[n ->"))
    with pytest.raises(SignatureError, match="column 7"):
        load_op(f"{folder}/path.py")


def test_a_file_that_is_no_python(folder):
    (folder / "path.txt").write_text(FILE)
    with pytest.raises(InputError, match=r"path\.txt is no file of Python"):
        load_op(f"{folder}/path.txt")


def test_all_ops_of_a_file(folder):
    (folder / "path.py").write_text(
        FILE + FILE.replace("double", "again").replace("again.kernel", "# ") + "\nalso = again"
    )
    assert [op.name for op in load_ops(f"{folder}/path.py")] == ["double", "again"]
    assert [op.name for op in load_ops(f"{folder}/path.py::again")] == ["again"]
    (folder / "path.py").write_text("x = 1")
    with pytest.raises(InputError, match=r"path\.py has no op; an op is a function under @noyau\.op"):
        load_ops(f"{folder}/path.py")
    with pytest.raises(InputError, match=r"there is no file"):
        load_ops(f"{folder}/nowhere.py")
