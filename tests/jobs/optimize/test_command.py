"""The commands on models, as a user types them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import noyau
from noyau.errors import InputError
from noyau.jobs import command_line
from noyau.jobs.cli import main
from noyau.jobs.optimize import command as optimize_command
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from tests.small_models import BARE, plain, timed_as, twice, written

pytestmark = pytest.mark.usefixtures("lasting_workers")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The clock says what a test wants: everything is twice as fast. No test waits for it."""
    said = {"ratio": 2.0}
    monkeypatch.setattr(OnnxBench, "compare", lambda *given: timed_as(said["ratio"])(*given))
    return said


@pytest.fixture
def model(tmp_path):
    (tmp_path / "in").mkdir()
    return written(twice(), tmp_path / "in", "twice.onnx")


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def optimize(*arguments: object) -> int:
    return main(["optimize", *map(str, arguments)])


def test_the_fused_model_and_its_library_lie_beside_the_model(model, capsys):
    before = model.read_bytes()
    assert optimize(model) == 0
    assert files(model.parent) == ["twice.fused.onnx", "twice.fused.so", "twice.onnx"]
    assert model.read_bytes() == before
    fused = onnx.load(model.with_name("twice.fused.onnx"))
    assert [node.op_type for node in fused.graph.node if node.domain == ""] == ["MatMul", "MatMul"]
    told = capsys.readouterr()
    assert "2 of 2 kernels kept" in told.out
    assert f"Wrote {model.with_name('twice.fused.onnx')} and {model.with_name('twice.fused.so')}." in told.out
    assert "register_custom_ops_library(" in told.out


def test_what_is_printed_and_what_the_readme_says_works_as_pasted(model, monkeypatch, capsys):
    """In the folder of the files: onnxruntime takes a bare name for a library of the system's."""
    monkeypatch.chdir(model.parent)
    assert optimize("twice.onnx", "-o", "fused.onnx") == 0
    (path,) = re.findall(r"register_custom_ops_library\('(.*?)'\)", capsys.readouterr().out)
    onnxruntime.SessionOptions().register_custom_ops_library(path)
    readme = Path(__file__).resolve().parents[3].joinpath("README.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(import onnxruntime\n.*?)```", readme, re.DOTALL)
    space: dict[str, object] = {}
    exec(block, space)
    assert space["session"].get_inputs()[0].name == "x"
    assert noyau.session("fused.onnx").get_inputs()[0].name == "x"
    Path("fused.so").unlink()
    assert noyau.session("fused.onnx", threads=1).get_inputs()[0].name == "x"  # as the model was


def test_results_are_on_stdout_and_without_a_terminal_there_is_no_progress(model, capsys):
    optimize(model)
    told = capsys.readouterr()
    assert told.out.startswith("The whole model: ")
    assert "\ntwice.onnx: 10 nodes before, 5 after" in told.out
    assert told.err == ""  # which is no terminal
    assert not any(line.startswith("noyau: ") for line in told.out.splitlines())


