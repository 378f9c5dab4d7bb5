"""Ops that models consist of: norms, softmax and the cross-entropy, activations, rotary embedding.

Each is a plain op: a reference in NumPy, traced into one kernel, with the certificate of every op (`noyau.check`).
Other ops may call them, and are then one kernel with them. Their names are those of torch.nn.functional, if they exist
there. The axis that is normalised, summed or indexed is the last one."""

from typing import Any

from noyau.nn import functional
from noyau.nn.functional import *  # noqa: F403  its ops, by its __all__
from noyau.ops.op import Op

__all__ = ["CATALOGUE"]
__all__ += functional.__all__

# every op of the catalogue
CATALOGUE: tuple[Op[..., Any], ...] = tuple(each for each in vars(functional).values() if isinstance(each, Op))
