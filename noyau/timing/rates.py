"""Rates of this machine, measured with C loops: copies and reads by size, and each scalar function by dtype. They are
kept in the cache folder until the machine, its compiler or noyau change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from noyau.codegen import cmath
from noyau.errors import OutputError
from noyau.text import as_json
from noyau.timing.conditions import Conditions, cache_ladder, conditions, unsteady
from noyau.timing.machine import Machine, this_machine
from noyau.timing.throughput import SIZES, curve, loops, scalar_rate
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.workers.resources import processors

Curve = Mapping[int, float]  # bytes that move -> bytes per second

LARGEST = SIZES[-1]
FORMAT = 1
_COPIES = ("noyau_copy", "noyau_copy_loop", "noyau_copy_around")
_READS = ("noyau_read",)
_SCALED = "noyau_exp_f32"

Curves = Mapping[int, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class MachineRates:
    """A machine and what it can do. `copy` and `read`: bytes per second by threads, then by the bytes that move;
    `rates`: values per second of one thread, by scalar function ("exp_f32"); `scaling`: how much more several threads
    do than one, for copies in memory and for exp in a cache."""

    machine: Machine
    caches: Mapping[str, int]
    copy: Curves
    read: Curves
    rates: Mapping[str, float]
    scaling: Mapping[str, Mapping[int, float]]
    conditions: tuple[Conditions, Conditions]
    date: str

    @property
    def note(self) -> str:
        """The reason why the numbers are doubtful, or nothing."""
        return unsteady(*self.conditions, self.machine.cores)

    def to_json(self) -> Any:
        names = ("machine", "caches_bytes", "copy_bytes_per_s", "read_bytes_per_s", "values_per_s", "scaling")
        values = (getattr(self, each.name) for each in fields(self))
        return as_json({"format": FORMAT, **dict(zip((*names, "conditions", "date"), values, strict=True))})


def machine_rates(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS, *, refresh: bool = False) -> MachineRates:
    """This machine, as it was measured before; measured now where it never was or `refresh` asks for it.

    BuildError where there is no compiler; takes some seconds."""
    rates = None if refresh else recall_rates(options)
    if rates is None:
        rates = _measure(options)
        toolchain_cache.keep(_key(options), rates.to_json())
        recall_curves.cache_clear()
    return rates


def recall_rates(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> MachineRates | None:
    """The recorded rates of this machine, or None."""
    record = toolchain_cache.recall(_key(options))
    try:
        return None if record is None else _read(record)
    except (ValueError, KeyError, TypeError):
        return None


@cache
def recall_curves() -> tuple[Curves, Curves] | None:
    """The copies and the reads of what is kept; looked up once a process."""
    rates = recall_rates()
    return None if rates is None else (rates.copy, rates.read)


def rate_of(kind: str, moved_bytes: int, threads: int, measure: Callable[[int, int], float]) -> float:
    """Bytes per second of one kind of traffic at one size, as it was measured before on this machine; measured now, and
    kept where the cache can be written, where it never was or is of more than 30 days ago."""
    key = toolchain_cache.digest("rate", _key(c_compiler.DEFAULTS), kind, str(moved_bytes), str(threads))
    record = toolchain_cache.recall(key)
    try:
        if record is not None and toolchain_cache.is_recent(record["measured_on"]):
            return float(record["bytes_per_s"])
    except (KeyError, TypeError, ValueError):
        pass
    rate = measure(moved_bytes, threads)
    with suppress(OutputError):
        toolchain_cache.keep(key, {"measured_on": toolchain_cache.today(), "bytes_per_s": rate})
    return rate


def _measure(options: c_compiler.CompilerOptions) -> MachineRates:
    start, library, cores = conditions(), loops(options), processors()
    counts = sorted({1, cores})
    copies = {threads: curve(library, _COPIES, threads) for threads in counts}
    reads = {threads: curve(library, _READS, threads) for threads in counts}
    one = scalar_rate(library, _SCALED)
    steps = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < cores] + [cores]
    scaling = {
        "memory": {count: copies[count][LARGEST] / copies[1][LARGEST] for count in counts},
        "exp": {count: scalar_rate(library, _SCALED, count) / one for count in steps},
    }
    rates = {name.removeprefix("noyau_"): scalar_rate(library, name) for name in sorted(cmath.NAMES)}
    ladder, today, both = cache_ladder(), toolchain_cache.today(), (start, conditions())
    return MachineRates(this_machine(options), ladder, copies, reads, rates, scaling, both, today)


def _key(options: c_compiler.CompilerOptions) -> str:
    machine = this_machine(replace(options, target=c_compiler.resolve_target(options.target)))
    parts = (machine.cpu, str(machine.cores), machine.level, machine.compiler, machine.os, machine.versions["noyau"])
    return toolchain_cache.digest("machine", str(FORMAT), *parts, json.dumps(cache_ladder()))


def _read(record: Mapping[str, Any]) -> MachineRates:
    """A record as `to_json` wrote it; KeyError, TypeError or ValueError where it is none."""
    copies, reads = (_size_keys(record[name]) for name in ("copy_bytes_per_s", "read_bytes_per_s"))
    if record["format"] != FORMAT or any(set(each) != set(SIZES) for each in (*copies.values(), *reads.values())):
        raise ValueError("another format")
    return MachineRates(
        Machine(**record["machine"]),
        record["caches_bytes"],
        copies,
        reads,
        record["values_per_s"],
        {name: {int(count): float(gain) for count, gain in each.items()} for name, each in record["scaling"].items()},
        (Conditions(**record["conditions"][0]), Conditions(**record["conditions"][1])),
        record["date"],
    )


def _size_keys(curves: Mapping[str, Mapping[str, float]]) -> dict[int, dict[int, float]]:
    return {int(threads): {int(size): float(rate) for size, rate in each.items()} for threads, each in curves.items()}
