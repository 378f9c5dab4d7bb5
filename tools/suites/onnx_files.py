"""Model files of other people through `noyau optimize`: `python -m tools.suites.onnx_files FOLDER`.

Each file is optimised in a process of its own and judged in another one (tools/suites/onnx_judgement.py). A line is
printed for each, and put into a log, where later runs find it: what is in the log is not run again. With `--unjudged`
files are optimised alone, and a later run judges them: on a core that does nothing else."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.suites.onnx_judgement import LEAST_RATIO


def optimize(path: Path, result: Path, words: Sequence[str], time_s: float) -> dict[str, Any]:
    """The end of `noyau optimize`: its status, its seconds on the clock and of the processor, and its record."""
    record = result.with_suffix(".json")
    command = [sys.executable, "-m", "noyau", "optimize", str(path), "-o", str(result), "--json", str(record), *words]
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=time_s, check=False)
        status, text = process.returncode, process.stderr.strip()
    except subprocess.TimeoutExpired:
        status, text = -1, f"no end within {time_s:g} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = {"status": status, "clock_s": round(time.monotonic() - begin, 1), "cpu_s": round(cpu_s, 1)}
    if status or not record.is_file():
        return {**row, "fault": text.splitlines()[-1] if text else "it wrote no record"}
    told = json.loads(record.read_text("utf-8"))
    kept, whole = sum(each["kept"] for each in told["kernels"]), told["end_to_end"]
    sizes = [each["sizes"] for each in whole["bindings"]]
    return {**row, "kernels": len(told["kernels"]), "kept": kept, "says": whole["verdict"], "sizes": sizes,
            "reason": whole["reason"]}  # fmt: skip


def line_of(name: str, row: Mapping[str, Any]) -> str:
    """A file's line: seconds, kernels, errors, and ratios with the library, without, and of the original to itself."""
    text = f"{name}: {row['clock_s']} s ({row['cpu_s']} of the processor)"
    if "right" not in row:
        return f"{text}, exit {row['status']}, not judged: {row.get('fault', 'later')}"
    errors = " ".join(f"{key} {error:.0e}" for key, error in row["errors"].items())
    ratios = [
        f"{at}: {each['ms']} ms {each.get('with', '-')} {each['without']} (itself {each['again']})"
        for at, each in row["speed"].items()
    ]
    judgement = f"{'right' if row['right'] else 'WRONG'} {row['doubt']} ({errors}); {'; '.join(ratios)}"
    return (
        f"{text}, {row['kept']} of {row['kernels']} kernels, {row['says'] or row['reason'] or 'as it was'}, {judgement}"
    )


def summary(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The line at the end."""
    judged = {name: row for name, row in rows.items() if "right" in row}
    fused = {name: list(row["speed"].values()) for name, row in judged.items() if row["kept"]}
    slow = [name for name, each in fused.items() if min(min(at["with"], at["without"]) for at in each) < LEAST_RATIO]
    mean = statistics.geometric_mean([each[0]["with"] for each in fused.values()] or [1.0])
    wrong = [name for name, row in judged.items() if not row["right"]]
    late = [name for name, row in rows.items() if row["clock_s"] > 60]
    counts = f"{len(rows)} files, {len(judged)} judged, {len(fused)} with kernels, {mean:.2f}x as geometric mean"
    return f"{counts}; wrong: {wrong}; below {LEAST_RATIO}: {slow}; over 60 s: {late}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, help="folder of the results and the log (default: FOLDER/fused)")
    parser.add_argument("--only", default="", help="files whose names have one of these words: a,b")
    parser.add_argument("--unjudged", action="store_true", help="leave the judgement to a later run")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no file after so many")
    parser.add_argument("--time", type=float, default=600.0, help="seconds for each file (default: 600)")
    parser.add_argument("rest", nargs="*", help="words for `noyau optimize`, behind --")
    wishes = parser.parse_args(words)
    results = wishes.results or wishes.folder / "fused"
    results.mkdir(exist_ok=True, parents=True)
    log = results / "log.jsonl"
    lines = log.read_text("utf-8").splitlines() if log.is_file() else []
    rows: dict[str, dict[str, Any]] = {row.pop("file"): row for row in map(json.loads, lines)}
    paths = [
        path
        for path in sorted(wishes.folder.glob("*.onnx"), key=lambda each: each.stat().st_size)
        if any(w in path.name for w in wishes.only.split(","))
    ]
    begin = time.monotonic()
    for path in paths:
        result, row = results / path.name, rows.get(path.name)
        if row is None or ("kernels" in row and not {"right", "fault"} & row.keys() and not wishes.unjudged):
            if time.monotonic() - begin > wishes.seconds:
                continue
            row = row or optimize(path, result, wishes.rest, wishes.time)
            if "kernels" in row and not wishes.unjudged:
                command = [sys.executable, "-m", "tools.suites.onnx_judgement", str(path), str(result)]
                done = subprocess.run([*command, json.dumps(row["sizes"])], capture_output=True, text=True, check=False)
                row |= json.loads(done.stdout) if not done.returncode else {"fault": done.stderr.strip()[-300:]}
            rows[path.name] = row
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"file": path.name, **row}) + "\n")
        print(line_of(path.name, row), flush=True)
    rows = {path.name: rows[path.name] for path in paths if path.name in rows}
    print(summary(rows))
    return int(any(not row.get("right", True) for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
