"""Export small models with random weights as people export theirs: other families, caches, half types, both exporters.

    python examples/export_models.py FOLDER
    python examples/export_models.py FOLDER --only gpt2_dynamo_18 --only bert_torchscript_18
    python examples/export_models.py FOLDER --list

Writes NAME.onnx for each model, and NAME.npz beside it with inputs that fit. NAME is family_precision_exporter_opset,
where float32 goes without saying; _ort-LEVEL at its end is what onnxruntime's optimizers made of the file. What an
exporter refuses is reported and left out. Needs torch, transformers (5 or later), onnx, onnxscript and onnxruntime.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnx import version_converter
from torch import nn

TORCHSCRIPT_NEWEST_OPSET = 20
BATCH, SEQUENCE, PAST, VOCABULARY, LAYERS, HEADS, HIDDEN = 2, 7, 5, 256, 2, 4, 64
TOKENS = {0: "batch", 1: "sequence"}
IMAGES = {0: "batch"}
CACHED = {0: "batch", 2: "past"}
Axes = dict[int, str]


@dataclass(frozen=True, slots=True)
class Model:
    """A module and what it is exported with: `axes` are the symbolic extents of each input, `past` how many inputs at
    the end are one list."""

    module: nn.Module
    arguments: tuple[torch.Tensor, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axes: tuple[Axes, ...]
    past: int = 0

    @property
    def plain(self) -> int:
        return len(self.arguments) - self.past

    def nested(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The same, the inputs of the past as one list."""
        return (*flat[: self.plain], list(flat[self.plain :])) if self.past else tuple(flat)


class Logits(nn.Module):
    """A model of transformers, of which but the logits are given."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.positions_by_row = model, False

    def positions(self, input_ids: torch.Tensor, past: int = 0) -> torch.Tensor | None:
        """The position of each id, a row for each of the batch; None: the model makes one row for all."""
        length = input_ids.shape[1]
        return torch.arange(past, past + length).expand(input_ids.shape) if self.positions_by_row else None


class Decoder(Logits):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        positions = self.positions(input_ids)
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, use_cache=False)
        logits: torch.Tensor = found.logits
        return logits


class Encoder(Logits):
    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        logits: torch.Tensor = found.logits
        return logits


class Vision(Logits):
    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(pixel_values=pixel_values).logits
        return logits


class CachedDecoder(Logits):
    """One step of decoding: keys and values of the past in, those of past and present out."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, past: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        cache = transformers.DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        found = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=self.positions(input_ids, past[0].shape[2]),
            past_key_values=cache,
            use_cache=True,
        )
        present = [tensor for layer in found.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return (found.logits, *present)


class Autocast(nn.Module):
    """A module under torch.autocast: products in a half type, norms and softmax in float32."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, *inputs: Any) -> Any:
        with torch.autocast("cpu", dtype=self.dtype, cache_enabled=False):
            return self.module(*inputs)


class PreActivation(nn.Module):
    """A block of a small convolutional net: batch norm before the convolution, which no exporter can fold into it; a
    squeeze-and-excitation gate; a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.squeeze, self.excite = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.convolutions[0](torch.relu(self.norms[0](x)))
        inner = self.convolutions[1](nn.functional.silu(self.norms[1](inner)))
        gate = self.excite(nn.functional.silu(self.squeeze(inner.mean((2, 3), keepdim=True))))
        return x + inner * torch.sigmoid(gate)


def convnet() -> Model:
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        *(PreActivation(16) for _ in range(LAYERS)),
        nn.BatchNorm2d(16),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return _seen(module, 3)


def vit() -> Model:
    config = transformers.ViTConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * HIDDEN,
        image_size=32,
        patch_size=8,
        attn_implementation="eager",
    )
    return _seen(Vision(transformers.ViTForImageClassification(config)), 3)


def _seen(module: nn.Module, channels: int) -> Model:
    """A model of images."""
    images = torch.randn(BATCH, channels, 32, 32, generator=torch.Generator().manual_seed(1))
    return Model(module, (images,), ("pixel_values",), ("logits",), (IMAGES,))


def gpt2() -> Model:
    config = transformers.GPT2Config(
        n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_positions=512, **_texts(), **_no_tokens()
    )
    return _read(Decoder(transformers.GPT2LMHeadModel(config)), ("input_ids", "attention_mask"))


def bert() -> Model:
    config = transformers.BertConfig(**_sizes(), max_position_embeddings=512)
    module = Encoder(transformers.BertForMaskedLM(config))
    return _read(module, ("input_ids", "attention_mask", "token_type_ids"))


def llama() -> Model:
    return _decoder(transformers.LlamaConfig, transformers.LlamaForCausalLM)


def llama_sdpa() -> Model:
    """Attention as one operator, where the opset has it."""
    return _decoder(transformers.LlamaConfig, transformers.LlamaForCausalLM, attn_implementation="sdpa")


