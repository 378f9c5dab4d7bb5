"""Whole models of transformers on a GPU: is noyau right, soon there, and never slower than torch's own?

    python benchmarks/gpu_models.py [--only GPT-2 ViT] [--part forward training] [--size facts second] [--seconds 200]
                                    [--sides eager noyau inductor max-autotune optimize] [--jobs 6] [--tiny] [--again]
                                    [-o FILE]

Each model has random weights in bfloat16. Its sides run in turns, in an order drawn anew each round, the device idle
before and after: `eager`; `inductor`, which is torch.compile by default; `max-autotune`, which is its mode
max-autotune-no-cudagraphs; `noyau`, which is torch.compile(backend="noyau"); `optimize`, which is
noyau.optimize(module) and has no training of its own. `forward` is inference, `training` a loss and its gradients.
Results and gradients are compared with the model in float32: a side is right where it strays by no more than twice what
eager does. Of each side: the median, the ratio to eager, how the wall splits, and the seconds of its first and second
call, of noyau and inductor in processes of their own with empty caches, some at once (--jobs; 0 has them in the process
that times), of both sides of a model together; nothing else is timed meanwhile.

It goes on where it stopped: what the file has is left out, unless --again asks for it, and after --seconds no model is
begun. `--tiny` takes models of two layers, on the CPU where there is no GPU. Writes results/gpu_models.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from record import read as read_record
from record import write as write_record

import noyau
from noyau.jobs.optimize.torch.backend import backend
from noyau.jobs.profile.torch_wall import measure_wall
from noyau.toolchain.cache import today

RESULTS = Path(__file__).parent / "results" / "gpu_models.json"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDES = ("eager", "noyau", "inductor", "max-autotune", "optimize")
FIRSTS, ALONE_S = ("noyau", "inductor"), 150  # sides whose first calls are timed, and the seconds that they may take
PARTS = ("forward", "training")
# width, layers, heads, words, sequences, tokens, images, their side
SIZES = {
    "facts": (1024, 6, 16, 32000, 4, 512, 32, 224),
    "second": (768, 4, 12, 16000, 2, 256, 8, 224),
    "tiny": (64, 2, 4, 128, 2, 16, 2, 32),
}
WARM, ROUNDS, TIMED_S = 6, 15, 3.0
STRAYS, LEAST = 2.0, 1e-3  # times as far from the truth as eager, and what nobody minds


def llama_like(kind: str, **more: Any) -> Callable[..., Any]:
    """A configuration that calls its sizes as LLaMA's does."""

    def config(width: int, layers: int, heads: int, words: int, *_: int) -> Any:
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": words}
        fits = {"intermediate_size": width * 11 // 4 // 16 * 16, "num_key_value_heads": heads, "use_cache": False}
        return transformers(f"{kind}Config")(**{**sizes, **fits, "pad_token_id": 0, **more})

    return config


def transformers(name: str) -> Any:
    import transformers as library

    return getattr(library, name)


def gpt2(width: int, layers: int, heads: int, words: int, *_: int) -> Any:
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return transformers("GPT2Config")(
        n_embd=width, n_layer=layers, n_head=heads, vocab_size=words, use_cache=False, **drops
    )


def bert(width: int, layers: int, heads: int, words: int, *_: int) -> Any:
    return transformers("BertConfig")(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=words,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def t5(width: int, layers: int, heads: int, words: int, *_: int) -> Any:
    return transformers("T5Config")(
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=heads,
        vocab_size=words,
        dropout_rate=0.0,
        use_cache=False,
    )


def whisper(width: int, layers: int, heads: int, words: int, *rest: int) -> Any:
    return transformers("WhisperConfig")(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        vocab_size=words,
        max_source_positions=rest[1],
        max_target_positions=rest[1],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )


def mamba(width: int, layers: int, _: int, words: int, *__: int) -> Any:
    return transformers("MambaConfig")(
        hidden_size=width, num_hidden_layers=min(layers, 4), vocab_size=words, use_cache=False
    )


def vit(width: int, layers: int, heads: int, *rest: int) -> Any:
    return transformers("ViTConfig")(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=rest[-1],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=1000,
    )


def convnext(width: int, layers: int, *_: int) -> Any:
    widths = [width // 8, width // 4, width // 2, width]
    return transformers("ConvNextConfig")(hidden_sizes=widths, depths=[1, 1, layers, 1], num_labels=1000)


FEW = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 4}
MODELS: Mapping[str, tuple[str, Callable[..., Any], str]] = {  # the class, its configuration, what it takes
    "GPT-2": ("GPT2LMHeadModel", gpt2, "tokens"),
    "BERT": ("BertForMaskedLM", bert, "tokens"),
    "Qwen2": ("Qwen2ForCausalLM", llama_like("Qwen2"), "tokens"),
    "Qwen3": ("Qwen3ForCausalLM", llama_like("Qwen3", head_dim=64), "tokens"),
    "Gemma 2": ("Gemma2ForCausalLM", llama_like("Gemma2", head_dim=64), "tokens"),
    "Phi-3": ("Phi3ForCausalLM", llama_like("Phi3"), "tokens"),
    "LLaMA": ("LlamaForCausalLM", llama_like("Llama"), "tokens"),
    "T5": ("T5ForConditionalGeneration", t5, "pair"),
    "Whisper": ("WhisperForConditionalGeneration", whisper, "sound"),
    "Mixtral": ("MixtralForCausalLM", llama_like("Mixtral", **FEW), "tokens"),
    "ViT": ("ViTForImageClassification", vit, "images"),
    "ConvNeXt": ("ConvNextForImageClassification", convnext, "images"),
    "Mamba": ("MambaForCausalLM", mamba, "tokens"),
}


class Called(torch.nn.Module):
    """A model of tensors alone: logits, or the loss of them where `learns`."""

    def __init__(self, model: torch.nn.Module, takes: str) -> None:
        super().__init__()
        self.model, self.takes, self.learns = model, takes, False

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        match self.takes:
            case "images":
                named = {"pixel_values": given}
            case "sound":
                named = {"input_features": given, "decoder_input_ids": labels}
            case "pair":
                named = {"input_ids": given, "decoder_input_ids": labels}
            case _:
                named = {"input_ids": given}
        if self.learns:
            named["labels"] = labels
            return self.model(**named).loss
        return self.model(**named).logits


def build(name: str, size: str) -> tuple[Called, tuple[torch.Tensor, ...]]:
    """A model and what it takes, the same each time."""
    kind, config, takes = MODELS[name]
    sizes = SIZES[size]
    words, sequences, count, images, side = sizes[3:]
    if name == "Mixtral":
        sizes = (sizes[0] // 2, sizes[1], sizes[2] // 2, *sizes[3:])
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = Called(transformers(kind)(config(*sizes)).to(torch.bfloat16).eval(), takes)
        labels = torch.randint(3, words, (sequences, count))
        if takes == "images":
            return model, (
                torch.randn(images, 3, side, side, dtype=torch.bfloat16),
                torch.randint(0, 1000, (images,)),
            )
        given = torch.randn(sequences, 80, 2 * count, dtype=torch.bfloat16) if takes == "sound" else labels
    return model, (given, labels)


def run_by(model: Called, side: str, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    """The model as one side runs it."""
    match side:
        case "eager":
            return model
        case "noyau":
            return torch.compile(model, backend=backend)
        case "optimize":
            return noyau.optimize(model, inputs)
        case "max-autotune":
            return torch.compile(model, mode="max-autotune-no-cudagraphs")
        case _:
            return torch.compile(model)


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def step_of(model: Called, side: str, part: str, inputs: tuple[torch.Tensor, ...]) -> Callable[[], torch.Tensor]:
    """One step, to its end on the device, of what a side compiles in the first."""
    known: list[Callable[..., Any]] = []

    def step() -> torch.Tensor:
        if not known:
            known.append(run_by(model, side, inputs))
        if part == "forward":
            with torch.no_grad():
                result = known[0](*inputs)
        else:
            model.zero_grad()
            result = known[0](*inputs)
            result.backward()
        wait()
        return result

    return step


def answers(model: Called, step: Callable[[], torch.Tensor], part: str) -> list[torch.Tensor]:
    """Logits, or all gradients."""
    result = step().detach().float()
    if part == "forward":
        return [result]
    return [each.grad.float().clone() for each in model.parameters() if each.grad is not None]


def off(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """Distance over all, relative to what is wanted; NaN where they are not as many."""
    if len(got) != len(want):
        return math.nan
    apart = sum(float((one - other).double().square().sum()) for one, other in zip(got, want, strict=True))
    return math.sqrt(apart / max(sum(float(each.double().square().sum()) for each in want), 1e-300))


def first_calls(step: Callable[[], Any]) -> list[float]:
    """Seconds of the first and the second call."""
    seconds = []
    for _ in range(2):
        start_s = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start_s)
    return seconds


def first_alone(name: str, part: str, size: str, side: str) -> None:
    """Print the seconds of the first two calls of this process; what eager loads is loaded before."""
    model, inputs = build(name, size)
    model.learns = part == "training"
    step_of(model, "eager", part, inputs)()
    print(json.dumps(first_calls(step_of(model, side, part, inputs))), flush=True)


def cache_of(folder: str, *words: str) -> dict[str, str]:
    """Where a process has its caches."""
    place = f"{folder}/{'-'.join(words)}"
    return {"XDG_CACHE_HOME": place, "TORCHINDUCTOR_CACHE_DIR": f"{place}/i", "TRITON_CACHE_DIR": f"{place}/t"}


def firsts(runs: Sequence[tuple[str, str, str]], folder: str, jobs: int) -> dict[tuple[str, ...], list[float]]:
    """Seconds of the first two calls of models and parts by sides, each in a process of its own."""

    def first(words: tuple[str, ...]) -> list[float]:
        environment = {**os.environ, **cache_of(folder, *words)}
        command = [sys.executable, __file__, "--alone", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=ALONE_S, check=True)
        return list(json.loads(done.stdout.splitlines()[-1]))

    with ThreadPoolExecutor(jobs) as pool:
        begun = {(*run, side): pool.submit(first, (*run, side)) for run in runs for side in FIRSTS}
    for words, each in begun.items():
        if error := each.exception():
            print(*words, str(getattr(error, "stderr", None) or error)[-500:], flush=True)
    return {words: each.result() for words, each in begun.items() if not each.exception()}


def interleaved(steps: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each side, one call a round in an order drawn anew."""
    order, times, start_s = list(steps), {side: list[float]() for side in steps}, time.perf_counter()
    draw = random.Random(0)
    for at in range(ROUNDS):
        draw.shuffle(order)
        for side in order:
            wait()
            before_s = time.perf_counter()
            steps[side]()
            times[side].append(time.perf_counter() - before_s)
        if at > 4 and time.perf_counter() - start_s > TIMED_S:
            break
    return {side: statistics.median(each) for side, each in times.items()}


def measure(
    name: str, part: str, size: str, sides: Sequence[str], alone: Mapping[str, list[float]], folder: str
) -> dict[str, Any]:
    """One model and part, by all sides; `alone`: seconds of first calls that are known."""
    torch._dynamo.reset()
    model, inputs = build(name, size)
    model.learns = part == "training"
    sides = [side for side in sides if side != "optimize" or part == "forward"]
    wide, _ = build(name, size)
    wide.float().learns = model.learns
    tall = tuple(each.float() if each.is_floating_point() else each for each in inputs)
    truth = answers(wide, step_of(wide, "eager", part, tall), part)
    del wide
    record, steps, strays = dict[str, Any](), dict[str, Callable[[], Any]](), dict[str, float]()
    for side in sides:
        step = step_of(model, side, part, inputs)
        try:
            os.environ.update({"TORCHINDUCTOR_CACHE_DIR": f"{folder}/{name}-{part}-{size}-{side}/i"})
            record[side] = {"first_s": alone.get(side) or first_calls(step)}
            for _ in range(WARM):
                step()
            strays[side] = record[side]["off"] = off(answers(model, step, part), truth)
            steps[side] = step
        except Exception as error:  # noqa: BLE001  one side's fault is none of the others
            traceback.print_exc()
            record[side] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    for side, median_s in interleaved(steps).items():
        record[side] |= {"ms": 1e3 * median_s}
    for side, step in steps.items():
        record[side] |= {"wall": measure_wall(step).to_json()}
        if "eager" in steps:
            record[side] |= {"right": strays[side] <= STRAYS * strays["eager"] + LEAST}
            record[side] |= {"over_eager": record["eager"]["ms"] / record[side]["ms"]}
    return record


def shown(side: str, found: Mapping[str, Any]) -> str:
    if "failed" in found:
        return f"    {side:12s} {found['failed']}"
    first, second = found["first_s"]
    wall = found["wall"]
    shares = " ".join(f"{name} {wall[name]:.0%}" for name in ("kernels", "products", "gaps", "synchronisation"))
    times = f"{found['ms']:8.3f} ms  {found.get('over_eager', 1):5.2f}x  first {first:5.1f} second {second:5.1f} s"
    return (
        f"    {side:12s} {times}  right {found.get('right')} {found['off']:.2e}  {shares} launches {wall['launches']}"
    )


def means(record: Mapping[str, Any]) -> dict[str, Any]:
    """Geometric mean and least of noyau's ratios, over each other side."""
    rows = [row for size in SIZES for row in record.get(size, {}).values() for row in row.values()]
    result = {}
    for side in SIDES:
        both = [row for row in rows if all("ms" in row.get(each, {}) for each in (side, "noyau"))]
        ratios = [row[side]["ms"] / row["noyau"]["ms"] for row in both]
        if ratios and side != "noyau":
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            result[f"over {side}"] = {"models": len(ratios), "mean": mean, "least": min(ratios)}
    soon = [sum(row["noyau"]["first_s"]) / row["inductor"]["first_s"][0] for row in rows if _has_both(row)]
    if soon:
        result["first and second call over inductor's first"] = {"mean": statistics.fmean(soon), "most": max(soon)}
    return result


def _has_both(row: Mapping[str, Any]) -> bool:
    return all("first_s" in row.get(side, {}) for side in FIRSTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--size", nargs="+", choices=("facts", "second"), default=("facts",))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=("eager", "noyau", "inductor"))
    parser.add_argument("--seconds", type=float, default=math.inf, help="after these, no model is begun")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--alone", nargs=4, metavar=("NAME", "PART", "SIZE", "SIDE"))
    parser.add_argument("-o", type=Path, default=RESULTS)
    wanted = parser.parse_args()
    if wanted.alone:
        first_alone(*wanted.alone)
        return
    record, start_s = read_record(wanted.o, {}), time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = False
    if DEVICE == "cuda":
        from noyau.hosts.torch.cuda.clock import device_text

        record |= {"machine": device_text(), "day": today()}
    runs = []
    for size in ["tiny"] if wanted.tiny else wanted.size:
        for part, name in itertools.product(wanted.part, wanted.only):
            rows = record.setdefault(size, {}).setdefault(name, {})
            if {side for side in wanted.sides if wanted.again or side not in rows.get(part, {})} - {"eager"}:
                runs.append((name, part, size))
    with tempfile.TemporaryDirectory() as folder:
        alone = firsts(runs, folder, wanted.jobs) if wanted.jobs else {}
        print(f"first calls ({time.perf_counter() - start_s:.0f} s)", flush=True)
        for name, part, size in runs:
            if time.perf_counter() - start_s > wanted.seconds:
                break
            known = {side: alone[name, part, size, side] for side in FIRSTS if (name, part, size, side) in alone}
            # eager is what the others are held against
            found = measure(name, part, size, list(dict.fromkeys(["eager", *wanted.sides])), known, folder)
            record[size][name][part] = found  # sides of one run alone: others were not interleaved with them
            print(f"{name} {part} {size} ({time.perf_counter() - start_s:.0f} s)", flush=True)
            print("\n".join(shown(*each) for each in found.items()), flush=True)
            record["means"] = means(record)
            write_record(record, wanted.o)
    print(record.get("means"))


if __name__ == "__main__":
    main()
