"""Resize by the nearest cells: what ONNX's reference gives, over extents that are known and over symbolic ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.models import agree, imported, results

NOISE = np.random.default_rng(0)
COORDINATES = ("asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def resize(options, parameters, shape="[1, 2, 4, 6]"):
    """The text of a Resize whose scales or sizes are constants."""
    names = {"scales": "r, s", "sizes": "r, e, s", "both": "r, e, s"}
    (kind, values), *_ = parameters.items()
    given = f"value_floats = {values}" if kind == "scales" else f"value_ints = {values}"
    return f"""(float{shape} x) => (float y) {{ s = Constant<{given}>()
        y = Resize<{options or "antialias = 0"}>(x, {names[kind].replace("r, ", ", ").replace("e, ", ", ")}) }}"""


def cells(*shape):
    return NOISE.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    "how", ["asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners", "pytorch_half_pixel"]
)
def test_nearest_cells(how, rounding):
    for sizes in [[1, 2, 8, 18], [1, 2, 2, 3], [1, 2, 4, 6], [1, 2, 12, 2]]:
        options = f'coordinate_transformation_mode = "{how}", nearest_mode = "{rounding}"'
        found = imported(resize(options, {"sizes": sizes}))
        if not found.opaque:
            agree(resize(options, {"sizes": sizes}), {"x": cells(1, 2, 4, 6)})
        else:
            assert "floats may round in two ways" in next(iter(found.opaque.values()))


@pytest.mark.parametrize("how", ["asymmetric", "half_pixel"])
@pytest.mark.parametrize("scales", [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 3.0, 1.0], [1.0, 1.0, 0.5, 4.0]])
def test_symbolic_extents_by_whole_scales(how, scales):
    options = f'coordinate_transformation_mode = "{how}", nearest_mode = "floor"'
    text = resize(options, {"scales": scales}, "[b, c, h, w]")
    for shape in ((1, 2, 4, 6), (2, 1, 2, 1)):
        agree(text, {"x": cells(*shape)}, tolerance=1e-5)


def test_what_frameworks_export_needs_no_bounds():
    """Twice as large by the nearest: a cell comes from half its index, and nothing else is computed."""
    for how, rounding in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")):
        options = f'coordinate_transformation_mode = "{how}", nearest_mode = "{rounding}"'
        found = imported(resize(options, {"scales": [1.0, 1.0, 2.0, 2.0]}, "[b, c, h, w]"))
        views = [node.kind for node in found.graph.nodes if type(node.kind).__name__ == "View"]
        assert [str(dim) for view in views for dim in view.index if "//" in str(dim)] == ["(#2)//(2)", "(#3)//(2)"]
        assert "max" not in str(views)


def test_scales_of_some_axes_and_scales_that_are_initializers():
    x = cells(1, 2, 4, 6)
    (got,) = results(imported(resize("axes = [3, -2]", {"scales": [2.0, 3.0]})), {"x": x})
    np.testing.assert_array_equal(got, x.repeat(3, 2).repeat(2, 3))
    text = """(float[1, 1, h, w] x) => (float y) <float[4] s = {1, 1, 2, 2}> { y = Resize(x, , s) }"""
    found = imported(text)
    assert not found.opaque
    x = cells(1, 1, 2, 3)
    (got,) = results(found, {"x": x})
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))


def test_nothing_to_resize():
    agree(resize("", {"scales": [1.0, 1.0, 1.0, 1.0]}), {"x": cells(1, 2, 4, 6)})


@pytest.mark.parametrize(
    ("options", "parameters", "shape", "reason"),
    [
        (
            'mode = "cubic"',
            {"scales": [1.0, 1.0, 2.0, 2.0]},
            None,
            "Resize of mode 'cubic' with coordinates 'half_pixel'",
        ),
        (
            'coordinate_transformation_mode = "tf_crop_and_resize"',
            {"scales": [1.0, 1.0, 2.0, 2.0]},
            None,
            "Resize of mode 'nearest' with coordinates 'tf_crop_and_resize' has no meaning here",
        ),
        ("antialias = 1", {"sizes": [1, 2, 2, 3]}, None, "Resize with antialias has no meaning here"),
        ("exclude_outside = 1", {"sizes": [1, 2, 2, 3]}, None, "Resize with exclude_outside has no meaning here"),
        (
            'keep_aspect_ratio_policy = "not_larger"',
            {"sizes": [1, 2, 2, 3]},
            None,
            "Resize with keep_aspect_ratio_policy has no meaning here",
        ),
        ('nearest_mode = "up"', {"sizes": [1, 2, 8, 6]}, None, "Resize has no rounding 'up'"),
        ("", {"scales": [1.0, 2.0]}, None, "Resize is given 2 sizes or scales for 4 axes"),
        ("", {"scales": [1.0, 1.0, 1.2345678, 1.0]}, None, "Resize by 1.2345677614212036 is by no fraction of numbers"),
        ("", {"scales": [1.0, 1.0, 0.0, 1.0]}, None, "Resize by 0.0 is by no fraction of numbers up to 64"),
        (
            "",
            {"scales": [1.0, 1.0, 0.3, 1.0]},
            "[1, 2, h, 6]",
            "Resize of h by 3/10 has an extent that floats may",
        ),
        ("", {"scales": [1.0, 1.0, 0.7, 1.0]}, "[1, 2, 10, 6]", "Resize of 10 by 0.699999988079071 has an extent that"),
        (
            "",
            {"sizes": [1, 2, 8, 6]},
            "[1, 2, h, 6]",
            "Resize from h to 8 has a scale that is only known when",
        ),
        (
            'coordinate_transformation_mode = "align_corners"',
            {"scales": [1.0, 1.0, 2.0, 1.0]},
            "[1, 2, h, 6]",
            "Resize of h with align_corners has a scale that is only known when it runs",
        ),
        (
            'coordinate_transformation_mode = "align_corners"',
            {"scales": [1.0, 1.0, 0.6, 1.0]},
            None,
            "Resize with align_corners of 4 by 3/5 ends between cells",
        ),
        (
            'coordinate_transformation_mode = "pytorch_half_pixel"',
            {"sizes": [1, 2, 1, 6]},
            None,
            "Resize to 1 cells may be to one, where frameworks disagree",
        ),
    ],
)
def test_what_is_no_rule_stays_with_the_runtime(options, parameters, shape, reason):
    found = imported(resize(options, parameters, shape or "[1, 2, 4, 6]"), 19)
    assert [told for told in found.opaque.values() if reason in told], found.opaque


def test_integers_are_taken_as_they_are():
    text = """(int32[1, 1, 2, 2] x) => (int32 y) { s = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>()
        y = Resize(x, , s) }"""
    agree(text, {"x": np.arange(4, dtype=np.int32).reshape(1, 1, 2, 2)})


def test_sizes_that_are_made_as_the_model_runs_are_a_boundary():
    found = imported("(float[1, 1, h, w] x, float[4] s) => (float y) { y = Resize(x, , s) }")
    assert "the scale of Resize is not constant" in str(found.opaque)
