"""The kernels of a graph on a GPU judged: certified there, and timed against what torch runs otherwise."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from noyau.codegen.plan import Planned
from noyau.compiler.partition.costs import traffic
from noyau.errors import BuildError, InputError, NoyauError
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.device_inputs import PATTERNS, Drawer
from noyau.hosts.torch.modules.sites import Traced, alone, sizes_in, sizes_of
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.cuda import parallel_compile
from noyau.jobs.optimize.cuda.candidates import call_of, layouts_of
from noyau.jobs.optimize.cuda.certificate import DeviceTrial
from noyau.jobs.optimize.decision import Timing, decide
from noyau.jobs.optimize.torch.candidates import input_names
from noyau.jobs.optimize.torch.selection import Clock, Known, Rest
from noyau.kernels.result_cache import (
    certificate_key,
    keep_certificate,
    keep_timing,
    recall_certificate,
    recall_timing,
    timing_key,
)
from noyau.ops.dispatch.winners import machine_of
from noyau.timing.comparison import Comparison
from noyau.toolchain.cached_records import today
from noyau.verify.adversarial import FULL, Effort
from noyau.verify.certificate import Certificate

Say = Callable[[str], None]
MOST_AT_ONCE = 16  # threads: Triton's compiler works without Python's lock
ROUNDS = 6  # of a timing


def checked(
    kernels: Sequence[Planned],
    found: Traced,
    device: torch.device,
    say: Say,
    effort: Effort = FULL,
    known: Known | None = None,
) -> list[Candidate]:
    """Each kernel compiled and certified on the device, several at once; one that is wrong has the reason. BuildError
    where there is no device that Triton compiles for, and it does not interpret."""
    require_device(device)
    known = known or known_by(_what_judges(device))
    fresh, made = [kernel for kernel in kernels if known.of(kernel, effort) is None], dict[str, Candidate]()
    if fresh:
        say(f"compiling and checking {len(fresh)} kernels on {device}")
        parallel_compile.begin(fresh, found, device)
        # For what a key of any kernel holds and is kept: the machine, the device, digests of the files that judge. Each
        # thread would find them out for itself.
        certificate_key(_what_judges(device), fresh[0].groups[0].original, (), True, 0)
        count = min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE) if device.type == "cuda" else 1
        with ThreadPoolExecutor(count) as pool:
            for one, stays in pool.map(lambda kernel: _checked(kernel, found, device, effort), fresh):
                made[one.planned.operator] = one
                if stays:
                    known.keep(one, effort)
    return [known.of(kernel, effort) or replace(made[kernel.operator], planned=kernel) for kernel in kernels]


def require_device(device: torch.device) -> None:
    """BuildError where nothing in Triton runs on a device."""
    from noyau.hosts.torch.cuda.errors import lacking
    from noyau.toolchain.triton.module import interprets

    if device.type == "cpu" and not interprets():
        raise BuildError(
            "kernels in Triton run on a GPU; TRITON_INTERPRET=1, set before triton is imported, has them interpreted"
        )
    lacks = lacking(device)
    if lacks:
        raise BuildError(lacks)


def _checked(kernel: Planned, found: Traced, device: torch.device, effort: Effort) -> tuple[Candidate, bool]:
    """A kernel with its evidence, and whether that holds another time: memory may be there then."""
    judged = Candidate(kernel)
    try:
        certificate = _certificate(kernel, found, device, effort)
    except NoyauError as error:
        return replace(judged, reason=f"cannot be checked: {error}"), True
    except Exception as error:  # noqa: BLE001  of torch, or of Triton's compiler: its own share no other class
        stays = not isinstance(error, torch.OutOfMemoryError)
        return replace(judged, reason=f"does not run: {_first_line(error)}"), stays
    return replace(judged, certificate=certificate, reason="" if certificate.ok else certificate.summary()), True


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _certificate(kernel: Planned, found: Traced, device: torch.device, effort: Effort) -> Certificate:
    group, call = kernel.groups[0], kernel_of(kernel, found)
    sizes = sizes_of(group, found)
    key = certificate_key(
        f"{kernel.text} {_what_judges(device)} {sorted(sizes.items())} {effort}", group.original, (), True, 0
    )
    known = recall_certificate(key, f"{kernel.operator}[triton]")
    if known is not None:
        return known
    with _on(device):
        trial = DeviceTrial(call, group, found, lambda: parallel_compile.wait(kernel))
        made = trial.certificate(Drawer(group, found, device), effort)
    keep_certificate(key, made)
    return made


def machine_on(device: torch.device) -> str:
    """What a record depends on of a device."""
    return "; ".join(machine_of(str(device))) if device.type == "cuda" else "Triton's interpreter"


@cache
def known_by(judges: str) -> Known:
    """What this process has found of kernels on such a device: where there are several kinds, of each by itself."""
    del judges
    return Known()


@cache
def _what_judges(device: torch.device) -> str:
    """The device, and a digest of the files that certify there."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{machine_on(device)} {code}"


