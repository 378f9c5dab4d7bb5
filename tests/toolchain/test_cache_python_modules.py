"""Kernels in Python as files of the cache."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from noyau.errors import OutputError
from noyau.toolchain import cache
from noyau.toolchain.cache import file_of

WRITE = Path.write_text


def test_a_text_is_kept_for_each_version_of_who_reads_it(empty_cache):
    paths = [file_of("x = 1\n", version) for version in ("1", "2", "1")]
    assert [path.read_text() for path in paths] == ["x = 1\n"] * 3
    assert paths[0] == paths[2] != paths[1]
    assert paths[0].is_relative_to(empty_cache)


def test_where_the_disk_is_full_nothing_is_left(empty_cache, monkeypatch):
    def full(path, text, encoding):
        WRITE(path, text[:3], encoding)
        raise OSError(errno.ENOSPC, "No space left on device")

    there = file_of("x = 1\n")
    monkeypatch.setattr(Path, "write_text", full)
    assert file_of("x = 1\n") == there
    with pytest.raises(OutputError, match="cannot be written: No space left on device; make room there") as caught:
        file_of("x = 2\n")
    assert caught.value.lacks_room
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == [there]


def test_what_is_kept_is_cleared_with_the_cache(empty_cache):
    path = file_of("x = 1\n")
    assert cache.size_bytes() == path.stat().st_size
    assert cache.clear() == 1
    assert not path.exists()
    assert cache.size_bytes() == 0


def test_old_modules_make_room(empty_cache, monkeypatch):
    monkeypatch.setattr(cache, "KEPT", 2)
    paths = []
    for number in range(4):
        paths.append(file_of(f"x = {number}\n"))
        os.utime(paths[-1].parent, (number, number))  # file systems tell times apart by milliseconds
    assert [path.parent.exists() for path in paths] == [False, False, True, True]
    assert file_of("x = 3\n") == paths[3]


def test_modules_that_another_process_removes_are_passed_over(empty_cache, monkeypatch):
    monkeypatch.setattr(cache, "KEPT", 1)
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: [*listed(path), path / "gone"])
    first = file_of("x = 1\n")
    last = file_of("x = 2\n")
    assert not (first.exists() and last.exists())
    assert file_of("x = 2\n").read_text() == "x = 2\n"


@pytest.mark.parametrize("damaged", [b"x = 2\n", b"\xff\xfe"])
def test_a_damaged_module_is_written_again(empty_cache, damaged):
    path = file_of("x = 1\n")
    path.write_bytes(damaged)
    assert file_of("x = 1\n").read_text() == "x = 1\n"
