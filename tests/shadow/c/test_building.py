"""What is built of a text, and what a machine without gcc is told."""

from __future__ import annotations

import pytest

from noyau.builders import cc
from noyau.errors import BuildError, UnsupportedError
from noyau.shadow.c import building
from noyau.shadow.c.building import Source, built, plain_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZZ13matmul_tiledPKfS0_PfiiiE2as", "as"),
        ("_ZZ1fILi8EEvPfiE4tile", "tile"),
        ("_ZZ3fooPfE1s_0", "s"),
        ("_ZL5table", "table"),
        ("counts.0", "counts"),
        ("counts", "counts"),
    ],
)
def test_an_object_has_its_name_of_the_source(symbol, name):
    assert plain_name(symbol) == name


def test_without_gcc_it_is_said(monkeypatch):
    def missing(name=None):
        if name == "gcc":
            raise BuildError("no gcc")
        return cc.Compiler(("/usr/bin/cc",), "Apple clang version 15")

    monkeypatch.setattr(cc, "find_compiler", missing)
    with pytest.raises(UnsupportedError, match="install gcc and g\\+\\+"):
        built.__wrapped__(Source("int x;", "c"))


def test_headers_of_the_author_are_found_and_are_part_of_what_is_built(tmp_path):
    (tmp_path / "own.h").write_text("static const int k = 3;\n", encoding="ascii")
    flags = building._flags(Source('#include "own.h"\n', "c", (), tmp_path))
    assert flags[flags.index("-iquote") + 1] == str(tmp_path)
    (tmp_path / "own.h").write_text("static const int k = 4;\n", encoding="ascii")
    assert building._flags(Source('#include "own.h"\n', "c", (), tmp_path)) != flags


def test_flags_that_would_undo_the_watch_are_left_out():
    flags = building._flags(Source("", "c", ("-O3", "-mavx2", "-ffast-math", "-DN=3", "-lm", "-flto")))
    assert {"-mavx2", "-DN=3", "-O1"} <= set(flags)
    assert not {"-O3", "-ffast-math", "-lm", "-flto"} & set(flags)
