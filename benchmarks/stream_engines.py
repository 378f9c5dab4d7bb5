"""The rate of a stream by one worker and by two, on each engine: honest scaling, the start of workers apart.

`python benchmarks/stream_engines.py --json benchmarks/results/stream_engines.json` (3 minutes; `--rows 4000000
--rounds 2`: one) writes a Parquet file of 32 row groups, runs each engine once to start and compile, then again, and
prints the median rates of the second and later runs with their ratio. `sums` is a kernel; `python` a reduction whose
step holds the interpreter, which threads share and processes do not; `local` chooses one of these.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from record import write as write_record

import noyau
from noyau.timing.machine import this_machine

GROUPS, ROUNDS, PARTS = 100, 3, 32


@noyau.op("i64[n], f64[n] -> f64[groups]", sizes={"groups": GROUPS})
def sums(key, amount):
    out = np.zeros(GROUPS)
    np.add.at(out, key, np.sqrt(np.abs(amount)) * np.exp(-amount * 1e-6))
    return out


@noyau.reduction
class Digits:
    """The sum of the digits of some amounts, in plain Python."""

    def zero(self):
        return 0

    def step(self, state, amount):
        return state + sum(int(digit) for each in amount[:: len(amount) // 2000 + 1] for digit in str(int(each)))

    def merge(self, a, b):
        return a + b

    def finish(self, state):
        return state

    def inputs(self, rng, n):
        return {"amount": rng.integers(0, 10**6, n).astype(float)}


def write(path: Path, rows: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    noise = np.random.default_rng(0)
    schema = pa.schema([("key", pa.int64()), ("amount", pa.float64())])
    with parquet.ParquetWriter(path, schema) as file:
        for _ in range(PARTS):
            count = rows // PARTS
            columns = noise.integers(0, GROUPS, count), noise.integers(0, 4_000_000, count) / 4
            file.write_table(pa.table(dict(zip(schema.names, columns, strict=True))))


@contextmanager
def running(engine: str, workers: int):
    """The options of an engine with so many workers."""
    with ExitStack() as stack:
        if engine == "dask":
            from distributed import Client, LocalCluster

            options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            stack.enter_context(Client(stack.enter_context(LocalCluster(**options))))
        elif engine == "spark":
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false")
            stack.enter_context(builder.config("spark.ui.showConsoleProgress", "false").getOrCreate())
        yield {"engine": engine, **({"workers": workers} if engine in ("local", "threads", "processes") else {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="where the medians go, with the machine")
    parser.add_argument("--engines", default="threads,processes,local,dask,spark")
    arguments = parser.parse_args()
    packages = {"dask": "distributed", "spark": "pyspark"}
    engines = [each for each in arguments.engines.split(",") if find_spec(packages.get(each, "noyau"))]
    record: dict[str, Any] = {"machine": asdict(this_machine()), "rows": arguments.rows, "engines": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        write(path, arguments.rows)
        for engine in engines:
            for work, name in ((sums, "sums"), (Digits, "python")):
                rates = []
                for workers in (1, 2):
                    with running(engine, workers) as options:
                        noyau.stream(work, path, **options)
                        times = []
                        for _ in range(arguments.rounds):
                            begin_s = time.perf_counter()
                            ran = noyau.stream(work, path, **options).engine
                            times.append(time.perf_counter() - begin_s)
                    rates.append(arguments.rows / statistics.median(times))
                one, two = (rate / 1e6 for rate in rates)
                rates = f"{one:7.1f} M rows/s with 1, {two:7.1f} with 2: {two / one:.2f}x"
                print(f"{engine:10} {name:7} {rates}  ({ran})", flush=True)
                record["engines"][f"{engine} {name}"] = {"M_rows_per_s": [one, two], "scaling": two / one, "ran": ran}
    if arguments.json:
        write_record(record, arguments.json)


if __name__ == "__main__":
    main()
