"""Kernels whose inputs have strides: right over every kind of view, where it lies, by the interpreter and in C."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Role
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import has_layout
from tests.compiler.schedules.groups import (
    concatenated,
    gathered,
    inputs_of,
    reduced,
    residual_rms_norm,
    rotary,
    scanned,
    transposed,
)
from tests.jobs.check.groups import softmax, swiglu
from tests.judged import Judge
from tests.views import laid_out, views

GRAPHS = {
    "softmax": softmax(),
    "swiglu": swiglu(),
    "rotary": rotary(),
    "norm_of_bf16": residual_rms_norm(dtype=DType.BF16),
    "column_sums": reduced("sum", "rows", "n", axes=(0,)),
    "sum_of_all": reduced("sum", "rows", "n", axes=(0, 1)),
    "sum_of_a_row": reduced("sum", "n", axes=(0,)),
    "row_argmax": reduced("argmax", "rows", "n", axes=(1,)),
    "transposed": transposed(0, 2, 1),
    "joined": concatenated(1),
    "looked_up": gathered(),
    "running_sum": scanned("sum", "rows", "n", axis=1),
}
LAYOUTS = ("inner", "strided")


def kernel_of(name, layout):
    graph = normalise(GRAPHS[name])
    layouts = {node.output: layout for node in graph.inputs}
    return schedule(check(lower(graph, f"{name}_{layout}", layouts)))


@pytest.fixture(scope="module")
def natives():
    """Each kernel with inputs of each layout, built."""
    kernels = {(name, layout): check(kernel_of(name, layout)) for name in GRAPHS for layout in LAYOUTS}
    library = compile_library(
        [c_printer.together(list(kernels.values()))], CompilerOptions(export=True, extra=("-O1",))
    )
    layouts = {key: [buffer.layout for buffer in kernel.of(Role.INPUT)] for key, kernel in kernels.items()}
    return {key: Native(library, f"{kernel.name}_kernel", layouts[key]) for key, kernel in kernels.items()}


def arrays_of(name, sizes, seed=0):
    """The inputs of a kernel, in order."""
    graph = GRAPHS[name]
    given, wanted = inputs_of(graph, sizes, seed), normalise(graph)
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    return [{**constants, **given}[node.output] for node in wanted.inputs]


def sizes_of(name, number=5):
    return dict.fromkeys(sorted({s for node in GRAPHS[name].inputs for dim in node.shape for s in dim.names}), number)


def assert_right(name, arrays, results):
    graph, normal = GRAPHS[name], normalise(GRAPHS[name])
    judge = Judge(graph, {node.output: array for node, array in zip(normal.inputs, arrays, strict=True)})
    wrong = [judge.wrong(output, got) for output, got in zip(normal.outputs, results, strict=True)]
    assert wrong == [None] * len(results)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_view_gives_what_a_copy_of_it_gives(natives, name, layout):
    native, arrays = natives[name, layout], arrays_of(name, sizes_of(name))
    for view in views(arrays[0]):
        seen = [views(array)[view] for array in arrays]
        copies = [np.array(array, order="C") for array in seen]
        for pieces in (1, 3):
            results = native.call_guarded(*seen, pieces=pieces)
            assert [r.tobytes() for r in results] == [r.tobytes() for r in native(*copies)], view
    assert_right(name, copies, results)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_interpreter_gives_the_same(name, layout):
    kernel, arrays = kernel_of(name, layout), arrays_of(name, sizes_of(name, 3))
    for view in ("sliced", "reversed"):
        seen = [views(array)[view] for array in arrays]
        assert_right(name, arrays, run(kernel, seen))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_strides(natives, data):
    name, layout = data.draw(st.sampled_from(sorted(GRAPHS))), data.draw(st.sampled_from(LAYOUTS))
    sizes = {size: data.draw(st.integers(3, 20)) for size in sizes_of(name)}
    arrays, seen = arrays_of(name, sizes), []
    for array in arrays:
        order = data.draw(st.permutations(range(array.ndim)))
        seen.append(laid_out(array, order, [data.draw(st.integers(-3, 3)) for _ in range(array.ndim)]))
    assert_right(name, [np.array(array, order="C") for array in seen], natives[name, layout].call_guarded(*seen))


def test_arrays_are_read_where_they_lie(natives, monkeypatch):
    """A kernel that takes strides is given views themselves, and copies only of what does not have its layout."""
    (x,), copied = arrays_of("softmax", {"rows": 4, "n": 6}), []
    monkeypatch.setattr(np, "require", lambda array, **_: copied.append(array) or np.ascontiguousarray(array))
    for view, array in views(x).items():
        natives["softmax", "strided"](array)
        assert not copied, view
        natives["softmax", "inner"](array)
        assert bool(copied) == (view in ("transposed", "sliced", "reversed", "one cell")), view
        copied.clear()


@pytest.mark.parametrize("size", [0, 1])
def test_empty_arrays_and_those_of_one_cell(natives, size):
    for (name, _), native in natives.items():
        if name != "looked_up":
            arrays = arrays_of(name, sizes_of(name, size))
            seen = [laid_out(array, range(array.ndim), [-2] * array.ndim) for array in arrays]
            assert_right(name, arrays, native.call_guarded(*seen))


def test_which_layout_an_array_has():
    x = np.zeros((4, 6), np.float32)
    odd = np.zeros((4, 5), [("a", "f4"), ("b", "i1")])["a"]
    loose = np.zeros(4 * 24 + 1, np.uint8)[1:].view(np.float32).reshape(4, 6)
    cases = {"": x, "rows": x[::2], "cells": x[:, ::2], "turned": x.T, "back": x[::-1], "column": x[:, :1]}
    assert {name: has_layout(array, "inner") for name, array in cases.items()} == {
        "": True, "rows": True, "cells": False, "turned": False, "back": True, "column": True,
    }  # fmt: skip
    assert {name for name, array in cases.items() if has_layout(array, "packed")} == {""}
    assert all(has_layout(array, "strided") for array in cases.values())
    assert not any(has_layout(array, layout) for array in (odd, loose) for layout in ("packed", *LAYOUTS))
    assert has_layout(np.zeros((), np.float32), "strided")
