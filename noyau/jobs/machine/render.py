"""The rates of a processor as tables for a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from noyau.jobs.report.text import spell_bytes
from noyau.text import printable, several
from noyau.timing.rates import MachineRates


def machine_tables(rates: MachineRates) -> Iterator[RenderableType]:
    machine = rates.machine
    caches = ", ".join(f"{name} {spell_bytes(size, 4)}" for name, size in rates.caches.items()) or "unknown"
    facts = {
        "processor": machine.text,
        "caches": f"{caches} (of a core; the last one may be shared)",
        "compiler": machine.compiler,
        "system": machine.os,
        "versions": versions_text(machine.versions),
        "measured": rates.date,
    }
    yield from facts_text(facts)
    for part in (_ladder(rates), _curves(rates)):
        yield Text()
        yield part
    yield Text()
    for name, gains in rates.scaling.items():
        scaling = ", ".join(f"{count}: {gain:.2f}x" for count, gain in gains.items())
        yield Text(f"threads, {name:<7} {scaling}")
    yield Text()
    yield from _rates(rates.rates)


def versions_text(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def levels(caches: Mapping[str, int], sizes: tuple[int, ...]) -> dict[str, int]:
    """A size that represents each cache level: the largest that fills at most half of it; for DRAM the largest size."""
    known = [(name, caches[name]) for name in ("L1", "L2", "L3") if name in caches]
    fitting = {name: max((each for each in sizes if 2 * each <= size), default=sizes[0]) for name, size in known}
    return {**fitting, "DRAM": sizes[-1]}


def _ladder(rates: MachineRates) -> Table:
    threads, rows = sorted(rates.copy), []
    for level, size in levels(rates.caches, tuple(rates.copy[1])).items():
        # The private caches of several cores together hold proportionally more, each its own part.
        at = {count: min(size * count if level in ("L1", "L2") else size, max(rates.copy[1])) for count in threads}
        at = {count: max(each for each in rates.copy[1] if each <= at[count]) for count in threads}
        rows.append((level, *(_rate(curve[at[n]]) for n in threads for curve in (rates.copy[n], rates.read[n]))))
    return number_table("GB/s by level", ["", *_headings(threads)], rows)


def _curves(rates: MachineRates) -> Table:
    threads = sorted(rates.copy)
    curves = [curve[count] for count in threads for curve in (rates.copy, rates.read)]
    rows = [(spell_bytes(size, 4), *(_rate(curve[size]) for curve in curves)) for size in rates.copy[1]]
    return number_table("GB/s by the bytes that move", ["bytes", *_headings(threads)], rows)


def _headings(threads: Sequence[int]) -> list[str]:
    return [f"{what}, {several(count, 'thread')}" for count in threads for what in ("copy", "read")]


def number_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of right-aligned columns; those without a heading are left-aligned."""
    table = Table(box=None, title=title, title_justify="left")
    for name in headings:
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(*row)
    return table


def facts_text(facts: Mapping[str, str]) -> Iterator[Text]:
    yield from (Text(f"{name:<10} {printable(fact)}") for name, fact in facts.items())


def _rates(rates: Mapping[str, float]) -> Iterator[RenderableType]:
    """Tables of functions (rows) by dtype (columns), and of conversions from the dtype of a row to that of a column."""
    functions = {name: rate for name, rate in rates.items() if not name.rpartition("_")[0].endswith("_to")}
    yield Text("billions of values per second, one thread, in a cache", style="table.title")
    yield _by_dtype("", functions)
    yield Text("\nbillions of conversions per second, likewise: from the row to the column", style="table.title")
    yield _by_dtype("from", {name.replace("_to_", "_"): rate for name, rate in rates.items() if name not in functions})


def _by_dtype(corner: str, rates: Mapping[str, float]) -> Table:
    table = Table(box=None)
    dtypes = sorted({name.rpartition("_")[2] for name in rates}, key=lambda name: (len(name), name))
    table.add_column(corner)
    for dtype in dtypes:
        table.add_column(dtype, justify="right")
    for name in sorted({name.rpartition("_")[0] for name in rates}):
        table.add_row(name, *(_rate(rates.get(f"{name}_{dtype}")) for dtype in dtypes))
    return table


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e9:.3g}"
