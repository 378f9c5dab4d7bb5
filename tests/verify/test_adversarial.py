from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Gather, Lookup, expand_index
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.sizes import Demand
from noyau.verify.adversarial import FULL, PATTERNS, SMOKE, cases
from noyau.verify.awkward_sizes import BLOCKS, fits
from noyau.verify.undefined import traps
from tests.jobs.check import groups
from tests.jobs.check.groups import F32, Group
from tests.random_graphs import generate


def made(graph, hint=None, seed=0):
    return list(cases(graph, hint or {}, np.random.default_rng(seed)))


def named(graph, case):
    return dict(zip((node.output for node in graph.inputs), case.inputs, strict=True))


def shapes(found):
    return {case.inputs[0].shape for case in found}


def test_the_same_seed_gives_the_same_cases():
    graph = groups.layer_norm()
    once, again = ([(case.label, [array.tobytes() for array in case.inputs]) for case in made(graph)] for _ in range(2))
    assert once == again
    assert once != [(case.label, [array.tobytes() for array in case.inputs]) for case in made(graph, seed=1)]


def test_sizes_are_empty_one_prime_and_around_blocks():
    found = made(groups.softmax(), {"rows": 8, "n": 30})
    rows, columns = (set(extents) for extents in zip(*shapes(found), strict=True))
    assert {(0, 3), (1, 3), (5, 0), (5, 1), (1, 1), (8, 30), (5, 4099), (1021, 3)} <= shapes(found)
    assert len(columns & set(BLOCKS)) >= 7
    assert len(rows & set(BLOCKS)) >= 7
    assert len(found) <= FULL.most
    assert sum(array.size for case in found for array in case.inputs) < FULL.total


def test_little_is_tried_where_somebody_waits():
    g = Group()
    g.map("exp", g.input("x", F32, 512, 256))
    few, many = (list(cases(g.graph(), {}, np.random.default_rng(0), effort)) for effort in (SMOKE, FULL))
    assert [len(few), len(many)] == [1, 8]
    assert [case.label for case in few] == [case.label for case in many[:1]]


def test_one_size_alone_takes_every_block_size():
    g = Group()
    g.map("exp", g.input("x", F32, "n"))
    assert {(extent,) for extent in (0, 1, *BLOCKS, 4099)} <= shapes(made(g.graph()))


def test_every_pattern_is_tried_at_the_usual_sizes_and_said_in_the_label():
    found = made(groups.softmax(), {"rows": 8, "n": 30})
    labels = [case.label for case in found if case.inputs[0].shape == (8, 30)]
    assert {f"{pattern.label}, rows = 8, n = 30" for pattern in PATTERNS} <= set(labels)
    assert not any(case.captured for case in found)


def test_fixed_sizes_stay_and_large_ones_leave_fewer_cases():
    assert shapes(made(groups.softmax("rows", 256))) >= {(0, 256), (1, 256), (129, 256)}
    assert shapes(made(groups.softmax(64, 256))) == {(64, 256)}
    assert len(made(groups.softmax(1 << 10, 1 << 8))) < 7
    assert len(made(groups.softmax(1 << 11, 1 << 11))) == 3


def test_hinted_sizes_shrink_until_they_can_be_tried_often():
    found = made(groups.softmax(), {"rows": 1 << 12, "n": 1 << 12})
    assert found[0].inputs[0].size <= 1 << 15
    assert min(found[0].inputs[0].shape) > 30


def test_a_graph_without_floats_is_tried_with_each_kind_of_integers_once():
    labels = [case.label for case in made(groups.one_map("negative", DType.I32), {"n": 9})]
    assert len(labels) == len(set(labels))
    usual = [label for label in labels if label.endswith("n = 9")]
    assert 5 <= len(usual) < len(PATTERNS)


def test_integers_and_bools_reach_their_ends():
    g = Group()
    i, b = g.input("i", DType.I16, "n"), g.input("b", DType.BOOL, "n")
    g.map("where", b, i, g.full(3, i))
    found = made(g.graph(), {"n": 40})
    whole = np.concatenate([case.inputs[0] for case in found])
    assert (whole.min(), whole.max()) == (-(2**15), 2**15 - 1)
    full = {(bool(case.inputs[1].all()), bool(case.inputs[1].any())) for case in found if case.inputs[1].size > 20}
    assert full == {(True, True), (False, False), (False, True)}


