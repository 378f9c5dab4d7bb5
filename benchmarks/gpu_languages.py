"""Kernels in CUDA C++ and for Numba-CUDA beside those in Triton, on a CUDA device: right, and against a plain copy of
the same bytes. What a language refuses is left out.

    python benchmarks/gpu_languages.py [--only softmax] [--rounds 15] [-o FILE]

The cases are those of gpu.py whose rows are long, short, or begin at no multiple of 16 bytes. Each is timed with a
flushed L2, the languages in turns with a plain copy (or read) of as many bytes; then the scatters of gpu_scatters.py,
of which language cuda alone has kernels. Writes results/gpu_languages.json.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gpu_scatters
import torch
from gpu import as_tuple, bytes_of, in_language, machine, plain, worst
from gpu_cases import CASES, UNTUNED, Case
from record import write as write_record

from noyau.errors import UnsupportedError
from noyau.hosts.torch.cuda.clock import time_calls
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.hosts.torch.cuda.numba_cuda_kernel import NumbaCudaKernel
from noyau.timing.verdict import Comparison
from noyau.toolchain.triton.module import load

RESULTS = Path(__file__).parent / "results" / "gpu_languages.json"
KINDS = {"cuda": CudaKernel, "numba_cuda": NumbaCudaKernel}
LEFT_OUT = ("1x50257", "128256", "151936", "embedding", "hypot", "dot", "add f32", "rows")


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """One row of the table: times over those of a plain copy, and errors in ulps."""
    tensors = case.tensors()
    made = case.generate()
    (kernel,) = made.program.kernels
    triton = load(made.text)[kernel.name]
    calls: dict[str, Callable[[], Any]] = {"triton": lambda: triton(*tensors, **case.tiles)}
    for language, kind in KINDS.items():
        call = partial(in_language(case, language, kind), *tensors)
        with suppress(UnsupportedError):
            call()
            calls[language] = call
    truth = as_tuple(case.eager(*(t.double() if t.is_floating_point() else t for t in tensors)))
    results = {name: as_tuple(call()) for name, call in calls.items()}
    errors = {name: round(worst(each, truth), 2) for name, each in results.items()}
    word, calls["plain"] = plain(case.read_bytes(tensors), bytes_of(results["triton"]))
    del truth, results
    times = time_calls(calls, rounds=rounds)
    over = {name: round(Comparison(times[name].samples_s, times["plain"].samples_s).speedup, 3) for name in errors}
    plain_us = round(times["plain"].median_s * 1e6, 1)
    print(f"{case.name:40} {over} of a {word} of {plain_us} us, errors of {errors} ulp", flush=True)
    return {"case": case.name, f"{word}_us": plain_us, **over}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 2
    rows = []
    for case in (*CASES, *UNTUNED):
        if given.only not in case.name or any(each in case.name for each in LEFT_OUT):
            continue
        rows.append(measured(case, given.rounds))
        torch.cuda.empty_cache()
    for case in gpu_scatters.CASES:
        if given.only in case.name:
            rows.append(gpu_scatters.measured(case, given.rounds))
            torch.cuda.empty_cache()
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    write_record({"date": day, "machine": machine(), "rows": rows}, given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
