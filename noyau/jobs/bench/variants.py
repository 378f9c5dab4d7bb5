"""The variants of an op's attached kernels: each choice of the constants that are lists, checked before it is timed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from noyau.errors import InputError
from noyau.jobs.bench.race import Say
from noyau.jobs.check.run import check
from noyau.kernels.trust import ineligible
from noyau.kernels.user_kernel import UserKernel, choose_constants
from noyau.ops.op import Op
from noyau.signatures.binding import Bound

_MOST_VARIANTS = 64
_CHECK_S = 5.0


def with_variants(op: Op[..., Any], bound: Bound, say: Say, device: str) -> tuple[Op[..., Any], dict[str, str]]:
    """The op with those attached kernels that may run, one for each choice of their constants; why others may not."""
    reference, kernels, left_out = op.description.reference, [], {}
    for kernel in op.kernels.values():
        reason = ineligible(kernel, reference, bound.instance, reference.constants, device)
        if reason:
            left_out[kernel.name] = reason
            continue
        for variant in variants(kernel):
            if variant is not kernel and not variant.usage.trust:
                say(f"checking {variant.name}")
                if not check(Op(replace(op.description, kernels=(variant,))), budget_s=_CHECK_S).ok:
                    left_out[variant.name] = "noyau.check finds it wrong"
                    continue
            kernels.append(variant)
    return Op(replace(op.description, kernels=tuple(kernels))), left_out


def variants(kernel: UserKernel) -> Iterator[UserKernel]:
    """A kernel with each choice of those of its constants that are lists, named by them; itself where none is."""
    lists = {name: value for name, value in kernel.usage.constants.items() if isinstance(value, list)}
    if not lists:
        yield kernel
        return
    choices = list(itertools.product(*lists.values()))
    if len(choices) > _MOST_VARIANTS:
        raise InputError(f"{kernel.called} has {len(choices)} choices of constants, and {_MOST_VARIANTS} are the most")
    for choice in choices:
        chosen = tuple(zip(lists, choice, strict=True))
        named = ", ".join(f"{name}={value}" for name, value in chosen)
        yield replace(choose_constants(kernel, chosen), name=f"{kernel.name} ({named})")
