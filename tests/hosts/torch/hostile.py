"""What may go wrong with a GPU, one case a process, for it may end what comes after:
`python -m tests.hosts.torch.hostile CASE` prints the error of each call, its class first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
import triton
import triton.language as tl

import noyau
from noyau.jobs.optimize.torch.backend import backend
from tests.hosts.torch import kinds


@noyau.op("f32[n] -> f32[n]")
def copied(x):
    return x + 0


@copied.kernel(launch=lambda n: (n,), trust=True)
@triton.jit
def beside(x, out, n):
    tl.store(out + (1 << 40) + tl.program_id(0), tl.load(x))  # where nothing lies


@noyau.op("f32[n] -> f32[n]")
def repeated(x):
    return x + 0


@repeated.kernel(launch=lambda n: (1, n), trust=True)
@triton.jit
def along_y(x, out, n):
    tl.store(out + tl.program_id(1), tl.load(x + tl.program_id(1)))


@noyau.op("f16[64, 1024] -> f16[64, 64]")
def squared(x):
    return x @ x.T


@squared.kernel(launch=lambda: (1,), options={"num_warps": 8}, trust=True)
@triton.jit
def at_once(x, out):
    rows, columns = tl.arange(0, 64), tl.arange(0, 1024)
    wide = tl.load(x + rows[:, None] * 1024 + columns[None, :])
    high = tl.load(x + rows[None, :] * 1024 + columns[:, None])
    tl.store(out + rows[:, None] * 64 + rows[None, :], tl.dot(wide, high).to(tl.float16))


@noyau.op("f32[n] -> f32[n]")
def kept(x):
    return x + 0


@kept.kernel(launch=lambda n: (1,), options={"num_warps": 64}, trust=True)
@triton.jit
def by_many(x, out, n):
    tl.store(out, tl.load(x))


def lost() -> Iterator[Callable[[], object]]:
    """A kernel of a user's traps; then comes what ran before, what is new, a gradient, a module, and it again."""
    x, w = torch.ones(4, 64, device="cuda"), torch.ones(64, device="cuda", requires_grad=True)
    kinds.softmax(x)
    made = kinds.rmsnorm(x, w)
    module = torch.compile(lambda x: torch.softmax(x * 2, -1) + 1, backend=backend)
    module, other = (
        torch.no_grad()(module),
        torch.no_grad()(torch.compile(lambda x: torch.tanh(x) + 1, backend=backend)),
    )
    for call in (module, other, other, other):
        call(x)
    torch.cuda.synchronize()
    copied(x[0])
    with suppress(RuntimeError):
        torch.cuda.synchronize()
    yield lambda: kinds.softmax(x)
    yield lambda: kinds.doubled(x)
    yield lambda: made.backward(x)
    yield lambda: module(x)
    yield lambda: other(x)
    yield lambda: copied(x[0])


def limits() -> Iterator[Callable[[], object]]:
    """More programs than there may be, and more memory a program than there is."""
    yield lambda: repeated(torch.ones(1 << 16, device="cuda"))
    yield lambda: squared(torch.ones(64, 1024, device="cuda", dtype=torch.float16))
    yield lambda: kept(torch.ones(1, device="cuda"))
    yield lambda: print(float(kinds.softmax(torch.ones(2, 2, device="cuda")).sum()))


def memory() -> Iterator[Callable[[], object]]:
    """A device that is full as an op is first called, and as its gradient is, and has room later."""
    x = torch.ones(1 << 14, 1 << 12, device="cuda", requires_grad=True)
    w = torch.ones(1 << 12, device="cuda")
    all_there_is = torch.cuda.get_device_properties(0).total_memory
    allow = torch.cuda.set_per_process_memory_fraction
    few = 1.1 * x.nbytes / all_there_is
    allow(few)
    yield lambda: kinds.softmax(x.detach())
    yield lambda: kinds.rmsnorm(x, w)
    allow(1.0)
    made = kinds.softmax(x)
    allow(2 * few)
    yield lambda: made.backward(made.detach(), retain_graph=True)
    allow(1.0)
    made.sum().backward()
    print(bool(x.grad.abs().max() < 1e-6))


def absent() -> Iterator[Callable[[], object]]:
    """There is no device that can be used; the CPU goes on as it does."""
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    made = kinds.softmax.generate("triton")
    yield lambda: DeviceKernel(made.text, made.program.kernels[0], "cuda:0")
    yield lambda: noyau.check(copied, generated=False).raise_if_bad()
    yield lambda: print(float(kinds.softmax(torch.ones(2, 2)).sum()))


def main(case: str) -> None:
    for call in {"lost": lost, "limits": limits, "memory": memory, "absent": absent}[case]():
        try:
            call()
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
