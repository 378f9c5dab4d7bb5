"""Is a LLaMA of transformers faster with noyau than with torch.compile, forward and backward, and sooner there?

`python benchmarks/torch_llama.py [--part forward|backward|rest|first|memory|error ...] [-o FILE]` makes a LLaMA of
random weights (hidden 512, 4 layers, 8 heads, 8000 tokens) and times it on one batch of 128 tokens, in float32, on all
cores:

- forward, backward: the model compiled by noyau and by inductor, step by step in pairs, in an order drawn anew for
  each; backward is the step of training, forward and backward;
- rest: the same steps where inductor compiles what no kernel of noyau's covers, in pairs with inductor alone, and with
  noyau and torch's own kernels for the rest;
- first: seconds from the first call to its result, in processes of their own, with empty caches;
- memory: the most that a process holds while it steps, over what it held before the first step;
- error: the largest error of logits and of gradients against float64, over the largest of them, beside eager's.

The machine must do nothing else; each part takes up to three minutes. A part that was asked for replaces what the file
had of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import read as read_record
from record import write as write_record

from noyau.timing.comparison import compare
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Comparison
from noyau.toolchain.cache import today
from noyau.workers.resources import forget_peak, peak_bytes, resident_bytes

RESULTS = Path(__file__).parent / "results" / "torch_llama.json"
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 8000,
}
TOKENS = 128
PAIRS, BUDGET_S = 20, 20.0
STEPS = 6  # of a process whose memory is weighed
PARTS = ("forward", "backward", "rest", "first", "memory", "error")
MODES = ("forward", "backward")
SIDES = ("noyau", "inductor", "eager", "noyau and inductor")


def llama() -> torch.nn.Module:
    """The model, the same in each process."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(use_cache=False, **SIZES)).eval()


def compiled(model: torch.nn.Module, side: str) -> Callable[..., Any]:
    """The model as one side runs it."""
    if side == "eager":
        return model
    if side == "inductor":
        return torch.compile(model)
    from noyau.jobs.optimize.torch.backend import backend

    return torch.compile(model, backend=backend, options={"rest": "inductor"} if side == "noyau and inductor" else {})


def tokens() -> torch.Tensor:
    return torch.randint(0, SIZES["vocab_size"], (1, TOKENS), generator=torch.Generator().manual_seed(1))


def step_of(model: torch.nn.Module, side: str, mode: str) -> Callable[[], Any]:
    """One step: the logits, or the loss and the gradients."""
    run, ids = compiled(model, side), tokens()

    def forward() -> Any:
        with torch.no_grad():
            return run(ids).logits

    def backward() -> Any:
        model.zero_grad()
        loss = run(ids, labels=ids).loss
        loss.backward()
        return loss

    return forward if mode == "forward" else backward


def pairs(mode: str, before: str = "inductor", after: str = "noyau") -> dict[str, Any]:
    """One side against another."""
    sides = [step_of(llama(), side, mode) for side in (before, after)]
    for step in sides:
        step()
        step()
    found: Comparison = compare(*sides, budget_s=BUDGET_S, fewest=PAIRS)
    print(f"{mode}, {after} against {before}: {found}")
    return {
        "pairs": found.pairs,
        f"{before}_s": found.before_median_s,
        f"{after}_s": found.after_median_s,
        "speedup": found.speedup,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict.value,
        "samples_s": [list(found.before_s), list(found.after_s)],
    }


def alone(part: str, mode: str, side: str) -> dict[str, Any]:
    """What a process of its own tells; its caches are empty where the first call is timed."""
    with tempfile.TemporaryDirectory() as folder:
        empty = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"} if part == "first" else {}
        environment = {**os.environ, **empty}
        command = [sys.executable, __file__, "--alone", part, mode, side]
        told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    print(part, mode, side, found)
    return found


def first(mode: str, side: str) -> dict[str, Any]:
    model = llama()
    start_s = time.perf_counter()
    step_of(model, side, mode)()
    return {"first_s": time.perf_counter() - start_s}


def memory(mode: str, side: str) -> dict[str, Any]:
    model = llama()
    before = resident_bytes() or 0
    step = step_of(model, side, mode)
    step()
    forget_peak()
    for _ in range(STEPS):
        step()
    return {"peak_bytes": (peak_bytes() or 0) - before, "before_bytes": before}


def errors() -> dict[str, Any]:
    """Errors against the model in float64, of logits and of all gradients."""
    model = llama()
    ids, wide = tokens(), llama().double()
    wide(ids, labels=ids).loss.backward()
    want = {name: each.grad for name, each in wide.named_parameters()}
    logits = wide(ids).logits
    made: dict[str, Any] = {}
    for side in SIDES[:3]:
        torch._dynamo.reset()
        run = compiled(model, side)
        with torch.no_grad():
            off = (run(ids).logits.double() - logits).abs().max() / logits.abs().max()
        model.zero_grad()
        run(ids, labels=ids).loss.backward()
        worst = max(
            float((each.grad.double() - want[name]).abs().max() / want[name].abs().max())
            for name, each in model.named_parameters()
        )
        made[side] = {"logits": float(off), "gradients": worst}
        print(f"error {side}: {made[side]}")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--mode", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--side", nargs="+", choices=SIDES, default=SIDES[:2])
    parser.add_argument("-o", type=Path, default=RESULTS)
    parser.add_argument("--alone", nargs=3, metavar=("PART", "MODE", "SIDE"))
    wanted = parser.parse_args()
    if wanted.alone:
        part, mode, side = wanted.alone
        print(json.dumps({"first": first, "memory": memory}[part](mode, side)))
        return
    record = read_record(wanted.o, {})
    versions = {**this_machine().to_json(), "torch": torch.__version__}
    record |= {"machine": versions, "model": {**SIZES, "tokens": TOKENS}, "day": today()}
    for part in wanted.part:
        if part in MODES:
            record[part] = pairs(part)
        elif part == "error":
            record[part] = errors()
        elif part == "rest":
            for mode, before in itertools.product(wanted.mode, SIDES[:2]):
                record.setdefault(part, {}).setdefault(mode, {})[before] = pairs(mode, before, SIDES[3])
        else:
            for mode in wanted.mode:
                for side in wanted.side:
                    record.setdefault(part, {}).setdefault(mode, {})[side] = alone(part, mode, side)
        write_record(record, wanted.o)


if __name__ == "__main__":
    main()
