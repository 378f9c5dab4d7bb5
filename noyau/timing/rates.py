"""Rates of this machine, measured with C loops: copies and reads by size, and each scalar function by dtype. They are
cached on disk until the machine, its compiler or noyau change. Where the full set was never measured, the bandwidth of
memory at single sizes is. And the floor of a memory-bound kernel: the least seconds for its bytes."""

import ctypes
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Barrier
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from noyau.codegen import cmath
from noyau.errors import BuildError, OutputError
from noyau.text import fields_json, from_json, package_text, plain_names
from noyau.timing.conditions import Conditions, cache_ladder, conditions, unsteady
from noyau.timing.machine import Machine, this_machine
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.workers.resources import processors
from noyau.workers.tamper_detection import seconds

_SIGNATURE = r"^NOYAU_INLINE (\w+) {}\(([^)]*)\)"
C_TYPES = {"float": "f4", "double": "f8", "uint32_t": "u4", "uint16_t": "u2", "uint8_t": "u1"}


def loop_of(library: ctypes.CDLL, name: str) -> Callable[..., None]:
    """A loop of the built library, as a function of integers."""
    function = getattr(library, name)
    function.restype, function.argtypes = None, None
    return lambda *numbers: function(*(ctypes.c_int64(each) for each in numbers))


def loops(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> ctypes.CDLL:
    """The loops for this machine, from the cache or built. BuildError where there is no compiler."""
    texts = [_memory_text(), *_scalar_texts()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: c_compiler.compile_object(text, replace(options, export=True)), texts))
    return ctypes.CDLL(str(c_compiler.compile_library(texts, options)))


