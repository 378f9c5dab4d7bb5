"""Is a LLaMA on a GPU faster with noyau than with torch.compile, forward and backward, and sooner there?

`python benchmarks/gpu_llama.py [--part decode|prefill|backward|error ...] [-o FILE]` makes a LLaMA of random weights
(hidden 2048, 8 layers, 16 heads, 32000 tokens) in bfloat16:

- decode: one token of one sequence after 512 others, whose keys and values lie in a cache of 1024 (transformers alone);
  token: one token alone, without a cache; prefill: 4 sequences of 2048 tokens; backward: the step of training, forward
  and backward, of 4 sequences of 2048 tokens. Each is compiled by noyau and by inductor, as torch.compile has them by
  default, and timed step by step in pairs, in an order drawn anew for each, the device idle before and after. noyau
  records the launches of decode and token as a CUDA graph, which torch.compile does with mode="reduce-overhead": these
  two are compared as well (recorded), and noyau without recordings with torch.compile's default (launched); and
  reduce-overhead with noyau with weights in few bits, of which the outputs may move by a tenth or a half of the largest
  (int8, int4); and prefill with mode="max-autotune" (tuned);
- of each, the seconds from the first call to its result, in processes of their own, with empty caches, both at once,
  and where they went; and those of the second and the third call: noyau makes its kernels in the second (`result`: it
  waits for the copy of the process that plans them meanwhile);
- error: of logits and gradients against float64, beside eager's and inductor's.

Every measurement is made by a process of its own, and by nobody else meanwhile, but for the two of a first call. All
processes begin together, for it takes each of them several seconds to import what it needs; they wait at gates before
they compile what is timed, and before they time it.

The model is that of transformers, where it is installed, else the same modules in plain torch. A part that was asked
for replaces what the file had of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from alone import Alone, gate
from record import read as read_record
from record import write as write_record
from torch_llama import compiled

from noyau.hosts.torch.cuda.clock import device_text
from noyau.timing.comparison import compare
from noyau.toolchain.cache import today

RESULTS = Path(__file__).parent / "results" / "gpu_llama.json"
SIZES = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 32000,
}
TOKENS = {"decode": (1, 1), "token": (1, 1), "prefill": (4, 2048), "backward": (4, 2048), "error": (1, 256)}
PARTS = tuple(TOKENS)
SIDES = ("noyau", "inductor")
PAIRED = {  # before and after
    "pairs": ("inductor", "noyau"),
    "launched": ("inductor", "launched"),
    "recorded": ("reduce-overhead", "noyau"),
    "int8": ("reduce-overhead", "int8"),
    "int4": ("reduce-overhead", "int4"),
    "tuned": ("max-autotune", "noyau"),
}
MODES = ("reduce-overhead", "max-autotune")
BUDGETS = {"int8": 0.1, "int4": 0.5}  # of weights in few bits: tokens of random weights are near ties, and flip
AT_ONCE = {*PAIRED} - {"tuned"}  # compiled all at once: nothing else is at work while inductor times its own choices
VERDICTS: list[str] = []  # of the side with weights in few bits
SMALL = ("decode", "token")  # parts of many small launches
OF_PART = {part: [*PAIRED][:-1] if part in SMALL else ["pairs"] for part in PARTS} | {"prefill": ["pairs", "tuned"]}
PAIRS, BUDGET_S = 20, 5.0
CACHE, BEFORE = 1024, 512


def llama(dtype: torch.dtype = torch.bfloat16) -> torch.nn.Module:
    """The model, the same in each process."""
    torch.manual_seed(0)
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        from gpu_llama_plain import Llama

        return Llama(SIZES).to("cuda", dtype).eval()
    with torch.device("cuda"):
        return LlamaForCausalLM(LlamaConfig(use_cache=False, **SIZES)).to(dtype).eval()


def run_by(model: torch.nn.Module, side: str) -> Callable[..., Any]:
    """The model as one side runs it."""
    if side in MODES:
        return torch.compile(model, mode=side)
    if side in BUDGETS:
        from noyau.jobs.optimize.torch.backend import backend

        options = {"weights": side, "budget": BUDGETS[side], "verdicts": VERDICTS}
        return torch.compile(model, backend=backend, options=options)
    if side == "launched":
        from noyau.jobs.optimize.torch.backend import backend

        return torch.compile(model, backend=backend, options={"graphs": False})
    return compiled(model, side)


def tokens(part: str) -> torch.Tensor:
    noise = torch.Generator().manual_seed(1)
    return torch.randint(0, SIZES["vocab_size"], TOKENS[part], generator=noise).cuda()


def step_of(model: torch.nn.Module, run: Callable[..., Any], part: str) -> Callable[[], Any]:
    """One step, to its end on the device: logits, or the loss with the gradients."""
    ids = tokens(part)
    if part == "decode":
        return decoding(model, run, ids)

    def forward() -> Any:
        with torch.no_grad():
            made = run(ids).logits
        torch.cuda.synchronize()
        return made

    def backward() -> Any:
        model.zero_grad()
        loss = run(ids, labels=ids).loss
        loss.backward()
        torch.cuda.synchronize()
        return loss

    return backward if part == "backward" else forward


def decoding(model: torch.nn.Module, run: Callable[..., Any], ids: torch.Tensor) -> Callable[[], Any]:
    """One more token, to its end on the device; when the cache is full, it goes on where it began."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=CACHE)
    with torch.no_grad():
        model(ids.expand(1, BEFORE), past_key_values=cache, use_cache=True)
    at, taken = torch.full((1, 1), BEFORE, device=ids.device), [0]

    def step() -> Any:
        taken[0] += 1
        if not taken[0] % (CACHE - BEFORE):
            for layer in cache.layers:
                layer.cumulative_length.fill_(BEFORE)
        with torch.no_grad():
            made = run(ids, past_key_values=cache, position_ids=at, use_cache=True).logits
        torch.cuda.synchronize()
        return made

    return step


