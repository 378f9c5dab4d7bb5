"""How much memory the whole job takes on a model with gigabytes of external data; writes results/large_model.json.

    python benchmarks/large_model.py [--gigabytes 3]

What counts is anonymous memory (RssAnon): what the process has allocated and the system cannot take back. Pages of the
data file that are mapped (RssFile) are the system's own cache: they are dropped when memory is short, and are
recorded beside it, as is the peak of both (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).resolve().parent / "results" / "large_model.json"
ALLOWED_BYTES = 10**9  # beyond the largest tensor
PERIOD_S = 0.005


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most memory that a process took, in bytes, and how it ended. Children (compilers) are not counted."""

    status: int
    anonymous: int
    mapped: int
    both: int
    wall_s: float
    samples: int


def watched(command: Sequence[str]) -> Peaks:
    """Run a command and look at its memory every 5 ms."""
    begin_s, peaks, samples = time.monotonic(), {"RssAnon": 0, "RssFile": 0, "VmHWM": 0}, 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            now = memory(process.pid)
            peaks = {name: max(peak, now.get(name, 0)) for name, peak in peaks.items()}
            samples += 1
            time.sleep(PERIOD_S)
    took_s = time.monotonic() - begin_s
    return Peaks(process.returncode, peaks["RssAnon"], peaks["RssFile"], peaks["VmHWM"], took_s, samples)


def memory(process: int) -> dict[str, int]:
    """What Linux says of a process's memory, in bytes; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}


def optimized(model: Path, output: Path, *arguments: str) -> Peaks:
    """The whole job on a model, in a process of its own."""
    return watched([sys.executable, "-m", "noyau", "optimize", str(model), "-o", str(output), *arguments])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=int, default=3, help="GiB of external data, in three equal weights")
    gigabytes = parser.parse_args().gigabytes
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = str(ROOT)
    from tests.large_model import write_large_model

    from noyau.reports.machine import this_machine

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_large_model(folder, intermediate=65536 * gigabytes // 3)
        record = folder / "record.json"
        peaks = optimized(model.path, folder / "fused.onnx", "--keep", "all", "--json", str(record))
        report = json.loads(record.read_text()) if record.exists() else {}
    beyond = peaks.anonymous - model.largest_bytes
    found = {
        "machine": this_machine().to_json(),
        "external_bytes": model.total_bytes,
        "largest_tensor_bytes": model.largest_bytes,
        "status": peaks.status,
        "wall_s": round(peaks.wall_s, 1),
        "peak_anonymous_bytes": peaks.anonymous,
        "peak_mapped_bytes": peaks.mapped,
        "peak_resident_bytes": peaks.both,
        "anonymous_beyond_largest_tensor_bytes": beyond,
        "allowed_beyond_largest_tensor_bytes": ALLOWED_BYTES,
        "ok": peaks.status == 0 and beyond < ALLOWED_BYTES,
        "kernels": [{key: kernel[key] for key in ("name", "kept", "verdict")} for kernel in report.get("kernels", [])],
        "end_to_end": report.get("end_to_end"),
    }
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