def qwen3() -> Model:
    """Grouped queries, and norms of queries and keys."""
    return _decoder(transformers.Qwen3Config, transformers.Qwen3ForCausalLM, num_key_value_heads=2, head_dim=16)


def mistral() -> Model:
    """Grouped queries, and a mask that is a sliding window."""
    return _decoder(
        transformers.MistralConfig, transformers.MistralForCausalLM, num_key_value_heads=2, sliding_window=4
    )


def gemma2() -> Model:
    """Grouped queries, norms before and after, and scores and logits that are capped by a tanh."""
    extra = {"num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4}
    return _decoder(transformers.Gemma2Config, transformers.Gemma2ForCausalLM, **extra)


def llama_cache() -> Model:
    """LLaMA with grouped queries and past keys and values."""
    made = _decoder(transformers.LlamaConfig, transformers.LlamaForCausalLM, num_key_value_heads=2)
    assert isinstance(made.module, Logits)
    generator = torch.Generator().manual_seed(2)
    past = tuple(torch.randn(BATCH, 2, PAST, HIDDEN // HEADS, generator=generator) for _ in range(2 * LAYERS))
    ids, _ = made.arguments
    names = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    return Model(
        CachedDecoder(made.module.model),
        (ids, torch.ones(BATCH, PAST + SEQUENCE, dtype=torch.int64), *past),
        ("input_ids", "attention_mask", *(f"past.{name}" for name in names)),
        ("logits", *(f"present.{name}" for name in names)),
        (TOKENS, {0: "batch", 1: "past + sequence"}, *[CACHED] * len(past)),
        past=len(past),
    )


def _decoder(config: type, model: type, **extra: Any) -> Model:
    return _read(Decoder(model(config(**{**_sizes(), **extra}))), ("input_ids", "attention_mask"))


def _sizes() -> dict[str, Any]:
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    return {**sizes, "intermediate_size": 4 * HIDDEN, **_texts(), **_no_tokens()}


def _texts() -> dict[str, Any]:
    return {"vocab_size": VOCABULARY, "use_cache": False, "attn_implementation": "eager"}


def _no_tokens() -> dict[str, None]:
    return dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


def _read(module: nn.Module, inputs: tuple[str, ...]) -> Model:
    """A model of texts: ids, a mask that pads the end of each row but the first, types."""
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1:, SEQUENCE - 2 :] = 0
    arguments = (ids, mask, ids % 2)[: len(inputs)]
    return Model(module, arguments, inputs, ("logits",), (TOKENS,) * len(inputs))


FAMILIES: dict[str, Callable[[], Model]] = {
    family.__name__: family
    for family in (gpt2, bert, llama, llama_sdpa, llama_cache, qwen3, mistral, gemma2, vit, convnet)
}
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def made(family: str, precision: str) -> Model:
    """A model with the same random weights each time it is made: norms and biases are drawn too."""
    torch.manual_seed(0)
    model = FAMILIES[family]()
    with torch.no_grad():
        for weight in model.module.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape) * 0.1)
            else:
                weight.normal_(std=weight[0].numel() ** -0.5)
        for name, running in model.module.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                running.add_(torch.rand(running.shape) * 0.5)
    return _in_precision(replace(model, module=model.module.eval()), precision)


def _in_precision(model: Model, precision: str) -> Model:
    if precision.startswith("autocast"):
        return replace(model, module=Autocast(model.module, HALVES[precision.removeprefix("autocast-")]))
    if precision == "float32":
        return model
    dtype = HALVES[precision]
    arguments = tuple(each.to(dtype) if each.is_floating_point() else each for each in model.arguments)
    return replace(model, module=model.module.to(dtype), arguments=arguments)


def export_dynamo(model: Model, path: Path, opset: int) -> None:
    """Write `path` with torch.onnx.export(dynamo=True)."""
    for module in model.module.modules():
        if isinstance(module, Logits):
            # From opset 23 the exporter writes RotaryEmbedding, whose tables must have a row for each of the batch.
            module.positions_by_row = opset >= 23
    names = {name for axes in model.axes for name in axes.values() if name.isidentifier()}
    known = {name: torch.export.Dim(name) for name in sorted(names)}
    axes = [{axis: known.get(name, torch.export.Dim.DYNAMIC) for axis, name in each.items()} for each in model.axes]
    nested = model.nested(axes)
    program = torch.onnx.export(
        model.module,
        model.nested(model.arguments),
        dynamo=True,
        opset_version=opset,
        input_names=list(model.inputs),
        output_names=list(model.outputs),
        dynamic_shapes=(nested,) if isinstance(model.module, Autocast) else nested,
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)  # it names folders of this machine
    program.save(path)


