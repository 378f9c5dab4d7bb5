"""Sets of operators are told by what they are: layers are alike, and what differs in more than names is not."""

from __future__ import annotations

import pytest

from noyau.compiler.partition import cut as partition_cut
from noyau.compiler.partition.def_use import DefUse, StructuralKeys, with_names
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.passes.rewrite import nameless
from noyau.frontends.onnx import partition_model
from noyau.ir.graph import Graph, Map
from noyau.ir.graph_verifier import check
from tests.compiler.passes.fusing import Fusing
from tests.compiler.passes.llamas import llama
from tests.nodes import F32, given, graph, value

TWICE = """(float[n, 4] x, float[n, 4] z) => (float[n, 4] y, float[n, 4] b)
    <float e = {{0.1}}, float f = {{{other}}}> {{ a = Exp(x) b = Add(a, e) c = Exp(b) d = {last} y = Mul(d, z) }}"""


def likeness(text: str) -> StructuralKeys:
    made = Fusing(text)
    return StructuralKeys(DefUse(partition_model(made.model, made.imported)))


@pytest.mark.parametrize(
    ("other", "last", "alike"),
    [("0.1", "Add(c, f)", True), ("0.2", "Add(c, f)", False), ("0.1", "Sub(c, f)", False), ("0.1", "Add(c, x)", False)],
)
def test_sets_that_differ_in_names_alone_are_alike(other, last, alike):
    found = likeness(TWICE.format(other=other, last=last))
    one, two = found.key_of(frozenset({0, 1})), found.key_of(frozenset({2, 3}))
    assert (one.key == two.key) is alike
    assert not alike or [nameless(found.def_use.extract(frozenset(each))) for each in ({0, 1},)] == [
        nameless(found.def_use.extract(frozenset({2, 3})))
    ]


def test_what_leaves_a_set_tells_it_apart():
    found = likeness("(float[n] x) => (float[n] y) { a = Exp(x) b = Tanh(a) c = Exp(b) d = Tanh(c) y = Mul(d, c) }")
    assert found.key_of(frozenset({0, 1})).key != found.key_of(frozenset({2, 3})).key
    assert found.key_of(frozenset({0})).key == found.key_of(frozenset({2})).key


def test_shapes_tell_sets_apart():
    found = likeness("(float[n] x, float[m] z) => (float[n] y, float[m] w) { y = Exp(x) w = Exp(z) }")
    assert found.key_of(frozenset({0})).key != found.key_of(frozenset({1})).key


def test_a_set_that_reads_indices_of_others_is_not_told():
    found = likeness("""(float[n] x) => (int64[n] y) <int64 zero = {0}, int64 one = {1}>
        { s = Shape(x) k = Gather(s, zero) r = Range(zero, k, one) y = Add(r, r) }""")
    assert found.key_of(frozenset({3})) is None
    assert found.key_of(frozenset({2, 3})) is not None


def test_names_that_passes_derived_follow_those_of_the_model():
    nodes = given("a", F32, "n"), given("a~1", F32, "n"), value("b", Map("add"), "a a~1", F32, "n")
    made = with_names(graph("b", *nodes), {"a": "k", "b": "l"}, Graph((), ()))
    assert [node.output for node in check(made).nodes] == ["k", "k~1", "l"]
    assert with_names(graph("b", *nodes), {"a": "k"}, Graph((), ())) is None


def test_a_deep_model_is_cut_as_without_looking_for_what_is_alike(monkeypatch):
    made = Fusing(llama(3))
    model = partition_model(made.model, made.imported)
    found = partition_cut.partition(model)
    monkeypatch.setattr(StructuralKeys, "key_of", lambda self, positions: None)
    slowly = partition_cut.partition(model)
    assert [group.positions for group in found.groups] == [group.positions for group in slowly.groups]
    assert found.cuts == slowly.cuts
    for one, other in zip(found.groups, slowly.groups, strict=True):
        assert nameless(check(one.graph)) == nameless(other.graph)
        assert nameless(normalise(one.original)) == nameless(one.graph)
        assert one.original.outputs == one.graph.outputs
        assert {node.output for node in one.original.inputs} == {node.output for node in other.original.inputs}
        assert one.stand_ins == other.stand_ins
        assert one.kernel == other.kernel or one.graph != other.graph
