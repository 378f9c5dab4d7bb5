"""Names: whatever a model calls its values and sizes, the text means the same, and compiles without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from itertools import cycle
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import TYPES
from noyau.codegen.identifiers import RESERVED, Scopes, fitting, wish_of
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.errors import GraphError
from noyau.kernels.programs import generate as programs_run
from tests.batching import build_many, build_printed
from tests.codegen.kernels import GOLDEN, kernel_of, renamed
from tests.codegen.words import PLAIN, arrays, ops_of
from tests.codegen.words import WORDS as OP_WORDS
from tests.compiler.schedules.groups import inputs_of
from tests.nests import COPY, kernel
from tests.nodes import F32
from tests.ops.dispatch.ops import generated

# What closes comments and strings, ends lines, starts directives; what C, its headers and this text itself use.
HOSTILE = ['"', "'", "\n", "\r\n", "a\nb", "*/", "/*", "//", "*/ int main(void) { return 1; } /*", "a\\", "\\\n"]
HOSTILE += ["??/", "??/\n#include </etc/passwd>", "#define float int", "%s%n", "$(rm -rf ~)", "`id`", "; rm", "\x00"]
HOSTILE += ["\x1b[2J", "\u00e9tat", "\u4e2d\u6587", "\u202etxt", "\U0001f600", "\ud800", "x" * 10_000, "", " ", "_"]
HOSTILE += ["a.b", "a/b", "a_b", "a b", "A_B", "a_b_2", "../../etc/passwd", "x:0", "#i0", "__", "1", "2x"]
HOSTILE += """i0 r1 v v_2 item int float double bool if for while return restrict inline asm typeof static void auto
    _Bool _Pragma __attribute__ __asm__ __COUNTER__ __FILE__ defined constexpr nullptr alignas typedef
    NAN INFINITY NULL const EOF I M_PI HUGE_VAL INT64_MIN INT64_C RAND_MAX CHAR_BIT errno assert isnan
    isless linux unix malloc free sqrtf expf fabs main printf memcpy exit int64_t size_t uint16_t wchar_t
    noyau_call noyau_kernel noyau_exp_f32 NOYAU_OK Noyau noyau_maximum_i64 NOYAU_LANES NOYAU_ABI call
    begin end left sizes shapes dims launch output index lane block length part next n1 n2""".split()
GRAPHS = {name: graph for name, (graph, _) in GOLDEN.items()}
WORDS = set(re.findall(r"[A-Za-z_]\w*", " ".join(TYPES.values()))) | RESERVED


def turned(graph, by):
    """The graph under hostile names, of which each comes first once."""
    return renamed(graph, [*HOSTILE[by:], *HOSTILE[:by]])


def built(graph, name):
    return schedule(lower(graph, name))


@pytest.fixture(scope="module")
def plain_kernels():
    return {name: built(graph, name) for name, graph in GRAPHS.items()}


@pytest.fixture(scope="module")
def hostile():
    """Kernels in which each hostile name is that of an input and of a size, and maybe of all else."""
    graphs = [turned(list(GRAPHS.values())[by % len(GRAPHS)], by) for by in range(len(HOSTILE))]
    return [(graph, built(graph, f"hostile_{by}")) for by, graph in enumerate(graphs)]


@pytest.fixture(scope="module")
def parts(hostile):
    """These kernels, printed."""
    return {made.name: c_printer.print_kernel(made) for _, made in hostile}


def test_hostile_names_change_nothing_but_names(hostile, plain_kernels):
    """With numbers for names, the texts are those of names that nobody minds."""
    texts = {name: c_printer.source(made, anonymous=True) for name, made in plain_kernels.items()}
    for (_, made), name in zip(hostile, cycle(GRAPHS), strict=False):
        assert c_printer.source(replace(made, name=name), anonymous=True) == texts[name]


@pytest.mark.parametrize("compiler", [name for name in ("gcc", "clang") if shutil.which(name)])
def test_they_compile_without_a_warning(parts, compiler, tmp_path):
    text = c_printer.text_of(list(parts.values()), "\n".join(HOSTILE))
    text.encode("ascii")
    (tmp_path / "kernel.c").write_text(text, encoding="ascii")
    for standard in ("c11", "gnu17"):
        flags = [f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror"]
        done = subprocess.run([compiler, *flags, "kernel.c"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]


def test_they_compute_the_same(hostile, parts, plain_kernels):
    natives = build_printed(parts)
    plain = dict(zip(GRAPHS, build_many(list(plain_kernels.values())), strict=True))
    for number, ((graph, _), native) in enumerate(zip(hostile, natives, strict=True)):
        name, original = list(GRAPHS.items())[number % len(GRAPHS)]
        sizes = sorted({size for node in original.inputs for dim in node.shape for size in dim.names})
        arrays = list(inputs_of(original, dict.fromkeys(sizes, 7), seed=number).values())
        assert len(graph.inputs) == len(arrays)
        for got, wanted in zip(native.call_guarded(*arrays), plain[name](*arrays), strict=True):
            assert got.tobytes() == wanted.tobytes()


@given(st.text(max_size=60) | st.sampled_from(HOSTILE))
def test_any_name_becomes_an_identifier_that_nothing_else_has(name):
    made = fitting(name)
    assert re.fullmatch(r"[A-Za-z]\w*", made, re.ASCII)
    assert len(made) <= 44
    assert made not in WORDS
    assert not made.lower().startswith("noyau")
    assert not re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", made), "it could be a macro"


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("x", "x"),
        ("I", "I"),
        ("i", "i"),
        ("NAN", "nan"),
        ("X_1", "x_1"),
        ("Ab", "Ab"),
        ("errno", "v_errno"),
        ("EOF", "eof"),
        ("BOOL", "v_bool"),
        ("FREE", "v_free"),
        ("int", "v_int"),
        ("", "v"),
    ],
)
def test_names_that_fit(name, made):
    assert fitting(name) == made


def test_nothing_in_sight_has_a_name_twice_and_blocks_forget():
    scopes = Scopes(kernel(COPY))
    with scopes.block():
        assert scopes.bind("x_in", "x") == "x_2"
        assert scopes.bind("#i", None) == "i"
        assert scopes.bind("other", "x") == "x_3"
        assert scopes.value("x") == "x"
        assert scopes.atom("#i") == "i"
    assert scopes.bind("again", "x") == "x_2"
    with pytest.raises(GraphError, match="nothing here binds the value x_in"):
        scopes.value("x_in")
    with pytest.raises(GraphError, match="nothing here binds the index #i"):
        scopes.atom("#i")


def test_a_buffer_and_a_size_may_share_a_name():
    made = kernel(COPY)
    buffers = (replace(made.buffers[0], source="n"), replace(made.buffers[1], source="n"))
    scopes = Scopes(replace(made, buffers=buffers))
    assert [scopes.value("x"), scopes.value("y"), scopes.atom("n")] == ["n", "n_2", "n_3"]


def test_what_a_comment_names_is_not_used():
    scopes = Scopes(kernel(COPY))
    assert scopes.peek("n") == "n"
    assert scopes.used == set()
    scopes.atom("n")
    assert scopes.used == {("size", "n")}


def test_anonymous_names_are_numbers_in_order():
    scopes = Scopes(kernel(COPY), anonymous=True)
    names = [scopes.value("x"), scopes.value("y"), scopes.atom("n"), scopes.bind("z", "lane")]
    assert names == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("variable", "wish"),
    [("#lane_x", "lane"), ("#block_x", "block"), ("#i_length", "length"), ("#i0", None), ("#at", None)],
)
def test_indices_that_schedules_made_have_short_names(variable, wish):
    assert wish_of(variable) == wish


@pytest.mark.parametrize("name", ["", "2x", "a b", "x\n", "\u00e9", "a;b", "_x", "noyau", "Noyau_exp"])
def test_a_kernel_s_own_name_must_be_that_of_a_function(name):
    with pytest.raises(GraphError, match=re.escape(f"{name!r} cannot be the name of a C function: give letters, digi")):
        c_printer.source(replace(kernel_of("swiglu"), name=name))


def test_a_size_of_any_name_is_bound_once():
    """Two sizes that clean up to one word stay two."""
    made = kernel(COPY, inputs=(("x", F32, ["a/b", "a.b"]),), outputs=(("y", F32, ["a/b"]),))
    text = c_printer.source(replace(made, launches=()))
    assert "const int64_t a_b = shapes[0][0];" in text
    assert "const int64_t a_b_2 = shapes[0][1];" in text


@pytest.fixture(scope="module")
def plain():
    return results(PLAIN, "c")


@pytest.mark.parametrize(("language", "seed"), [("c", 0), ("c", 1), ("numba", 2)])
def test_whatever_parameters_and_sizes_of_an_op_are_called_results_are_the_same(plain, language, seed):
    for got, wanted in zip(results(Random(seed).sample(OP_WORDS, 6), language), plain, strict=True):
        np.testing.assert_array_max_ulp(got, wanted, 4)


def results(names, language):
    """What the ops of these names give in a language."""
    return [
        made
        for op in ops_of(names)
        for made in programs_run.build(generated(op, *arrays(), language=language))(*arrays())
    ]
