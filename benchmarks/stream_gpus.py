"""The rate of a stream on one GPU and on all of a machine, beside that of threads, source by source.

`python benchmarks/stream_gpus.py --rows 100000000` makes columns in memory, an .npy file and a Parquet file of 32 row
groups; runs three ops by threads, by one GPU and by all, in turns; and prints the median rates of the second and later
runs, and whether the values are those of threads: to the bit where that is exact (sums in quarters, extremes), a sum
that is rounded within rows * eps. `--rows 20000000 --rounds 1` is a first look.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from stream_engines import write

import noyau

GROUPS, ROUNDS = 100, 3


@noyau.op("i64[n], f64[n] -> f64[groups]", sizes={"groups": GROUPS})
def sums(key, amount):
    """Little work a row, atomics: bound by the way to the GPU."""
    out = np.zeros(GROUPS)
    np.add.at(out, key, amount)
    return out


@noyau.op("f64[n] -> f64")
def series(amount):
    """Some work a row, in one fold."""
    return np.sum(np.sin(np.sqrt(amount)) * np.exp(-amount * 1e-6) + np.log1p(amount) * np.cos(amount))


@noyau.op("f64[n] -> low: f64, high: f64")
def ends(amount):
    """Exact in any order."""
    return amount.min(), amount.max()


def sources(folder: Path, rows: int) -> dict[str, object]:
    noise = np.random.default_rng(0)
    columns = {"key": noise.integers(0, GROUPS, rows), "amount": noise.integers(0, 4_000_000, rows) / 4}
    np.save(folder / "amount.npy", columns["amount"])
    write(folder / "t.parquet", rows)
    return {"arrays": columns, "npy": folder / "amount.npy", "parquet": folder / "t.parquet"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--memory", default="2G")
    arguments = parser.parse_args()
    engines = ["threads", *(f"cuda:{','.join(map(str, range(n)))}" for n in (1, torch.cuda.device_count()))]
    engines = list(dict.fromkeys(engines))
    with tempfile.TemporaryDirectory() as name:
        for label, source in sources(Path(name), arguments.rows).items():
            for op in (sums, series, ends)[label == "npy" :]:
                times: dict[str, list[float]] = {engine: [] for engine in engines}
                values = {}
                for _ in range(arguments.rounds + 1):
                    for engine in engines:
                        begin_s = time.perf_counter()
                        values[engine] = np.array(
                            noyau.stream(op, source, engine=engine, memory=arguments.memory).value
                        )
                        times[engine].append(time.perf_counter() - begin_s)
                want = values["threads"]
                for engine in engines:
                    is_equal = np.array_equal(values[engine], want)
                    if op is series:
                        is_equal = np.allclose(values[engine], want, arguments.rows * np.finfo(float).eps, 0)
                    rate = arguments.rows / statistics.median(times[engine][1:]) / 1e6
                    print(f"{label:8} {op.name:7} {engine:10} {rate:9.1f} M rows/s, equal: {is_equal}", flush=True)


if __name__ == "__main__":
    main()
