from __future__ import annotations

import pytest

from noyau.errors import InputError
from noyau.jobs.optimize.onnx.options import choose_places
from noyau.jobs.show.model import show
from tests.small_models import llama, twice, written


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return show(written(twice(), tmp_path_factory.mktemp("model"))).plan


def left(plan, only=(), drop=()) -> list[list[str]]:
    """What each kernel that is left writes, in each of its places."""
    return [[group.outputs[0] for group in kernel.groups] for kernel in choose_places(plan, only, drop).kernels]


def test_a_kernel_is_chosen_with_all_of_its_places(plan):
    one, other = (kernel.operator for kernel in plan.kernels)
    assert left(plan) == left(plan, only=[one, other]) == [["a", "c"], ["y"]]
    assert left(plan, only=[one]) == left(plan, drop=[other]) == [["a", "c"]]
    assert left(plan, only=[one], drop=[one]) == []


def test_one_place_is_chosen_by_the_value_that_it_writes(plan):
    one = plan.kernels[0].operator
    assert left(plan, only=["c"]) == [["c"]]
    assert left(plan, drop=["c"]) == [["a"], ["y"]]
    assert left(plan, only=[one], drop=["a"]) == [["c"]]


def test_a_kernel_is_named_by_what_only_its_name_begins_with(plan):
    names = [kernel.operator for kernel in plan.kernels]
    short = next(
        name[:length]
        for name in names
        for length in range(2, 40)
        if [n for n in names if n.startswith(name[:length])] == [name]
    )
    assert left(plan, only=[short]) == left(plan, only=[next(name for name in names if name.startswith(short))])
    both = next((names[0][:k] for k in range(40, 0, -1) if sum(n.startswith(names[0][:k]) for n in names) > 1), "")
    if both:
        with pytest.raises(InputError, match=f"has . kernels that begin with {both}; they are: "):
            choose_places(plan, [both], [])


def test_what_is_left_out_is_among_the_refused(plan):
    refused = choose_places(plan, [], ["c"]).refused
    assert [(group.outputs, reason) for group, reason in refused] == [(("c",), "left out as asked")]


def test_a_name_that_is_neither_is_refused(plan):
    names = ", ".join(kernel.operator for kernel in plan.kernels)
    with pytest.raises(InputError, match=f"the model has no kernel nonsense; its kernels are: {names}$"):
        choose_places(plan, ["nonsense"], [])
    with pytest.raises(InputError, match="values like it, of one place of a kernel: mul_98, "):
        choose_places(show(llama("dynamo")).plan, [], ["mul_99"])
