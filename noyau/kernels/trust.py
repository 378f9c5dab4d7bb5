"""The trust in user kernels: those may run that were checked as they are, on this machine, or are trusted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from noyau.errors import NoyauError, OutputError
from noyau.kernels.callers import CALLERS, caller_of
from noyau.kernels.closure_fingerprint import fingerprint
from noyau.kernels.reference import Reference
from noyau.kernels.user_kernel import UserKernel
from noyau.signatures.instances import axes_of, spell_axes
from noyau.signatures.types import Instance
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler

_SUFFIX = ".json"
_WRONG = "wrong"  # the fact that a check found an error
_SEEN: set[str] = set()  # keys that were found on disk; what is checked stays so for as long as a process lasts
_FAULTS: dict[str, str] = {}  # what checks found wrong, or nothing, by key, where the disk does not take it


def ineligible(
    kernel: UserKernel, reference: Reference, instance: Instance, constants: Mapping[str, Any], device: str = "cpu"
) -> str:
    """The reason why a kernel may not run for an instance, whose arrays lie on a device, or nothing."""
    caller = caller_of(kernel, gpu=device != "cpu")
    if caller is None:
        lies = "which NumPy arrays cannot be given to" if device == "cpu" else f"and the tensors lie on {device}"
        return f"it is in {kernel.language}, {lies}"
    untaken = [name for name, value in reference.constants.items() if constants.get(name, value) != value]
    missed = [name for name in untaken if not kernel.takes(name) and kernel.usage.args is None]
    if missed:
        return f"it does not take the constant {missed[0]}, which is not at its default"
    if not kernel.usage.trust and not is_checked(kernel, reference, instance):
        return _unchecked(kernel, reference, instance)
    try:
        caller.prepare(kernel, instance, constants)
    except NoyauError as error:
        return str(error)
    return ""


def is_checked(kernel: UserKernel, reference: Reference, instance: Instance) -> bool:
    """Whether a check passed on this very text and machine, with inputs of these dtypes, and with as many axes, and
    none has found it wrong since."""
    return not _fault(kernel, reference) and all(
        _is_known(kernel, reference, fact) for fact in _facts(kernel, instance)
    )


def note(kernel: UserKernel, reference: Reference) -> None:
    """Take them as they are now, before a check runs them: what counts its calls would be another function then."""
    _key(kernel, reference, "")


def remember(
    kernel: UserKernel, reference: Reference, instances: Iterable[Instance], certificate: Mapping[str, Any]
) -> None:
    """Note that a check with these dtypes and ranks passed; where the cache cannot be written, for this process
    alone."""

    def write(path: Path) -> None:
        path.write_text(json.dumps(certificate), "utf-8")

    for fact in dict.fromkeys(fact for instance in instances for fact in _facts(kernel, instance)):
        key = _key(kernel, reference, fact)
        _SEEN.add(key)
        cache.store(key, _SUFFIX, write)
    if _fault(kernel, reference):
        revoke(kernel, reference, "")


def revoke(kernel: UserKernel, reference: Reference, fault: str) -> None:
    """Note what a check found wrong, whatever others have shown; where the cache cannot be written, for this process
    alone."""
    key = _key(kernel, reference, _WRONG)
    try:
        cache.keep(key, {"fault": fault})
    except OutputError:
        _FAULTS[key] = fault
    else:
        _FAULTS.pop(key, None)  # copies of this process check too, and leave word on the disk alone


def _fault(kernel: UserKernel, reference: Reference) -> str:
    """The fault that the last check found, or nothing."""
    key = _key(kernel, reference, _WRONG)
    if key not in _FAULTS:
        told = cache.recall(key)
        return str(told.get("fault", "")) if isinstance(told, dict) else ""
    return _FAULTS[key]


def _facts(kernel: UserKernel, instance: Instance) -> list[str]:
    """The facts that a check shows of a kernel by running it on such inputs, in words: that it was checked at all;
    their dtypes; and how many axes stand for each `*batch`: a loop over two axes gives other numbers on three. What was
    shown of dtypes with some ranks, and of ranks with some dtypes, holds for both."""
    axes = axes_of(kernel.target.signature, instance.ranks) if kernel.target.signature else {}
    return ["", ", ".join(dtype.value for dtype in instance.dtypes), *([spell_axes(axes)] if axes else [])]


def _unchecked(kernel: UserKernel, reference: Reference, instance: Instance) -> str:
    """The reason why a kernel that is not checked for an instance may not run."""
    if fault := _fault(kernel, reference):
        return f"noyau.check finds it wrong: {fault}"
    missing = [fact for fact in _facts(kernel, instance) if not _is_known(kernel, reference, fact)]
    if not missing or not missing[0]:
        return "it has not been checked yet as it is: noyau.check(op) does that, or attach it with trust=True"
    message = " and ".join(missing)
    return f"noyau.check has not found it right with {message}: it says why, or wants more time, as budget_s="


def _is_known(kernel: UserKernel, reference: Reference, fact: str) -> bool:
    key = _key(kernel, reference, fact)
    if key not in _SEEN and cache.lookup(key, _SUFFIX) is not None:
        _SEEN.add(key)
    return key in _SEEN


def _key(kernel: UserKernel, reference: Reference, fact: str) -> str:
    """The key of a check that showed something: kernel, what is said of it, reference, signature, machine; as they
    were when this was asked first."""
    usage = kernel.usage
    said: list[Any] = [usage.launch, usage.args, usage.init, usage.constants, usage.returns, usage.updates]
    said += [usage.options, reference.constants, kernel.function, reference.function]
    parts = [kernel.language, kernel.entry, kernel.text, str(kernel.target.signature), *map(fingerprint, said), fact]
    caller = CALLERS.get(kernel.language)
    return cache.digest("checked", *parts, c_compiler.level(), caller.compiler() if caller else "")
