"""What is built of a text, and what a machine without gcc is told."""

from __future__ import annotations

import pytest

from noyau.errors import BuildError, UnsupportedError
from noyau.sanitizer.c import build
from noyau.sanitizer.c.build import Source, build_program, source_name
from noyau.toolchain.c import compiler as c_compiler


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
    assert source_name(symbol) == name


def test_without_gcc_it_is_said(monkeypatch):
    def missing(name=None):
        if name == "gcc":
            raise BuildError("no gcc")
        return c_compiler.Compiler(("/usr/bin/cc",), "Apple clang version 15")

    monkeypatch.setattr(c_compiler, "find_compiler", missing)
    with pytest.raises(UnsupportedError, match="install gcc and g\\+\\+"):
        build_program(Source("int x;", "c"))


def test_headers_of_the_author_are_part_of_what_is_built(tmp_path):
    seen = set()
    for number in (3, 4):
        (tmp_path / "own.h").write_text(f"static const int k = {number};\n", encoding="ascii")
        seen.add(build._options(Source('#include "own.h"\n', "c", (), tmp_path)).extra[-1])
    assert len(seen) == 2


def test_the_standard_that_the_author_names_counts():
    flags = build._flags(Source("", "cpp", ("-std=c++20",)))
    assert [flag for flag in flags if flag.startswith("-std")][-1] == "-std=c++20"


def test_only_names_of_cuda_are_said_not_to_be_watched():
    told = "gcc does not compile it: noyau_own_text.c:3:5: error: '{}' was not declared in this scope"
    for name, language in (("text", "cuda"), ("nvals", "cuda"), ("surface", "cuda"), ("cudaFoo", "cpp")):
        error = BuildError(told.format(name))
        assert build._unsupported_name(error, language) is error
    for name in ("tex1D", "surf2Dread", "cudaFoo", "nvJPEG"):
        refusal = build._unsupported_name(BuildError(told.format(name)), "cuda")
        assert isinstance(refusal, UnsupportedError)
        assert str(refusal) == f"line 3 uses {name}, which cannot be watched; check a kernel without it"
    own = "noyau_own_text.c:3:5: "
    for text, words in (
        ("fatal error: cublas_v2.h: No such file or directory", "line 3 includes cublas_v2.h, which is not found"),
        (
            "error: 'tma' is not a member of 'cuda::device'",
            "line 3 uses parts of CUDA that cannot be watched: 'tma' is not",
        ),
        (
            "error: 'this_cluster' is not a member of 'cg'",
            "line 3 uses parts of CUDA that cannot be watched: 'this_cluster' is not",
        ),
    ):
        refusal = build._unsupported_name(BuildError(own + text + "; the text is in x.c"), "cuda")
        assert isinstance(refusal, UnsupportedError)
        assert str(refusal).startswith(words)
        assert "the text is in" not in str(refusal)


def test_flags_that_would_undo_the_watch_are_left_out():
    flags = build._flags(Source("", "c", ("-O3", "-mavx2", "-ffast-math", "-DN=3", "-lm", "-flto")))
    assert {"-mavx2", "-DN=3", "-O1"} <= set(flags)
    assert not {"-O3", "-ffast-math", "-lm", "-flto"} & set(flags)
