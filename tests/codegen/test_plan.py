"""Groups into kernels: equal ones are one, each has a name that says what it does, and a digest of its text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from noyau.codegen.plan import Plan, describe, digest, kernel_named, plan, spell, title, without
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu import strategy_choice
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.errors import InputError, UnsupportedError
from noyau.ir.graph import Gather, Lookup, Map, Reduce
from tests.compiler.passes.fusing import Fusing
from tests.nodes import F32, I64, at, given, graph, value, view

TARGET = "x86-64-v3"
TWICE = """(float[n, 4] x, float[4, 4] w) => (float[n, 4] y, float[n, 4] z)
{ a = Tanh(x) y = Exp(a) m = MatMul(y, w) b = Tanh(m) z = Exp(b) }"""


def planned(text, target=TARGET, options=strategy_choice.USUAL):
    made = Fusing(text)
    return plan(made.partition.groups, [node.op_type for node in made.model.graph.node], target, options)


def digests(*args, **options):
    return [kernel.operator.rsplit("_", 1)[1] for kernel in planned(*args, **options).kernels]


def test_equal_groups_are_one_kernel():
    (kernel,) = planned(TWICE).kernels
    assert [group.positions for group in kernel.groups] == [(0, 1), (3, 4)]
    assert kernel.replaces == ("Tanh", "Exp")
    assert kernel.graph is kernel.groups[0].graph


def test_a_name_says_what_is_dear_and_ends_in_a_digest():
    (kernel,) = planned(TWICE).kernels
    assert re.fullmatch(r"tanh_exp_0_[0-9a-f]{8}", kernel.operator)
    assert kernel.kernel.name == kernel.operator
    assert f"{kernel.operator}_0(const noyau_call *call" in kernel.text


def test_the_digest_knows_the_text_the_target_and_the_options_and_no_names():
    text = "(float[rows, n] x) => (float[rows, 1] y) <int64[1] k = {1}> { a = Tanh(x) y = ReduceSum(a, k) }"
    renamed = "(float[q, p] in) => (float[q, 1] out) <int64[1] axes = {1}> { b = Tanh(in) out = ReduceSum(b, axes) }"
    assert digests(text) == digests(renamed) == digests(text)
    others = [
        digests(text, target="x86-64"),
        digests(text, options=Options(lanes=8)),
        digests(text.replace("Tanh", "Sin")),
        digests(text.replace("n]", "8]")),
        digests(text.replace("float", "double")),
    ]
    assert len({*map(tuple, others), tuple(digests(text))}) == len(others) + 1


def test_sizes_in_another_order_are_no_other_kernel():
    """Nor is the formula of an index, whichever name comes first in it."""
    texts = [
        f"(float[{a}, {b}, {c}] x) => (float y) {{ t = Transpose<perm = [2, 0, 1]>(x) e = Tanh(t) y = Exp(e) }}"
        for a, b, c in ("abc", "cab", "bca")
    ]
    assert len({tuple(digests(text)) for text in texts}) == 1


def test_a_digest_is_of_a_scheduled_kernel():
    made = graph("y", given("x", F32, "n"), value("y", Map("exp"), "x", F32, "n"))
    kernel = schedule(lower(made, "k"), strategy_choice.USUAL)
    assert digest(kernel, TARGET) == digest(replace(kernel, name="other"), TARGET) != digest(kernel, "x86-64")
    assert len(digest(kernel, TARGET)) == 64


def test_what_the_language_cannot_spell_is_refused_with_the_reason(monkeypatch):
    def refuse(kernel, options):
        raise UnsupportedError(f"no strategy for {kernel.of(kernel.buffers[0].role)[0].source}")

    monkeypatch.setattr("noyau.codegen.plan.schedule", refuse)
    found = planned(TWICE)
    assert found.kernels == ()
    assert [(group.positions, reason) for group, reason in found.refused] == [
        ((0, 1), "no strategy for x"),
        ((3, 4), "no strategy for m"),
    ]


@pytest.mark.parametrize(("gone", "left"), [([0], [(3, 4)]), ([1], [(0, 1)]), ([], [(0, 1), (3, 4)]), ([0, 1], None)])
def test_without_some_places(gone, left):
    whole = planned(TWICE)
    (kernel,) = whole.kernels
    found = without(whole, [(kernel.groups[k], "it does not fit") for k in gone])
    assert [reason for _, reason in found.refused] == ["it does not fit"] * len(gone)
    if left is None:
        assert found.kernels == ()
    else:
        assert [group.positions for group in found.kernels[0].groups] == left
        assert found.kernels[0].graph is found.kernels[0].groups[0].graph


def test_a_kernel_is_named_by_a_unique_beginning_and_an_error_names_those_there_are():
    (one,) = planned(TWICE).kernels
    other = replace(one, operator=f"{one.operator[:3]}_other")
    assert kernel_named(one.operator, (one, other)) is one and kernel_named(one.operator[:4], (one, other)) is one
    with pytest.raises(InputError) as raised:
        kernel_named("other\n", (one,))
    assert "\n" not in str(raised.value) and str(raised.value).endswith(f"its kernels are: {one.operator}")
    with pytest.raises(InputError, match=r"no kernel other; its kernels are: none; values like it, .*: others$"):
        kernel_named("other", (), ["others"])
    with pytest.raises(InputError, match=f"2 kernels that begin with .*; they are: {one.operator}, {other.operator}$"):
        kernel_named(one.operator[:3], (one, other))


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([Reduce("sum", (0,))], "sum"),
        ([Map("exp"), Map("exp"), Map("negative")], "exp"),
        ([Map("negative"), Map("abs")], "negative_abs"),
        ([Map("exp"), Map("sin"), Map("tanh"), Map("erf")], "exp_sin_tanh"),
        ([Map("identity"), Map("cast")], "copy"),
        ([Map("reciprocal")], "reciprocal"),
        ([view(at(0))], "copy"),
    ],
    ids=str,
)
def test_titles(steps, name):
    nodes = [given("v0", F32, "n")]
    for k, kind in enumerate(steps):
        shape = () if isinstance(kind, Reduce) else ("n",)
        nodes.append(value(f"v{k + 1}", kind, f"v{k}", F32, *shape))
    assert title(graph(nodes[-1].output, *nodes)) == name


def test_a_gather_is_worth_a_word():
    rows = Gather((Lookup(1, (at(0),)),))
    nodes = [given("x", F32, "n"), given("i", I64, "m"), value("y", rows, "x i", F32, "m")]
    assert title(graph("y", *nodes)) == "gather"


def test_what_stands_above_a_text():
    (kernel,) = planned(TWICE).kernels
    first, *lines = describe(kernel, "worst 1.0e-07").splitlines()
    assert first == f"{kernel.operator}: Tanh, Exp; 2 places in the model"
    assert lines[0].split() == ["reads", "x:", "f32[n,", "4]"]
    assert lines[1].split() == ["writes", "y:", "f32[n,", "4]"]
    assert lines[2].startswith("moves 32*n bytes, does ")
    assert lines[3] == "certificate: worst 1.0e-07"
    assert all(line.strip() in kernel.explain("worst 1.0e-07") for line in (first, *lines))


def test_a_buffer_that_is_called_otherwise_in_the_model():
    (kernel,) = planned("(float[n] x) => (float[n] y) { a = Tanh(x) y = Exp(a) }").kernels
    buffer = replace(kernel.kernel.buffers[0], name="x_1", source="/model/x")
    assert spell(buffer) == "x_1 (/model/x): f32[n]"


def test_nothing_to_plan():
    assert plan([], [], TARGET) == Plan(())
