"""Plots of times and rates against sizes, and against what was measured of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from noyau.jobs.machine.render import levels
from noyau.jobs.page.document import Axis, Plot, Series
from noyau.timing.rates import recall_rates

UNMEASURED = "The ceilings of this machine are not drawn, for they were not measured: noyau machine does that."
BARS = "Bars reach from the 10th to the 90th percentile."
_ADDING, _THREAD = "add_f32", 1


@dataclass(frozen=True, slots=True)
class SizedTime:
    """A time at a size (`size`: the number on the axis), its interval, and what moved and was computed meanwhile."""

    size: float
    time_s: float
    low_s: float | None = None
    high_s: float | None = None
    bytes_moved: float | None = None
    flops: float | None = None

    @property
    def rates(self) -> tuple[float, float | None, float | None] | None:
        """Bytes per second and its interval; None where the bytes are not known."""
        if not self.bytes_moved or not self.time_s:
            return None
        ends = (self.bytes_moved / each if each else None for each in (self.high_s, self.low_s))
        return (self.bytes_moved / self.time_s, *ends)  # type: ignore[return-value]


Sweeps = Iterable[tuple[str, Sequence[SizedTime]]]  # by the name of what was timed


def time_plot(title: str, x: Axis, sweeps: Sweeps) -> Plot:
    """Times against sizes."""
    series = [
        Series(name, tuple((each.size, each.time_s, each.low_s, each.high_s) for each in _sorted(times)), "line")
        for name, times in sweeps
    ]
    return Plot(title, x, Axis("time of a call", "s"), tuple(series), BARS)


def rate_plot(title: str, sweeps: Sweeps) -> Plot:
    """Rates against the bytes that move, below the copies and the reads of as many that were measured here."""
    series = []
    for name, times in sweeps:
        moved = [(each.bytes_moved, *each.rates) for each in times if each.bytes_moved and each.rates]
        series.append(Series(name, tuple(sorted(moved))))
    known = recall_rates()
    marks = () if known is None else tuple((level, float(size)) for level, size in known.caches.items())
    for name, curves in {} if known is None else {"copy": known.copy, "read": known.read}.items():
        points = tuple((float(size), rate, None, None) for size, rate in curves[_THREAD].items())
        series.append(Series(f"{name}, measured", points, "ceiling"))
    x = Axis("bytes that move", "B", marks=marks)
    return Plot(title, x, Axis("bytes per second", "B/s"), tuple(series), BARS if known else f"{BARS} {UNMEASURED}")


def roofline(title: str, sweeps: Sweeps) -> Plot:
    """Computed against moved: flops per second over flops per byte, below what each level of memory and the processor
    can do, one thread."""
    series = []
    for name, times in sweeps:
        known = [each for each in times if each.flops and each.rates and each.bytes_moved]
        points = []
        for each in known:
            intensity = (each.flops or 0.0) / (each.bytes_moved or 1.0)
            rates = [None if rate is None else rate * intensity for rate in each.rates or ()]
            points.append((intensity, *rates))
        series.append(Series(name, tuple(sorted(points))))  # type: ignore[arg-type]
    ends = [x for each in series for x, *_ in each.points] or [1.0]
    ceilings = list(_roofs(min(ends) / 4, max(ends) * 4))
    x, y = Axis("flops per byte"), Axis("flops per second", "FLOP/s")
    return Plot(title, x, y, (*series, *ceilings), "" if ceilings else UNMEASURED)


def _roofs(low: float, high: float) -> Iterator[Series]:
    """The slope of each level of memory, as copies reach it, up to the additions of one thread."""
    known = recall_rates()
    if known is None:
        return
    curve, flat = known.copy[_THREAD], known.rates.get(_ADDING)
    for level, size in levels(known.caches, tuple(curve)).items():
        corner = min(high, max(low, (flat or float("inf")) / curve[size]))
        yield Series(level, tuple((x, curve[size] * x, None, None) for x in (low, corner)), "ceiling")
    if flat:
        points = tuple((x, flat, None, None) for x in (low, high))
        yield Series("additions in f32, from a cache", points, "ceiling")


def _sorted(times: Sequence[SizedTime]) -> list[SizedTime]:
    return sorted(times, key=lambda each: each.size)
