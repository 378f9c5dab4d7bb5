"""Language numba: whole texts, what a kernel checks itself, names of any kind; what it refuses, and in which words."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.errors import GraphError
from noyau.ir.dims import Dim
from noyau.ir.loops import Axis
from tests.codegen.kernels import GOLDEN, MORE
from tests.codegen.numba_kernels import compiled, kernel_of, of, text_of
from tests.codegen.test_identifiers import GRAPHS, HOSTILE, turned
from tests.compiler.schedules.groups import inputs_of
from tests.nests import COPY, ROW, kernel, load, loop, store
from tests.nodes import F32

ROOT = Path(__file__).resolve().parents[3]


def built(graph, name):
    return schedule(lower(graph, name), numba_printer.SCHEDULE)


@pytest.mark.parametrize("name", [*GOLDEN, *MORE])
def test_a_text_is_python_and_says_what_it_takes(name):
    text = numba_printer.together([kernel_of(name)], "a comment")
    tree = ast.parse(text)
    assert text.startswith("# a comment\n\n")
    assert text.isascii()
    last = tree.body[-1]
    ends = [buffer for buffer in kernel_of(name).buffers if buffer.role.value != "scratch"]
    assert isinstance(last, ast.FunctionDef)
    assert last.name == name
    assert len(last.args.args) == len(ends)


def test_a_text_defines_what_it_uses_and_nothing_else():
    text = numba_printer.together([kernel_of("swiglu")])
    assert "import math" not in text
    defined = re.findall(r"^(?:def )?(noyau_\w+)(?:\(| = )", text, re.MULTILINE)
    assert sorted(defined) == sorted(set(re.findall(r"noyau_\w+", text)))
    assert "i8 = " not in text
    assert "@intrinsic" not in numba_printer.together([kernel_of("rotary")])


def test_kernels_in_one_text_share_what_they_call():
    text = text_of(["log_softmax_kept", "log_softmax_streamed"])
    assert text.count("def noyau_exp_negative_f32(x):") == 1
    assert text.count("\ndef log_softmax_kept(") == text.count("\ndef log_softmax_streamed(") == 1


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("", ""),
        ("one\ntwo", "# one\n# two"),
        ("one\n\nimport os", "# one\n#\n# import os"),
        ('"""', '# """'),
        ("caf\u00e9 \x00\t\u2028x", "# caf? ???x"),
        ("a\rb", "# a?b"),
        ("x" * 500, f"# {'x' * 472}..."),
    ],
)
def test_comments(text, comment):
    assert numba_printer.comment_text(text) == comment


# Names.


def locals_of(function):
    """The parameters and the variables of a function."""
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {argument.arg for argument in function.args.args}


@pytest.mark.parametrize("by", range(0, len(HOSTILE), 7))
def test_no_hostile_name_is_one_that_the_text_itself_uses(by):
    name, graph = list(GRAPHS.items())[by % len(GRAPHS)]
    text = numba_printer.together([built(turned(graph, by), name)], HOSTILE[by])
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    made = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    made |= {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    made |= {node.targets[0].id for node in tree.body if isinstance(node, ast.Assign)}
    taken = made | {function.name for function in functions} | {"range", "min", "max", "abs"}
    for function in functions:
        assert not locals_of(function) & taken


@pytest.mark.parametrize("by", [0, 40, 80])
def test_hostile_names_compute_the_same(by):
    graph = GRAPHS["rotary"]
    sizes = sorted({size for node in graph.inputs for dim in node.shape for size in dim.names})
    arrays = list(inputs_of(graph, dict.fromkeys(sizes, 7), seed=1).values())
    plain, hostile = built(graph, "rotary"), built(turned(graph, by), "rotary")
    for got, wanted in zip(of(hostile).call_guarded(*arrays), of(plain)(*arrays), strict=True):
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "name", ["", "2x", "a b", "x\n", "\u00e9", "a;b", "noyau_x", "for", "np", "range", "f32", "None"]
)
def test_a_kernel_s_own_name_must_be_that_of_a_function(name):
    with pytest.raises(GraphError, match="cannot be the name of a Python function"):
        numba_printer.together([replace(kernel_of("swiglu"), name=name)])


@cache
def texts_digest() -> str:
    """A digest of every text."""
    return hashlib.sha256(
        "\n".join(numba_printer.together([kernel_of(name)]) for name in {**GOLDEN, **MORE}).encode()
    ).hexdigest()


def test_texts_have_no_hidden_inputs(tmp_path):
    """Another process, with other hashes, another folder and other words for months, prints the same bytes."""
    script = "from tests.codegen.numba.test_printer import texts_digest; print(texts_digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT), "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == texts_digest(), done.stderr


# What a kernel looks at.


def test_shapes_and_sizes_are_read_and_checked():
    text = numba_printer.together([kernel_of("rotary")])
    assert "    b = x.shape[0]\n" in text
    assert "    if x.shape != (b, s, 16):\n        return 2\n" in text
    made = kernel(COPY, inputs=(("x", F32, [Dim.of("n") * 2 + 1]),), outputs=(("y", F32, ["n"]),))
    assert "n = (x.shape[0] - 1) // 2" in numba_printer.together([made])


def test_a_launch_runs_where_its_condition_holds():
    """Long rows in one way, short rows in another."""
    graph = GOLDEN["log_softmax_kept"][0]
    made = schedule(lower(graph, "both"), replace(numba_printer.SCHEDULE, short=True))
    assert any(launch.when is not None for launch in made.launches)
    for rows, columns in ((3, 700), (64, 5)):
        x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
        wide = x.astype(np.float64)
        wanted = wide - wide.max(-1, keepdims=True)
        wanted -= np.log(np.exp(wanted).sum(-1, keepdims=True))
        np.testing.assert_allclose(of(made)(x)[0], wanted, atol=1e-5)


def test_special_values_come_through():
    """Infinities, NaN, -0.0 and denormals, in a row and in a map."""
    rows = np.array([[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [1e-45, -0.0, 0.0]], np.float32)
    (got,) = compiled("log_softmax_kept").call_guarded(rows)
    assert np.isnan(got[[0, 1, 3]]).all()
    assert got[2, 0] == -np.inf
    np.testing.assert_allclose(got[2, 1:], [-1.3132616, -0.31326166], rtol=1e-6)
    np.testing.assert_allclose(got[4], [-1.0986123] * 3, rtol=1e-6)
    made = of(kernel(loop("#i", "n", store("y", load("x", ROW), ROW), axis=Axis.THREADS)))
    x = np.array([-0.0, 1e-45, np.inf, -np.inf, np.nan], np.float32)
    assert made(x)[0].tobytes() == x.tobytes()
