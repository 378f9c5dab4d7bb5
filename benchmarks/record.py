"""Records of measurements as JSON: a summary that a reader and a diff can follow, without raw samples.

`python benchmarks/record.py FILE...` writes records anew in this form.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

# Raw samples and details of single runs: whoever wants them runs the script again.
RAW = {
    *("samples_s", "samples_us", "comparisons", "p10_us", "p90_us", "host_us", "bindings", "strays", "longest"),
    *("ulp_by_build", "truth_ulp_of_long_double", "worst_argument", "unblocked", "why", "left", "already_fused"),
    *("phases", "next", "moved_bytes"),
}
MOST_VALUES = 7  # a longer list of numbers is a list of samples
WIDTH = 700  # a row of a table is a line
DIGITS = 4


def write(record: Any, path: Path) -> None:
    """Write the summary of `record` to `path`."""
    path.write_text(layout(summary(record)) + "\n", encoding="utf-8")


def read(path: Path, default: Any) -> Any:
    """The record at `path`; `default` where there is none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def summary(value: Any) -> Any:
    """Leave out raw samples, round each float to four digits, give another list of samples by its quartiles."""
    if isinstance(value, dict):
        return {str(name): summary(each) for name, each in value.items() if name not in RAW}
    if isinstance(value, list | tuple):
        if len(value) > MOST_VALUES and all(isinstance(each, int | float) for each in value):
            return _quartiles([float(each) for each in value])
        return [summary(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _quartiles(samples: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(samples, n=4)
    cells = {"least": min(samples), "q1": low, "median": median, "q3": high, "most": max(samples)}
    return {"count": len(samples), **{name: float(f"{number:.{DIGITS}g}") for name, number in cells.items()}}


def layout(value: Any, indent: int = 0) -> str:
    """JSON where what fits into one line stands in one line."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(line) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    margin = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {layout(each, indent + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(margin + part for part in parts) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(margin + layout(each, indent + 1) for each in value) + "\n" + " " * indent + "]"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(read(Path(argument), None), Path(argument))
