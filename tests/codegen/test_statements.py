"""The walk that languages share: the same statements as texts of each, and what none of them runs."""

from __future__ import annotations

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.codegen.numba import printer as numba_printer
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, If, Let, Require, Space, Store, Var
from tests.nests import ONE, ROW, call, kernel, less, load, loop, store
from tests.nodes import F32, I64

LANGUAGES = {"c": (c_printer, "k_0(", "return NOYAU_OK"), "numba": (numba_printer, "def k_0(", "@numba.njit(parallel")}


@pytest.fixture(params=LANGUAGES)
def language(request):
    return request.param


def lines_of(language, *statements, **ends):
    """The lines of a kernel's only launch, without the space before them."""
    module, begin, end = LANGUAGES[language]
    text = module.together([kernel(*statements, **ends)])
    return [line.strip() for line in text[text.index(begin) : text.index(end)].splitlines()]


def register(name, cells=1):
    return Alloc(name, F32, (Dim.of(cells),), Space.REGISTER)


def test_a_branch_and_its_opposite_are_one_of_two(language):
    late = less(2, ROW)
    one, two = If(late, (store("y", ONE, ROW),)), If(call("logical_not", late), (store("y", load("x", 0), ROW),))
    lines = lines_of(language, loop("#i", "n", one, two))
    assert [line for line in lines if "if" in line or "else" in line] == {
        "c": ["if (2 < i) {", "} else {"],
        "numba": ["if 2 < i:", "else:"],
    }[language]


def test_what_is_set_as_it_is_made_is_one_line(language):
    body = (register("s"), store("s", ONE, 0), store("s", load("x", 0), 0, merge="sum"), store("y", load("s", 0), 0))
    lines = lines_of(language, *body)
    made, merged = {"c": ("float s = 1.0f;", "s += x[0];"), "numba": ("s = f32(1.0)", "s += x[0]")}[language]
    assert lines[lines.index(made) + 1] == merged


def test_states_that_read_each_other_are_computed_before_one_changes(language):
    swap = Store(("a", "b"), (Dim.of(0),), (load("b", 0), load("a", 0)))
    begin = Store(("a", "b"), (Dim.of(0),), (load("x", 0), load("x", 1)))
    lines = lines_of(language, register("a"), register("b"), begin, swap, store("y", load("a", 0), 0))
    plain = [line.removeprefix("const float ").rstrip(";") for line in lines]
    at = plain.index("next_a = b")
    assert plain[at : at + 4] == ["next_a = b", "next_b = a", "a = next_a", "b = next_b"]


def test_a_value_has_the_name_that_the_model_gives_it(language):
    exp = Let("v7", call("exp", load("x", ROW)), ("hidden",))
    lines = lines_of(language, loop("#i", "n", exp, store("y", Var("v7", F32), ROW), store("y", Var("v7", F32), ROW)))
    assert sum("hidden = noyau_exp_f32(x[i])" in line for line in lines) == 1


def test_a_place_that_is_looked_up_is_asked_once(language):
    at = Let("#at", load("k", ROW, dtype=I64))
    inside = (at, Require(Dim.of("#at"), Dim.of("m")), store("y", load("x", Dim.of("#at")), ROW))
    ends = {"inputs": (("x", F32, ["m"]), ("k", I64, ["n"])), "outputs": (("y", F32, ["n"]),)}
    lines = lines_of(language, loop("#i", "n", *inside), **ends)
    refusal = {"c": "if (k_i < 0 || k_i >= m) return NOYAU_INDEX_OUT_OF_BOUNDS;", "numba": "if not 0 <= k_i < m:"}
    assert lines.count(refusal[language]) == 1


THREADS_INSIDE = loop("#i", "n", loop("#j", 2, store("y", ONE, ROW), axis=Axis.THREADS))
MERGED_BY_THREADS = loop("#i", "n", store("y", load("x", ROW), 0, merge="sum"), axis=Axis.THREADS)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (THREADS_INSIDE, "runs THREADS loops outermost only, each alone in the other"),
        (MERGED_BY_THREADS, "has no merge of threads into y; give each a state of its own"),
    ],
)
def test_what_is_refused(language, statement, message):
    with pytest.raises(UnsupportedError, match=f"^{language} {message}"):
        lines_of(language, statement)
