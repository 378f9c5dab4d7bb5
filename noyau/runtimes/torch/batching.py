"""Operators under vmap: by a leading axis where the signature leaves room for one, else one call after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from noyau.signatures.types import Signature

Results = tuple[Any, Any]  # what is returned, and the axis of the batch in each


def batched(
    signature: Signature, call: Callable[..., Any], info: Any, dims: Any, *args: Any, **constants: Any
) -> Results:
    """The results for batched arguments, with the axis of the batch in front: one call where every batched argument has
    room for one more leading axis (`...`, `*batch`), and so has every result; else a call for each."""
    rests = {term.rest for term, dim in zip(signature.inputs, dims, strict=True) if dim is not None}
    fits = None not in rests and all(term.rest in rests for term in signature.outputs) and len(rests) == 1
    terms = (*signature.inputs, *signature.outputs)
    if not fits or any(term.rest is not None and (term.dims or ())[0] != term.rest for term in terms):
        return batched_by_loop(call, info, dims, *args, **constants)
    given = [
        _leading(each, dim, info.batch_size) if term.rest in rests else each
        for term, each, dim in zip(signature.inputs, args, dims, strict=True)
    ]
    return _in_front(call(*given, **constants))


def batched_by_loop(call: Callable[..., Any], info: Any, dims: Any, *args: Any, **constants: Any) -> Results:
    """The same by a call for each of the batch; an empty batch is refused, for nothing tells what it would give."""
    if not info.batch_size:
        raise RuntimeError("vmap over no cells at all: there is nothing to call the operator on")
    parts = [
        each.unbind(dim) if dim is not None else (each,) * info.batch_size for each, dim in zip(args, dims, strict=True)
    ]
    made = [call(*given, **constants) for given in zip(*parts, strict=True)]
    if isinstance(made[0], tuple):
        return _in_front(tuple(torch.stack(results) for results in zip(*made, strict=True)))
    return _in_front(torch.stack(made))


def _leading(each: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return each.unsqueeze(0).expand(size, *each.shape) if dim is None else each.movedim(dim, 0)


def _in_front(made: Any) -> Results:
    return made, (0,) * len(made) if isinstance(made, tuple) else 0
