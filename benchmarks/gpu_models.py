"""Whole models of transformers on a GPU: is noyau right, soon there, and never slower than torch's own?

    python benchmarks/gpu_models.py [--only GPT-2 ViT] [--part forward training] [--size facts second] [--jobs 8]
                                    [--sides inductor max-autotune optimize] [--limit 150] [--tune FOLDER] [--tiny]
                                    [--again] [-o FILE]

Each model has random weights in bfloat16; Mamba takes 96 tokens, for dynamo unrolls its loop over them. The sides of a
model run in turns, in an order drawn anew each round, the device idle
before and after: `eager`; `inductor`, which is torch.compile by default; `max-autotune`, which is its mode
max-autotune-no-cudagraphs; `noyau`, which is torch.compile(backend="noyau"); `optimize`, which is
noyau.optimize(module) and has no training of its own. `forward` is inference, `training` a loss and its gradients.
Results and gradients are compared with the model in float32: a side is right where it strays by no more than twice what
eager does. Of each side: the median, the ratio to eager, how the wall splits, and the seconds of its first and second
call, with empty caches, in two processes for each model: one has noyau's and is timed later, one has inductor's. The
models of a part are compiled beside each other, some at once (--jobs), then timed one after another, nothing else at
work. max-autotune has a third process, and one cache for all models, so that a product is tuned once (--tune: a folder
that a later run has too); what it times for its choices is not alone on the device, and its first calls are no measure.

Runs add up: a row keeps the sides of other runs, each with the ratio to noyau of its own run (`gain`), in which both
took turns. What the file has is left out, unless --again asks for it. `--tiny` takes models of two layers, on the CPU
where there is no GPU. Writes results/gpu_models.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import math
import os
import random
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from alone import Alone, gate
from record import read as read_record
from record import write as write_record

import noyau
from noyau.jobs.optimize.torch.backend import backend
from noyau.jobs.profile.torch_wall import measure_wall
from noyau.toolchain.cache import today

RESULTS = Path(__file__).parent / "results" / "gpu_models.json"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDES = ("eager", "noyau", "inductor", "max-autotune", "optimize")
BY_INDUCTOR = ("inductor", "max-autotune")
ROLES = {"noyau": "time", "inductor": "compile", "max-autotune": "tune"}  # sides and the processes of their first calls
RIVALS = {**{side: (side,) for side in SIDES if side != "noyau"}, "the better of inductor's two": BY_INDUCTOR}
PARTS = ("forward", "training")
# width, layers, heads, words, sequences, tokens, images, their side
SIZES = {
    "facts": (1024, 6, 16, 32000, 4, 512, 32, 224),
    "second": (768, 4, 12, 16000, 2, 256, 8, 224),
    "tiny": (64, 2, 4, 128, 2, 16, 2, 32),
}
WARM, ALONE, ROUNDS, TIMED_S = 6, 40, 15, 3.0  # calls beside others and with nothing beside, then those timed
LEAST_FIRST_S = 0.1  # a call that compiles nothing is not recorded
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
    return transformers("MambaConfig")(hidden_size=width, num_hidden_layers=2, vocab_size=words, use_cache=False)


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
    if name == "Mamba":
        count = min(count, 96)
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


class Row:
    """One model and part in processes of its own: `time` has the first calls of noyau, and is timed; the others have
    those of the sides of inductor, whose caches `time` then reads."""

    def __init__(self, words: tuple[str, str, str], sides: Sequence[str], folder: str, limit_s: float) -> None:
        self.words, self.limit_s, self.firsts = words, limit_s, dict[str, list[float]]()
        self.sides = [side for side in sides if side != "optimize" or words[1] == "forward"]
        self.folder = f"{folder}/{'-'.join(words)}"

    def prepare(self) -> None:
        """Have every side compiled; one whose first calls do not end in time is left out."""
        sides = [side for side in ROLES if side in self.sides]
        processes = {side: Alone(__file__, ROLES[side], *self.words, folder=self.folder) for side in sides}
        self.timing = processes["noyau"]
        for process in processes.values():
            process.ready()
        for side in sides:
            processes[side].go(side)
            with contextlib.suppress(ValueError):
                self.firsts[side] = json.loads(processes[side].ready(self.limit_s))
        for process in reversed(processes.values()):
            process.go()
        self.timing.ready()
        self.timing.go(" ".join(side for side in self.sides if side in self.firsts or side not in ROLES))
        self.timing.ready(self.limit_s)

    def time(self) -> dict[str, Any]:
        """What `timing` says of each side, with the seconds of first calls."""
        self.timing.go()
        found = self.timing.found()
        if "failed" in found:
            return dict.fromkeys(self.sides, found)
        for side in self.sides:
            known = found.setdefault(side, {"failed": f"no first calls in {self.limit_s:g} s"})
            known |= {"first_s": self.firsts[side]} if side in self.firsts else {}
        return found


@contextlib.contextmanager
def caches_of(side: str) -> Iterator[None]:
    """Inductor's caches, which are those of all rows for max-autotune."""
    folder = os.environ.get("NOYAU_TUNED")
    places = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {place: os.environ[place] for place in places if place in os.environ}
    if side == "max-autotune" and folder:
        os.environ |= {place: f"{folder}/{place}" for place in places}
    try:
        yield
    finally:
        os.environ |= before


