"""The kernels of a graph on a GPU compiled and certified there, several at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from noyau.codegen.plan import Planned
from noyau.errors import BuildError
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.device_inputs import Drawer
from noyau.hosts.torch.modules.sites import TracedGraph, sizes_of
from noyau.jobs.optimize.candidate import Candidate, certify
from noyau.jobs.optimize.cuda import parallel_compile
from noyau.jobs.optimize.cuda.candidates import call_of, layouts_of
from noyau.jobs.optimize.cuda.certificate import DeviceTrial
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.torch.certification import CertifiedKernels
from noyau.kernels.certificates import (
    certificate_key,
    keep_certificate,
    recall_certificate,
)
from noyau.ops.dispatch.winners import machine_of
from noyau.verify.adversarial import FULL, Effort
from noyau.verify.certificate import Certificate

MOST_AT_ONCE = 16  # threads: Triton's compiler works without Python's lock


def certify_all(
    kernels: Sequence[Planned],
    source: TracedGraph,
    device: torch.device,
    say: Say,
    effort: Effort = FULL,
    memory: CertifiedKernels | None = None,
) -> list[Candidate]:
    """Each kernel compiled and certified on the device, several at once; one that is wrong has the reason. BuildError
    where there is no device that Triton compiles for, and it does not interpret."""
    require_device(device)
    memory = memory or memory_of(_stamp(device))
    fresh, results = [kernel for kernel in kernels if memory.of(kernel, effort) is None], dict[str, Candidate]()
    if fresh:
        say(f"compiling and checking {len(fresh)} kernels on {device}")
        parallel_compile.begin(fresh, source, device)
        # For what a key of any kernel holds and is kept: the machine, the device, digests of the files that certify.
        # Each thread would find them out for itself.
        certificate_key(_stamp(device), fresh[0].groups[0].original, (), True, 0)
        count = min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE) if device.type == "cuda" else 1
        with ThreadPoolExecutor(count) as pool:
            for one, stays in pool.map(lambda kernel: _certified(kernel, source, device, effort), fresh):
                results[one.planned.operator] = one
                if stays:
                    memory.keep(one, effort)
    return [memory.of(kernel, effort) or replace(results[kernel.operator], planned=kernel) for kernel in kernels]


def require_device(device: torch.device) -> None:
    """BuildError where nothing in Triton runs on a device."""
    from noyau.hosts.torch.cuda.device import missing_device
    from noyau.toolchain.triton.module import interprets

    if device.type == "cpu" and not interprets():
        raise BuildError(
            "kernels in Triton run on a GPU; TRITON_INTERPRET=1, set before triton is imported, has them interpreted"
        )
    lacks = missing_device(device)
    if lacks:
        raise BuildError(lacks)


def _certified(kernel: Planned, source: TracedGraph, device: torch.device, effort: Effort) -> tuple[Candidate, bool]:
    """A kernel with its evidence, and whether that holds another time: memory may be there then."""
    candidate = Candidate(kernel)
    try:
        return certify(candidate, lambda: (_certificate(kernel, source, device, effort), "")), True
    except Exception as error:  # noqa: BLE001  of torch, or of Triton's compiler: its own share no other class
        stays = not isinstance(error, torch.OutOfMemoryError)
        return replace(candidate, reason=f"does not run: {first_line(error)}"), stays


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _certificate(kernel: Planned, source: TracedGraph, device: torch.device, effort: Effort) -> Certificate:
    group, call = kernel.groups[0], kernel_of(kernel, source)
    sizes = sizes_of(group, source)
    key = certificate_key(
        f"{kernel.text} {_stamp(device)} {sorted(sizes.items())} {effort}", group.original, (), True, 0
    )
    certificate = recall_certificate(key, f"{kernel.operator}[triton]")
    if certificate is not None:
        return certificate
    with on_device(device):
        trial = DeviceTrial(call, group, source, lambda: parallel_compile.wait(kernel))
        made = trial.certificate(Drawer(group, source, device), effort)
    keep_certificate(key, made)
    return made


def machine_on(device: torch.device) -> str:
    """Facts of a device that a record depends on."""
    return "; ".join(machine_of(str(device))) if device.type == "cuda" else "Triton's interpreter"


@cache
def memory_of(stamp: str) -> CertifiedKernels:
    """The candidates of this process on such a device: where there are several kinds, of each by itself."""
    del stamp
    return CertifiedKernels()


@cache
def _stamp(device: torch.device) -> str:
    """The device, and a digest of the files that certify there."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{machine_on(device)} {code}"


def on_device(device: torch.device) -> Any:
    """The device as the current one, in a `with`."""
    from noyau.hosts.torch.cuda.launch import guard

    return guard(device)


def kernel_of(kernel: Planned, source: TracedGraph) -> DeviceCall:
    """A kernel as a function of the tensors that its group reads."""
    return call_of(kernel, layouts_of(kernel.groups[0], source))
