"""The throughput of C loops (copies, reads, a scalar function over an array): the best of some samples."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from threading import Barrier

import ml_dtypes
import numpy as np

from noyau.codegen import cmath
from noyau.toolchain.c import compiler as c_compiler
from noyau.workers.tamper_detection import seconds

_SIGNATURE = r"^NOYAU_INLINE (\w+) {}\(([^)]*)\)"
C_TYPES = {"float": "f4", "double": "f8", "uint32_t": "u4", "uint16_t": "u2", "uint8_t": "u1"}


@dataclass(frozen=True, slots=True)
class Loops:
    """The built loops. BuildError where there is no compiler."""

    library: ctypes.CDLL

    def call(self, name: str) -> Callable[..., None]:
        function = getattr(self.library, name)
        function.restype, function.argtypes = None, None
        return lambda *numbers: function(*(ctypes.c_int64(each) for each in numbers))


def loops(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> Loops:
    """The loops for this machine, from the cache or built."""
    texts = [_memory_text(), *_scalar_texts()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: c_compiler.compile_object(text, replace(options, export=True)), texts))
    return Loops(ctypes.CDLL(str(c_compiler.compile_library(texts, options))))


def memory_loops(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> Loops:
    """The loops that copy and read; they are built at once. BuildError where there is no compiler."""
    return Loops(ctypes.CDLL(str(c_compiler.compile_library([_memory_text()], options))))


def _memory_text() -> str:
    """The loops, after what they share with the kernels."""
    around, loops = (files("noyau").joinpath(*path) for path in (("codegen", "c", "around.h"), ("timing", "loops.c")))
    return f"#include <stddef.h>\n#include <stdint.h>\n{around.read_text('ascii')}\n{loops.read_text('ascii')}"


def signature(name: str) -> tuple[str, tuple[str, ...]]:
    """The C types of a function's result and operands."""
    match = re.search(_SIGNATURE.format(name), cmath.SNIPPETS[name].text, re.MULTILINE)
    assert match is not None
    kinds = tuple(re.sub(r"\b(const|\w+$)", "", each.strip()).strip() for each in match[2].split(","))
    return match[1], kinds


def _scalar_texts() -> list[str]:
    """A text for each width, so that two compilers can work at once: every function in a plain loop."""
    texts = []
    for suffixes in (("_f32",), ("_f64",), ("16", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")):
        names = sorted(name for name in cmath.NAMES if name.endswith(suffixes))
        texts.append("\n".join([cmath.text(names), *map(_loop_text, names)]))
    return texts


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
VALUES = 2048  # of a scalar function: in and out they stay in a level 1 cache
_SAMPLE_S = 1.5e-3
_SAMPLES = 4
_MOST_ROUNDS = 1 << 22


def curve(loops: Loops, names: Iterable[str], threads: int, clock: Clock = seconds) -> dict[int, float]:
    """The bytes per second that so many threads move together, by how many bytes one round moves: the best of some
    loops. A copy moves what it reads and what it writes."""
    rates = dict.fromkeys(SIZES, 0.0)
    for name in names:
        for size_bytes in SIZES:
            rates[size_bytes] = max(rates[size_bytes], memory_rate(loops.call(name), name, size_bytes, threads, clock))
    return rates


def memory_rate(loop: Callable[..., None], name: str, size_bytes: int, threads: int, clock: Clock = seconds) -> float:
    """Bytes per second of one loop, each thread on memory of its own; `size_bytes` are those of all of them."""
    streams = 1 if name == "noyau_read" else 2
    words = max(size_bytes // (8 * threads * streams), 32)
    blocks = [(aligned(8 * words), aligned(8 * words if streams == 2 else 64, 2112)) for _ in range(threads)]
    calls = [partial(loop, a.ctypes.data, b.ctypes.data, words) for a, b in blocks]
    rounds_per_s = repeat(calls, clock)
    return 8.0 * words * streams * threads * rounds_per_s


def repeat(calls: Sequence[Callable[[int], object]], clock: Clock) -> float:
    """The rounds a second of each of the calls, all of them at once, at best; a call takes its rounds."""
    rounds = _enough(calls[0], clock)
    return rounds / least_s(calls, rounds, _SAMPLES, clock)


def least_s(calls: Sequence[Callable[[int], object]], rounds: int, samples: int, clock: Clock) -> float:
    """The least seconds of so many rounds of each call, all at once, from the first start to the last end."""
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
    """The number of rounds that last long enough for the clock; the memory is warm then."""
    rounds = 1
    call(1)
    while True:
        start_s = clock()
        call(rounds)
        took_s = clock() - start_s
        if took_s >= _SAMPLE_S / 2 or rounds >= _MOST_ROUNDS:
            return max(1, round(rounds * _SAMPLE_S / took_s)) if took_s < _SAMPLE_S else rounds
        rounds = min(rounds * max(2, min(64, int(_SAMPLE_S / max(took_s, 1e-7)))), _MOST_ROUNDS)


def scalar_rate(loops: Loops, name: str, threads: int = 1, clock: Clock = seconds) -> float:
    """Values per second of one scalar function: of numbers between 0.1 and 0.9, where all of them are defined."""
    result, operands = signature(name)
    argument_sets = [
        [*(_values(kind, number + k) for k, kind in enumerate(operands)), np.zeros(VALUES, C_TYPES[result])]
        for number in range(threads)
    ]
    loop = loops.call(f"{name}_loop")
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


def aligned(size_bytes: int, place: int = 0) -> np.ndarray:
    """u8[size_bytes], beginning at this place of a page, and written to."""
    block = np.full(size_bytes + 8192, 7, np.uint8)
    start = -block.ctypes.data % 4096 + place
    return block[start : start + size_bytes]