def first(part: str, side: str) -> dict[str, Any]:
    """Seconds to the first result, of this process."""
    model = llama()
    torch.cuda.synchronize()
    gate()
    start_s = time.perf_counter()
    phases = clocked() if side == "noyau" else {}
    run = compiled(model, side)
    step = step_of(model, run, part)
    phases["before_s"] = time.perf_counter() - start_s
    step()
    made: dict[str, Any] = {"first_s": time.perf_counter() - start_s}
    for name in ("second_s", "third_s"):  # noyau makes its kernels in the second call
        start_s = time.perf_counter()
        step()
        made[name] = time.perf_counter() - start_s
    return {**made, "phases": {**phases, **of_torch()}}


def clocked() -> dict[str, float]:
    """The seconds that parts of noyau take from now on, those of several graphs together."""
    from noyau.hosts.torch.modules import sites as modules_sites
    from noyau.jobs.optimize.cuda import certificate
    from noyau.jobs.optimize.cuda import host as cuda_host

    spent: dict[str, float] = {}
    for module, name in (
        (modules_sites, "trace_graph"),
        (cuda_host, "plan_for_triton"),
        (certificate, "certify_all"),
        (cuda_host.CudaBench, "timing"),
    ):
        setattr(module, name, clock(getattr(module, name), spent, f"{name}_s"))
    return spent


