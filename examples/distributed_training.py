"""Training of a module with noyau's kernels on several processes: DDP and FSDP2, on the CPU by gloo, on GPUs by NCCL.

`python examples/distributed_training.py --processes 2 --by ddp` trains a small model on halves of each batch, then in
one process on whole batches, and compares the losses and the weights; with `--device cuda` each process has a GPU of
its own. noyau compiles what each process computes; torch sums gradients and gathers weights between the graphs, as for
any backend.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS, ROWS, WIDTH = 4, 64, 32


class Block(nn.Module):
    """A normalisation, a product, and a gate: what noyau joins into kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(nn.functional.silu(gate) * value)


def place_of(device: str, rank: int) -> torch.device:
    """The device of a process: the processor, which all share, or a GPU of its own."""
    return torch.device(device, rank) if device == "cuda" else torch.device(device)


def train(by: str, device: str, rank: int = 0, processes: int = 1) -> dict[str, torch.Tensor]:
    """The losses and the weights after some steps, of the rows that this process has of each batch."""
    torch.manual_seed(0)
    place = place_of(device, rank)
    model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 1)).to(place)
    for block in model[:2]:
        block.compile(backend="noyau", options={"keep": "all"})  # kernels also where torch is as fast
    if by == "fsdp":
        for block in model[:2]:
            fully_shard(block)
        fully_shard(model)
    wrapped = DistributedDataParallel(model) if by == "ddp" else model
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    noise, losses = torch.Generator().manual_seed(1), []
    for _ in range(STEPS):
        x, y = torch.randn(ROWS, WIDTH, generator=noise), torch.randn(ROWS, 1, generator=noise)
        x, y = (each.chunk(processes)[rank].to(place) for each in (x, y))
        loss = nn.functional.mse_loss(wrapped(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    weights = {name: w.full_tensor() if isinstance(w, DTensor) else w for name, w in model.state_dict().items()}
    return {"losses": torch.stack(losses), **weights}


def work(rank: int, processes: int, by: str, device: str, folder: str) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    way = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(way, init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    results = train(by, device, rank, processes)
    dist.all_reduce(results["losses"])
    results["losses"] /= processes
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    dist.destroy_process_group()


def difference(by: str, device: str, processes: int) -> float:
    """The largest difference between several processes and one, of losses and weights, in parts of the largest."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (processes, by, device, folder), processes)
        several = torch.load(Path(folder) / "results.pt", map_location=place_of(device, 0))
    one = train("none", device)
    return max(float((several[name] - value).abs().max() / value.abs().max()) for name, value in one.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--by", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    largest = difference(arguments.by, arguments.device, arguments.processes)
    print(f"{arguments.by}, {arguments.processes} processes: largest difference from one process {largest:.1e}")


if __name__ == "__main__":
    main()
