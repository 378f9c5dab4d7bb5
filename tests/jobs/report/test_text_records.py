"""Records that print themselves, and are written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import sys

import pytest

from noyau.errors import OutputError
from noyau.jobs.command_line import require_record_places
from noyau.jobs.report.text import write_text
from tests.jobs.report.samples import BARE, HOSTILE, REPORT, hostile


def test_writing_makes_one_file_and_writing_again_replaces_it(tmp_path):
    path = tmp_path / "report.json"
    BARE.write(path)
    REPORT.write(path)
    assert json.loads(path.read_text(encoding="utf-8")) == REPORT.to_json()
    assert list(tmp_path.iterdir()) == [path]


def test_a_session_shows_a_report_as_it_prints():
    assert repr(REPORT) == str(REPORT)
    assert REPORT.model in repr(REPORT)


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        REPORT.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_come_back_as_they_are(tmp_path, name):
    path = tmp_path / "report.json"
    hostile(name).write(path)
    assert path.read_bytes().isascii()
    found = json.loads(path.read_text(encoding="ascii"))
    assert found["kernels"][0]["name"] == found["model"] == found["inputs"][0] == name


@pytest.mark.parametrize("name", ["missing/report.json", "file/report.json", "folder", "nul\0.json"])
def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        REPORT.write(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_pipe_is_written_into_and_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with open(os.open(path, os.O_RDWR), encoding="utf-8") as held:  # so that opening it waits for nobody
        write_text("a line\n", path)
        assert held.readline() == "a line\n"
    assert path.is_fifo()
    require_record_places(tmp_path / "model.onnx", path)


def test_a_link_stays_one(tmp_path):
    (tmp_path / "runs").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "runs" / "3.json")
    for text in ("one", "two"):
        write_text(text, link)
        assert link.is_symlink()
        assert (tmp_path / "runs" / "3.json").read_text(encoding="utf-8") == text


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text("before", encoding="ascii")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        REPORT.write(path)
    assert path.read_text(encoding="ascii") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_record_is_as_wide_as_the_terminal_that_it_is_printed_on(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, str(REPORT).splitlines())) > 60
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert max(map(len, str(REPORT).splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "200")
    assert 60 < max(map(len, str(REPORT).splitlines())) <= 100
