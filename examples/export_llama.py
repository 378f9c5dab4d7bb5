"""Export a LLaMA with random weights to ONNX, and check the file against torch.

    python examples/export_llama.py small.onnx
    python examples/export_llama.py medium.onnx --size medium --layers 4 --exporter torchscript --opset 23

The weights are drawn so that every part matters: activations keep their scale through the layers, attention is
far from uniform, and the weights of the norms differ from one. Inputs are `input_ids` and `attention_mask`, both
i64[batch, sequence]; the output is `logits`, f32[batch, sequence, vocabulary]. Softmax, rotary embedding and norms
are written out in plain operators. Needs torch, transformers (5 or later), onnx, onnxscript and onnxruntime.
"""

from __future__ import annotations

import argparse
import io
import logging
import lzma
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import version_converter
from transformers import LlamaConfig, LlamaForCausalLM

INPUTS = ("input_ids", "attention_mask")
CHECKED_SHAPES = ((1, 1), (1, 7), (2, 128))
EXPORT_SHAPE = (2, 7)
ALLOWED_DIFFERENCE = 1e-4  # of the largest logit; float32 in another order stays far below it
TORCHSCRIPT_NEWEST_OPSET = 20
ONE_FILE_BYTES = 1 << 30  # a protobuf message ends at 2 GiB


@dataclass(frozen=True, slots=True)
class Size:
    """The dimensions of a model: it has `heads` heads of `hidden / heads` each."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int


SIZES = {
    "tiny": Size(hidden=64, layers=2, heads=4, intermediate=176, vocabulary=1024),
    "small": Size(hidden=16, layers=2, heads=2, intermediate=44, vocabulary=1024),
    "medium": Size(hidden=1024, layers=2, heads=16, intermediate=2752, vocabulary=4096),
}


class Llama(torch.nn.Module):
    """A causal language model whose only output is its logits."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model = model
        self.positions_by_row = False

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1]).expand(input_ids.shape) if self.positions_by_row else None
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, use_cache=False)
        logits: torch.Tensor = result.logits
        return logits


def make_llama(size: Size, layers: int | None = None, kv_heads: int | None = None, attention: str = "eager") -> Llama:
    """A LLaMA of this size with the same random weights each time it is made."""
    config = LlamaConfig(
        hidden_size=size.hidden,
        num_hidden_layers=layers or size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=kv_heads or size.heads,
        intermediate_size=size.intermediate,
        vocab_size=size.vocabulary,
        use_cache=False,
        attn_implementation=attention,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:  # of a norm
                weight.normal_(mean=1.0, std=0.1)
            elif "embed_tokens" in name:
                weight.normal_()
            else:
                weight.normal_(std=weight.shape[1] ** -0.5)
    return Llama(model).eval()


def load(llama: Llama, folder: Path) -> None:
    """Take the weights that benchmarks/train_llama.py left in `folder`."""
    parts = sorted(folder.glob("weights.*.xz"))
    with np.load(io.BytesIO(lzma.decompress(b"".join(part.read_bytes() for part in parts)))) as arrays:
        halves = {name: torch.from_numpy(arrays[name]).view(torch.bfloat16).float() for name in arrays.files}
    llama.model.load_state_dict(halves)


def example(batch: int, sequence: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids below the vocabulary, and a mask that pads the end of each row but the first."""
    generator = torch.Generator().manual_seed(batch * 100_003 + sequence)
    ids = torch.randint(0, vocabulary, (batch, sequence), generator=generator)
    mask = torch.ones_like(ids)
    mask[1:, sequence - sequence // 4 :] = 0
    return ids, mask


def export_dynamo(llama: Llama, vocabulary: int, path: Path, opset: int) -> None:
    """Write `path` with torch.onnx.export(dynamo=True)."""
    # From opset 23 the exporter writes RotaryEmbedding, whose cosines and sines must have a row for each of the batch.
    llama.positions_by_row = opset >= 23
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    weight_bytes = sum(weight.numel() * weight.element_size() for weight in llama.parameters())
    program = torch.onnx.export(
        llama,
        example(*EXPORT_SHAPE, vocabulary),
        dynamo=True,
        opset_version=opset,
        input_names=list(INPUTS),
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(INPUTS, axes),
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)  # it names folders of this machine
    program.save(path, external_data=weight_bytes > ONE_FILE_BYTES)


def export_torchscript(llama: Llama, vocabulary: int, path: Path, opset: int) -> None:
    """Write `path` with torch.onnx.export(dynamo=False); past its newest opset, onnx converts the file."""
    torch.onnx.export(
        llama,
        example(*EXPORT_SHAPE, vocabulary),
        str(path),
        dynamo=False,
        opset_version=opset if opset <= TORCHSCRIPT_NEWEST_OPSET else 18,
        input_names=list(INPUTS),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in (*INPUTS, "logits")},
    )
    if opset > TORCHSCRIPT_NEWEST_OPSET:
        model = version_converter.convert_version(onnx.load(path), opset)
        model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
        onnx.save(model, path)


EXPORTERS = {"dynamo": export_dynamo, "torchscript": export_torchscript}


def check(llama: Llama, vocabulary: int, path: Path) -> None:
    """Compare onnxruntime with torch at a few shapes, print the largest differences, and stop if one is large."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch, sequence in CHECKED_SHAPES:
        arguments = example(batch, sequence, vocabulary)
        with torch.no_grad():
            want = llama(*arguments).numpy()
        feeds = {name: value.numpy() for name, value in zip(INPUTS, arguments, strict=True)}
        (got,) = session.run(None, feeds)
        difference, largest = float(np.abs(got - want).max()), float(np.abs(want).max())
        print(f"  ({batch}, {sequence}): largest difference {difference:.1e}, largest logit {largest:.1f}")
        if not difference <= ALLOWED_DIFFERENCE * largest:
            raise SystemExit(f"{path}: onnxruntime and torch differ at ({batch}, {sequence})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--layers", type=int, help="how many layers, in place of the size's own")
    parser.add_argument("--kv-heads", type=int, help="fewer key and value heads than query heads (grouped queries)")
    parser.add_argument("--exporter", choices=EXPORTERS, default="dynamo")
    parser.add_argument("--weights", type=Path, metavar="FOLDER", help="of benchmarks/train_llama.py")
    parser.add_argument("--opset", type=int, choices=(18, 23), default=18)
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager", help="eager writes softmax out")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")  # the exporters warn of their own deprecation and of shapes that are traced
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    size = SIZES[arguments.size]
    llama = make_llama(size, arguments.layers, arguments.kv_heads, arguments.attention)
    if arguments.weights:
        load(llama, arguments.weights)
    EXPORTERS[arguments.exporter](llama, size.vocabulary, arguments.path, arguments.opset)
    nodes = len(onnx.load(arguments.path, load_external_data=False).graph.node)
    print(f"{arguments.path}: {nodes} nodes, {arguments.path.stat().st_size / 1e6:.2f} MB")
    check(llama, size.vocabulary, arguments.path)


if __name__ == "__main__":
    main()