def test_in_a_terminal_progress_is_one_line_that_changes(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with command_line.progress() as say:
        say("reading [red]x[/red]\x1b[2J")
        say("checking")
    told = capsys.readouterr()
    assert told.out == ""
    assert "checking" in told.err or "starting" in told.err
    assert "\x1b[2J" not in told.err


def test_the_output_is_where_it_is_asked_for(model, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert optimize(model, "-o", tmp_path / "out" / "f.onnx", "--json", tmp_path / "out" / "r.json") == 0
    assert files(tmp_path / "out") == ["f.onnx", "f.so", "r.json"]
    report = json.loads((tmp_path / "out" / "r.json").read_text())
    assert (report["schema_version"], report["model"]) == (1, "twice.onnx")
    assert [kernel["verdict"] for kernel in report["kernels"]] == ["FASTER", "FASTER"]


def test_where_nothing_wins_the_output_is_the_model_and_it_says_so(model, clock, capsys):
    clock["ratio"] = 0.5
    assert optimize(model) == 0
    assert files(model.parent) == ["twice.fused.onnx", "twice.onnx"]
    same = onnx.load(model.with_name("twice.fused.onnx")).graph.SerializeToString()
    assert same == onnx.load(model).graph.SerializeToString()
    assert "the model as it was, no kernel is in it." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ratio", "asked", "status"), [(2, "1.1x", 0), (2, "2", 0), (2, "2.01x", 1), (0.5, "1.1x", 1), (0.5, "1", 0)]
)
def test_less_than_what_is_required_is_status_1(ratio, asked, status, model, clock, capsys):
    clock["ratio"] = ratio
    assert optimize(model, "--require", asked) == status
    told = capsys.readouterr().err
    assert (status == 1) == ("--require asks for" in told)
    assert ("the whole model is as it was" in told) == (ratio < 1 and status == 1)
    assert model.with_name("twice.fused.onnx").exists()


def test_kernels_are_kept_as_asked(model, clock, capsys):
    clock["ratio"] = 1.0
    for keep, count in (("faster", 0), ("not-slower", 2), ("all", 2)):
        assert optimize(model, "--keep", keep) == 0
        assert f"{count} of 2 kernels kept" in capsys.readouterr().out


def test_kernels_are_chosen_by_name(model, tmp_path, capsys):
    optimize(model, "--json", tmp_path / "all.json")
    names = [kernel["name"] for kernel in json.loads((tmp_path / "all.json").read_text())["kernels"]]
    for arguments, left in ((["--only", names[0]], names[:1]), (["--drop", names[0]], names[1:])):
        assert optimize(model, *arguments, "--json", tmp_path / "some.json") == 0
        assert [k["name"] for k in json.loads((tmp_path / "some.json").read_text())["kernels"]] == left
    optimize(model, "--drop", "c", "--json", tmp_path / "some.json")
    assert [k["places"] for k in json.loads((tmp_path / "some.json").read_text())["kernels"]] == [1, 1]


def test_the_work_is_limited_to_a_path(model, tmp_path, capsys):
    assert optimize(model, "--between", "b:c", "--json", tmp_path / "r.json") == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert [(kernel["places"], kernel["replaces"]) for kernel in report["kernels"]] == [(1, ["Tanh", "Mul", "Sigmoid"])]
    assert main(["show", str(model), "--between", "d:y"]) == 0
    told = capsys.readouterr().out
    assert "2 of 10 operators in 1 kernel" in told
    assert "it is not on the path that is asked for" in told


def test_sizes_and_arrays(model, tmp_path, capsys):
    assert optimize(model, "--dim", "rows=37") == 0
    assert "x f32[37, 6]: made up" in capsys.readouterr().out
    assert optimize(model, "--dim", "rows=37,2", "--json", tmp_path / "r.json") == 0
    record = json.loads((tmp_path / "r.json").read_text())
    for each in (*record["kernels"], record["end_to_end"]):
        assert [binding["sizes"] for binding in each["bindings"]] == [{"rows": 37}, {"rows": 2}]


def test_samples_of_a_script_are_checked_and_those_of_other_sizes_timed(model, tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", x=np.full((3, 6), np.nan, np.float32))
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def inputs():\n"
        f"    yield np.load({str(tmp_path / 'mine.npz')!r})\n"
        "    for rows in (5, 5):\n"
        "        yield {'x': np.ones((rows, 6), np.float32)}\n"
    )
    assert optimize(model, "--inputs", tmp_path / "mine.py", "--json", tmp_path / "r.json") == 0
    record = json.loads((tmp_path / "r.json").read_text())
    for each in (*record["kernels"], record["end_to_end"]):
        assert [binding["sizes"] for binding in each["bindings"]] == [{"rows": 3}, {"rows": 5}]
    told = " ".join(capsys.readouterr().out.split())
    assert "x f32[3, 6]: from sample 1 of mine.py, of which 18 cells are NaN or infinite" in told
    assert "3 samples of mine.py: each is checked, and of each sizes the first is timed" in told


def test_without_time_the_output_is_the_model_and_it_says_so(model, capsys):
    assert optimize(model, "--within", "0") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "not checked: the 0 s that were given are over" in told
    assert "0 of 2 kernels kept" in told
    assert "the model as it was, no kernel is in it." in told


@pytest.mark.parametrize("given", [True, False])
def test_times_are_made_anew_where_that_is_asked_for(given, model, monkeypatch):
    asked = []
    monkeypatch.setattr(
        OnnxBench, "compare", lambda bench, *rest: asked.append(bench.fresh) or timed_as(2)(bench, *rest)
    )
    assert optimize(model, *(["--fresh"] if given else [])) == 0
    assert set(asked) == {given}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "rows"], "--dim rows is not NAME=N"),
        (["--dim", "rows=-1"], "--dim rows=-1 is not NAME=N"),
        (["--dim", "rows=1.5"], "is not NAME=N"),
        (["--dim", "=3"], "is not NAME=N"),
        (["--dim", "rows=" + "9" * 30], "is not NAME=N"),
        (["--dim", "rows=1,,2"], "--dim rows=1,,2 is not NAME=N"),
        (["--dim", "rows=" + ",".join("3" * 17)], "17 bindings of sizes are asked for"),
        (["--within", "soon"], "--within soon is no number of seconds: --within 60"),
        (["--within", "-1"], "is no number of seconds"),
        (["--dim", "rows=3", "--dim", "rows=5"], "--dim rows is given twice"),
        (["--dim", "columns=3"], "the model has no size columns; its sizes are: rows"),
        (["--dim", "rows=999999999999"], "GB, and this machine has"),
        (["--only", "nonsense"], "no kernel nonsense; its kernels are: "),
        (["--drop", "nonsense"], "no kernel nonsense; its kernels are: "),
        (["--between", "x:nonsense"], "the model has no value nonsense"),
        (["--between", "c:a"], "no path leads from c to a"),
        (["--require", "fast"], "--require fast is no ratio: --require 1.1x"),
        (["--require", "nan"], "is no ratio"),
        (["--threads", "-1"], "threads=-1 is no whole number from 0 to 4096"),
        (["--runtime", "onnxruntime", "--device", ""], "device= is none of onnxruntime's: cpu, cuda"),
        (["--target", "i386"], "unknown target 'i386'"),
        (["--inputs", "missing.npz"], "missing.npz cannot be read"),
        (["--keep", "best"], "invalid choice: 'best'"),
    ],
)
def test_unusable_arguments_are_status_2_and_nothing_is_written(arguments, message, model, capsys):
    assert optimize(model, *arguments) == 2
    told = capsys.readouterr()
    assert message in told.err.splitlines()[-1]
    assert told.out == ""
    assert files(model.parent) == ["twice.onnx"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "x is missing"),
        ({"x": np.ones((3, 6)), "y": np.ones(3)}, "the model has no input y; x is float64, not float32"),
        ({"x": np.ones(6, np.float32)}, "x has rank 1, not 2"),
        ({"x": np.ones((3, 7), np.float32)}, "x has shape (3, 7), which does not fit [rows, 6]"),
        ({"x": np.array([{}], object)}, "cannot be read as an .npz file of plain arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays, message, model, tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", **arrays)
    assert optimize(model, "--inputs", tmp_path / "mine.npz") == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert files(model.parent) == ["twice.onnx"]