def memory_loops(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> ctypes.CDLL:
    """The loops that copy and read, which build quickly. BuildError where there is no compiler."""
    return ctypes.CDLL(str(c_compiler.compile_library([_memory_text()], options)))


def _memory_text() -> str:
    """The loops, preceded by the text that they share with the kernels."""
    around, loops = map(package_text, ("codegen/c/around.h", "timing/loops.c"))
    return f"#include <stddef.h>\n#include <stdint.h>\n{around}\n{loops}"


def signature(name: str) -> tuple[str, tuple[str, ...]]:
    """The C types of a function's result and operands."""
    match = re.search(_SIGNATURE.format(name), cmath.SNIPPETS[name].text, re.MULTILINE)
    assert match is not None
    return match[1], tuple(re.sub(r"\b(const|\w+$)", "", each.strip()).strip() for each in match[2].split(","))


def _scalar_texts() -> list[str]:
    """A text for each width, so that two compilers can work in parallel: every function in a plain loop."""
    widths = (("_f32",), ("_f64",), ("16", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))
    parts = [sorted(name for name in cmath.NAMES if name.endswith(suffixes)) for suffixes in widths]
    return ["\n".join([cmath.text(names), *map(_loop_text, names)]) for names in parts]


def _loop_text(name: str) -> str:
    result, operands = signature(name)
    parameters = "".join(f"const {kind} *restrict x{k}, " for k, kind in enumerate(operands))
    arguments = ", ".join(f"x{k}[i]" for k in range(len(operands)))
    return f"""
NOYAU_EXPORT void {name}_loop({parameters}{result} *restrict y, int64_t count, int64_t rounds) {{
    for (int64_t round = 0; round < rounds; round++) {{
        for (int64_t i = 0; i < count; i++) {{
            y[i] = {name}({arguments});
        }}
        __asm__ volatile("" ::: "memory");
    }}
}}
"""


Clock = Callable[[], float]
SIZES = tuple(1 << power for power in range(13, 29))
VALUES = 2048  # of a scalar function: inputs and outputs fit in a first-level cache
_SAMPLE_S = 1.5e-3
_SAMPLES = 4
_MOST_REPEATS = 1 << 22


def curve(loops: ctypes.CDLL, names: Iterable[str], threads: int, clock: Clock = seconds) -> dict[int, float]:
    """The bytes per second that threads move together, by the bytes of a round, read and written: the best of loops."""
    rates = dict.fromkeys(SIZES, 0.0)
    for name in names:
        loop = loop_of(loops, name)
        for size_bytes in SIZES:
            rates[size_bytes] = max(rates[size_bytes], memory_rate(loop, name, size_bytes, threads, clock))
    return rates


def memory_rate(loop: Callable[..., None], name: str, size_bytes: int, threads: int, clock: Clock = seconds) -> float:
    """Bytes per second of one loop, each thread on memory of its own; `size_bytes`: of all threads."""
    streams = 1 if name == "noyau_read" else 2
    words = max(size_bytes // (8 * threads * streams), 32)
    blocks = [
        (allocate_aligned(8 * words), allocate_aligned(8 * words if streams == 2 else 64, 2112)) for _ in range(threads)
    ]
    calls = [partial(loop, a.ctypes.data, b.ctypes.data, words) for a, b in blocks]
    return 8.0 * words * streams * threads * repeat(calls, clock)


def repeat(calls: Sequence[Callable[[int], object]], clock: Clock) -> float:
    """The rounds per second of each of the calls, all in parallel, at best; a call takes its number of rounds."""
    rounds = _enough(calls[0], clock)
    return rounds / least_s(calls, rounds, _SAMPLES, clock)


def least_s(calls: Sequence[Callable[[int], object]], rounds: int, samples: int, clock: Clock) -> float:
    """The least seconds of so many rounds of each call, in parallel, from the first start to the last end."""
    start = Barrier(len(calls))

    def work(call: Callable[[int], object]) -> list[tuple[float, float]]:
        spans = []
        for _ in range(samples):
            start.wait()
            begin_s = clock()
            call(rounds)
            spans.append((begin_s, clock()))
        return spans

    if len(calls) == 1:
        return min(end - begin for begin, end in work(calls[0]))
    with ThreadPoolExecutor(len(calls)) as pool:
        together = zip(*pool.map(work, calls), strict=True)
        return float(min(max(end for _, end in spans) - min(begin for begin, _ in spans) for spans in together))


def _enough(call: Callable[[int], object], clock: Clock) -> int:
    """The number of rounds that last long enough for the clock; it also warms the memory."""
    rounds = 1
    call(1)
    while True:
        start_s = clock()
        call(rounds)
        took_s = clock() - start_s
        if took_s >= _SAMPLE_S / 2 or rounds >= _MOST_REPEATS:
            return max(1, round(rounds * _SAMPLE_S / took_s)) if took_s < _SAMPLE_S else rounds
        rounds = min(rounds * max(2, min(64, int(_SAMPLE_S / max(took_s, 1e-7)))), _MOST_REPEATS)


def scalar_rate(loops: ctypes.CDLL, name: str, threads: int = 1, clock: Clock = seconds) -> float:
    """Values per second of one scalar function, for numbers between 0.1 and 0.9, where all functions are defined."""
    result, operands = signature(name)
    argument_sets = [
        [*(_values(kind, number + k) for k, kind in enumerate(operands)), np.zeros(VALUES, C_TYPES[result])]
        for number in range(threads)
    ]
    loop = loop_of(loops, f"{name}_loop")
    calls = [partial(loop, *(array.ctypes.data for array in arrays), VALUES) for arrays in argument_sets]
    return VALUES * threads * repeat(calls, clock)


def _values(kind: str, seed: int) -> np.ndarray:
    uniform = np.random.default_rng(seed).uniform(0.1, 0.9, VALUES)
    match kind:
        case "uint32_t":  # two bfloat16
            return np.repeat(uniform, 2).astype(ml_dtypes.bfloat16).view(np.uint32)
        case "uint16_t":
            return uniform.astype(np.float16).view(np.uint16)
        case "uint8_t":
            return uniform.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        case _:
            return uniform.astype(C_TYPES[kind])


def allocate_aligned(size_bytes: int, place: int = 0) -> np.ndarray:
    """u8[size_bytes], starting at this offset in a page, and written to."""
    block = np.full(size_bytes + 8192, 7, np.uint8)
    start = -block.ctypes.data % 4096 + place
    return block[start : start + size_bytes]


Curve = Mapping[int, float]  # bytes that move -> bytes per second

LARGEST = SIZES[-1]
FORMAT = 1
_COPIES = ("noyau_copy", "noyau_copy_loop", "noyau_copy_around")
_SCALED = "noyau_exp_f32"

Curves = Mapping[int, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class MachineRates:
    """A machine and its rates. `copy` and `read`: bytes per second by threads, then by the bytes moved; `rates`: values
    per second of one thread, by scalar function ("exp_f32"); `scaling`: speed-ups of several threads over one, for
    copies in memory and for exp in a cache."""

    PLAIN: ClassVar[str] = """machine caches_bytes=caches copy_bytes_per_s=copy read_bytes_per_s=read values_per_s=rates
        scaling conditions date"""
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
        """The reason why the numbers are doubtful, or an empty text."""
        return unsteady(*self.conditions, self.machine.cores)

    def to_json(self) -> Any:
        return {"format": FORMAT, **fields_json(self)}


def machine_rates(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS, *, refresh: bool = False) -> MachineRates:
    """The rates of this machine, as cached; measured now if they never were, or with `refresh`.

    BuildError where there is no compiler; takes some seconds."""
    rates = None if refresh else recall_rates(options)
    if rates is None:
        rates = _measure(options)
        toolchain_cache.keep(_key(options), rates.to_json())
        recall_curves.cache_clear()
    return rates


def recall_rates(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> MachineRates | None:
    """The recorded rates of this machine, or None."""
    return toolchain_cache.recall_as(_key(options), _read)


@cache
def recall_curves() -> tuple[Curves, Curves] | None:
    """The cached curves of copies and reads; looked up once a process."""
    rates = recall_rates()
    return None if rates is None else (rates.copy, rates.read)


def rate_of(kind: str, moved_bytes: int, threads: int, measure: Callable[[int, int], float]) -> float:
    """Bytes per second of one kind of traffic at one size, as cached for this machine; measured now, and cached if
    possible, if there is no record or it is older than 30 days."""
    key = toolchain_cache.digest("rate", _key(c_compiler.DEFAULTS), kind, str(moved_bytes), str(threads))
    record = toolchain_cache.recall(key)
    with suppress(KeyError, TypeError, ValueError):
        if record is not None and toolchain_cache.is_recent(record["measured_on"]):
            return float(record["bytes_per_s"])
    rate = measure(moved_bytes, threads)
    with suppress(OutputError):
        toolchain_cache.keep(key, {"measured_on": toolchain_cache.today(), "bytes_per_s": rate})
    return rate


def _measure(options: c_compiler.CompilerOptions) -> MachineRates:
    start, library, cores = conditions(), loops(options), processors()
    counts = sorted({1, cores})
    copies = {threads: curve(library, _COPIES, threads) for threads in counts}
    reads = {threads: curve(library, ("noyau_read",), threads) for threads in counts}
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
    """Rebuild a record that `to_json` wrote; KeyError, TypeError or ValueError for any other."""
    rates: MachineRates = from_json(MachineRates, {name: record[name] for name in plain_names(MachineRates)})
    curves = (*rates.copy.values(), *rates.read.values())
    if record["format"] != FORMAT or any(set(each) != set(SIZES) for each in curves):
        raise ValueError("another format")
    return rates


# A copy within a core's own cache is timed on one core: starting threads would take longer than the copy.
_OWN_CACHE_BYTES = 512 << 10
_SMALLEST_BYTES, _LARGEST_BYTES = 8 << 10, 256 << 20
_SAMPLE_BYTES, _MOST_ROUNDS = 8 << 20, 1024


def copy_rate(moved_bytes: int, threads: int) -> float:
    """Bytes per second of a plain copy that moves so many bytes, reads and writes both counted.

    The same memory is copied repeatedly, as a kernel's is when it is timed: data that fit into a cache are in it. The
    rate is that cached by `noyau machine`, else measured once and cached for each power of two; 256 MiB at most."""
    return _rate("copy", moved_bytes, threads)


def read_rate(read_bytes: int, threads: int) -> float:
    """As `copy_rate`, for memory that is only read. BuildError without a cached rate and a compiler."""
    return _rate("read", read_bytes, threads)


def _rate(kind: str, moved_bytes: int, threads: int) -> float:
    """The rate of a kind of traffic at the next power of two, within bounds, as cached or measured."""
    size_bytes = min(max(1 << max(moved_bytes - 1, 0).bit_length(), _SMALLEST_BYTES), _LARGEST_BYTES)
    threads, curves = max(threads, 1), recall_curves()
    rate = None if curves is None else curves[kind == "read"].get(threads, {}).get(size_bytes)
    return _measure_rate(kind, size_bytes, threads) if rate is None else rate


@cache
def _measure_rate(kind: str, moved_bytes: int, threads: int) -> float:
    return rate_of(kind, moved_bytes, threads, measure_read if kind == "read" else best_copy)


def best_copy(moved_bytes: int, threads: int) -> float:
    """The rate of a plain copy or of one past the caches, whichever is higher, measured now."""
    return max(measure_copy(moved_bytes, threads), measure_nontemporal(moved_bytes, threads))


def measure_copy(moved_bytes: int, threads: int, clock: Clock = time.perf_counter) -> float:
    """As copy_rate, but measured now, neither rounded nor cached; `clock` gives seconds."""
    part_bytes = max(moved_bytes // (2 * threads), 1)
    rounds = min(max(_SAMPLE_BYTES // (2 * part_bytes), 1), _MOST_ROUNDS)
    samples = 16 if rounds > 1 else 6  # the first may be slow, the fastest counts
    if threads > 1 and 2 * part_bytes > _OWN_CACHE_BYTES:
        copiers = [partial(_copy, *_pair(part_bytes)) for _ in range(threads)]
        return 2.0 * part_bytes * threads * rounds / least_s(copiers, rounds, samples, clock)
    # The cost of the calls themselves, measured on copies of one byte, is subtracted.
    copied_s, calls_s = (least_s([partial(_copy, *_pair(size))], rounds, samples, clock) for size in (part_bytes, 1))
    return threads * 2 * part_bytes * rounds / max(copied_s - calls_s, 0.1 * copied_s)


def measure_nontemporal(moved_bytes: int, threads: int) -> float:
    """As `measure_copy`, with stores past the caches, as in kernels that write much; 0 without a compiler."""
    try:
        return memory_rate(loop_of(memory_loops(), "noyau_copy_around"), "noyau_copy_around", moved_bytes, threads)
    except BuildError:
        return 0.0


def measure_read(read_bytes: int, threads: int) -> float:
    """As read_rate, but measured now, neither rounded nor cached. BuildError where there is no compiler."""
    return memory_rate(loop_of(memory_loops(), "noyau_read"), "noyau_read", read_bytes, threads)


def _pair(size_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """A source and a target, each written to before so that it has pages of its own.

    A memcpy to an unaligned target can be ten times slower; a target at the source's offset in its page may wait."""
    return allocate_aligned(size_bytes), allocate_aligned(size_bytes, 2112)


def _copy(source: np.ndarray, target: np.ndarray, rounds: int) -> None:
    for _ in range(rounds):
        np.copyto(target, source)


MISTAKE_BELOW = 0.9  # of the floor
_ROUNDS = 4  # in which a floor is measured again before a time is rejected


def floor_s(read_bytes: int, written_bytes: int, threads: int) -> float:
    """The least seconds for so many bytes here: excess reads at the rate of reads, or at that of
    copies where no compiler is there to measure it; all else at that of copies."""
    moved, alone = read_bytes + written_bytes, abs(read_bytes - written_bytes)
    rate = copies = copy_rate(moved, threads)
    with suppress(BuildError):
        rate = read_rate(moved, threads) if read_bytes > written_bytes else copies
    return (moved - alone) / copies + alone / rate


def mistake(
    time_s: float, read_bytes: int, written_bytes: int, threads: int, again: Callable[[], float] | None = None
) -> str:
    """The reason why a time is impossible, or an empty text: it is less than 0.9 of the floor, and still is with the
    floor at the next smaller size, and at the best of some rounds in which the floor is measured again: the cached rate
    may be of a busier hour, and a size between two of the curve may fit a faster cache than the larger one.

    `again`: the seconds of one more run. Runs and floors are measured in turn, for other processes load the memory to
    varying degrees, and only times of the same moments separate the kernel from the moment."""
    if time_s >= MISTAKE_BELOW * floor_s(read_bytes, written_bytes, threads):
        return ""
    best_s, least_s = time_s if again is None else math.inf, math.inf
    for _ in range(_ROUNDS):
        best_s = best_s if again is None else min(best_s, again())
        least_s = min(least_s, _least_s(read_bytes, written_bytes, max(threads, 1)))
    return "" if best_s >= MISTAKE_BELOW * least_s else too_short(best_s, least_s, "machine")


def too_short(time_s: float, least_s: float, what: str) -> str:
    """The message that a time is impossible, on a machine or a GPU."""
    cause = "the count of bytes, the clock or the kernel is wrong"
    return f"it took {time_s:.3g} s, and what it must move takes this {what} {least_s:.3g} s: {cause}"


def _least_s(read_bytes: int, written_bytes: int, threads: int) -> float:
    """As `floor_s`, at the best of the cached and the current rates."""
    moved, alone = read_bytes + written_bytes, abs(read_bytes - written_bytes)
    near = (moved, moved // 2)
    copies = reads = max(*(copy_rate(each, threads) for each in near), best_copy(moved, threads))
    if read_bytes > written_bytes:
        reads = max(copies, *(read_rate(each, threads) for each in near), measure_read(moved, threads))
    return (moved - alone) / copies + alone / reads


def gain_s(time_s: float, floor_s: float) -> float:
    """The most seconds that a part can gain: its time minus its floor."""
    return max(time_s - floor_s, 0.0)


def gain_text(total_s: float, gains_s: float) -> str:
    """The largest speed-up of the whole if a part of it takes no time, as text."""
    most = ceiling(total_s, [gains_s])
    return f"that makes the whole {'more than 20x' if most is None else f'at most {most:.2f}x'} as fast"


def ceiling(total_s: float, gains_s: Iterable[float]) -> float | None:
    """The largest speed-up of the whole if its parts gain so many seconds; None above 20 times.

    Amdahl, Validity of the single processor approach to achieving large scale computing capabilities (1967)."""
    left_s = total_s - sum(gains_s)  # below a twentieth, the ceiling exceeds what a clock can resolve
    return total_s / left_s if total_s > 0 and left_s > 0.05 * total_s else None
