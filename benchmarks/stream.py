"""Group sums of a CSV and of Parquet files of four times the memory: exact, within the budget, at which rate.

`python benchmarks/stream.py --json benchmarks/results/stream.json` (4 minutes; `--memory 64M --rounds 1`: one) writes
a CSV and three Parquet files of one gigabyte of values each, `plain` without a code, `coded` as pyarrow writes by
default (dictionaries, snappy), `wide` of four more columns and row groups of another size, which only the
record has seen; runs each reader in processes of their own, one after the other in turns, and prints the
median rate, by the clock and by the processors' time, and the largest memory of each: noyau.stream, pyarrow alone,
which sums nothing, by its datasets and by the fastest of its ways, DuckDB and Polars where they are installed.
Packages are imported before; kernels are built in the first round and found in the others. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from record import write as write_record

from noyau.timing.machine import this_machine

GROUPS, ROUNDS, ROWS = 100, 3, 1 << 19  # rows of a part as it is written
COLUMNS = ["key", "amount"]
READERS = ("noyau", "pyarrow", "pyarrow_fastest", "duckdb", "polars")


FILES = ("plain.parquet", "coded.parquet", "wide.parquet", "t.csv")
PLAIN = {"compression": "none", "use_dictionary": False}


def write(folder: Path, size: int) -> None:
    """Files of at least so many bytes of values each; amounts in quarters add exactly."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    noise = np.random.default_rng(0)
    schema = pa.schema([("key", pa.int64()), ("amount", pa.float64())])
    more = [(f"other_{at}", pa.float32() if at % 2 else pa.int32()) for at in range(4)]
    others = [noise.integers(0, 10**6, ROWS).astype(kind.to_pandas_dtype()) for _, kind in more]
    rows = 0
    with (
        parquet.ParquetWriter(folder / "plain.parquet", schema, **PLAIN) as plain,
        parquet.ParquetWriter(folder / "coded.parquet", schema) as coded,
        parquet.ParquetWriter(folder / "wide.parquet", pa.schema([*more, *schema]), compression="snappy") as wide,
        csv.CSVWriter(folder / "t.csv", schema) as text,
    ):
        while min((folder / name).stat().st_size for name in ("t.csv", "plain.parquet")) < size:
            columns = noise.integers(0, GROUPS, ROWS), noise.integers(0, 4_000_000, ROWS) / 4
            table = pa.table(dict(zip(schema.names, columns, strict=True)))
            for file in (plain, coded, text):
                file.write_table(table)
            names = [name for name, _ in more]
            wide.write_table(pa.table([*others, *columns], [*names, *schema.names]), row_group_size=200_000)
            rows += ROWS
    (folder / "rows").write_text(str(rows))


def run(reader: str, path: str, memory: str) -> list[float]:
    """The sums by one reader; of pyarrow alone, the sum of all."""
    match reader:
        case "noyau":
            import noyau

            @noyau.op("i64[n], f64[n] -> f64[groups]", sizes={"groups": GROUPS})
            def sums(key, amount):
                out = np.zeros(GROUPS)
                np.add.at(out, key, amount)
                return out

            return noyau.stream(sums, path, memory=memory).value.tolist()
        case "pyarrow":
            import pyarrow.dataset as ds

            batches = ds.dataset(path, format=Path(path).suffix[1:]).to_batches(columns=COLUMNS)
            return [float(sum(batch.num_rows for batch in batches))]
        case "pyarrow_fastest" if path.endswith("csv"):
            from pyarrow import csv

            types = csv.ConvertOptions(column_types={"key": "int64", "amount": "float64"})
            return [float(csv.read_csv(path, csv.ReadOptions(block_size=1 << 22), convert_options=types).num_rows)]
        case "pyarrow_fastest":
            from pyarrow import parquet

            with parquet.ParquetFile(path, memory_map=True) as file:  # nothing is copied but what is decoded
                groups = range(file.num_row_groups)
                return [float(sum(file.read_row_group(at, COLUMNS).num_rows for at in groups))]
        case "duckdb":
            import duckdb

            rows = duckdb.execute(f"select key, sum(amount) from '{path}' group by key order by key").fetchall()
            return [total for _, total in rows]
        case _:
            import polars as pl

            scan = pl.scan_csv(path) if path.endswith("csv") else pl.scan_parquet(path)
            return (
                scan.group_by("key").agg(pl.sum("amount")).sort("key").collect(engine="streaming")["amount"].to_list()
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="256M")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="where the medians go, with the machine")
    parser.add_argument("--one", nargs=2, metavar=("READER", "PATH"), help="what each process does")
    arguments = parser.parse_args()
    if arguments.one:
        arrow = ("pyarrow.dataset", "pyarrow.parquet", "pyarrow.csv")
        imports = {"noyau": ("noyau.engines.stream", *arrow), "pyarrow": arrow, "pyarrow_fastest": arrow}
        for name in imports.get(arguments.one[0], (arguments.one[0],)):
            importlib.import_module(name)
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        sums = run(*arguments.one, arguments.memory)
        time_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"time_s": time_s, "cpu_s": cpu_s, "peak": peak, "sums": sums}))
        return
    from noyau.engines.stream import bytes_of

    readers = [name for name in READERS if importlib.util.find_spec(name.partition("_")[0])]
    record: dict[str, Any] = {"machine": asdict(this_machine()), "memory": arguments.memory, "readers": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 4 * bytes_of(arguments.memory))
        for file in FILES:
            record["readers"][file] = compare(folder, file, readers, arguments)
    if arguments.json:
        write_record(record, arguments.json)


def compare(folder: Path, file: str, readers: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """The medians of each reader of a file, of rounds in turns; printed."""
    results: dict[str, list[dict[str, Any]]] = {reader: [] for reader in readers}
    rows, size = int((folder / "rows").read_text()), (folder / file).stat().st_size
    for _ in range(arguments.rounds):
        for reader in readers:
            command = [sys.executable, __file__, "--memory", arguments.memory, "--one", reader, str(folder / file)]
            results[reader].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    sums = [runs[0]["sums"] for reader, runs in results.items() if not reader.startswith("pyarrow")]
    print(f"{file}: {size / 1e6:.0f} MB, {rows} rows, exact: {all(each == sums[0] for each in sums)}")
    table = {}
    for reader, runs in results.items():
        time_s, cpu_s = (statistics.median(each[key] for each in runs) for key in ("time_s", "cpu_s"))
        table[reader] = {
            "M_rows_per_s": rows / time_s / 1e6,
            "M_rows_per_cpu_s": rows / cpu_s / 1e6,
            "peak_MB": max(each["peak"] for each in runs) / 1e6,
        }
    for reader, line in table.items():
        line |= {f"of_{other}": line["M_rows_per_s"] / table[other]["M_rows_per_s"] for other in ("pyarrow_fastest",)}
        rate, of_cpu, peak, part = line.values()
        print(
            f"  {reader:16} {rate:7.1f} M rows/s ({part:.2f} of the fastest), {of_cpu:6.1f} a processor, {peak:5.0f} MB"
        )
    return table


if __name__ == "__main__":
    main()
