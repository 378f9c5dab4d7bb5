"""Graphs that lead a partition astray: paths that come back, several ends, long chains, many inputs, equal groups."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest

from noyau.codegen.plan import plan
from noyau.compiler.partition.cut import BUFFERS, LARGEST, PASSES, _Partitioning
from noyau.compiler.partition.def_use import DefUse
from noyau.errors import UnsupportedError
from tests.compiler.passes.fusing import Fusing

NUMBERS = np.random.default_rng(7)


def array(*shape):
    return NUMBERS.normal(size=shape).astype(np.float32)


def fused(text, opset=18, **feeds):
    """A model that computes the same with its groups as kernels."""
    made = Fusing(text, opset)
    made.agrees(feeds)
    return made


def kernels(made):
    return plan(made.partition.groups, [node.op_type for node in made.model.graph.node], "x86-64").kernels


def test_a_path_that_leaves_and_comes_back_is_not_closed():
    """MatMul is the library's: what comes before it and what comes after cannot be one kernel."""
    made = fused(
        "(float[n, 4] x, float[4, 4] w) => (float[n, 4] y) "
        "{ a = Tanh(x) b = Exp(a) m = MatMul(b, w) c = Neg(b) d = Add(c, m) y = Exp(d) }",
        x=array(3, 4),
        w=array(4, 4),
    )
    assert made.positions == [(0, 1, 3), (4, 5)]
    assert made.reason(3, 4) == "MatMul stands between them: it needs the first, the second needs it"


def test_a_diamond_is_one_kernel():
    made = fused("(float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) c = Tanh(a) y = Add(b, c) }", x=array(5))
    assert made.positions == [(0, 1, 2, 3)]


def test_a_diamond_within_a_diamond_around_a_boundary():
    made = fused(
        "(float[n, n] x) => (float[n, n] y) { a = Exp(x) b = Neg(a) m = MatMul(a, b) c = Tanh(m) d = Add(b, c) "
        "e = MatMul(d, c) f = Mul(e, d) y = Add(f, a) }",
        x=array(3, 3) / 4,
    )
    for positions in made.positions:
        assert not {0, 3} <= set(positions)
        assert not {1, 4} <= set(positions)
        assert not {4, 6} <= set(positions)


def test_two_paths_that_cross_are_not_two_groups_that_need_each_other():
    """a -> M -> d and b -> N -> c: were a joined with c and b with d, each would wait for the other."""
    made = fused(
        "(float[n, 4] x, float[n, 4] z, float[4, 4] w) => (float[n, 4] y, float[n, 4] v) { a = Exp(x) b = Tanh(z) "
        "m = MatMul(a, w) k = MatMul(b, w) c = Add(a, k) d = Add(b, m) y = Neg(c) v = Neg(d) }",
        x=array(3, 4),
        z=array(3, 4),
        w=array(4, 4),
    )
    joined = [pair for pair in ({0, 4}, {1, 5}) if any(pair <= set(positions) for positions in made.positions)]
    assert len(joined) == 1


def test_what_several_others_need_is_written_once():
    made = fused(
        "(float[n, 4] x, float[4, 4] w) => (float[n, 4] y, float[n, 4] z, float[n, 4] v) { a = Exp(x) b = Tanh(a) "
        "y = MatMul(b, w) z = MatMul(a, w) v = Neg(b) }",
        x=array(2, 4),
        w=array(4, 4),
    )
    (group,) = made.partition.groups
    assert set(group.outputs) == {"a", "b", "v"}


def test_a_value_within_that_is_also_an_output_of_the_model():
    made = fused("(float[n] x) => (float[n] y, float[n] a) { a = Exp(x) b = Tanh(a) y = Neg(b) }", x=array(4))
    (group,) = made.partition.groups
    assert set(group.outputs) == {"a", "y"}


def test_equal_values_as_two_outputs():
    made = fused(
        "(float[n] x) => (float[n] y, float[n] z) { a = Exp(x) y = Tanh(a) b = Exp(x) z = Tanh(b) }", x=array(4)
    )
    assert {name for group in made.partition.groups for name in group.outputs} == {"y", "z"}


def test_an_input_and_an_initializer_as_outputs():
    made = fused(
        "(float[n] x) => (float[n] y, float[2] w, float[n] x) <float[2] w = {1.0, 2.0}> { a = Exp(x) y = Tanh(a) }",
        x=array(4),
    )
    assert made.positions == [(0, 1)]


def test_what_a_boundary_and_a_kernel_both_need():
    made = fused(
        "(float[n, 4] x, float[4, 4] w) => (float[n, 4] y) "
        "{ a = Exp(x) b = Tanh(a) m = MatMul(b, w) p = Mul(m, m) q = Sigmoid(p) y = Add(q, b) }",
        x=array(3, 4),
        w=array(4, 4),
    )
    assert made.positions == [(0, 1), (3, 4, 5)]
    assert made.partition.groups[0].outputs == ("b",)


