from __future__ import annotations

import json

import pytest

from noyau.jobs.cli import main

DEFINITION = {
    "name": "double", "axes": {"n": {"type": "var"}}, "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"out": {"shape": ["n"], "dtype": "float32"}}, "reference": "def run(x):\n    return x * 2\n",
}  # fmt: skip
LACKING = """import torch, triton
import triton.language as tl
@triton.jit
def double(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    v = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=r,r", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o + i, v, mask=i < n)
def run(x):
    o = torch.empty_like(x)
    double[(1,)](x, o, x.numel(), triton.next_power_of_2(x.numel()))
    return o
"""
TEXTS = {"right": "return x + x", "wrong": "return x + x + 1"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "definition.json").write_text(json.dumps(DEFINITION))
    (tmp_path / "solutions").mkdir()
    for name, text in TEXTS.items():
        spec = {"languages": ["pytorch"], "entry_point": "kernel.py::run", "destination_passing_style": False}
        sources = [{"path": "kernel.py", "content": f"def run(x):\n    {text}\n"}]
        record = {"name": name, "definition": "double", "spec": spec, "sources": sources}
        (tmp_path / "solutions" / f"{name}.json").write_text(json.dumps(record))
    return tmp_path


def test_a_definition_and_its_solutions(folder, capsys):
    places = {name: folder / f"{name}.txt" for name in ("json", "jsonl", "trace", "html")}
    options = [word for name, place in places.items() for word in (f"--{name}", str(place))]
    status = main(
        ["check", str(folder / "definition.json"), "--solution", str(folder / "solutions"), "--time", "4", *options]
    )
    printed = capsys.readouterr().out
    assert status == 1
    assert "double[right]: right at n = 1; n = 2; n = 3; n = 5" in printed
    assert "double[wrong]: wrong" in printed
    assert "2 submissions: 1 right, 1 wrong" in printed
    (finding,) = map(json.loads, places["jsonl"].read_text().splitlines())
    assert (finding["submission"], finding["status"], finding["kind"]) == ("wrong", "wrong", "wrong-value")
    traces = [json.loads(line) for line in places["trace"].read_text().splitlines()]
    assert {(each["solution"], each["evaluation"]["status"]) for each in traces} == {
        ("right", "PASSED"),
        ("wrong", "INCORRECT_NUMERICAL"),
    }
    page = places["html"].read_text()
    assert "2 submissions: 1 right, 1 wrong" in page and "return x + x + 1" in page
    assert [each["status"] for each in json.loads(places["json"].read_text())["verdicts"]] == ["right", "wrong"]


@pytest.mark.parametrize(
    ("text", "fills", "message"),
    [
        (
            "def run(x):\n    return x + x\n",
            True,
            "crashed: it does not take its arguments: too many positional arguments; it is called with its inputs, and "
            "memory for its outputs behind them, unless its spec says destination_passing_style: false",
        ),
        (
            "def run(x, out):\n    out[...] = x + x\n",
            False,
            "crashed: it does not take its arguments: missing a required argument: 'out'; it is called with its inputs "
            "alone, since its spec says destination_passing_style: false",
        ),
        (LACKING, False, "not checked: without a GPU tl.inline_asm_elementwise raised"),
        ("def run(x):\n    return int('x')\n", False, "crashed: it raised ValueError: invalid literal for int()"),
    ],
    ids=["it returns", "it fills", "what the interpreter lacks", "it raises"],
)
def test_a_refused_call_is_said_as_what_it_is(folder, capsys, text, fills, message):
    """Not as a fault of a kernel where a GPU is missing, nor the other way round."""
    record = json.loads((folder / "solutions" / "right.json").read_text())
    record["spec"]["destination_passing_style"] = fills
    record["sources"] = [{"path": "kernel.py", "content": text}]
    (folder / "one.json").write_text(json.dumps(record))
    main(["check", str(folder / "definition.json"), "--solution", str(folder / "one.json"), "--time", "4"])
    assert message in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("path", "answer", "status"), [("../k.py", "no", 1), ("k.py", "no", 3)])
def test_the_gate_says_yes_or_no(folder, capsys, path, answer, status):
    """A verdict that needs no run: of a source that leaves its folder, and of a language that is not there."""
    record = json.loads((folder / "solutions" / "right.json").read_text())
    record |= {
        "sources": [{"path": path, "content": "x"}],
        "spec": {"languages": ["cutile"], "entry_point": "k.py::run"},
    }
    (folder / "odd.json").write_text(json.dumps(record))
    words = ["check", str(folder / "definition.json"), "--solution", str(folder / "odd.json"), "--gate"]
    assert main(words) == status
    assert capsys.readouterr().out == f"{answer}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["definition.json"], "is a definition: give the kernel with --solution"),
        (["definition.json", "--solution", "none.json"], "there is no file"),
        (["definition.json", "--solution", "empty"], "holds no solution"),
        (["definition.json", "--solution", "solutions", "--time", "0"], "--time 0 is no limit"),
        (["definition.json", "--solution", "solutions", "--memory", "-1"], "--memory -1 is no limit"),
        (["definition.json", "--solution", "solutions", "--launch", "1,1"], "it takes no --launch"),
        (["definition.json", "--solution", "solutions", "--trace", "definition.json/t"], "is no folder"),
        (["plain.py", "--solution", "plain.py"], "has no Model and get_inputs"),
        (["empty"], "is no problem of a benchmark"),
    ],
)
def test_what_cannot_be_checked_is_one_line(folder, capsys, monkeypatch, words, message):
    (folder / "empty").mkdir()
    (folder / "plain.py").write_text("x = 1\n")
    monkeypatch.chdir(folder)
    assert main(["check", *words]) == 2
    assert message in capsys.readouterr().err
