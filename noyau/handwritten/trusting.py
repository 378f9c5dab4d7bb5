"""Which hand-written kernels may run: those that were checked as they are, on this machine, or are trusted."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from noyau.builders import cache, cc
from noyau.dtypes import DType
from noyau.errors import BuildError, NoyauError
from noyau.handwritten.calling import CALLED_HERE, CALLED_THERE, built
from noyau.handwritten.kernels import HandKernel
from noyau.references import Reference
from noyau.signatures.types import Instance

_SUFFIX = ".json"
_SEEN: set[str] = set()  # keys that were found on disk; what is checked stays so for as long as a process lasts


def ineligible(
    kernel: HandKernel, reference: Reference, instance: Instance, constants: Mapping[str, Any], device: str = "cpu"
) -> str:
    """Why a kernel may not run for an instance, whose arrays lie on a device, or nothing."""
    if device == "cpu" and kernel.language not in CALLED_HERE:
        return f"it is in {kernel.language}, which NumPy arrays cannot be given to"
    if device != "cpu" and kernel.language not in CALLED_THERE:
        return f"it is in {kernel.language}, and the tensors lie on {device}"
    untaken = [name for name, value in reference.constants.items() if constants.get(name, value) != value]
    if kernel.prototype is not None:
        taken = {parameter.name for parameter in kernel.prototype.parameters}
        missed = [name for name in untaken if name not in taken and kernel.usage.args is None]
        if missed:
            return f"it does not take the constant {missed[0]}, which is not at its default"
    if not kernel.usage.trust and not is_checked(kernel, reference, instance.dtypes):
        return "it has not been checked yet as it is: noyau.check(op) does that, or attach it with trust=True"
    return _unbuilt(kernel, instance, constants) if kernel.language in ("c", "triton") else ""


def is_checked(kernel: HandKernel, reference: Reference, dtypes: Sequence[DType]) -> bool:
    """Whether a check passed on this very text and machine, with inputs of these dtypes."""
    key = _key(kernel, reference, dtypes)
    if key not in _SEEN and cache.lookup(key, _SUFFIX) is not None:
        _SEEN.add(key)
    return key in _SEEN


def remember(kernel: HandKernel, reference: Reference, dtypes: Sequence[DType], certificate: Mapping[str, Any]) -> None:
    """Note that a check passed; where the cache cannot be written, for this process alone."""
    key = _key(kernel, reference, dtypes)
    _SEEN.add(key)

    def write(path: Path) -> None:
        path.write_text(json.dumps(certificate), "utf-8")

    cache.store(key, _SUFFIX, write)


def _unbuilt(kernel: HandKernel, instance: Instance, constants: Mapping[str, Any]) -> str:
    try:
        if kernel.language == "triton":
            from noyau.handwritten.triton_arrays import opened

            opened(kernel, instance, constants)
        else:
            built(kernel, instance, constants)
    except NoyauError as error:
        return str(error)
    return ""


def _key(kernel: HandKernel, reference: Reference, dtypes: Sequence[DType]) -> str:
    """What identifies a check: kernel, what is said of it, reference, signature, dtypes, machine."""
    usage = kernel.usage
    said: list[Any] = [usage.launch, usage.args, usage.init, dict(usage.constants), usage.returns, usage.updates]
    said += [dict(usage.options), kernel.target.signature, dict(reference.constants)]
    texts = [_told(each) for each in said]
    compiler = _compiler(kernel.language)
    names = ",".join(dtype.value for dtype in dtypes)
    parts = [kernel.language, kernel.entry, kernel.text, *texts, _told(reference.function), names]
    return cache.digest("checked", *parts, cc.level(), compiler)


def _compiler(language: str) -> str:
    """Who makes machine code of a kernel, as far as a check depends on it."""
    if language == "triton":
        from noyau.handwritten.triton_calls import where

        return where()
    try:
        return cc.find_compiler().version if language == "c" else ""
    except BuildError:
        return ""


def _told(each: Any) -> str:
    return source_of(each) if callable(each) else f"{each!s}"


def source_of(function: Callable[..., Any]) -> str:
    """The text of a function; where it has none, what it was compiled to."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return f"{function!r}" if code is None else f"{code.co_code!r} {code.co_consts!r} {code.co_names!r}"
