"""Resize to the nearest cell: the scale of each axis, and the cells that no float rounds to and fro."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.sizes import minimum
from noyau.ir.dims import Dim, index_name, indices, maximum
from noyau.ir.graph import Node

LARGEST = 64  # of the numerator and the denominator of a scale that is no quotient of known extents


PLACES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")


PERIODS = 8  # of a rule that are looked at, where an extent is symbolic


@dataclass(frozen=True, slots=True)
class ResizeAxis:
    """One axis: its extents before and after, and the scale between them."""

    before: Dim
    after: Dim
    scale: Fraction


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """x = (slope i + start) / step, of a cell i."""

    slope: int
    start: int
    step: int


def resize(site: OnnxSite) -> Node:
    value, mode = site.input(), site.attribute("mode", "nearest")
    for name, plain in (("antialias", 0), ("exclude_outside", 0), ("keep_aspect_ratio_policy", "stretch")):
        if site.attribute(name, plain) != plain:
            raise UnsupportedError(f"Resize with {name} has no meaning here")
    if mode != "nearest" or _how(site) not in PLACES:
        raise UnsupportedError(f"Resize of mode {mode!r} with coordinates {_how(site)!r} has no meaning here")
    resized = value
    for number, axis in _axes(site, value).items():
        if axis.scale != 1:
            resized = _nearest(site, resized, number, axis, _place(site, axis))
    return resized if resized is not value else site.call("identity", value)


def _how(site: OnnxSite) -> str:
    """The transformation of the coordinates of a cell."""
    return str(site.attribute("coordinate_transformation_mode", "half_pixel"))


def _axes(site: OnnxSite, value: Node) -> dict[int, ResizeAxis]:
    """The change of each axis that is resized."""
    rank = len(value.shape)
    axes = [site.axis(axis, rank) for axis in site.attribute("axes", None) or range(rank)]
    extents = [value.shape[axis] for axis in axes]
    if site.has(3):
        after = site.vector(3, "the sizes").dims
        changes = [ResizeAxis(a, b, _quotient(a, b)) for a, b in zip(extents, after, strict=False)]
    else:
        scales = site.array(2, "the scale").ravel().tolist()
        changes = [_scale_axis(extent, scale) for extent, scale in zip(extents, scales, strict=False)]
    if len(changes) != len(set(axes)):
        raise UnsupportedError(f"Resize is told of {len(changes)} axes, and has {len(axes)}")
    return dict(zip(axes, changes, strict=True))


def _quotient(before: Dim, after: Dim) -> Fraction:
    if before == after:
        return Fraction(1)
    if not before.constant or not after.constant:
        raise UnsupportedError(f"Resize from {before} to {after} has a scale that is only known when the model runs")
    return Fraction(after.constant, before.constant)


def _scale_axis(before: Dim, scale: float) -> ResizeAxis:
    """The axis under a scale that is told in float32."""
    exact = Fraction(scale).limit_denominator(LARGEST) if np.isfinite(scale) else Fraction(0)
    if exact <= 0 or exact.numerator > LARGEST or np.float32(exact) != np.float32(scale):
        raise UnsupportedError(f"Resize by {scale} is by no fraction of numbers up to {LARGEST}")
    after = before * exact.numerator // exact.denominator
    if before.constant is None:
        if exact.denominator & (exact.denominator - 1):  # a power of two divides floats exactly
            raise UnsupportedError(f"Resize of {before} by {exact} has an extent that floats may round")
        return ResizeAxis(before, after, exact)
    extents = {int(before.constant * np.float32(scale)), int(before.constant * float(np.float32(scale)))}
    if extents != {after.constant}:
        raise UnsupportedError(f"Resize of {before} by {scale} has an extent that floats round to and fro")
    return ResizeAxis(before, after, exact)


def _place(site: OnnxSite, axis: ResizeAxis) -> SourcePlace:
    """The source positions of cells by the transformation of coordinates."""
    how, scale = _how(site), axis.scale
    whole = axis.before * scale.numerator == axis.after * scale.denominator
    if how in ("align_corners", "half_pixel_symmetric") and not whole:
        raise UnsupportedError(f"Resize with {how} of {axis.before} by {scale} ends between cells")
    match how:
        case "asymmetric":
            return SourcePlace(scale.denominator, 0, scale.numerator)
        case "align_corners" if axis.before.constant and axis.after.constant:
            return SourcePlace(axis.before.constant - 1, 0, max(1, axis.after.constant - 1))
        case "pytorch_half_pixel" if (axis.after.constant or 1) == 1 and axis.after.constant != 0:
            raise UnsupportedError(f"Resize to {axis.after} cells may be to one, of which frameworks think differently")
        case "half_pixel" | "half_pixel_symmetric" | "pytorch_half_pixel":
            return SourcePlace(2 * scale.denominator, scale.denominator - scale.numerator, 2 * scale.numerator)
        case _:
            raise UnsupportedError(f"Resize of {axis.before} with {how} has a scale that is only known when it runs")


def _nearest(site: OnnxSite, value: Node, number: int, axis: ResizeAxis, place: SourcePlace) -> Node:
    """Each cell as it is at the nearest place."""
    rounding, at = site.attribute("nearest_mode", "round_prefer_floor"), Dim.of(index_name(number))
    if rounding not in _ROUNDINGS:
        raise UnsupportedError(f"Resize has no rounding {rounding!r}")
    chosen = _ROUNDINGS[rounding][0](at * place.slope + place.start, place.step)
    _require_agreement(site, axis, chosen, rounding, index_name(number))
    short = at * axis.scale.denominator // axis.scale.numerator
    chosen = short if _alike(short, chosen, axis, index_name(number)) else minimum(maximum(chosen, 0), axis.before - 1)
    shape, own = (*value.shape[:number], axis.after, *value.shape[number + 1 :]), indices(len(value.shape))
    return site.view(value, shape, [*own[:number], chosen, *own[number + 1 :]])


def _rounds(axis: ResizeAxis) -> range:
    """The cells of a rule that are looked at: all, or some periods of it."""
    return range(axis.after.constant if axis.after.constant is not None else 2 * PERIODS * axis.scale.numerator)


def _alike(short: Dim, chosen: Dim, axis: ResizeAxis, name: str) -> bool:
    """Whether a rule that needs no bounds gives the same cells."""
    most = axis.before.constant
    for i in _rounds(axis):
        source = max(0, int(chosen.evaluate({name: i})))
        if int(short.evaluate({name: i})) != (source if most is None else min(source, most - 1)):
            return False
    return most is not None or axis.before * axis.scale.numerator == axis.after * axis.scale.denominator


def _require_agreement(site: OnnxSite, axis: ResizeAxis, chosen: Dim, rounding: str, name: str) -> None:
    """UnsupportedError where floats would choose other cells."""
    i = np.arange(len(_rounds(axis)))
    exact = np.array([int(chosen.evaluate({name: int(k)})) for k in i], np.int64)
    for dtype in (np.float32, np.float64):
        rounded = _ROUNDINGS[rounding][1](_source_positions(_how(site), i.astype(dtype), axis, dtype))
        if (np.maximum(rounded, 0) != np.maximum(exact, 0)).any():
            raise UnsupportedError(f"Resize by {axis.scale} chooses cells that floats may round to and fro")


def _source_positions(how: str, i: np.ndarray, axis: ResizeAxis, dtype: type) -> np.ndarray:
    """The source positions of cells, in floats."""
    half, last = dtype(0.5), max(1, (axis.after.constant or 1) - 1)
    match how:
        case "asymmetric":
            return np.asarray(i / dtype(axis.scale))
        case "align_corners":
            return np.asarray(i * dtype((axis.before.constant or 1) - 1) / dtype(last))
        case _:
            return np.asarray((i + half) / dtype(axis.scale) - half)


# By its name, the rounding of x / step of a Dim, and that of floats.
_ROUNDINGS: dict[str, tuple[Callable[[Dim, int], Dim], Callable[[np.ndarray], np.ndarray]]] = {
    "floor": (lambda x, step: x // step, np.floor),
    "ceil": (lambda x, step: -(-x // step), np.ceil),
    "round_prefer_floor": (lambda x, step: -((step - 2 * x) // (2 * step)), lambda x: np.ceil(x - x.dtype.type(0.5))),
    "round_prefer_ceil": (lambda x, step: (2 * x + step) // (2 * step), lambda x: np.floor(x + x.dtype.type(0.5))),
}
