"""The command `noyau doctor`."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

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
    assert told["numpy"] == doctor.release_text("numpy", importlib.metadata.version("numpy"))
    assert re.match(r"3\.\d+\.\d+: .* \(/", told["python"])
    assert {"gpu", "numba", "triton", *doctor._PACKAGES} <= set(told)


def test_doctor_without_a_compiler_is_status_1(empty_cache, capsys, monkeypatch, tmp_path):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "no C compiler" in told
    assert "pip install 'noyau-kernels[cc]'" in told
    assert "torch        not installed" in told


@pytest.mark.parametrize(
    ("release", "want"),
    [
        ("0.61.2", "0.61.2: tried"),
        ("0.68.1+local", "0.68.1+local: tried"),
        ("0.69.0", "0.69.0: newer than what was tried (0.68.1)"),
        ("0.59.1", "0.59.1: older than noyau supports (0.60.0)"),
        ("0.61.10", "0.61.10: not tried, as 0.61.2 and 0.63.1 were"),
    ],
)
def test_a_release_is_compared_with_what_was_tried(monkeypatch, release, want):
    monkeypatch.setattr(doctor, "tried_releases", lambda: {"numba": {"0.68.1", "0.60.0", "0.63.1", "0.61.2"}})
    assert doctor.release_text("numba", release) == want
    assert doctor.release_text("rich", release) == release


def test_the_table_of_releases_is_that_of_the_script():
    tried = doctor.tried_releases()
    assert tried.pop("set") >= {"oldest", "newest"}
    assert {name for name in tried if name != "python"} <= set(doctor._PACKAGES)
    assert "-" not in set().union(*tried.values())
    script = Path(__file__).parents[2].joinpath(".ci", "versions").read_text(encoding="utf-8")
    assert "noyau/jobs/releases.txt" in script
    assert all((Path(__file__).parents[2] / name).exists() for name in re.findall(r"tests/[\w/.]+", script))
