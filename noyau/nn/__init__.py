"""Ops that models are made of: norms, softmax and the cross-entropy, activations, rotary embedding.

Each is a plain op: a reference in NumPy, traced into one kernel, with the certificate of every op (`noyau.check`).
Other ops may call them, and are then one kernel with them. They are named as in torch.nn.functional, where they have a
name there. The axis that is normed, summed or picked from is the last one."""

from __future__ import annotations

from typing import Any

from noyau.nn import functional
from noyau.nn.functional import *  # noqa: F403  its ops, by its __all__
from noyau.ops.op import Op

__all__ = ["CATALOGUE"]
__all__ += functional.__all__

# every op, for who goes through all of them
CATALOGUE: tuple[Op[..., Any], ...] = tuple(each for each in vars(functional).values() if isinstance(each, Op))