def have_compiled(steps: Mapping[str, Callable[[], Any]]) -> None:
    """Print the seconds of the first two calls of each side that is asked for."""
    while side := gate():
        torch._dynamo.reset()
        try:
            with caches_of(side):
                print(json.dumps(first_calls(steps[side])), flush=True)
        except Exception:  # noqa: BLE001  one side's fault is none of the others
            traceback.print_exc()


def time_sides(model: Called, part: str, steps: Mapping[str, Callable[[], Any]], truth: Sequence[torch.Tensor]) -> None:
    """Print how the sides that are asked for compare with each other."""
    record, strays = dict[str, Any](), dict[str, float]()
    for side in gate().split():
        try:
            with caches_of(side):
                for _ in range(WARM):
                    steps[side]()
            record[side] = {"off": off(answers(model, steps[side], part), truth)}
            strays[side] = record[side]["off"]
        except Exception as error:  # noqa: BLE001  one side's fault is none of the others
            traceback.print_exc()
            record[side] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    gate()
    for side, _ in itertools.product(strays, range(ALONE)):  # noyau looks anew whether the GPU waits for launches
        steps[side]()
    for side, median_s in interleaved({side: steps[side] for side in strays}).items():
        record[side] |= {"ms": 1e3 * median_s, "right": strays[side] <= STRAYS * strays["eager"] + LEAST}
    for side in strays:
        record[side] |= {"wall": measure_wall(steps[side]).to_json()} if side != "eager" else {}
        record[side] |= {"gain": record[side]["ms"] / record["noyau"]["ms"]} if "noyau" in strays else {}
    print(json.dumps(record), flush=True)


def alone(role: str, name: str, part: str, size: str) -> None:
    """One of a row's processes; what eager loads is loaded before the first gate."""
    logging.basicConfig(format=f"    {name} {part}: %(message).200s")
    logging.getLogger("noyau").setLevel(logging.INFO)
    torch.backends.cuda.matmul.allow_tf32 = False
    model, inputs = build(name, size)
    model.learns = part == "training"
    steps = {side: step_of(model, side, part, inputs) for side in SIDES}
    steps["eager"]()
    if role != "time":
        have_compiled(steps)
        return
    wide, _ = build(name, size)
    wide.float().learns = model.learns
    tall = tuple(each.float() if each.is_floating_point() else each for each in inputs)
    truth = answers(wide, step_of(wide, "eager", part, tall), part)
    del wide
    have_compiled(steps)
    time_sides(model, part, steps, truth)


def shown(side: str, found: Mapping[str, Any]) -> str:
    if "failed" in found:
        return f"    {side:12s} {found['failed']}"
    first, second = found.get("first_s", (math.nan, math.nan))
    wall = found.get("wall", {})
    shares = " ".join(f"{name} {wall[name]:.0%}" for name in ("kernels", "products", "gaps") if wall)
    times = f"{found['ms']:8.3f} ms  {found.get('gain', math.nan):5.2f}  first {first:5.1f} second {second:5.1f} s"
    return (
        f"    {side:12s} {times}  right {found['right']} {found['off']:.2e}  {shares} launches {wall.get('launches')}"
    )


