from __future__ import annotations

import pytest

from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.cpu.strategies import row
from noyau.dtypes import DType
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Call, Load, Space
from noyau.ir.walk import every_expression, every_statement, folds_in
from tests.compiler.schedules.groups import (
    assert_keeps,
    flat,
    gathered,
    in_order,
    inputs_of,
    log_softmax,
    loops,
    reduced,
    residual_rms_norm,
)
from tests.jobs.check.groups import F32, layer_norm, quantise, rms_norm, softmax

SIZES = [{"rows": rows, "n": n} for rows, n in ((3, 5), (1, 1), (2, 16), (2, 33), (0, 4), (3, 0))]
GRAPHS = {
    "softmax": softmax(),
    "softmax f64": softmax(dtype=DType.F64),
    "softmax f16": softmax(dtype=DType.F16),
    "log_softmax": log_softmax(),
    "layer_norm": layer_norm(),
    "layer_norm of 12": layer_norm(columns=12),
    "rms_norm": rms_norm(),
    "rms_norm bf16": rms_norm(dtype=DType.BF16),
    "residual": residual_rms_norm(),
    "residual bf16": residual_rms_norm(DType.BF16),
    "quantise": quantise(),
    "argmax": reduced("argmax", "rows", "n", axes=(1,)),
    "variance": reduced("variance", "rows", "n", axes=(1,), after="sqrt"),
    "logsumexp": reduced("logsumexp", "rows", "n", axes=(1,)),
}
NEED_VALUES = ("argmax", "variance", "logsumexp")  # of no values there is none


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "streamed"])
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("name", GRAPHS)
def test_rows_in_lanes(name, lanes, kept, monkeypatch):
    monkeypatch.setattr(folds, "BLOCK", 32)
    sizes = [size for size in SIZES if size["n"] or name not in NEED_VALUES]
    assert_keeps(GRAPHS[name], row(flat(GRAPHS[name]), lanes=lanes, kept=kept), *sizes)


def test_rows_that_are_looked_up():
    graph = gathered()
    sizes = ({"words": 4, "n": 5, "b": 2, "s": 3}, {"words": 4, "n": 0, "b": 2, "s": 3})
    assert_keeps(graph, row(flat(graph), lanes=4), *sizes)


def functions(made):
    return [expr.function for expr in every_expression(made.launches[0].body) if isinstance(expr, Call)]


def test_what_is_dear_is_computed_once_where_it_is_kept():
    kept, streamed = (check(row(flat(softmax()), lanes=1, kept=kept)) for kept in (True, False))
    assert functions(kept).count("exp") == 1
    assert functions(streamed).count("exp") == 2
    memory = [s for s in every_statement(kept.launches[0].body) if isinstance(s, Alloc) and s.space is Space.THREAD]
    assert [alloc.shape for alloc in memory] == [(memory[0].shape[0],)]
    assert memory[0].name in {expr.buffer for expr in every_expression(kept.launches[0].body) if isinstance(expr, Load)}


def test_what_is_cheap_is_computed_again():
    made = row(flat(rms_norm()), kept=True)
    assert not [s for s in every_statement(made.launches[0].body) if isinstance(s, Alloc) and s.space is Space.THREAD]


def test_rows_on_threads_and_cells_in_lanes():
    made = row(flat(softmax()), lanes=8)
    assert loops(made, Axis.THREADS) == ["#i0"]
    assert loops(made, Axis.LANES)[-1] == "#i1"


def test_bits_depend_on_nothing_but_the_lanes():
    made = row(flat(layer_norm()), lanes=4)
    arrays = in_order(made, inputs_of(layer_norm(), {"rows": 4, "n": 19}))
    assert len({run(made, arrays, seed=seed)[0].tobytes() for seed in range(4)}) == 1


def test_the_folds_of_a_row_in_order():
    (launch,) = flat(log_softmax()).launches
    assert [fold.monoid for fold in folds_in(launch.body)] == ["max_apart", "sum"]
    assert [fold.dtype for fold in folds_in(launch.body)] == [F32, F32]
