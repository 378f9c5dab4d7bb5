"""Aggregations of a CSV and of Parquet files of four times the memory: exact, within the budget, at which rate.

`python benchmarks/stream.py --json benchmarks/results/stream.json` (some 5 minutes; `--memory 64M --rounds 1`: one)
writes a CSV and three Parquet files of one gigabyte of values each, `plain` without a code, `coded` as pyarrow writes
by default (dictionaries, snappy), `wide` of four more columns and row groups of another size, which only the record has
seen; runs each reader in processes of their own, one after the other in turns, and prints the median rate, by the clock
and by the processors' time, and the largest memory of each: noyau.stream, pyarrow alone,
which computes nothing, by its datasets and by the fastest of its ways, DuckDB and Polars where they are installed.
Sums by group are of all files, the other aggregations of `coded`, without pyarrow, which would read the same. Packages
are imported before; kernels are built in the first round and found in the others. Files are in the page cache. `--files
plain.parquet,t.csv`: only these.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
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
LARGEST, BINS = 1_000_000, 50  # of amounts
COLUMNS = ["key", "amount"]
READERS = ("noyau", "pyarrow", "pyarrow_fastest", "duckdb", "polars")
FILES = ("plain.parquet", "coded.parquet", "wide.parquet", "t.csv")
OTHERS = "coded.parquet"  # of which every aggregation is timed
PLAIN = {"compression": "none", "use_dictionary": False}
WIDTH = LARGEST // BINS
SQL = {
    "group_sums": "select sum(amount) from '{}' group by key order by key",
    "sum": "select sum(amount) from '{}'",
    "extremes": "select min(amount), max(amount) from '{}'",
    "moments": "select sum(amount), avg(amount), var_pop(amount) from '{}'",
    "group_moments": "select sum(amount), avg(amount), var_pop(amount) from '{}' group by key order by key",
    "histogram": f"select count(*) from '{{}}' group by floor(amount / {WIDTH}) order by floor(amount / {WIDTH})",
    "top": "select amount from '{}' order by amount desc limit 10",
    "filtered_sum": "select sum(amount) from '{}' where amount > 500000 and key < 50",
}


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
            columns = noise.integers(0, GROUPS, ROWS), noise.integers(0, 4 * LARGEST, ROWS) / 4
            table = pa.table(dict(zip(schema.names, columns, strict=True)))
            for file in (plain, coded, text):
                file.write_table(table)
            names = [name for name, _ in more]
            wide.write_table(pa.table([*others, *columns], [*names, *schema.names]), row_group_size=200_000)
            rows += ROWS
    (folder / "rows").write_text(str(rows))


def by_noyau(aggregation: str, path: str, memory: str) -> Any:
    import noyau

    @noyau.op("i64[n], f64[n] -> f64[groups]", sizes={"groups": GROUPS})
    def sums(key, amount):
        out = np.zeros(GROUPS)
        np.add.at(out, key, amount)
        return out

    @noyau.op("f64[n] -> f64")
    def total(amount):
        return amount.sum()

    @noyau.op("f64[n] -> low: f64, high: f64")
    def extremes(amount):
        return amount.min(), amount.max()

    own, by = noyau.reductions, {"x": "amount"}
    match aggregation:
        case "group_sums":
            return noyau.stream(sums, path, memory=memory).value
        case "sum":
            return noyau.stream(total, path, memory=memory).value
        case "extremes":
            return noyau.stream(extremes, path, memory=memory).value
        case "moments":
            value = noyau.stream(own.Moments, path, columns=by, memory=memory).value
            return [value[name] for name in ("sum", "mean", "variance")]
        case "group_moments":
            value = noyau.stream(own.GroupMoments, path, columns={"key": "key", **by}, memory=memory).value
            return np.stack([value[name] for name in ("sum", "mean", "variance")], 1)
        case "histogram":
            counts = own.Histogram(0, LARGEST, BINS)
            return noyau.stream(counts, path, columns=by, memory=memory).value["counts"]
        case "top":
            return noyau.stream(own.Top(10), path, columns=by, memory=memory).value
        case _:
            return noyau.stream(total, path, where="amount > 500000 and key < 50", memory=memory).value


def by_polars(aggregation: str, path: str) -> Any:
    import polars as pl

    scan, x = pl.scan_csv(path) if path.endswith("csv") else pl.scan_parquet(path), pl.col("amount")
    moments = [x.sum().alias("sum"), x.mean().alias("mean"), x.var(ddof=0).alias("variance")]
    queries = {
        "group_sums": scan.group_by("key").agg(x.sum()).sort("key").select("amount"),
        "sum": scan.select(x.sum()),
        "extremes": scan.select(x.min().alias("low"), x.max().alias("high")),
        "moments": scan.select(moments),
        "group_moments": scan.group_by("key").agg(moments).sort("key").drop("key"),
        "histogram": scan.group_by((x // WIDTH).alias("bin")).agg(pl.len()).sort("bin").select("len"),
        "top": scan.select(x.top_k(10)).select(x.sort(descending=True)),
        "filtered_sum": scan.filter((x > 500000) & (pl.col("key") < 50)).select(x.sum()),
    }
    return queries[aggregation].collect(engine="streaming").to_numpy()


def run(reader: str, aggregation: str, path: str, memory: str) -> list[float]:
    """The numbers of an aggregation by one reader; of pyarrow alone, the rows that it reads."""
    match reader:
        case "noyau":
            value = by_noyau(aggregation, path, memory)
        case "pyarrow":
            import pyarrow.dataset as ds

            batches = ds.dataset(path, format=Path(path).suffix[1:]).to_batches(columns=COLUMNS)
            value = sum(batch.num_rows for batch in batches)
        case "pyarrow_fastest" if path.endswith("csv"):
            from pyarrow import csv

            types = csv.ConvertOptions(column_types={"key": "int64", "amount": "float64"})
            value = csv.read_csv(path, csv.ReadOptions(block_size=1 << 22), convert_options=types).num_rows
        case "pyarrow_fastest":
            from pyarrow import parquet

            with parquet.ParquetFile(path, memory_map=True) as file:  # nothing is copied but what is decoded
                groups = range(file.num_row_groups)
                value = sum(file.read_row_group(at, COLUMNS).num_rows for at in groups)
        case "duckdb":
            import duckdb

            value = duckdb.execute(SQL[aggregation].format(path)).fetchall()
        case _:
            value = by_polars(aggregation, path)
    return np.ravel(np.asarray(value, np.float64)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="256M")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--files", default=",".join(FILES))
    parser.add_argument("--aggregations", default=",".join(SQL), help="of those beside sums by group")
    parser.add_argument("--json", type=Path, help="where the medians go, with the machine")
    parser.add_argument("--one", nargs=3, metavar=("READER", "AGGREGATION", "PATH"), help="what each process does")
    arguments = parser.parse_args()
    if arguments.one:
        arrow = ("pyarrow.dataset", "pyarrow.parquet", "pyarrow.csv")
        imports = {"noyau": ("noyau.engines.stream", *arrow), "pyarrow": arrow, "pyarrow_fastest": arrow}
        for name in imports.get(arguments.one[0], (arguments.one[0],)):
            importlib.import_module(name)
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        value = run(*arguments.one, arguments.memory)
        time_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"time_s": time_s, "cpu_s": cpu_s, "peak": peak, "value": value}))
        return
    from noyau.engines.stream import bytes_of

    readers = [name for name in READERS if importlib.util.find_spec(name.partition("_")[0])]
    record: dict[str, Any] = {"machine": asdict(this_machine()), "memory": arguments.memory, "M_rows_per_s": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 4 * bytes_of(arguments.memory))
        pairs = [(file, "group_sums") for file in arguments.files.split(",")]
        pairs += [(OTHERS, each) for each in arguments.aggregations.split(",") if each and each != "group_sums"]
        for file, aggregation in pairs:
            these = [name for name in readers if aggregation == "group_sums" or "pyarrow" not in name]
            rates = compare(folder, file, aggregation, these, arguments)
            record["M_rows_per_s"][f"{aggregation} of {file}"] = rates
    if arguments.json:
        write_record(record, arguments.json)


def compare(
    folder: Path, file: str, aggregation: str, readers: list[str], arguments: argparse.Namespace
) -> dict[str, float]:
    """The rates of each reader of a file, medians of rounds in turns; printed with the rest."""
    results: dict[str, list[dict[str, Any]]] = {reader: [] for reader in readers}
    rows, size = int((folder / "rows").read_text()), (folder / file).stat().st_size
    for _ in range(arguments.rounds):
        for reader in readers:
            command = [sys.executable, __file__, "--memory", arguments.memory]
            command += ["--one", reader, aggregation, str(folder / file)]
            results[reader].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    values = [runs[0]["value"] for reader, runs in results.items() if not reader.startswith("pyarrow")]
    same = [len(each) == len(values[0]) and all(map(math.isclose, each, values[0])) for each in values]
    exact = all(each == values[0] for each in values)
    print(f"{aggregation} of {file}: {size / 1e6:.0f} MB, {rows} rows; the same: {all(same)}, exactly: {exact}")
    rates, other = {}, "pyarrow_fastest" if "pyarrow_fastest" in results else "noyau"
    for reader, runs in results.items():
        time_s, cpu_s = (statistics.median(each[key] for each in runs) for key in ("time_s", "cpu_s"))
        rates[reader], peak = rows / time_s / 1e6, max(each["peak"] for each in runs) / 1e6
        of_cpu = rows / cpu_s / 1e6
        part = statistics.median(each["time_s"] for each in results[other]) / time_s
        print(
            f"  {reader:16} {rates[reader]:7.1f} M rows/s ({part:.2f} of {other}), {of_cpu:6.1f} a processor,"
            f" {peak:5.0f} MB",
            flush=True,
        )
    return rates


if __name__ == "__main__":
    main()