def export_torchscript(model: Model, path: Path, opset: int) -> None:
    """Write `path` with torch.onnx.export(dynamo=False); past its newest opset, onnx converts the file."""
    axes = {name: dict(each) for name, each in zip(model.inputs, model.axes, strict=True)}
    axes |= {name: {0: "batch"} for name in model.outputs}
    torch.onnx.export(
        model.module,
        model.nested(model.arguments),
        str(path),
        dynamo=False,
        opset_version=min(opset, TORCHSCRIPT_NEWEST_OPSET),
        input_names=list(model.inputs),
        output_names=list(model.outputs),
        dynamic_axes=axes,
    )
    if opset > TORCHSCRIPT_NEWEST_OPSET:
        converted = version_converter.convert_version(onnx.load(path), opset)
        converted.ir_version = onnx.helper.find_min_ir_version_for(converted.opset_import)
        onnx.save(converted, path)


EXPORTERS = {"dynamo": export_dynamo, "torchscript": export_torchscript}


def optimize_in_session(source: Path, path: Path, level: str) -> None:
    """What onnxruntime makes of a file when it opens it; "all" is for this machine alone."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def optimize_offline(source: Path, path: Path, level: str) -> None:
    """What onnxruntime.transformers.optimizer makes of a file: `level` is the type of the model that it looks for."""
    from onnxruntime.transformers import optimizer

    logging.disable(logging.WARNING)
    made = optimizer.optimize_model(str(source), model_type=level, num_heads=HEADS, hidden_size=HIDDEN, opt_level=0)
    logging.disable(logging.NOTSET)
    made.save_model_to_file(str(path))


@dataclass(frozen=True, slots=True)
class Export:
    """One file. `optimized` is what onnxruntime made of it: "extended" or "all" in a session, or the type of model for
    its optimizer of transformers; "" where it is as the exporter wrote it."""

    family: str
    exporter: str
    opset: int = 18
    precision: str = "float32"
    optimized: str = ""

    @property
    def name(self) -> str:
        precision = [] if self.precision == "float32" else [self.precision]
        optimized = [f"ort-{self.optimized}"] if self.optimized else []
        return "_".join([self.family, *precision, self.exporter, str(self.opset), *optimized])

    @property
    def plain(self) -> Export:
        """The file as the exporter wrote it."""
        return replace(self, optimized="")

    def write(self, folder: Path) -> None:
        """The model, and inputs that fit it."""
        if self.optimized:
            self.write_optimized(folder)
            return
        model, path = made(self.family, self.precision), folder / f"{self.name}.onnx"
        with torch.no_grad():
            EXPORTERS[self.exporter](model, path, self.opset)
        given = {value.name for value in onnx.load(path, load_external_data=False).graph.input}
        arrays = {name: array for name, array in zip(model.inputs, model.arguments, strict=True) if name in given}
        np.savez(path.with_suffix(".npz"), **{name: array.numpy() for name, array in arrays.items()})

    def write_optimized(self, folder: Path) -> None:
        source, path = (folder / f"{each.name}.onnx" for each in (self.plain, self))
        if not source.exists():
            self.plain.write(folder)
        optimize = optimize_in_session if self.optimized in ("extended", "all") else optimize_offline
        optimize(source, path, self.optimized)
        path.with_suffix(".npz").write_bytes(source.with_suffix(".npz").read_bytes())


def exports() -> Iterator[Export]:
    """Every file, in order."""
    for family in FAMILIES:
        for exporter in EXPORTERS:
            yield Export(family, exporter)
    for precision in ("float16", "autocast-float16", "autocast-bfloat16"):
        for exporter in EXPORTERS:
            yield Export("llama", exporter, 18, precision)
    for family in ("bert", "vit"):
        for precision in ("float16", "autocast-float16"):
            yield Export(family, "dynamo", 18, precision)
    for family in ("llama", "llama_sdpa", "llama_cache", "gpt2", "bert", "vit"):
        yield Export(family, "dynamo", 23)
    for optimized in ("extended", "all", "bert"):
        yield Export("bert", "torchscript", optimized=optimized)
    for optimized in ("extended", "gpt2"):
        yield Export("llama", "torchscript", optimized=optimized)
        yield Export("gpt2", "torchscript", optimized=optimized)
    yield Export("llama", "torchscript", 18, "float16", "all")
    yield Export("convnet", "dynamo", optimized="all")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="where the files go")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this file; can be repeated")
    parser.add_argument("--list", action="store_true", help="print the names, and write nothing")
    arguments = parser.parse_args()
    wanted = [each for each in exports() if not arguments.only or each.name in arguments.only]
    if arguments.list or arguments.folder is None:
        print("\n".join(each.name for each in wanted))
        return
    warnings.simplefilter("ignore")  # the exporters warn of their own deprecation and of shapes that are traced
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    for each in wanted:
        try:
            each.write(arguments.folder)
        except (RuntimeError, ValueError, TypeError, torch.onnx.errors.OnnxExporterError) as fault:
            print(f"{each.name}: not exported: {str(fault).splitlines()[0]}")
            with contextlib.suppress(FileNotFoundError):
                (arguments.folder / f"{each.name}.onnx").unlink()
            continue
        count = len(onnx.load(arguments.folder / f"{each.name}.onnx").graph.node)
        print(f"{each.name}: {count} nodes")


if __name__ == "__main__":
    main()
