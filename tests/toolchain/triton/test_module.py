"""Texts of language triton as files, where there is no room for them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from noyau.errors import OutputError
from noyau.toolchain.triton import module as builder


def test_a_cache_that_is_full_is_told(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert builder.load("one = 1\n")["one"] == 1
    monkeypatch.setattr(Path, "write_text", full)
    assert builder.load("one = 1\n")["one"] == 1  # it is there
    with pytest.raises(OutputError, match="cannot be written: No space left on device; make room there") as caught:
        builder.load("one = 2\n")
    assert caught.value.lacks_room
