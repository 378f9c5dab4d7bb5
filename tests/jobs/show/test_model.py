from __future__ import annotations

import io

import pytest
from rich.console import Console

import noyau
from noyau.compiler.partition.cut import Cut
from noyau.errors import BuildError, InputError, ModelError
from noyau.hosts.onnxruntime import write_back
from noyau.jobs.show.model import reasons, show
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import BARE, llama, twice, written


def printed(shown, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(shown)
    return file.getvalue()


@pytest.fixture
def shown(tmp_path):
    return show(written(twice(), tmp_path))


def test_it_reads_like_this(shown):
    one, other = (planned.operator for planned in shown.plan.kernels)
    assert (
        printed(shown)
        == f"""\
model.onnx: 8 of 10 operators in 2 kernels

{one}  2 places
  replaces  Tanh, Mul, Sigmoid
  reads     x: f32[rows, 6]
  writes    a: f32[rows, 6]

{other}
  replaces  Exp, Neg
  reads     d: f32[rows, 6]
  writes    y: f32[rows, 6]

Why the rest is as it is
  MatMul is a library call
      MatMul#3, MatMul#7
"""
    )


@pytest.fixture(scope="module", params=["dynamo", "torchscript"])
def exported(request):
    """A model of each exporter, read and planned once."""
    return show(llama(request.param))


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(exported, width):
    lines = printed(exported, width).splitlines()
    names = [line for line in lines if not line.startswith(" ")]
    assert all(len(line) <= width and line == line.rstrip() for line in lines if line not in names)


def test_a_session_shows_it_as_it_prints(shown):
    assert repr(shown) == str(shown)
    assert str(shown).startswith("model.onnx: 8 of 10 operators in 2 kernels\n")


@pytest.mark.parametrize("kind", BARE)
def test_a_model_without_kernels(kind, tmp_path):
    text = printed(show(written(BARE[kind], tmp_path)))
    assert "operators in 0 kernels" in text
    assert ("Why the rest" in text) == (kind != "no nodes")


def test_reasons_come_once_the_most_frequent_first():
    cuts = (*tuple(Cut(k, None, "alone") for k in range(6)), Cut(0, 1, "apart"))
    assert list(reasons(cuts, tuple(f"Add#{k}" for k in range(6)))) == [
        ("Add#0, Add#1, Add#2, Add#3 and 2 more", "alone"),
        ("Add#0 -> Add#1", "apart"),
    ]


def test_a_source_opens_with_what_is_known_of_it(shown):
    one = shown.plan.kernels[0]
    text = shown.source(one.operator)
    opening = text.partition("*/")[0]
    assert opening.startswith(f"/* {one.operator}: Tanh, Mul, Sigmoid; 2 places in the model\n")
    assert "reads  x: f32[rows, 6]\n" in opening
    assert "moves 48*rows bytes, does " in opening
    assert "certificate: right on " in opening
    assert "adversarial inputs alone" in " ".join(opening.split())
    assert text.endswith(one.text)
    assert text == shown.source(one.operator)


def test_a_source_needs_no_compiler(shown, monkeypatch):
    def missing(_):
        raise BuildError("no C compiler")

    monkeypatch.setattr(c_compiler, "find_compiler", missing)
    assert "certificate: not tried: no C compiler" in shown.source(shown.plan.kernels[0].operator)


def test_what_is_not_there_is_named(shown, tmp_path):
    with pytest.raises(InputError, match="no kernel nonsense; its kernels are: tanh_sigmoid_0_"):
        shown.source("nonsense")
    with pytest.raises(InputError, match="no language triton yet; the languages are: c"):
        shown.source(shown.plan.kernels[0].operator, "triton")
    with pytest.raises(ModelError, match="cannot be read"):
        show(tmp_path / "missing.onnx")
    with pytest.raises(BuildError, match="unknown target"):
        show(tmp_path / "model.onnx", target="pdp-11")


def test_places_that_do_not_fit_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(write_back, "refusals", lambda *_: {2: "it has no room"})
    text = printed(noyau.show(written(twice(), tmp_path)))
    assert "6 of 10 operators in 1 kernel" in text
    assert "  it has no room\n      Exp#8, Neg#9\n" in text


def test_a_reason_of_several_places_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(write_back, "refusals", lambda *_: {0: "it has no room", 2: "it has no room"})
    text = printed(noyau.show(written(twice(), tmp_path)))
    assert text.count("it has no room") == 1
    assert text.endswith("  it has no room\n      Tanh#0, Mul#1, Sigmoid#2, Exp#8 and 1 more\n")