def test_arrays_and_sizes_exclude_each_other(model, tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", x=np.ones((3, 6), np.float32))
    assert optimize(model, "--inputs", tmp_path / "mine.npz", "--dim", "rows=3") == 2
    assert "leave out --dim rows=N, or the arrays" in capsys.readouterr().err


def test_what_would_be_written_over_something_is_refused_before_any_work(model, tmp_path, capsys):
    folder = model.parent
    (folder / "link.onnx").symlink_to(model)
    (folder / "folder.onnx").mkdir()
    os.mkfifo(folder / "pipe.onnx")
    other = written(plain(), folder, "other.so")
    before = files(folder)
    refused = {
        (model, "-o", model): "which is the model itself",
        (model, "-o", folder / "link.onnx"): "which is the model itself",
        (other, "-o", folder / "other.onnx"): "its library would go to",
        (model, "-o", folder / "a.so"): "its library would go to",
        (model, "-o", folder / "folder.onnx"): "cannot be written",
        (model, "-o", model / "a.onnx"): "is no folder and cannot be made one",
        (model, "-o", ""): "'' names no file",
        (model, "-o", folder / "pipe.onnx"): "is no plain file, and a new one would take its place",
        (model, "--json", folder / "twice.fused.onnx"): "which is the fused model",
        (model, "--json", folder / "twice.fused.so"): "which is its library",
        (model, "--json", model): "which is the model itself",
        (model, "--json", model / "r.json"): "is no folder and cannot be made one",
    }
    for arguments, message in refused.items():
        assert optimize(*arguments) == 2
        told = capsys.readouterr()
        assert message in told.err
        assert "reading" not in told.err
        assert files(folder) == before


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_folder_is_refused_before_any_work(model, tmp_path, capsys):
    (tmp_path / "out").mkdir(mode=0o500)
    assert optimize(model, "-o", tmp_path / "out" / "f.onnx") == 2
    assert "f.onnx cannot be written: Permission denied" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder in which nobody can create a file")
def test_places_in_which_nobody_can_create_a_file_are_refused_before_any_work(model, tmp_path, capsys):
    """For root too, to whom every folder seems open. The model was written before, without its record."""
    before = files(tmp_path)
    for words in (("--json", "/proc/self/r.json"), ("-o", "/proc/self/f.onnx"), ("--html", tmp_path / ("r" * 300))):
        assert optimize(model, *words) == 2
        assert "cannot be written: " in (told := capsys.readouterr().err) and "; give a folder" in told
        assert "reading" not in told and files(tmp_path) == before


@pytest.mark.parametrize("kind", BARE)
def test_a_model_without_kernels_is_status_0(kind, tmp_path, capsys):
    assert optimize(written(BARE[kind], tmp_path)) == 0
    assert files(tmp_path) == ["model.fused.onnx", "model.onnx"]
    assert "nothing in this model could be fused" in capsys.readouterr().out


def test_seconds_and_ratios():
    assert [optimize_command._number(text, "no number") for text in ("0", "1.5")] == [0.0, 1.5]
    assert [optimize_command._parse_ratio(text) for text in (None, "1.1x", "2")] == [None, 1.1, 2.0]
    for text in ("", "x", "1.1.1", "-1", "inf"):
        with pytest.raises(InputError):
            optimize_command._parse_ratio(text)


def test_text_of_a_file_is_one_line_that_prints():
    assert optimize_command.plain("a\n b\x1b[31m\u202e") == "a b?[31m?"


def test_quiet_leaves_the_verdict_and_errors(model, capsys):
    assert optimize(model, "--quiet", "--require", "9x") == 1
    out, err = capsys.readouterr()
    assert out.startswith("The whole model: ") and out.count("\n") == 1 and "FASTER 2.00x" in out
    assert err == "noyau: the whole model is 2.00x as fast; --require asks for 9.00x\n"


def test_sizes_are_numbers_in_the_model_that_is_written(model, capsys):
    assert optimize(model, "--fix-dim", "rows=3") == 0
    fused = onnx.load(model.with_name("twice.fused.onnx"))
    ends = [dim for end in (*fused.graph.input, *fused.graph.output) for dim in end.type.tensor_type.shape.dim]
    assert ends and not any(dim.dim_param for dim in ends)
    session = noyau.session(model.with_name("twice.fused.onnx"))
    assert session.get_inputs()[0].shape == [3, 6]
    assert "rows" in {dim.dim_param for end in onnx.load(model).graph.input for dim in end.type.tensor_type.shape.dim}
    capsys.readouterr()
    for words, told in {
        "x=3": "--fix-dim x=3: x is the size of no input; the sizes are: rows",
        "rows=0": "--fix-dim rows=0: rows is no extent, from 1 on; the sizes are: rows",
        "rows=1,2": "--fix-dim rows has 2 numbers, and here a size has one: --fix-dim rows=N",
    }.items():
        assert optimize(model, "--fix-dim", words) == 2
        assert told in capsys.readouterr().err


def test_a_model_in_memory_is_optimized_as_a_file_is(tmp_path):
    model = twice()
    before = model.SerializeToString()
    result = noyau.optimize(model, fix_dims={"rows": 2})
    assert model.SerializeToString() == before and len(result.report.kept) == 2
    result.save(tmp_path / "out.onnx")
    x = np.ones((2, 6), np.float32)
    (expected,) = onnxruntime.InferenceSession(before).run(None, {"x": x})
    (got,) = noyau.session(tmp_path / "out.onnx").run(None, {"x": x})
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert result.session().run(None, {"x": x})
    with pytest.raises(InputError, match="takes the path of a model: save it"):
        noyau.optimize(model, device="cuda")
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    with pytest.raises(InputError, match="the model names weights in other files: give its path"):
        noyau.optimize(model)
