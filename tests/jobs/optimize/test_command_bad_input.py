"""What a user, a file or a machine can do wrong: one clear error, status 2 (130 after Ctrl-C), nothing half-written."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.jobs.cli import main
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.run import OptimizedModel
from noyau.toolchain.c import compiler as c_compiler
from tests.hosts.models import HOSTILE
from tests.small_models import NODE, arrays_for, chain, llama, model_of, plain, timed_as, twice, value, written

OPSETS = [helper.make_opsetid("", 18)]
ROOT = Path(__file__).resolve().parents[3]
ONNXRUNTIME_S_OWN = ".ses"  # onnxruntime 1.31 leaves an empty file of this name where temporary files go


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error of a run that must be refused: its last line on stderr; nothing else is new in the folder."""
    before = files(path.parent) if path.parent.is_dir() else []
    assert main(["optimize", str(path), *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    assert all(line.startswith("noyau: ") and line.isprintable() for line in told.err.splitlines())
    assert (files(path.parent) if path.parent.is_dir() else []) == before
    return told.err.splitlines()[-1]


def with_external_data(location: str, **entries: object) -> onnx.ModelProto:
    """x times a weight of 2 x 6 that lies in another file."""
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2, 6])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, entry in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(entry))
    nodes = [NODE("Mul", ["x", "w"], ["a"]), *chain("a", "y")]
    return model_of(nodes, [value("x", (2, 6))], [value("y", (2, 6))], [weight])


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\x89PNG\r\n\x1a\n", b"not a model\n", os.urandom(500)])
def test_what_is_no_model(content, tmp_path, capsys):
    (tmp_path / "bad.onnx").write_bytes(content)
    told = refusal(tmp_path / "bad.onnx", capsys)
    assert "bad.onnx is " in told


def test_a_file_that_is_not_there_or_is_none(tmp_path, capsys):
    assert "cannot be read: No such file" in refusal(tmp_path / "missing.onnx", capsys)
    assert "cannot be read: Is a directory" in refusal(tmp_path, capsys)
    assert "cannot be read: No such file" in refusal(tmp_path / "missing" / "a.onnx", capsys)
    assert "is no plain file" in refusal(Path(os.devnull), capsys, "-o", str(tmp_path / "out.onnx"))
    os.mkfifo(tmp_path / "pipe.onnx")
    assert "is no plain file" in refusal(tmp_path / "pipe.onnx", capsys)
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")
    assert "cannot be read: Too many levels of symbolic links" in refusal(tmp_path / "loop.onnx", capsys)
    assert "cannot be read: File name too long" in refusal(tmp_path / f"{'x' * 300}.onnx", capsys, "-o", "out.onnx")


def test_an_output_that_no_file_can_be(tmp_path, capsys):
    path = written(plain(), tmp_path)
    assert "cannot be written: File name too long" in refusal(path, capsys, "-o", str(tmp_path / f"{'x' * 300}.onnx"))
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")
    assert main(["optimize", str(path), "-o", str(tmp_path / "loop.onnx")]) == 0  # the link gives way


def test_a_file_that_is_larger_than_any_model(tmp_path, capsys):
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(2**31)  # a hole: it takes no room
    assert "more than 2 GB" in refusal(tmp_path / "large.onnx", capsys)


@pytest.mark.parametrize("part", [0.05, 0.3, 0.9, 0.999])
def test_a_model_that_is_cut_off(part, tmp_path, capsys):
    content = llama("dynamo").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(content[: int(len(content) * part)])
    assert "cut.onnx is no ONNX model" in refusal(tmp_path / "cut.onnx", capsys)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("missing.data", "is missing"),
        ("../outside.data", "points outside the folder of the model"),
        ("a/../../outside.data", "points outside the folder of the model"),
        ("{folder}/outside.data", "is at the absolute path"),
        ("link.data", "leaves the folder of the model through the link"),
        ("", "names no file"),
        ("~/.bashrc", "is at the absolute path"),
        ("short.data", "is the file cut off?"),
        ("x" * 5000, "is missing"),
        ("loop.data", "is missing"),
    ],
)
def test_external_data_that_is_missing_or_elsewhere(location, message, tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "outside.data").write_bytes(bytes(48))
    (folder / "short.data").write_bytes(bytes(47))
    (folder / "link.data").symlink_to(tmp_path / "outside.data")
    (folder / "loop.data").symlink_to("loop.data")
    path = written(with_external_data(location.format(folder=tmp_path)), folder)
    assert message in refusal(path, capsys)
    assert main(["show", str(path)]) == 2