def _on(device: torch.device) -> Any:
    from noyau.hosts.torch.cuda.launch import guard

    return guard(device)


def kernel_of(kernel: Planned, found: Traced) -> DeviceCall:
    """A kernel as a function of the tensors that its group reads."""
    return call_of(kernel, layouts_of(kernel.groups[0], found))


def timed(
    judged: Candidate, found: Traced, device: torch.device, against: str, rest: Rest, keep: str, clock: Clock
) -> Candidate:
    """The kernel timed in its first place against torch's own nodes there, by the device's clock; kept by one of
    noyau.jobs.optimize.decision.KEEPS."""
    if judged.reason:
        return judged
    if keep == "all":
        return replace(judged, kept=True)
    try:
        timing = _timing(judged.planned, found, device, against, rest, clock)
    except Exception as error:  # noqa: BLE001  as in `_checked`
        return replace(judged, reason=f"not timed: {_first_line(error)}")
    decision = decide([timing], keep)
    return replace(judged, timings=(timing,), kept=decision.kept, reason=decision.reason)


def _timing(kernel: Planned, found: Traced, device: torch.device, against: str, rest: Rest, clock: Clock) -> Timing:
    group, call = kernel.groups[0], kernel_of(kernel, found)
    part, reads = alone(found, group)
    sizes, moved = sizes_of(group, found), traffic(kernel.graph, sizes_in(kernel.graph, found))
    shapes = [
        str((each.meta["val"].shape, each.meta["val"].dtype)) for each in reads if hasattr(each.meta["val"], "shape")
    ]
    key = timing_key((kernel.text, against, machine_on(device), part.code, *shapes), {}, 1)
    recalled = recall_timing(key)
    if recalled is not None:
        return Timing(sizes, recalled.comparison, None, moved, timed_on=recalled.timed_on, recalled=True)
    if clock.left_s <= 0:
        raise InputError("there is no time left; a larger budget_s would do")
    start_s = time.perf_counter()
    given = Drawer(group, found, device).drawn(PATTERNS[0], 0)
    own, others = [given[name] for name in input_names(group)], [given[node.name] for node in reads]
    before = rest(part, others)
    with torch.no_grad(), _on(device):
        comparison = compared(device, lambda: before(*others), lambda: call(*own))
    clock.left_s -= time.perf_counter() - start_s
    keep_timing(key, comparison)
    return Timing(sizes, comparison, None, moved, timed_on=today())


def compared(device: torch.device, before: Callable[[], Any], after: Callable[[], Any]) -> Comparison:
    """Two calls by the clock of a device: what they take there, and not what Python takes to launch them."""
    from noyau.hosts.torch.cuda.clock import time_calls

    times = time_calls({"before": before, "after": after}, rounds=ROUNDS, cold=False)
    return Comparison(times["before"].samples_s, times["after"].samples_s)
