from __future__ import annotations

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Map
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Role
from noyau.ir.sizes import Binding
from tests.nodes import F32, given, graph, value


def added(*shape, name="x"):
    """The sum of two inputs of a shape."""
    return graph(
        "z", given(name, F32, *shape), given("y", F32, *shape), value("z", Map("add"), f"{name} y", F32, *shape)
    )


def strides_of(kernel):
    return {buffer.source: buffer.strides for buffer in kernel.of(Role.INPUT)}


def test_the_strides_of_an_input_are_sizes_that_its_array_binds():
    made = check(lower(added("a", "b", "c"), "k", {"x": "inner", "y": "strided"}))
    assert strides_of(made) == {
        "x": shape_of(["x_stride0", "x_stride1", 1]),
        "y": shape_of(["y_stride0", "y_stride1", "y_stride2"]),
    }
    zero = Dim.of(0)
    assert made.binding[-5:] == (
        Binding("x_stride0", 0, 3, zero, 1),
        Binding("x_stride1", 0, 4, zero, 1),
        Binding("y_stride0", 1, 3, zero, 1),
        Binding("y_stride1", 1, 4, zero, 1),
        Binding("y_stride2", 1, 5, zero, 1),
    )
    assert [buffer.layout for buffer in made.buffers] == ["inner", "strided", "packed"]


def test_others_stay_packed():
    assert (
        lower(added("a", "b"), "k", {}) == lower(added("a", "b"), "k") == lower(added("a", "b"), "k", {"x": "packed"})
    )
    assert strides_of(lower(added("a", "b"), "k", {"y": "inner"}))["x"] is None


def test_an_axis_of_one_cell_needs_no_stride():
    assert strides_of(lower(added(1, "b"), "k", {"x": "strided"}))["x"] == shape_of([0, "x_stride1"])
    assert strides_of(lower(added("a", 1), "k", {"x": "inner"}))["x"] == shape_of(["x_stride0", 1])


@pytest.mark.parametrize(
    ("shape", "layout"), [((), "strided"), ((1, 1), "strided"), (("n",), "inner"), ((1, "n"), "inner")]
)
def test_an_input_without_a_stride_to_tell_is_packed(shape, layout):
    made = lower(added(*shape), "k", {"x": layout})
    assert strides_of(made)["x"] is None
    assert not any("stride" in binding.size for binding in made.binding)


def test_a_size_of_the_same_name_stays_another_one():
    made = check(lower(added("x_stride0", "b"), "k", {"x": "inner"}))
    assert strides_of(made)["x"] == shape_of(["x_stride0_", 1])
    assert [binding.size for binding in made.binding] == ["x_stride0", "b", "x_stride0_"]


def test_a_name_that_is_no_identifier():
    made = lower(added("a", "b", name="/model/x;y"), "k", {"/model/x;y": "inner"})
    assert strides_of(made)["/model/x;y"] == shape_of(["model_x_y_stride0", 1])


def test_what_there_is_not():
    with pytest.raises(UnsupportedError, match="k has no input z; its inputs are x, y"):
        lower(added("a"), "k", {"z": "inner"})
    with pytest.raises(UnsupportedError, match="x cannot be 'f-order'; a layout is one of packed, inner, strided"):
        lower(added("a"), "k", {"x": "f-order"})
