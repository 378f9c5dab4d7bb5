"""How much memory the whole job takes on a model with gigabytes of external data; writes results/large_model.json.

    python benchmarks/large_model.py [--gigabytes 3] [--length 16] [--keep all]

What counts is anonymous memory (RssAnon), of noyau and of the processes that it starts together: what they have
allocated, and the system cannot take back. Pages of the data file that are mapped (RssFile) are the system's own cache,
one copy for all processes, and are dropped when memory is short; they are recorded beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from record import write as write_record

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).resolve().parent / "results" / "large_model.json"
ALLOWED_BYTES = 10**9  # beyond the largest tensor
PERIOD_S = 0.01


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most memory that a process and its children took at one time, in bytes, and how it ended."""

    status: int
    anonymous: int
    mapped: int
    processes: int
    wall_s: float
    samples: int


def watched(command: Sequence[str]) -> Peaks:
    """Run a command and look at its memory every 10 ms."""
    begin_s, anonymous, mapped, most, samples = time.monotonic(), 0, 0, 0, 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            now = [memory(each) for each in family(process.pid)]
            anonymous = max(anonymous, sum(each.get("RssAnon", 0) for each in now))
            mapped = max(mapped, sum(each.get("RssFile", 0) for each in now))
            most, samples = max(most, len(now)), samples + 1
            time.sleep(PERIOD_S)
    return Peaks(process.returncode, anonymous, mapped, most, time.monotonic() - begin_s, samples)


def family(process: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    found, waiting = list[int](), [process]
    while waiting:
        found.append(waiting.pop())
        for children in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                waiting += map(int, children.read_text(encoding="ascii").split())
    return found


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
    parser.add_argument("--length", type=int, default=16, help="tokens that the model is timed with")
    parser.add_argument("--keep", default="faster", help="as in noyau optimize")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = str(ROOT)
    from noyau.timing.machine import this_machine
    from tests.large_model import write_large_model

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_large_model(folder, intermediate=65536 * arguments.gigabytes // 3)
        record = folder / "record.json"
        wishes = ["--keep", arguments.keep, "--dim", f"sequence={arguments.length}", "--json", str(record)]
        peaks = optimized(model.path, folder / "fused.onnx", *wishes)
        report = json.loads(record.read_text()) if record.exists() else {}
    beyond = peaks.anonymous - model.largest_bytes
    found = {
        "machine": this_machine().to_json(),
        "tokens": arguments.length,
        "external_bytes": model.total_bytes,
        "largest_tensor_bytes": model.largest_bytes,
        "status": peaks.status,
        "wall_s": round(peaks.wall_s, 1),
        "peak_anonymous_bytes": peaks.anonymous,
        "peak_mapped_bytes": peaks.mapped,
        "processes": peaks.processes,
        "samples": peaks.samples,
        "anonymous_beyond_largest_tensor_bytes": beyond,
        "allowed_beyond_largest_tensor_bytes": ALLOWED_BYTES,
        "ok": peaks.status == 0 and beyond < ALLOWED_BYTES,
        "kernels": [{key: kernel[key] for key in ("name", "kept", "verdict")} for kernel in report.get("kernels", ())],
        "end_to_end": report.get("end_to_end"),
    }
    write_record(found, RESULT)
    print(json.dumps(found, indent=2))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
