"""Kernels under check, and how each is run: written by hand, in whatever process that can be."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import NoyauError
from noyau.jobs.check.isolated_kernels import KernelProcesses
from noyau.jobs.check.sanitized_runs import Watch, by_hand
from noyau.kernels.c.parameters import roles_of
from noyau.kernels.callers import CALLERS, SYMBOL, KernelCaller, caller_of
from noyau.kernels.guarded_run import How
from noyau.kernels.reference import Reference
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.trust import note, remember, revoke
from noyau.kernels.user_kernel import UserKernel
from noyau.sanitizer.routes import KernelCase, is_watched, missing_extra, watch
from noyau.signatures.types import Instance
from noyau.verify.certificate import Certificate

Array = np.ndarray
_END = re.compile(r"\b(its )?(input|output) (\d+)")
_CORES = os.cpu_count() or 1
MANY = max(4, _CORES)  # threads; more than the cores of a small machine, so that they take turns


class KernelCandidate(Protocol):
    """A kernel under check. `called` is its name in messages, `place` its file and line; `threads`: the numbers of
    threads that it can run with, none where it has no say in that; `layouts` that it takes beside packed arrays;
    `in_pieces`: it is called for pieces of its work."""

    @property
    def name(self) -> str: ...

    @property
    def language(self) -> str: ...

    @property
    def called(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def threads(self) -> tuple[int, ...]: ...

    @property
    def layouts(self) -> tuple[str, ...]: ...

    @property
    def in_pieces(self) -> bool: ...

    @property
    def is_replayed(self) -> bool:
        """Whether each run is the same: thread after thread, on arrays of its own, whatever is asked of a run."""
        ...

    @property
    def is_trusted(self) -> bool:
        """Whether it runs on all arrays of the ranks that it was checked with; else each kind has a certificate."""
        ...

    @property
    def skipped(self) -> str:
        """Why it cannot be tried here, or nothing."""
        ...

    def open(self, instance: Instance) -> None:
        """Make it ready. BuildError where it does not build, SignatureError where it does not take the instance."""
        ...

    def takes(self, instance: Instance, arrays: Sequence[Array], *, runs: bool = True) -> bool:
        """Whether there is a kernel for these arrays, to run or else to be watched; else `reason` says why not."""
        ...

    @property
    def reason(self) -> str: ...

    def run(self, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        """The results of one run between guards. CheckError for what is wrong with a run."""
        ...

    def watched(self) -> Watch | str | None:
        """A run with every access watched, or why there is none; None where nobody asks."""
        ...

    def passed(self, instances: Sequence[Instance], certificate: Certificate) -> None:
        """Record that nothing is wrong with it."""
        ...

    def failed(self, fault: str) -> None:
        """Record that something is wrong with it."""
        ...

    def notes(self) -> list[str]:
        """Notes for a report on how it was run."""
        ...


@dataclass(slots=True)
class ByHand:
    """A kernel that was written by hand."""

    kernel: UserKernel
    reference: Reference
    apart: KernelProcesses

    def __post_init__(self) -> None:
        note(self.kernel, self.reference)

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def language(self) -> str:
        return self.kernel.language

    @property
    def caller(self) -> KernelCaller | None:
        return CALLERS.get(self.language)

    @property
    def called(self) -> str:
        return self.kernel.called

    @property
    def place(self) -> str:
        """Its file and line; of a text in C the line of its function."""
        kernel = self.kernel
        if kernel.function is not None or kernel.place == "a text":
            return kernel.place
        match = re.search(rf"\b{re.escape(kernel.entry)}\s*\(", kernel.text)
        return f"{kernel.place}:{kernel.text.count(chr(10), 0, match.start()) + 1}" if match else kernel.place

    @property
    def threads(self) -> tuple[int, ...]:
        return (1, 2, MANY) if self.in_pieces or is_parallel(self.kernel) else ()

    @property
    def in_pieces(self) -> bool:
        return _is_in_pieces(self.kernel)

    @property
    def layouts(self) -> tuple[str, ...]:
        return () if self.caller is None else self.caller.layouts(self.kernel)

    @property
    def skipped(self) -> str:
        if caller_of(self.kernel) is not None:
            return ""
        if lacks := missing_extra(self.language):
            return lacks
        if self.caller is not None or is_watched(self.language):
            return ""
        return f"it is in {self.language}, which needs a GPU that noyau cannot use here yet"

    @property
    def is_trusted(self) -> bool:
        return True

    @property
    def is_replayed(self) -> bool:
        """Whether it runs here only with every access watched."""
        return self.caller is None

    def open(self, instance: Instance) -> None:
        if self.caller is not None:
            self.caller.prepare(self.kernel, instance, self.reference.constants)
            if self.caller.launch is not None:
                self.apart.chosen_for_triton()  # or it is not tried, which is no fault of its numbers

    def takes(self, instance: Instance, arrays: Sequence[Array], *, runs: bool = True) -> bool:
        return True

    @property
    def reason(self) -> str:
        return ""

    def run(self, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        try:
            if self.is_replayed:
                return list(watch(KernelCase(self.kernel, instance, arrays, self.reference.constants)).outputs or ())
            return self.apart.run(self.kernel, instance, arrays, how)
        except NoyauError as error:
            message = _END.sub(lambda match: _named(match, instance), str(error))
            raise error.reworded(self.worded(message)) from None

    def watched(self) -> Watch | str | None:
        return by_hand(self.kernel, self.reference.constants)

    def worded(self, message: str) -> str:
        """A message without the names of what it runs in."""
        before = None
        while message != before:
            before = message
            for name in (self.apart.op.name, self.called, SYMBOL, self.name):
                for prefix in (f"{name}: ", f"{name} "):
                    message = message.removeprefix(prefix)
        return message

    def passed(self, instances: Sequence[Instance], certificate: Certificate) -> None:
        remember(self.kernel, self.reference, instances, certificate.to_json())

    def failed(self, fault: str) -> None:
        revoke(self.kernel, self.reference, fault)

    def notes(self) -> list[str]:
        way = self.apart.triton if caller_of(self.kernel, gpu=True) is not None else self.apart.way
        alone = [way.note] if not LANGUAGES[self.language].is_native and way is not None and way.note else []
        packed = ["on packed arrays"] if not self.layouts else []
        configs = len(configs_of(self.kernel.function))
        packed += [f"with each of {configs} configurations in turn"] if configs else []
        threads = [f"with {', '.join(map(str, self.threads))} threads"] if self.threads else []
        watched = ["run as a GPU would, on this machine"] if self.is_replayed else []
        return [*alone, *packed, *threads, *watched]


def _named(match: re.Match[str], instance: Instance) -> str:
    """`input 0` by its name; `its input x` keeps the word."""
    ends = instance.outputs if match[2] == "output" else instance.inputs
    return f"{'its input ' if match[1] else ''}{ends[int(match[3])].name}"


@lru_cache(maxsize=64)
def _is_in_pieces(kernel: UserKernel) -> bool:
    if kernel.prototype is None or not LANGUAGES[kernel.language].is_native:
        return False
    return roles_of(kernel.prototype, kernel.usage, kernel.target, kernel.called).in_pieces


def is_parallel(kernel: UserKernel) -> bool:
    """Whether it has threads whose number can be chosen: OpenMP in C, or parallel=True of numba."""
    language = LANGUAGES[kernel.language]
    if language.is_native:
        return any("openmp" in flag for flag in kernel.usage.options.get("flags", ()))
    options: Mapping[str, Any] = getattr(kernel.function, "targetoptions", {})
    return bool(language.thread_pool and options.get("parallel"))
