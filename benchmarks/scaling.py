"""How the six paths scale: each over sizes from 2^10 to 2^26 cells, and over rows from 7 to 50257 cells, on one thread.

    python benchmarks/scaling.py [--paths rmsnorm,...] [--budget 0.3] [--plot FILE.png] [-o FILE]

Each kernel alone, in pairs with a plain copy that moves as many bytes, on memory that stays the same; and the floor,
from the curves that `noyau machine` keeps. Writes results/scaling.json; `--plot` draws it, with matplotlib.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from record import write as write_record
from six_paths import PATHS, against_copy, bytes_of, fuse, inputs_of

from noyau.text import as_json
from noyau.timing.conditions import conditions
from noyau.timing.machine import this_machine
from noyau.timing.rates import floor_s

RESULTS = Path(__file__).parent / "results" / "scaling.json"
CELLS = tuple(1 << power for power in range(10, 27, 2))
ROWS = (7, 64, 127, 768, 2048, 11008, 50257)
ROW, ROW_CELLS = 2048, 1 << 20  # what stays the same while the other changes
HEAD = 64  # a row of the rotary path, which has no other


def texts() -> dict[str, str]:
    """The paths with rows of any length."""
    lengths = ("2048]", "5504]", "4096]")
    made = {name: text for name, (text, _) in PATHS.items()}
    for length in lengths:
        made = {name: text.replace(length, "n]") for name, text in made.items()}
    return made


def sizes_of(name: str, cells: int, row: int) -> dict[str, int]:
    """About so many cells of output, in rows of this length."""
    rows = max(cells // row, 1)
    match name:
        case "softmax":
            queries = min(rows, row)
            return {"heads": max(rows // queries, 1), "queries": queries, "keys": row}
        case "rotary":
            heads = min(32, max(cells // HEAD, 1))
            return {"heads": heads, "sequence": max(cells // HEAD // heads, 1)}
        case _:
            return {"rows": rows, "n": row}


def cases(name: str) -> Iterator[tuple[str, int, int]]:
    """What is varied, and the cells and the row of each case."""
    yield from (("cells", cells, min(ROW, cells)) for cells in CELLS)
    if name != "rotary":
        yield from (("row", ROW_CELLS, row) for row in ROWS)


def measured(name: str, text: str, budget_s: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        one = fuse(text, Path(folder))
    rows = []
    for varied, cells, row in cases(name):
        sizes = sizes_of(name, cells, row)
        arrays = inputs_of(one.original.model, sizes)
        found, moved = against_copy(one, arrays, sizes, budget_s), bytes_of(one, sizes)
        read = sum(array.nbytes for array in arrays.values())
        least_s = floor_s(read, max(moved - read, 0), 1)
        rows.append(
            {
                "varied": varied,
                "sizes": sizes,
                "row": HEAD if name == "rotary" else row,
                "moved_bytes": moved,
                "median_s": found.after_median_s,
                "of_copy": round(found.speedup, 3),
                "of_floor": round(least_s / found.after_median_s, 3),
            }
        )
        print(
            f"{name:<10} {varied:<6} {sizes!s:<50} {moved / found.after_median_s / 1e9:7.1f} GB/s"
            f" {found.speedup:6.2f} of a copy {least_s / found.after_median_s:6.2f} of the floor",
            flush=True,
        )
    return rows


def plot(paths: Mapping[str, Sequence[Mapping[str, Any]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 4.5), sharey=True)
    for axis, (varied, label) in zip(axes, (("cells", "bytes that move"), ("row", "cells of a row")), strict=True):
        for name, rows in paths.items():
            shown = [row for row in rows if row["varied"] == varied]
            places = [row["moved_bytes" if varied == "cells" else "row"] for row in shown]
            axis.plot(places, [row["of_floor"] for row in shown], marker="o", markersize=3, label=name)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(xscale="log", xlabel=label, ylim=(0, None))
    axes[0].set_ylabel("floor / time (1 is the floor)")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--paths", default=",".join(PATHS), metavar="NAMES")
    parser.add_argument("--budget", type=float, default=0.3, metavar="SECONDS", help="for each comparison")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    start, every = conditions(), texts()
    paths = {name: measured(name, every[name], arguments.budget) for name in arguments.paths.split(",")}
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": this_machine().to_json(),
        "before": as_json(start),
        "after": as_json(conditions()),
        "paths": paths,
    }
    write_record(record, arguments.output)
    if arguments.plot:
        plot(paths, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