def test_a_boundary_with_several_results():
    made = fused(
        "(float[n, 8] x) => (float[n, 3] y, int64[n, 3] i) <int64[1] k = {3}> "
        "{ a = Tanh(x) b = Exp(a) v, i = TopK(b, k) c = Neg(v) y = Exp(c) }",
        x=array(4, 8),
    )
    assert made.positions == [(0, 1), (3, 4)]


@pytest.mark.parametrize("length", [LARGEST, LARGEST + 1, 200])
def test_a_long_chain_is_cut_where_it_is_too_long(length):
    steps = " ".join(f"v{k + 1} = {('Tanh', 'Neg', 'Sin')[k % 3]}(v{k})" for k in range(length))
    made = fused(f"(float[n] v0) => (float[n] v{length}) {{ {steps} }}", v0=array(5))
    assert max(map(len, made.positions)) <= LARGEST
    assert sum(map(len, made.positions)) == length - (length % LARGEST == 1)  # one by itself is not worth a kernel
    if length > LARGEST:
        last = made.positions[0][-1]
        assert made.reason(last, last + 1) == f"together they are more than {LARGEST} operators"


def test_forty_inputs_are_several_kernels():
    names = [f"x{k}" for k in range(40)]
    steps = ["s1 = Add(x0, x1)"] + [f"s{k} = Add(s{k - 1}, x{k})" for k in range(2, 40)]
    made = fused(
        f"({', '.join(f'float[n] {name}' for name in names)}) => (float[n] s39) {{ {' '.join(steps)} }}",
        **{name: array(3) for name in names},
    )
    groups = made.partition.groups
    assert all(len(group.inputs) + len(group.outputs) <= BUFFERS for group in groups)
    assert len(groups) == 3
    assert sum(map(len, made.positions)) == 39
    assert any("arrays, more than 16" in cut.reason for cut in made.partition.cuts)


@pytest.mark.parametrize("operator", ["Sum", "Concat <axis = 0>"])
def test_the_work_for_a_node_of_many_inputs_grows_as_their_number(operator, monkeypatch):
    """It is tried with none of what makes them: each try would go over all of them."""
    extract, work = DefUse.extract, []
    monkeypatch.setattr(
        DefUse, "extract", lambda self, some: work.append(len((graph := extract(self, some)).nodes)) or graph
    )
    for count in (150, 600):
        work.append(0)
        names = [f"s{k}" for k in range(count)]
        steps = " ".join(f"{name} = Sigmoid(x)" for name in names)
        name, _, attributes = operator.partition(" ")
        made = Fusing(f"(float[n] x) => (float[m] y) {{ {steps} y = {name} {attributes} ({', '.join(names)}) }}")
        assert made.partition.groups == ()
        assert re.search("arrays, more than 16|steps need each other in turn", made.reason(count))
        assert sum(work) <= 8 * count
        work.clear()


def test_the_work_for_a_value_of_many_readers_grows_as_their_number(monkeypatch):
    """A path from one of them back to the value is looked for from both ends, and the one of the readers is short."""
    walk, steps = _Partitioning.walk, []
    monkeypatch.setattr(_Partitioning, "walk", lambda *words: (steps.append(each) or each for each in walk(*words)))
    for count in (100, 400):
        steps.clear()
        outputs = ", ".join(f"float[n] y{k}" for k in range(count))
        readers = " ".join(f"y{k} = Add(v, x)" for k in range(count))
        made = Fusing(f"(float[n] x) => ({outputs}) {{ v = Tanh(x) {readers} }}")
        assert made.positions == [tuple(range(BUFFERS - 1))]
        assert len(steps) <= 70 * count


def test_reductions_of_reductions():
    made = fused(
        "(float[a, b, c] x) => (float[a] y) <int64[1] last = {-1}> { s = ReduceSum<keepdims = 0>(x, last) "
        "m = ReduceMax<keepdims = 0>(s, last) y = Tanh(m) }",
        x=array(2, 3, 4),
    )
    assert made.positions == [(0, 1, 2)]


