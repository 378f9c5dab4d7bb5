"""`noyau check` of an op in a file; of models see test_differing.py."""

from __future__ import annotations

import json

import pytest

from noyau.jobs.check.command import KERNEL_S
from noyau.jobs.cli import main
from noyau.verify.certificate import Certificate
from noyau.verify.checks import KernelCheck, OpCheck
from tests.jobs.extract.files import RIGHT, written


@pytest.fixture
def brief(monkeypatch):
    """Files are checked for a moment: each kernel on what it has to be tried on."""
    monkeypatch.setattr("noyau.jobs.check.command.KERNEL_S", 0.2)


@pytest.mark.usefixtures("brief")
def test_every_kernel_of_an_op_is_checked(tmp_path, capsys):
    op = written(tmp_path)
    assert main(["check", op, "--json", str(tmp_path / "r.json")]) == 0
    told = capsys.readouterr().out
    assert "norm[norm]: agreed on " in told
    assert "limits: only the inputs, shapes and branches that ran were seen" in told
    record = json.loads((tmp_path / "r.json").read_text())
    assert (record["schema_version"], record["ok"], record["findings"]) == (1, True, [])
    assert record["limits"]


@pytest.mark.usefixtures("brief")
def test_a_wrong_kernel_is_status_1(tmp_path, capsys):
    target, sarif = written(tmp_path, RIGHT.replace("i < rows", "i + 1 < rows")), tmp_path / "found.sarif"
    assert main(["check", target, "--sarif", str(sarif)]) == 1
    assert "norm[norm]" in capsys.readouterr().out
    assert json.loads(sarif.read_text())["runs"][0]["results"][0]["level"] == "error"


OPS = """
import noyau

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

@double.kernel
def coarse(x, out):
    out[...] = 2.001 * x

@noyau.op("f32[m] -> f32[m]")
def same(x):
    return x + 0

@same.kernel
def right(x, out):
    out[...] = x

@noyau.op
def unsigned(x):
    return x
"""


TWO = """
import noyau

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

@double.kernel
def coarse(x, out):
    out[...] = x + x

@noyau.op("f32[n] -> f32[n]")
def bare(x):
    return x + x
"""


@pytest.fixture
def ops(tmp_path):
    (tmp_path / "ops.py").write_text(OPS)
    return str(tmp_path / "ops.py")


GRADIENT = """
import numpy as np
import noyau

@noyau.op("float[n] -> float[n]")
def curve(x):
    return np.tanh(x)

@curve.gradient
def slope(x, out, grad):
    return grad * (1 - out)
"""


@pytest.mark.usefixtures("brief")
def test_a_wrong_gradient_is_in_the_same_report(tmp_path, capsys):
    (tmp_path / "curve.py").write_text(GRADIENT)
    arguments = ["check", f"{tmp_path}/curve.py::curve", "--gradient", "--json", str(tmp_path / "r.json")]
    assert main(arguments) == 1
    told = capsys.readouterr()
    assert "curve[gradient]: gradient: wrong gradient of x at x[" in told.out
    assert told.err == ""  # which is no terminal
    (finding,) = json.loads((tmp_path / "r.json").read_text())["findings"]
    assert (finding["id"], finding["line"]) == ("curve[gradient]:gradient", 9)


@pytest.mark.parametrize(
    "option",
    [
        *(["--sarif", "f"], ["--sanitizer"], ["--strict"], ["--sizes", "n=3"], ["--tolerance", "0"], ["--gradient"]),
        *(["--generated"], ["--language", "c"], ["--all"], ["--allow-unseen"]),
    ],
)
def test_what_is_not_of_models_is_refused(tmp_path, capsys, option):
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    assert main(["check", str(tmp_path / "a.onnx"), "--against", str(tmp_path / "b.onnx"), *option]) == 2
    assert f"a.onnx is a model: it takes no {option[0]}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "generated"), [([], {"double": False, "bare": True}), (["--generated"], {"double": True, "bare": True})]
)
def test_each_kernel_has_a_time_of_its_own_and_generated_ones_are_extra(tmp_path, monkeypatch, options, generated):
    (tmp_path / "two.py").write_text(TWO)
    wishes_of_ops = {}

    def together(asked, *_, **__):
        wishes_of_ops.update({op.name: wishes for op, wishes in asked})
        checked = KernelCheck("c", "c", Certificate("c", ()), ())
        return [OpCheck(op.name, op.description.place, (checked,)) for op, _ in asked]

    monkeypatch.setattr("noyau.jobs.check.run.check_together", together)
    assert main(["check", str(tmp_path / "two.py"), *options]) == 0
    assert {name: wishes.budget_s for name, wishes in wishes_of_ops.items()} == {"double": KERNEL_S, "bare": KERNEL_S}
    assert {name: wishes.generated for name, wishes in wishes_of_ops.items()} == generated


