"""Tests of the records of languages: complete, and told by suffix and by decorator."""

import pytest

from noyau.codegen.language import BY_SUFFIX, GENERATIONS, LANGUAGES, Grid, languages_for
from noyau.errors import BuildError
from noyau.kernels.call import CALLERS
from noyau.kernels.programs.generate import BUILDERS
from noyau.sanitizer.routes import SANITIZERS
from noyau.toolchain.c import compiler as c_compiler


def test_the_tables_of_higher_layers_have_entries_of_languages_alone():
    assert {*CALLERS, *SANITIZERS} == LANGUAGES.keys()
    assert BUILDERS.keys() == GENERATIONS.keys()


def test_languages_are_generated_for_the_cpu_or_for_a_gpu():
    assert languages_for(gpu=False) == ("c", "numba")
    assert languages_for(gpu=True) == ("triton", "cuda", "numba_cuda")


def test_a_text_is_told_by_the_suffix_of_its_file():
    assert {suffix: language.name for suffix, language in BY_SUFFIX.items()} == {
        ".c": "c",
        ".cc": "cpp",
        ".cpp": "cpp",
        ".cxx": "cpp",
        ".cu": "cuda",
    }
    assert [name for name, language in LANGUAGES.items() if language.is_text] == ["c", "cpp", "cuda"]


def test_kernels_on_a_gpu_are_those_that_are_launched_over_a_grid():
    assert [name for name, language in LANGUAGES.items() if language.on_gpu] == ["triton", "cuda", "numba_cuda"]
    assert [name for name, language in LANGUAGES.items() if language.grid is Grid.PROGRAMS] == ["triton"]


def test_a_language_without_its_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(c_compiler, "_find", lambda *given: None)
    with pytest.raises(BuildError, match="no C compiler"):
        LANGUAGES["c"].require_compiler()
    LANGUAGES["numba"].require_compiler()