@pytest.mark.parametrize("count", [PASSES, PASSES + 1, 3 * PASSES])
def test_reductions_that_need_each_other_along_one_row(count):
    """Each is one more pass over the row; a kernel has so many at most."""
    steps = "".join(
        f"s{k} = ReduceSum<keepdims = 1>(x{k}, last) d{k} = Sub(x{k}, s{k}) x{k + 1} = Tanh(d{k}) "
        for k in range(count)
    )
    made = fused(
        f"(float[n, 6] x0) => (float[n, 6] x{count}) <int64[1] last = {{-1}}> {{ {steps} }}", x0=array(3, 6) / 4
    )
    assert len(made.positions) == -(-count // PASSES)
    assert sum(map(len, made.positions)) == 3 * count


def test_a_reduction_over_rows_and_one_over_columns():
    made = fused(
        "(float[a, b] x) => (float[a, b] y) <int64[1] o = {0}, int64[1] i = {1}> { r = ReduceSum(x, i) "
        "c = ReduceSum(x, o) p = Sub(x, r) y = Sub(p, c) }",
        x=array(4, 5),
    )
    assert not any({0, 1} <= set(positions) for positions in made.positions)


def test_equal_groups_are_one_kernel_whatever_comes_first():
    """The second has its inputs the other way round, the third has others."""
    made = fused(
        "(float[n, 4] a, float[n, 4] b, float[4, 4] w) => (float[n, 4] y, float[n, 4] z, float[n, 4] v) "
        "{ p = Mul(a, b) q = Tanh(p) y = Sub(q, a) m = MatMul(y, w) r = Mul(m, b) s = Tanh(r) z = Sub(s, b) "
        "k = MatMul(z, w) t = Mul(k, y) u = Tanh(t) v = Sub(u, y) }",
        a=array(3, 4),
        b=array(3, 4),
        w=array(4, 4),
    )
    (kernel,) = kernels(made)
    assert len(kernel.groups) == 3


def test_groups_that_differ_in_one_place_are_two_kernels():
    made = fused(
        "(float[n, 4] a, float[n, 4] b, float[4, 4] w) => (float[n, 4] y, float[n, 4] z) "
        "{ p = Mul(a, b) q = Tanh(p) y = Sub(q, a) m = MatMul(y, w) r = Mul(m, b) s = Tanh(r) z = Sub(b, s) }",
        a=array(3, 4),
        b=array(3, 4),
        w=array(4, 4),
    )
    assert len(kernels(made)) == 2


def test_a_value_that_is_only_measured_within_and_without():
    """Its shape alone is asked for, by arithmetic that stays with the model: an output of that shape stands in."""
    made = fused(
        "(float[a, b] x, float[c] v) => (float[d, e] y, int64[1] k) <int64[1] o = {0}> { t = Exp(x) u = Tanh(t) "
        "k = Shape<start = 0, end = 1>(t) y = Neg(u) }",
        x=array(2, 3),
        v=array(6),
    )
    (group,) = made.partition.groups
    assert group.stand_ins == {"t": "y"}


def test_one_operand_twice_and_a_value_of_no_cells():
    fused("(float[n] x) => (float[n] y) { a = Mul(x, x) b = Add(a, a) y = Exp(b) }", x=array(0))
    text = "(float[n, 3] x) => (float[n] y) <int64[1] i = {1}> { a = Tanh(x) y = ReduceSum<keepdims = 0>(a, i) }"
    fused(text, x=array(0, 3))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_with_boundaries(seed):
    """Cellwise steps, reductions and library calls at random: no groups wait for each other, and all is right."""
    noise, names, steps = Random(seed), ["x", "z"], list[str]()
    for k in range(noise.randint(6, 24)):
        some = [noise.choice(names[-5:]), noise.choice(names)]
        kind = noise.choice(["Tanh({0})", "Neg({0})", "Add({0}, {1})", "Mul({0}, {1})", "MatMul({0}, {1})", "sum", "t"])
        if kind == "sum":
            steps.append(f"r{k} = ReduceMax<keepdims = 1>({some[0]}, i) v{k} = Sub({some[1]}, r{k})")
        elif kind == "t":
            steps.append(f"v{k} = Transpose<perm = [1, 0]>({some[0]})")
        else:
            steps.append(f"u{k} = {kind.format(*some)} v{k} = Sin(u{k})")
        names.append(f"v{k}")
    outputs = {names[-1], *noise.sample(names[2:], noise.randint(0, 3))}
    ends = ", ".join(f"float[n, n] {name}" for name in sorted(outputs))
    text = f"(float[n, n] x, float[n, n] z) => ({ends}) <int64[1] i = {{1}}> {{ {' '.join(steps)} }}"
    fused(text, x=array(3, 3) / 2, z=array(3, 3) / 2)


def test_a_group_without_a_kernel_is_left_with_the_reason(monkeypatch):
    """Cellwise steps are joined without a look at their kernel; should there be none, the model stays as it is."""

    def refuse(graph, name):
        raise UnsupportedError("no loops today")

    monkeypatch.setattr("noyau.compiler.partition.cut.lower", refuse)
    made = fused("(float[n] x) => (float[n] y) { a = Exp(x) y = Tanh(a) }", x=array(3))
    assert made.positions == []
    assert made.reason(0) == made.reason(1) == "no loops today"
