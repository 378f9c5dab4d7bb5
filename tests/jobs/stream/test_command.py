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