def clock(function: Callable[..., Any], spent: dict[str, float], name: str) -> Callable[..., Any]:
    """A function whose seconds are added up."""

    def call(*args: Any, **named: Any) -> Any:
        start_s = time.perf_counter()
        try:
            return function(*args, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - start_s

    return call


def of_torch() -> dict[str, float]:
    """The seconds that torch says its own parts took, one within another."""
    from torch._dynamo.utils import compilation_time_metrics

    return {name: sum(times) for name, times in compilation_time_metrics.items() if sum(times) > 0.25}


def pairs(part: str, pair: str) -> dict[str, Any]:
    """One side, before, against another, after."""
    steps = {}
    torch._dynamo.reset()
    llama()  # what is imported for it, and for dynamo, is there then
    gate()
    for side in PAIRED[pair]:
        torch._dynamo.reset()
        model = llama()
        steps[side] = step_of(model, run_by(model, side), part)
        for _ in range(2):  # noyau's kernels are made in the second
            steps[side]()
    gate()
    for step in steps.values():
        for _ in range(6):  # noyau records small ones, once it knows what they take alone
            step()
    found = compare(*steps.values(), budget_s=BUDGET_S, fewest=PAIRS)
    made = {"verdict": found.verdict.value, "speedup": found.speedup, "low": found.low, "high": found.high}
    made |= {f"{PAIRED[pair][0]}_s": found.before_median_s, f"{PAIRED[pair][1]}_s": found.after_median_s}
    made["pairs"] = found.pairs
    if VERDICTS:
        made["weights"] = VERDICTS[0]
    for side, step in steps.items():
        made[f"{side}_device_s"] = device_s(step)
    return made


def device_s(step: Callable[[], Any]) -> float:
    """Seconds that the kernels of one step take together on the device."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        step()
    kernels = (each for each in seen.key_averages() if each.device_type == DeviceType.CUDA)  # not what launched them
    rows = sorted(kernels, key=lambda each: -each.self_device_time_total)
    for row in rows[:12]:
        print(f"    {row.self_device_time_total:9.0f} us {row.count:5d}  {row.key[:100]}")
    return sum(row.self_device_time_total for row in rows) / 1e6


def errors() -> dict[str, Any]:
    """Errors against the model in float64, of logits and of all gradients, over the largest of them."""
    gate()
    gate()
    ids, model, made = tokens("error"), llama(), dict[str, Any]()
    wide = llama().double()
    loss = wide(ids, labels=ids).loss
    loss.backward()
    with torch.no_grad():
        logits = wide(ids).logits
    want = {name: each.grad for name, each in wide.named_parameters()}
    for side in ("eager", *SIDES):
        torch._dynamo.reset()
        run = compiled(model, side)
        with torch.no_grad():
            off = run(ids).logits.double() - logits
        model.zero_grad()
        run(ids, labels=ids).loss.backward()
        gradients = [float(_off(each.grad, want[name])) for name, each in model.named_parameters()]
        made[side] = {
            "logits": float(off.norm() / logits.norm()),
            "logits_worst": float(off.abs().max() / logits.abs().max()),
            "gradients_worst": max(gradients),
            "gradients_mean": sum(gradients) / len(gradients),
        }
    return made


def _off(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    return (got.double() - want).norm() / want.norm()


class Part:
    """The processes of a part, begun."""

    def __init__(self, part: str, folder: str, only: Sequence[str] = ()) -> None:
        self.part, self.made = part, dict[str, Any]()
        sides = () if part == "error" or only else SIDES
        pairs = only or OF_PART[part]
        self.firsts = {side: Alone(__file__, part, side, folder=folder) for side in sides}
        self.pairs = {pair: Alone(__file__, part, pair, folder=folder) for pair in pairs}

    def call(self) -> None:
        """The first calls of both sides, both at once."""
        for each in self.firsts.values():
            each.go()
        self.made |= {side: each.found() for side, each in self.firsts.items()}

    def compile(self) -> None:
        """What is timed, compiled: of most processes at once."""
        for pair in self.pairs:
            if pair in AT_ONCE:
                self.pairs[pair].go()

    def time(self) -> dict[str, Any]:
        """One process after the other."""
        for pair, each in self.pairs.items():
            if pair not in AT_ONCE:
                each.go()
                each.ready()
            each.go()
            found = each.found()
            self.made |= found if pair == "pairs" else {pair: found}
        return self.made


def run_parts(parts: Sequence[str], only: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each part with what was found, of all pairs or of those that are asked for."""
    with contextlib.ExitStack() as stack:
        begun = [Part(part, stack.enter_context(tempfile.TemporaryDirectory()), only) for part in parts]
        for part in begun:
            for each in (*part.firsts.values(), *part.pairs.values()):
                each.ready()
        for part in begun:
            part.call()
        for part in begun:
            part.compile()
        for part in begun:
            for pair in part.pairs.keys() & AT_ONCE:
                part.pairs[pair].ready()
        for part in begun:
            yield part.part, part.time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--pair", nargs="+", choices=PAIRED, default=(), help="these alone, beside what the file has")
    parser.add_argument("-o", type=Path, default=RESULTS)
    parser.add_argument("--alone", nargs=2, metavar=("PART", "SIDE"))
    wanted = parser.parse_args()
    if wanted.alone:
        part, side = wanted.alone
        made = errors() if part == "error" else pairs(part, side) if side in PAIRED else first(part, side)
        print(json.dumps(made))
        return
    record = read_record(wanted.o, {})
    record |= {"machine": device_text(), "model": {**SIZES, "dtype": "bfloat16"}, "tokens": TOKENS, "day": today()}
    for part, found in run_parts(wanted.part, wanted.pair):
        record[part] = {**record.get(part, {}), **found} if wanted.pair else found
        print(part, json.dumps(record[part], indent=2), flush=True)
        write_record(record, wanted.o)


if __name__ == "__main__":
    main()
