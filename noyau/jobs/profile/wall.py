"""Record of where the wall time of a call goes: kernels, products among them, gaps, waiting; rows of times by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from noyau.jobs.report.text import Record, hanging
from noyau.text import several

_MANY = 0.3  # share of the wall from which on something is what would help
HELP = {
    "gaps": "launches recorded as one CUDA graph (the option graphs), or fewer kernels",
    "synchronisation": "no value of the device read by the host in the midst of a step",
    "others": "kernels that are no products fused with their neighbours",
    "products": "faster products: fewer and larger ones, or weights in fewer bits",
}


@dataclass(frozen=True, slots=True, repr=False)
class Wall(Record):
    """Shares of the `wall_s` of a call: `kernels`, of which `products` are a part, `gaps` with no kernel, and
    `synchronisation`, in which the host waits though a kernel is not all that runs. `longest`: the kernels that take
    most, with their seconds and how often they are launched."""

    wall_s: float
    kernels: float
    products: float
    synchronisation: float
    launches: int
    longest: tuple[tuple[str, float, int], ...] = ()

    @property
    def gaps(self) -> float:
        return max(1.0 - self.kernels, 0.0)

    @property
    def next(self) -> str:
        """Most helpful next step: what takes the largest share."""
        others = self.gaps - self.synchronisation, self.synchronisation, self.kernels - self.products
        shares = dict(zip(HELP, (*others, self.products), strict=True))
        large = [name for name in HELP if shares[name] >= _MANY]  # products last: nobody closes them soon
        return HELP[large[0] if large else max(shares, key=shares.__getitem__)]

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        longest = [{"kernel": name, "s": spent_s, "launches": count} for name, spent_s, count in self.longest]
        shares = {"kernels": self.kernels, "products": self.products, "gaps": self.gaps}
        rest = {"synchronisation": self.synchronisation, "launches": self.launches, "next": self.next}
        return {"wall_s": self.wall_s, **shares, **rest, "longest": longest}

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        shares = f"kernels {self.kernels:.0%} (products {self.products:.0%}), gaps {self.gaps:.0%}"
        rest = f"synchronisation {self.synchronisation:.0%}, {several(self.launches, 'launch')}"
        yield from hanging(f"{1e3 * self.wall_s:.3g} ms: {shares}, {rest}", width, "", "  ")
        for name, spent_s, count in self.longest:
            yield from hanging(f"{1e6 * spent_s:8.0f} us {count:5d}  {name[:100]}", width, "  ", "    ")
        yield from hanging(f"would help next: {self.next}", width, "", "  ")


def by_name(rows: Iterable[tuple[str, float]]) -> list[tuple[str, list[float]]]:
    """The seconds of each name, the name that takes longest first."""
    times: dict[str, list[float]] = {}
    for name, spent_s in rows:
        times.setdefault(name, []).append(spent_s)
    return sorted(times.items(), key=lambda row: -sum(row[1]))
