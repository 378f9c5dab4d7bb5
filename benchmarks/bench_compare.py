"""How often `noyau bench --compare` catches a commit that is slowed by a tenth, and how often it accuses an equal one.

    python benchmarks/bench_compare.py [--runs 20] [--burners 2] [-o FILE]

Each run saves a file as a baseline, writes the next commit over it, and compares, both as a user does: by the command,
in a process of its own, with its default budget and limit (5 %). Meanwhile as many other processes as `--burners` says
compute without end. A slowed commit does eleven passes instead of ten; an equal one has other comments and names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "bench_compare.json"
IN_NUMPY = """
import numpy as np

def smooth(x):  # {comment}
    {name} = x
    for _ in range({passes}):
        {name} = np.sqrt({name} * {name} + 1)
    return {name}

def inputs(rng, n=20_000):
    return (rng.standard_normal(n, dtype=np.float32),)
"""
IN_C = '''
import numpy as np
import noyau

@noyau.op("f32[n] -> f32[n]", inputs=lambda rng, n=20_000: (rng.standard_normal(n, dtype=np.float32),))
def smooth(x):
    for _ in range({passes}):
        x = np.sqrt(x * x + 1)
    return x

smooth.kernel("""
#include <math.h>
void by_hand(const float *x, float *out, long begin, long end) {{ /* {comment} */
    for (long i = begin; i < end; i++) {{
        float {name} = x[i];
        for (int k = 0; k < {passes}; k++) {name} = sqrtf({name} * {name} + 1);
        out[i] = {name};
    }}
}}
""", language="c", name="by_hand")
'''
CASES = {"NumPy": (IN_NUMPY, "ops.py::smooth"), "an op and its kernels": (IN_C, "ops.py::smooth")}


def run(folder: Path, *arguments: str) -> tuple[int, float]:
    """The exit status and the seconds of a command."""
    start_s = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "noyau", "bench", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(ended.stderr)
    return ended.returncode, time.perf_counter() - start_s


def accused(text: str, target: str, passes: int) -> tuple[int, float]:
    """Whether a commit of so many passes is said to be slower than one of ten, and what the comparison took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ops.py").write_text(text.format(passes=10, comment="before", name="y"))
        run(folder, target, "--save", "main")
        (folder / "ops.py").write_text(text.format(passes=passes, comment="after", name="value"))
        return run(folder, target, "--compare", "main")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--burners", type=int, default=2)
    parser.add_argument("-o", type=Path, default=RESULTS)
    options = parser.parse_args()
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.burners)]
    record = {"runs": options.runs, "burners": options.burners, "cores": os.cpu_count(), "load": [], "cases": {}}
    try:
        for case, (text, target) in CASES.items():
            counts = {"runs": 0, "slowed_caught": 0, "equal_accused": 0, "longest_s": 0.0}
            record["cases"][case] = counts
            for _ in range(options.runs):
                for name, passes in (("slowed_caught", 11), ("equal_accused", 10)):
                    status, took_s = accused(text, target, passes)
                    counts[name] += status
                    counts["longest_s"] = max(counts["longest_s"], round(took_s, 1))
                counts["runs"] += 1
                record["load"].append(round(os.getloadavg()[0], 1))
                print(f"{case}: {counts}", flush=True)
    finally:
        for each in burners:
            each.kill()
    record["load"] = [min(record["load"]), max(record["load"])]
    options.o.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