def test_external_data_goes_with_the_model(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    weight = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    (tmp_path / "in" / "w.data").write_bytes(weight.tobytes())
    path = written(with_external_data("w.data"), tmp_path / "in")
    assert main(["optimize", str(path), "-o", str(tmp_path / "out" / "f.onnx")]) == 0
    assert files(tmp_path / "out") == ["f.onnx", "f.so", "w.data"]
    feeds = {"x": np.ones((2, 6), np.float32)}
    wanted = runs.run(sessions.open_session(path), feeds)["y"]
    for library in (tmp_path / "out" / "f.so", None):
        found = runs.run(sessions.open_session(tmp_path / "out" / "f.onnx", library), feeds)["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_graphs_that_are_none(tmp_path, capsys):
    ends = [value("x")], [value("y")]
    wrong = {
        "cycle": model_of(
            [NODE("Add", ["x", "b"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Exp", ["b"], ["y"])], *ends
        ),
        "nodes are not in order": model_of([NODE("Exp", ["a"], ["y"]), NODE("Neg", ["x"], ["a"])], *ends),
        "'a' is made twice": model_of([NODE("Neg", ["x"], ["a"]), NODE("Exp", ["x"], ["a"])], *ends),
        "which nothing makes": model_of([NODE("Add", ["x", "z"], ["y"])], *ends),
        "'y' is never made": model_of([NODE("Neg", ["x"], ["a"])], *ends),
        "negative extent": model_of(chain("x", "y"), [value("x", (-3,))], [value("y", (-3,))]),
        "more than 2^48 elements": model_of(chain("x", "y"), [value("x", (2**40, 2**40))], [value("y", None)]),
        "GB, and this machine has": model_of(chain("x", "y"), [value("x", (2**40,))], [value("y", (2**40,))]),
        "does not run": model_of(
            [NODE("ConstantOfShape", ["s"], ["c"]), NODE("Add", ["x", "c"], ["a"]), *chain("a", "y")],
            [value("x", (1,))],
            [value("y", None)],
            [numpy_helper.from_array(np.array([2**44]), "s")],
        ),
        "onnxruntime does not open the model": model_of(
            chain("x", "y"),
            [value("x", dtype=onnx.TensorProto.BFLOAT16)],
            [value("y", dtype=onnx.TensorProto.BFLOAT16)],
        ),
    }
    for message, model in wrong.items():
        assert message in refusal(written(model, tmp_path), capsys)


def test_a_tensor_that_is_not_as_large_as_it_says(tmp_path, capsys):
    weight = onnx.TensorProto(
        name="w", data_type=onnx.TensorProto.FLOAT, dims=[2, 6], raw_data=struct.pack("4f", 1, 2, 3, 4)
    )
    model = model_of(
        [NODE("Mul", ["x", "w"], ["a"]), *chain("a", "y")], [value("x", (2, 6))], [value("y", (2, 6))], [weight]
    )
    told = refusal(written(model, tmp_path), capsys)
    assert "w" in told


@pytest.mark.usefixtures("lasting_workers")
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_are_only_names(name, tmp_path, monkeypatch, capsys):
    """Of values, nodes, sizes, initializers, functions and the graph; the model runs right with and without library."""
    monkeypatch.chdir(tmp_path)
    names = [f"{name}{letter}" for letter in "xabcwydn"]
    x, a, b, c, w, y, d, n = names
    nodes = [NODE("Mul", [x, w], [a], name=f"{name}1"), NODE("Tanh", [a], [b], name=f"{name}2", doc_string=name)]
    nodes += [NODE("ReduceSum", [b], [c], name=f"{name}3"), NODE("Mul", [b, c], [y]), NODE("Neg", [y], [d])]
    tensors = [numpy_helper.from_array(np.arange(6, dtype=np.float32), w)]
    model = model_of(nodes, [value(x, (n, 6))], [value(y, (n, 6)), value(d, (n, 6))], tensors)
    model.graph.name = model.producer_name = model.doc_string = name
    path = written(model, tmp_path)
    before = files(tmp_path)
    assert (
        main(["optimize", str(path), "--keep", "all", "-o", "out.onnx", "--json", "record.json", f"--dim={n}=3"]) == 0
    )
    told = capsys.readouterr()
    assert (told.out + told.err).replace("\n", "").isprintable()
    assert files(tmp_path) == sorted([*before, "out.onnx", "out.so", "record.json"])
    assert [is_own(node.domain) for node in onnx.load("out.onnx").graph.node] == [True]
    feeds = {x: np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
    wanted = runs.run(sessions.open_session(path), feeds)
    for library in (tmp_path / "out.so", None):
        found = runs.run(sessions.open_session(tmp_path / "out.onnx", library), feeds)
        for each, array in wanted.items():
            np.testing.assert_allclose(found[each], array, rtol=1e-4, atol=1e-5)
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()


@pytest.mark.usefixtures("lasting_workers")
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_of_operators_are_only_names(name, tmp_path, monkeypatch, capsys):
    """Of functions, their domains and values, of operators that nobody knows, and in the metadata."""
    monkeypatch.chdir(tmp_path)
    function = helper.make_function(name, name, [f"{name}a"], [f"{name}b"], chain(f"{name}a", f"{name}b"), OPSETS)
    function.doc_string = name
    nodes = [NODE(name, ["x"], ["a"], domain=name), NODE("Exp", ["a"], ["b"]), NODE(name, ["b"], ["c"], domain="d")]
    model = model_of([*nodes, NODE("Exp", ["c"], ["d"]), NODE("Neg", ["d"], ["y"])], [value("x")], [value("y")])
    model.functions.append(function)
    model.graph.value_info.append(value("c"))
    model.metadata_props.add(key=name, value=name)
    path = written(model, tmp_path)
    for arguments in (["show", str(path)], ["optimize", str(path), "--keep", "all", "-o", "out.onnx"]):
        assert main(arguments) == 0
        told = capsys.readouterr()
        assert (told.out + told.err).replace("\n", "").isprintable()
    assert files(tmp_path) == ["model.onnx", "out.onnx", "out.so"]
    fused = onnx.load("out.onnx")
    assert [is_own(node.domain) for node in fused.graph.node] == [True, False, True]
    assert {entry.key: entry.value for entry in fused.metadata_props}[name] == name


@pytest.mark.usefixtures("lasting_workers")
@pytest.mark.parametrize(
    "name", ["[red]m[bold].onnx", "m \x1b[31m\n.onnx", "$(touch x);'\".onnx", "-o.onnx", "%s.onnx"]
)
def test_hostile_file_names_are_only_names(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(plain(), tmp_path, name)
    assert main(["optimize", f"./{name}", "-o", f"./out{name}"]) == 0
    told = capsys.readouterr()
    assert (told.out + told.err).replace("\n", "").isprintable()
    assert files(tmp_path) == sorted([name, f"out{name}", f"out{Path(name).stem}.so"])


def test_an_output_folder_that_is_full(tmp_path, monkeypatch, capsys):
    """The limit on the size of files stands for a full disk: writing fails in the middle."""
    (tmp_path / "out").mkdir()
    path, save = written(twice(), tmp_path), OptimizedModel.save
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(made, output):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            save(made, output)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(OptimizedModel, "save", full)
    (tmp_path / "out" / "f.onnx").write_bytes(b"what was there")
    told = refusal(path, capsys, "-o", str(tmp_path / "out" / "f.onnx"))
    assert "f.onnx cannot be written: File too large; give a folder that exists, with room in it" in told
    assert files(tmp_path / "out") == ["f.onnx"]
    assert (tmp_path / "out" / "f.onnx").read_bytes() == b"what was there"


def test_a_machine_without_a_compiler(tmp_path, monkeypatch, capsys, empty_cache):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    path = written(plain(), tmp_path)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("PATH", "")
    c_compiler._find.cache_clear()
    told = refusal(path, capsys)
    assert told.startswith("noyau: no C compiler: ")
    assert "pip install 'noyau-kernels[cc]'" in told
    assert main(["show", str(path)]) == 0
    name = next(word for word in capsys.readouterr().out.split() if word.startswith("tanh_sigmoid"))
    assert main(["show", str(path), "--kernel", name]) == 0
    assert "certificate: not tried: no C compiler" in capsys.readouterr().out


def python(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.mark.parametrize(("missing", "command"), [("onnx", "optimize"), ("onnx", "show"), ("onnxruntime", "optimize")])
def test_an_extra_that_is_not_installed(missing, command, tmp_path):
    program = f"""
import sys
import time
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError("No module named " + name)
sys.meta_path.insert(0, Blocker())
from noyau.jobs.cli import main
sys.exit(main(sys.argv[1:]))
"""
    run = python(program, command, str(written(plain(), tmp_path)))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines()[-1] == f"noyau: {missing} is not installed; run: pip install 'noyau-kernels[onnx]'"
    assert files(tmp_path) == ["model.onnx"]


EACH_STEP_A_LINE = """
import contextlib, sys
from noyau.jobs import command_line
@contextlib.contextmanager
def progress(say=None, quiet=False):
    yield lambda step: print(step, file=sys.stderr, flush=True)
command_line.progress = progress
from noyau.jobs.cli import main
sys.exit(main(sys.argv[1:]))
"""
STEPS = ("reading", "compiling", "running", "checking", "timing", "timing the whole model")
BRIEF = ("compiling", "checking", "timing")  # a start of the program each, and what it measures before that step


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step in BRIEF else pytest.mark.long) for step in STEPS]
)
def test_ctrl_c_at_every_step_leaves_nothing(step, tmp_path):
    folders = [tmp_path / name for name in ("temporary", "out", "cache")]
    for folder in folders:
        folder.mkdir()
    path = written(twice(), tmp_path)
    command = [
        sys.executable,
        "-c",
        EACH_STEP_A_LINE,
        "optimize",
        str(path),
        "-o",
        str(folders[1] / "f.onnx"),
        "--dim",
        "rows=9",
    ]
    environment = {**os.environ, "TMPDIR": str(folders[0]), "XDG_CACHE_HOME": str(folders[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        steps = []
        for line in process.stderr:
            steps.append(line)
            if line.startswith(step) and len(steps) <= 8:
                time.sleep(0.03)
                process.send_signal(signal.SIGINT)
                break
        steps += process.stderr
        assert process.stdout.read() == ""
        assert process.wait(60) == 130
    assert steps[-1] == "noyau: interrupted\n"
    assert set(files(folders[0])) <= {ONNXRUNTIME_S_OWN}
    assert files(folders[1]) == []
    assert list(folders[2].glob("*/new-*")) == []


def test_ctrl_c_while_files_are_written_leaves_what_was_there(tmp_path, monkeypatch, capsys):
    (tmp_path / "f.onnx").write_bytes(b"what was there")
    path = written(twice(), tmp_path)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("noyau.hosts.onnxruntime.model_files._settle", interrupted)
    assert main(["optimize", str(path), "-o", str(tmp_path / "f.onnx")]) == 130
    assert files(tmp_path) == ["f.onnx", "model.onnx"]
    assert (tmp_path / "f.onnx").read_bytes() == b"what was there"


@pytest.mark.usefixtures("lasting_workers")
def test_a_long_chain_and_one_that_doubles(tmp_path, capsys):
    """Sixty doublings have 2^60 paths; a hundred and fifty operators are more than one kernel takes."""
    nodes = [NODE("Add", [f"v{k}", f"v{k}"], [f"v{k + 1}"]) for k in range(60)]
    model = model_of([NODE("Identity", ["x"], ["v0"]), *nodes], [value("x")], [value("v60")])
    assert main(["optimize", str(written(model, tmp_path)), "--keep", "all"]) == 0
    found = runs.run(
        sessions.open_session(tmp_path / "model.fused.onnx", tmp_path / "model.fused.so"), arrays_for(model)
    )
    np.testing.assert_array_equal(found["v60"], arrays_for(model)["x"] * np.float32(2.0**60))
    nodes = [NODE("Add", [f"v{k}", "x"], [f"v{k + 1}"]) for k in range(150)]
    model = model_of([NODE("Identity", ["x"], ["v0"]), *nodes], [value("x")], [value("v150")])
    assert main(["optimize", str(written(model, tmp_path)), "--keep", "all"]) == 0
    assert "Traceback" not in capsys.readouterr().err