@pytest.mark.usefixtures("brief")
def test_every_op_of_a_file_is_checked(ops, tmp_path, capsys):
    assert main(["check", ops, "--json", str(tmp_path / "r.json")]) == 1
    told = capsys.readouterr().out
    assert "double[coarse]: wrong-value: " in told
    assert "same[right]: agreed on " in told
    assert "unsigned: it has no signature, so it cannot be checked" in told
    record = json.loads((tmp_path / "r.json").read_text())
    assert [each["id"] for each in record["findings"]] == ["double[coarse]:wrong-value"]
    assert {"double", "same"} == {each["op"] for each in record["checked"]}


def test_one_op_of_a_file_and_a_tolerance(ops, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("noyau.jobs.check.command.KERNEL_S", 40.0)
    arguments = ["--tolerance", "0.01", "--dim", "n=1000", "--json", str(tmp_path / "r.json")]
    assert main(["check", f"{ops}::double", *arguments]) == 0
    assert "double: allowed by request: 0.01 * max(1, |want|)" in capsys.readouterr().out
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["tolerance"] == {"double": 0.01}
    assert "x: f32[1000]" in record["checked"][0]["shapes"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tolerance", "0"], "the tolerance is 0.0; give a number above 0"),
        (["--dim", "k=3"], "--dim k: no op of OPS has such a size; there are: m, n"),
        (["--dim", "n=1,2"], "--dim n has 2 numbers, and here a size has one: --dim n=N"),
        (["--sizes", "n=1,2"], "--sizes n has 2 numbers, and here a size has one: --sizes n=N"),
        (["--json", "OPS/r.json"], "is no folder"),
        (["--json", "OPS"], "which is the model itself"),
    ],
)
def test_wishes_that_cannot_be(ops, capsys, arguments, told):
    assert main(["check", ops, *(each.replace("OPS", ops) for each in arguments)]) == 2
    assert told.replace("OPS", ops) in capsys.readouterr().err


def test_a_file_that_seems_to_have_an_op(tmp_path, capsys):
    (tmp_path / "none.py").write_text("import noyau\n\nif False:\n    noyau.op(print)\n")
    assert main(["check", str(tmp_path / "none.py")]) == 2
    assert "has no op; an op is a function under @noyau.op" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no.py::norm"], "there is no file 'no.py'; give PATH.py::OP"),
        (["no.py"], "there is no file 'no.py'; give SCRIPT.py, BOOK.ipynb or FILE.py::OP"),
        (
            ["notes.txt::norm"],
            "notes.txt::norm is nothing that can be checked; there are: MODEL.onnx --against",
        ),
        (["--against", "b.onnx"], "--against and --inputs are of models"),
        (["--inputs", "f.npz"], "--against and --inputs are of models"),
    ],
)
def test_what_cannot_be_checked_is_refused(tmp_path, capsys, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    for name in ("b.onnx", "f.npz"):
        (tmp_path / name).touch()
    op = written(tmp_path)
    assert main(["check", *([op] if arguments[0].startswith("--") else []), *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("brief")
def test_kernels_for_numba_cuda_are_checked_without_a_gpu_where_they_are_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("noyau.jobs.check.candidates.has_driver", lambda: False)
    (tmp_path / "ops.py").write_text(OPS.partition("@double.kernel")[0])
    assert main(["check", f"{tmp_path}/ops.py", "--language", "numba_cuda", "--allow-unseen"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("double[numba_cuda]: agreed on ")
    assert lines[0].endswith("generated; run as a GPU would, on this machine")
    assert lines[1].startswith("double[numba_cuda]: no race found on ")
    assert main(["check", f"{tmp_path}/ops.py", "--language", "fortran"]) == 2
    assert "noyau makes no kernels in fortran; it does in: c, numba, " in capsys.readouterr().err
