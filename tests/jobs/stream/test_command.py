"""`noyau stream`: what its options may be. What it prints and writes is tested with noyau.stream."""

from __future__ import annotations

import pytest

from noyau.jobs.cli import main


@pytest.mark.parametrize(
    ("option", "text", "form"),
    [
        *(("--column", text, "ARG=NAME, an argument and its column") for text in ("x", "=x", "x=", "x=,y")),
        *(
            ("--argument", text, "NAME=VALUE, with a number or a list of numbers")
            for text in ("by", "=3", "by=", "by=a", "by={[]: 1}")
        ),
    ],
)
def test_a_pair_that_is_none_is_one_clear_line(option, text, form, capsys):
    assert main(["stream", "op.py::scaled", "x.csv", option, text]) == 2
    assert capsys.readouterr().err == f"noyau: {option} {text} is not {form}\n"


@pytest.mark.parametrize("noted", [False, True])
def test_an_interrupted_stream_says_how_to_go_on(noted, tmp_path, monkeypatch, capsys):
    def interrupted(op, source, sink, **_):
        if noted:
            (tmp_path / "y.csv.progress").touch()
        raise KeyboardInterrupt

    (tmp_path / "op.py").write_text("import noyau\n\n@noyau.op('f64[n] -> f64[n]')\ndef f(x):\n    return x\n")
    monkeypatch.setattr("noyau.engines.stream.stream", interrupted)
    assert main(["stream", f"{tmp_path / 'op.py'}::f", "x.csv", "-o", str(tmp_path / "y.csv")]) == 130
    line = "noyau: the same command goes on from here; --restart begins anew\n" if noted else ""
    assert capsys.readouterr().err == f"{line}noyau: interrupted\n"
