"""Train the LLaMA of `examples/export_llama.py` on the text of Python's own library, for tests of weights in few bits.

    python benchmarks/train_llama.py FOLDER [--size medium] [--steps 2000] [--tokens 20000000]
    python examples/export_llama.py trained.onnx --size medium --weights FOLDER

With random weights the logits are flat, and any change of a weight flips tokens: only a trained model can show what
`--budget same-tokens` keeps. FOLDER gets the weights rounded to bfloat16 (`weights.0.xz` ..., together one archive of
arrays), and `tokens.npz`: 64 rows of 128 tokens that it was not trained on, for `--calibration`. It takes about a
minute on a large GPU. Needs torch, transformers and tokenizers.
"""

from __future__ import annotations

import argparse
import io
import lzma
import sys
import sysconfig
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from export_llama import SIZES, Llama, make_llama

PART_BYTES = 12 << 20
ROW = 256
HELD_OUT = (64, 128)


def texts(most_bytes: int) -> list[str]:
    """Sources of Python's library and of the packages beside it, in a fixed order, up to `most_bytes`."""
    paths = sysconfig.get_paths()
    files = sorted(each for name in ("stdlib", "purelib") for each in Path(paths[name]).rglob("*.py"))
    result, size = list[str](), 0
    for path in (files[at] for at in np.random.default_rng(0).permutation(len(files))):
        if size < most_bytes:
            result.append(path.read_text("utf-8", errors="ignore")[:100_000])
            size += len(result[-1])
    return result


def tokens(vocabulary: int, most: int) -> torch.Tensor:
    """The texts as ids of a byte-level BPE that is trained on them."""
    sources = texts(4 * most)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sources[: len(sources) // 8 or 1], trainer)
    return torch.tensor([each for row in tokenizer.encode_batch(sources) for each in row.ids][:most])


def train(llama: Llama, ids: torch.Tensor, steps: int, batch: int) -> None:
    """Adam with a cosine, in bfloat16 where there is a GPU; the loss is printed as it falls."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, ids = llama.model.to(device).train(), ids.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.05)
    for step in range(steps):
        starts = torch.randint(len(ids) - ROW, (batch, 1), device=device)
        rows = ids[starts + torch.arange(ROW, device=device)]
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % (steps // 10 or 1) == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def save(llama: Llama, folder: Path) -> None:
    """Write the weights as the upper halves of their float32, in parts that are small enough to travel."""
    arrays = {
        name: (value.detach().float().cpu().bfloat16().view(torch.int16).numpy())
        for name, value in llama.model.state_dict().items()
    }
    np.savez(buffer := io.BytesIO(), **arrays)
    packed = lzma.compress(buffer.getvalue(), preset=1)
    for part, start in enumerate(range(0, len(packed), PART_BYTES)):
        (folder / f"weights.{part}.xz").write_bytes(packed[start : start + PART_BYTES])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=20_000_000, help="how much text, at most")
    arguments = parser.parse_args()
    size = SIZES[arguments.size]
    ids = tokens(size.vocabulary, arguments.tokens)
    print(f"{len(ids)} tokens", flush=True)
    rows, length = HELD_OUT
    llama = make_llama(size, attention="sdpa")
    train(llama, ids[: -rows * length], arguments.steps, arguments.batch)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    save(llama, arguments.folder)
    held_out = ids[-rows * length :].reshape(HELD_OUT).numpy()
    np.savez_compressed(arguments.folder / "tokens.npz", input_ids=held_out, attention_mask=np.ones_like(held_out))


if __name__ == "__main__":
    main()