def test_indices_stay_in_their_table_but_for_one_case():
    graph = groups.embedding(11)
    found = made(graph, {"rows": 9, "n": 6})
    beyond = [case for case in found if case.label.startswith("indices beyond")]
    assert len(beyond) == 1
    with pytest.raises(InputError):
        evaluate(graph, named(graph, beyond[0]))
    inside = np.concatenate([case.inputs[1] for case in found if case not in beyond])
    assert (inside.min(), inside.max()) == (0, 10)
    assert len(np.unique(inside)) == 11
    at_ends = [set(case.inputs[1]) for case in found if case.inputs[1].size == 9]
    assert {0} in at_ends
    assert {10} in at_ends


def test_an_empty_table_is_not_looked_into():
    g = Group()
    table, ids = g.input("table", F32, "extent", 4), g.input("ids", DType.I64, "rows")
    own = indices(2)
    g.add(Gather((Lookup(1, own[:1]), own[1])), [table, ids], F32, ("rows", 4))
    graph = g.graph()
    found = made(graph, {"extent": 7, "rows": 5})
    assert {(1, 1), (7, 5)} <= {(case.inputs[0].shape[0], case.inputs[1].shape[0]) for case in found}
    for case in found:
        if not case.label.startswith("indices beyond"):
            evaluate(graph, named(graph, case))


def test_no_case_divides_an_integer_by_zero():
    g = Group()
    a, b = g.input("a", DType.I32, "n"), g.input("b", DType.I32, "n")
    g.map("floor_mod", g.map("divide", a, b), g.map("add", b, g.full(1, b)))
    graph = g.graph()
    found = made(graph, {"n": 6})
    assert len(found) > 5
    assert not any(traps(graph, named(graph, case)) for case in found)


def test_a_computed_index_that_leaves_its_table_leaves_the_case_out():
    g = Group()
    at = g.map("cast", g.input("x", F32, "n"), dtype=DType.I64)
    g.add(Gather((Lookup(1, indices(1)),)), [g.input("table", F32, 5), at], F32, ("n",))
    graph = g.graph()
    found = made(graph, {"n": 4})
    assert found
    for case in found:
        with np.errstate(all="ignore"):
            evaluate(graph, named(graph, case))


# Which sizes a graph can have.


def test_a_size_that_a_broadcast_meets_at_run_time_is_one_too():
    g = Group()
    x = g.input("x", F32, "n", 4)
    g.map("exp", g.expand(g.input("y", F32, "m", 4), ("n", 4)))
    graph = g.graph(x, g.nodes[-1].output)
    assert fits(graph, {"n": 5, "m": 1})
    assert fits(graph, {"n": 5, "m": 5})
    assert not fits(graph, {"n": 5, "m": 3})
    tried = {(case.inputs[0].shape[0], case.inputs[1].shape[0]) for case in made(graph, {"n": 6, "m": 6})}
    assert (6, 6) in tried
    assert any(n > 1 and m == 1 for n, m in tried)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_take_their_cases(seed):
    sketch = generate(seed)
    for case in made(sketch.graph, sketch.sizes, seed)[:12]:
        if case.label.startswith("indices beyond"):
            continue
        with np.errstate(all="ignore"):
            found = evaluate(sketch.graph, named(sketch.graph, case))
        assert set(found) == set(sketch.graph.outputs)


def test_expanding_is_what_the_broadcast_test_relies_on():
    """An expanded view of an unknown extent reads at 0 where that is 1."""
    (dim,) = expand_index(shape_of(["m"]), shape_of(["n"]))
    assert dim.evaluate({"m": 1, "#0": 4}) == 0
    assert dim.evaluate({"m": 5, "#0": 4}) == 4


def test_sizes_that_a_graph_demands_are_found():
    graph = replace(groups.softmax(), demands=(Demand(Dim.of(9), Dim.of("n"), "at most"),))
    assert not fits(graph, {"rows": 5, "n": 3})
    assert len(made(graph)) > 10
