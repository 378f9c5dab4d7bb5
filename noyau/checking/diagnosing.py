"""What a failure shows of a kernel: its kind, and what all that fails has in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noyau.checking.certificate import Failure
from noyau.checking.findings import kind_of
from noyau.checking.floats import FORMATS
from noyau.checking.runs import Unlike
from noyau.checking.shrinking import Smallest, tail_of
from noyau.dtypes import DType
from noyau.signatures.types import Instance

Sizes = Mapping[str, int]
_GROWN = (4, 16)  # times smaller sizes, at which lost precision is looked at too


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The kind of a finding, and what its message says beside the failure."""

    kind: str
    told: tuple[str, ...] = ()

    def message(self, failure: Failure) -> str:
        return "; ".join([str(failure), *self.told])


def diagnosed(
    smallest: Smallest,
    instance: Instance,
    layout: str,
    unlike: Unlike | None,
    failure_at: Callable[[Sizes], Failure | None],
) -> Diagnosis:
    """What the smallest failure shows. `unlike`: how two runs on its inputs differ; `failure_at`: at other sizes."""
    failure, kind = smallest.failure, kind_of(smallest.failure)
    if unlike is not None and unlike.kind == "order-dependent" and kind != "precision":
        return Diagnosis("race", (str(unlike),))
    if layout != "contiguous":
        blind = f"stride-blind: it is right on packed arrays, and not on {layout} ones"
        return Diagnosis(kind, (f"{blind}; use their strides, or copy them first",))
    if kind == "crash":
        return Diagnosis(kind)
    if kind == "precision":
        return Diagnosis(kind, (*_growth(smallest, failure_at), *_saturated(failure, instance)))
    tail = tail_of(smallest, failure_at)
    told = (f"wrong tail: {tail}",) if tail else ()
    if unlike is not None and unlike.kind != "order-dependent":
        return Diagnosis(unlike.kind, (str(unlike), *told))
    stuck = _saturated(failure, instance)
    return Diagnosis("precision", stuck) if stuck else Diagnosis(kind, told)


def is_slight(failure: Failure, instance: Instance) -> bool:
    """Whether a cell still has more than half of the digits that its dtype holds."""
    dtype = _dtype_of(failure, instance)
    if dtype not in FORMATS or not math.isfinite(failure.got):
        return False
    return abs(failure.got - failure.want) < math.ldexp(abs(failure.want), -FORMATS[dtype].stored // 2)


def _growth(smallest: Smallest, failure_at: Callable[[Sizes], Failure | None]) -> tuple[str, ...]:
    """That an error grows with a size, where it is right at much smaller ones."""
    for name, size in smallest.sizes.items():
        smaller = [size // times for times in _GROWN]
        if size > max(_GROWN) and all(failure_at({**smallest.sizes, name: each}) is None for each in smaller):
            return (f"the error grows with {name}: at {smaller[0]} it is within what is allowed",)
    return ()


def _saturated(failure: Failure, instance: Instance) -> tuple[str, ...]:
    """That a sum stays where one more changes nothing, as 2^24 in float32."""
    dtype = _dtype_of(failure, instance)
    if dtype not in FORMATS or not abs(failure.got) < abs(failure.want) < math.inf:
        return ()
    bits = FORMATS[dtype].stored + 1
    stays = abs(failure.got) == 2.0**bits
    return (f"it stays at 2^{bits}, where {dtype.numpy.name} has no number for one more",) if stays else ()


def _dtype_of(failure: Failure, instance: Instance) -> DType:
    """The dtype of the output that a failure is in."""
    return next((value.dtype for value in instance.outputs if value.name == failure.output), DType.OTHER)
