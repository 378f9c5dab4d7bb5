"""Whole models under `torch.compile(backend="noyau")`: `python -m tools.suites.architectures`.

Architectures of transformers, small and with random weights, and plain modules of torch: the results of a forward pass,
then those of a training pass with the gradients of all parameters and with what the module has noted in its buffers. A
case is right within torch's tolerances, or where it is at most ten times as far from a run in float64 as torch is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tools.suites.architecture_modules import MODULES
from tools.suites.torch_cases import add_options, difference, faults, judge_all, outcome

_MOST = 10  # errors of torch's, through some ten layers
_SMALL = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_MLP = {"intermediate_size": 64}
_LLAMA = {**_SMALL, **_MLP, "num_key_value_heads": 2, "pad_token_id": 0}
_GPT = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4}
_IMAGE = {"image_size": 32, "patch_size": 8}
_SIDES = ("encoder", "decoder")
_BART = {
    "vocab_size": 60,
    "d_model": 32,
    **{f"{side}_{name}": extent for side in _SIDES for name, extent in (("layers", 2), ("attention_heads", 4))},
    **{f"{side}_ffn_dim": 64 for side in _SIDES},
}

# Stem of the classes, what is behind it in the model's name, the configuration, and what the model is given.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str]] = {
    "GPT2": ("LMHeadModel", _GPT, "text"),
    "Llama": ("ForCausalLM", _LLAMA, "text"),
    "Mistral": ("ForCausalLM", {**_LLAMA, "sliding_window": 4}, "text"),
    "Mixtral": ("ForCausalLM", {**_LLAMA, "num_local_experts": 4}, "text"),
    "Qwen3": ("ForCausalLM", {**_LLAMA, "head_dim": 8}, "text"),
    "Gemma2": ("ForCausalLM", {**_LLAMA, "head_dim": 8, "sliding_window": 4}, "text"),
    "Phi3": ("ForCausalLM", _LLAMA, "text"),
    "OPT": ("ForCausalLM", {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1}, "text"),
    "Bloom": ("ForCausalLM", {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "text"),
    "GPTNeoX": ("ForCausalLM", {**_SMALL, **_MLP}, "text"),
    "Falcon": ("ForCausalLM", _SMALL, "text"),
    "Mamba": ("ForCausalLM", {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, "text"),
    "Bert": ("ForMaskedLM", {**_SMALL, **_MLP}, "text"),
    "Albert": ("ForMaskedLM", {**_SMALL, **_MLP, "embedding_size": 16}, "text"),
    "DebertaV2": (
        "ForMaskedLM",
        {**_SMALL, **_MLP, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        "text",
    ),
    "XLNet": ("LMHeadModel", {"vocab_size": 60, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}, "text"),
    "FNet": ("ForMaskedLM", {**_SMALL, **_MLP}, "tokens"),
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
        "pair",
    ),
    "Bart": ("ForConditionalGeneration", _BART, "pair"),
    "Whisper": (
        "ForConditionalGeneration",
        {**_BART, "num_mel_bins": 8, "max_source_positions": 10, "pad_token_id": 0, "decoder_start_token_id": 1},
        "speech",
    ),
    "Wav2Vec2": (
        "ForCTC",
        {
            **_SMALL,
            **_MLP,
            "conv_dim": (16, 16),
            "conv_stride": (5, 4),
            "conv_kernel": (10, 8),
            "apply_spec_augment": False,
        },
        "wave",
    ),
    "ViT": ("ForImageClassification", {**_SMALL, **_MLP, **_IMAGE}, "image"),
    "Swin": (
        "ForImageClassification",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        "image",
    ),
    "ConvNext": ("ForImageClassification", {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2}, "image"),
    "Segformer": (
        "ForImageClassification",
        {"hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 32},
        "image",
    ),
    "CLIP": (
        "Model",
        {"text_config": {**_SMALL, **_MLP, "eos_token_id": 2}, "vision_config": {**_SMALL, **_MLP, **_IMAGE}},
        "both",
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A model by name, in a forward pass or in training; with sizes that are names."""

    name: str
    trains: bool
    keep: str = "faster"
    dynamic: bool = False

    def __str__(self) -> str:
        return f"{self.name} {'in training' if self.trains else 'forward'}"


def _without_chance(config: Any) -> Any:
    """A configuration, and those within it, without dropout: other dtypes would draw other numbers."""
    for name, value in list(vars(config).items()):
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
        elif hasattr(value, "to_dict"):
            _without_chance(value)
    return config


def _inputs(kind: str) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 60, (2, 9))
    return {
        "text": {"input_ids": ids, "attention_mask": (torch.arange(9) < torch.tensor([[9], [6]])).long()},
        "tokens": {"input_ids": ids},  # which know no mask, or pass over one
        "pair": {"input_ids": ids, "decoder_input_ids": ids[:, :5]},
        "speech": {"input_features": torch.randn(2, 8, 20), "decoder_input_ids": ids[:, :5]},
        "wave": {"input_values": torch.randn(2, 400)},
        "image": {"pixel_values": torch.randn(2, 3, 32, 32)},
        "both": {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)},
    }[kind]


def build(name: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model, and what it is called with by place and by keyword."""
    torch.manual_seed(0)
    if name in MODULES:
        module, *inputs = MODULES[name]()
        return module, tuple(inputs), {}
    import transformers

    ending, words, kind = ARCHITECTURES[name]
    config = _without_chance(getattr(transformers, f"{name}Config")(**words))
    config.use_cache = False
    return getattr(transformers, name + ending)(config), (), _inputs(kind)


def run(case: Case, backend: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """The results of a model; in training its gradients and buffers as well. Eager where `backend` is empty."""

    def as_dtype(each: torch.Tensor) -> torch.Tensor:
        return each.to(dtype) if each.is_floating_point() else each

    model, args, kwargs = build(case.name)
    model = deepcopy(model).to(dtype).train(case.trains)
    torch._dynamo.reset()
    options = {"keep": case.keep} if backend == "noyau" else None
    called = torch.compile(model, backend=backend, options=options, dynamic=case.dynamic) if backend else model
    with torch.set_grad_enabled(case.trains):
        whole = called(*tree_map_only(torch.Tensor, as_dtype, args), **tree_map_only(torch.Tensor, as_dtype, kwargs))
    results = [each for each in tree_leaves(whole) if isinstance(each, torch.Tensor)]
    if case.trains:
        losses = [each.to(dtype).square().mean() for each in results if each.requires_grad]
        torch.stack(losses).sum().backward()
        results += [each.grad for each in model.parameters() if each.grad is not None]
        results += list(model.buffers())
    return [each.detach() for each in results]


def judge(case: Case) -> tuple[str, str]:
    """The verdict on a case, and why."""
    theirs = run(case, "")
    with faults("leaves this graph to torch") as of_noyau:
        ours = outcome(run, case, "noyau")
    if of_noyau or isinstance(ours, str):
        return "exception", ours if isinstance(ours, str) else of_noyau[0]
    message = difference(theirs, ours, lambda: outcome(run, case, "", torch.float64), _MOST)
    return "wrong" if message else "right", message


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"of {', '.join((*ARCHITECTURES, *MODULES))}")
    parser.add_argument("--dynamic", action="store_true", help="with sizes that are names")
    add_options(parser, 600)
    wishes = parser.parse_args(words)
    names = wishes.only.split(",") if wishes.only else (*ARCHITECTURES, *MODULES)
    cases = [Case(name, trains, wishes.keep, wishes.dynamic) for name in names for trains in (False, True)]
    return judge_all(judge, cases, wishes)


if __name__ == "__main__":
    sys.exit(main())