def brief(side: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What the record keeps of a side: milliseconds of noyau, of another the ratio to them; and of what is wrong how
    far off it is."""
    if "failed" in found:
        return {"failed": found["failed"]}
    name = "ms" if side == "noyau" else "gain"
    kept = {name: float(f"{found[name]:.3g}")} if name in found else {}
    kept |= {} if found["right"] else {"wrong": found["off"]}
    if side in ("noyau", "inductor") and "wall" in found:
        kept |= {"launches": found["wall"]["launches"]}
        firsts = [float(f"{each:.3g}") for each in found.get("first_s", ()) if each > LEAST_FIRST_S]
        kept |= {"first_s": firsts} if firsts else {}
    return kept


def means(record: Mapping[str, Any]) -> dict[str, Any]:
    """Geometric mean and least of noyau's ratios, over each other side."""
    rows = [row for size in SIZES for row in record.get(size, {}).values() for row in row.values()]
    result = {}
    for name, rivals in RIVALS.items():
        gains = [[row[each]["gain"] for each in rivals if "gain" in row.get(each, {})] for row in rows]
        ratios = [min(each) for each in gains if len(each) == len(rivals)]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            result[f"over {name}"] = {"rows": len(ratios), "mean": mean, "least": min(ratios)}
    soon = [sum(row["noyau"]["first_s"]) / row["inductor"]["first_s"][0] for row in rows if _has_both(row)]
    if soon:
        result["first and second call over inductor's first"] = {"mean": statistics.fmean(soon), "most": max(soon)}
    return result


def _has_both(row: Mapping[str, Any]) -> bool:
    return all(row.get(side, {}).get("first_s") for side in ("noyau", "inductor"))


def measure(
    runs: Sequence[tuple[str, str, str]], sides: Sequence[str], jobs: int, limit_s: float
) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    """Rows that are compiled beside each other, then timed one after another."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        os.environ.setdefault("NOYAU_TUNED", f"{folder}/tuned")
        rows = [Row(words, sides, folder, limit_s) for words in runs]
        for _ in pool.map(Row.prepare, rows):
            pass
        for row in rows:
            yield row.words, row.time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--size", nargs="+", choices=("facts", "second"), default=("facts",))
    parser.add_argument("--sides", nargs="+", choices=SIDES[2:], default=("inductor",))
    parser.add_argument("--tune", help="a folder for what max-autotune has tuned")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds of the first two calls of a side")
    parser.add_argument("--alone", nargs=4, metavar=("ROLE", "NAME", "PART", "SIZE"))
    parser.add_argument("-o", type=Path, default=RESULTS)
    wanted = parser.parse_args()
    if wanted.alone:
        alone(*wanted.alone)
        return
    record, start_s = read_record(wanted.o, {}), time.perf_counter()
    if DEVICE == "cuda":
        from noyau.hosts.torch.cuda.clock import device_text

        record |= {"machine": device_text(), "day": today()}
    if wanted.tune:
        os.environ["NOYAU_TUNED"] = str(Path(wanted.tune).absolute())
    sides = ["eager", "noyau", *wanted.sides]  # these two are in each run
    rows = {size: record.setdefault(size, {}) for size in (["tiny"] if wanted.tiny else wanted.size)}
    every = [(name, part, size) for size, part, name in itertools.product(rows, wanted.part, wanted.only)]
    runs = [
        each for each in every if wanted.again or not {*sides} <= {*rows[each[2]].get(each[0], {}).get(each[1], {})}
    ]
    for (name, part, size), found in measure(runs, sides, wanted.jobs, wanted.limit):
        if "inductor" not in found:  # what tunes beside it takes noyau's time
            found["noyau"].pop("first_s", None)
        row = rows[size].setdefault(name, {}).setdefault(part, {})
        for side, each in found.items():
            known = {"first_s": row[side]["first_s"]} if "first_s" in row.get(side, {}) else {}
            row[side] = known | brief(side, each)
        print(f"{name} {part} {size} ({time.perf_counter() - start_s:.0f} s)", flush=True)
        print("\n".join(shown(*each) for each in found.items()), flush=True)
        record["means"] = means(record)
        write_record(record, wanted.o)
    print(record.get("means"))


if __name__ == "__main__":
    main()
