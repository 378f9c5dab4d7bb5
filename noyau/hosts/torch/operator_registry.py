"""Operators of torch: one definition each in torch's registry, so that compilers, modes and transforms see it whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from noyau.compiler.lowering.names import identifier
from noyau.toolchain.cache import digest

NAMESPACE = "noyau"
DEVICES = ("CPU", "CUDA")  # whose tensors operators run on, as torch's dispatcher calls them
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_LOCK = threading.RLock()
_TAKEN: set[str] = set()
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class TorchOperator:
    """Registration of an operator with torch. `inputs` and `constants`: the type of each in the schema; constants are
    given by keyword, as `c0`, `c1`..., for their own names need be none of torch's. `run`: on tensors of a device;
    `fake`: on tensors without cells; `record`: on what autograd records; `batch`: under vmap, as
    torch.library.register_vmap has it; `promote`: what autocast makes of the inputs."""

    stem: str
    identity: str  # what tells it from others of its stem
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    results: int
    run: Callable[..., Any]
    fake: Callable[..., Any]
    record: Callable[..., Any]
    batch: Callable[..., Any]
    promote: Callable[[Sequence[Any]], Sequence[Any]] | None = None


def register(operator: TorchOperator) -> Any:
    """The overload of a new operator, `torch.ops.noyau.<stem>_<digest>.default`. One that was made of another function
    before has the name that comes next."""
    with _LOCK:
        name = _free(f"{identifier(operator.stem)}_{digest(operator.stem, operator.identity)[:_DIGITS]}")
        schema = schema_of(operator.inputs, operator.constants, operator.results)
        overload = define(name, schema, operator.run, operator.fake, _TAGS)
        torch.library.register_vmap(f"{NAMESPACE}::{name}", operator.batch, lib=LIBRARY)
        LIBRARY.impl(name, _autograd(operator, overload), "Autograd", with_keyset=True)
        if operator.promote is not None:
            for device in DEVICES:
                promoted = _autocast(operator.promote, overload, f"Autocast{device}")
                LIBRARY.impl(name, promoted, f"Autocast{device}", with_keyset=True)
        return overload


def define(
    name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any], tags: tuple[torch.Tag, ...] = ()
) -> Any:
    """The overload of a new operator of this name, on tensors of every device and on tensors without cells."""
    LIBRARY.define(f"{name}{schema}", tags=tags)
    for device in DEVICES:
        LIBRARY.impl(name, run, device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def schema_of(inputs: Sequence[str], constants: Sequence[str], results: int) -> str:
    """The schema of an operator: its inputs by place, constants by keyword, tensors as its results."""
    places = [f"{kind} x{at}" for at, kind in enumerate(inputs)]
    keywords = ["*", *(f"{kind} c{at}" for at, kind in enumerate(constants))] if constants else []
    tensors = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    return f"({', '.join([*places, *keywords])}) -> {tensors}"


def _free(name: str) -> str:
    candidate, number = name, 1
    while candidate in _TAKEN:
        number += 1
        candidate = f"{name}_{number}"
    _TAKEN.add(candidate)
    return candidate


def _autograd(operator: TorchOperator, overload: Any) -> Callable[..., Any]:
    def autograd(keyset: Any, *args: Any, **constants: Any) -> Any:
        result = operator.record(args, constants)
        if result is not None:
            return result
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *args, **constants)

    return autograd


def _autocast(promote: Callable[[Sequence[Any]], Sequence[Any]], overload: Any, key: str) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(keyset: Any, *args: Any, **constants: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return overload(*promote(args), **constants)

    return autocast
