"""The command `noyau doctor`."""

from __future__ import annotations

import importlib.metadata

import noyau
from noyau.jobs import cli, doctor
from noyau.toolchain.c import compiler as c_compiler


def test_doctor_says_what_is_there(empty_cache, capsys):
    assert cli.main(["doctor"]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["noyau"] == noyau.__version__
    assert c_compiler.level() in told["machine"]
    assert c_compiler.find_compiler().version in told["compiler"]
    assert str(empty_cache) in told["cache"]
    assert told["numpy"] == importlib.metadata.version("numpy")
    assert {"gpu", "numba", "triton", *doctor._PACKAGES} <= set(told)


def test_doctor_without_a_compiler_is_status_1(empty_cache, capsys, monkeypatch, tmp_path):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "no C compiler" in told
    assert "pip install 'noyau[cc]'" in told
    assert "torch        not installed" in told
