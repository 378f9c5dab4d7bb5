"""Shapes of the results of boundaries, by rules for frequent operators; None where an extent is unknown.

ONNX's own inference knows more operators, but loses every formula over sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.library_shapes import CONTRIBUTED_RULES, LIBRARY_RULES, Outcome, Rule, unknown
from noyau.frontends.onnx.sites import OnnxSite
from noyau.ir.dims import Dim


def outcome_of(site: OnnxSite, domain: str = "") -> list[Outcome]:
    """The dtypes and extents of the outputs, as far as a rule says; nothing where there is none."""
    rule = _DOMAINS.get(domain, {}).get(site.op)
    try:
        return rule(site) if rule else []
    except UnsupportedError:
        return []


def _same_rank(site: OnnxSite) -> list[Outcome]:
    """As many axes as the first input, and nothing known of them."""
    return [(site.input().dtype, unknown(site.rank()))]


def _reduction(site: OnnxSite) -> list[Outcome]:
    return _same_rank(site) if site.attribute("keepdims", 1) == 1 else []


def _from_extents(position: int, dtype: Callable[[OnnxSite], DType]) -> Rule:
    """As many axes as a vector of extents has cells."""

    def rule(site: OnnxSite) -> list[Outcome]:
        count = site.input(position).shape[0].constant if site.rank(position) == 1 else None
        return [] if count is None else [(dtype(site), unknown(count))]

    return rule


def _filler(site: OnnxSite) -> DType:
    value = site.attributes.get("value", np.float32(0))
    return (from_numpy(value.dtype) if isinstance(value, np.ndarray | np.generic) else None) or DType.OTHER


def _top_k(site: OnnxSite) -> list[Outcome]:
    count = site.contents(1)
    shape = _along_axis(site, -1, count.dims[0] if count is not None and len(count.dims) == 1 else None)
    return [(site.input().dtype, shape), (DType.I64, shape)]


def _along_axis(site: OnnxSite, default: int, length: Dim | None) -> tuple[Dim | None, ...]:
    """The shape of the first input with another extent along the axis of the node."""
    shape = site.input().shape
    axis = site.axis(site.attribute("axis", default), len(shape))
    return (*shape[:axis], length, *shape[axis + 1 :])


def _one_hot(site: OnnxSite) -> list[Outcome]:
    shape = site.input().shape
    axis = site.axis(site.attribute("axis", -1), len(shape) + 1)
    return [(site.input(2).dtype, (*shape[:axis], None, *shape[axis:]))]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("CumProd", "CumSum", "LRN", "ReverseSequence", "TensorScatter"),
        lambda site: [(site.input().dtype, site.input().shape)],
    ),
    **dict.fromkeys(("Pad", "Resize", "Slice", "Tile", "Upsample"), _same_rank),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"), _reduction),
    **dict.fromkeys(("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), _reduction),
    "Compress": lambda site: [
        (site.input().dtype, _along_axis(site, 0, None) if "axis" in site.attributes else (None,))
    ],
    "ConstantOfShape": _from_extents(0, _filler),
    "NonZero": lambda site: [(DType.I64, (Dim.of(site.rank()), None))],
    "OneHot": _one_hot,
    "Range": lambda site: [(site.input().dtype, (None,))],
    "Reshape": _from_extents(1, lambda site: site.input().dtype),
    "Split": lambda site: [(site.input().dtype, _along_axis(site, 0, None))] * len(site.outputs),
    "TopK": _top_k,
}
_DOMAINS = {"": {**LIBRARY_RULES, **_RULES}, "com.microsoft": CONTRIBUTED_RULES}
