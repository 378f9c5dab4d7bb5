"""What a call of an op on a tensor of 10 cells costs, without and with a gradient, beside torch's own.

The calls take turns, in an order drawn anew for each round, so that all see the same machine. Prints microseconds a
call, the median and the least of the rounds; with `--json FILE` they are recorded with the machine."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from record import write as write_record

import noyau
from noyau.timing.machine import this_machine
from noyau.toolchain.cache import today

ROUNDS, CALLS = 60, 300


@noyau.op("float[*batch, n] -> float[*batch, n]")
def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def written(x: torch.Tensor) -> torch.Tensor:
    """Softmax as one writes it in torch."""
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def candidates() -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    x, g, a = torch.randn(10), torch.randn(10, requires_grad=True), np.random.default_rng(0).random(10, np.float32)
    return {
        "noyau, NumPy": lambda: softmax(a),
        "noyau": lambda: softmax(x),
        "noyau, with gradient": lambda: softmax(g),
        "torch.add": lambda: torch.add(x, x),
        "torch.softmax": lambda: torch.softmax(x, -1),
        "softmax as written": lambda: written(x),
        "torch.add, with gradient": lambda: torch.add(g, g),
        "torch.softmax, with gradient": lambda: torch.softmax(g, -1),
        "softmax as written, with gradient": lambda: written(g),
    }


def timed(call: Callable[[], object]) -> float:
    """Microseconds a call."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    said = parser.parse_args()
    calls, draw = candidates(), random.Random(0)
    for call in calls.values():
        timed(call)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in draw.sample(list(calls), len(calls)):
            samples[name].append(timed(calls[name]))
    found = {name: {"median_us": statistics.median(each), "least_us": min(each)} for name, each in samples.items()}
    for name, told in found.items():
        print(f"{name:35}{told['median_us']:8.2f} us   least {told['least_us']:.2f}")
    if said.json:
        record = {"schema_version": 1, "when": today(), "torch": torch.__version__, "cells": 10, "calls": found}
        write_record({**record, "machine": asdict(this_machine())}, said.json)


if __name__ == "__main__":
    main()
