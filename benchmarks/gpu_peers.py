"""Kernels that others wrote by hand for the cases of benchmarks/gpu.py, where they are installed: Liger and Quack."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gpu_cases import Backward, Case

Function = Callable[..., Any]


def _liger() -> dict[str, Function]:
    """By the first word of a case's name, as that case's function of torch is called."""
    ops = importlib.import_module("liger_kernel.ops")
    return {
        "softmax": ops.LigerSoftmaxFunction.apply,
        "rmsnorm": lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False),
        "layernorm": lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-5),
        "cross-entropy": lambda x, y: ops.LigerCrossEntropyFunction.apply(x, y, None, -100, 0.0, 0.0, "none")[0],
        "swiglu": ops.LigerSiLUMulFunction.apply,
        "add+rmsnorm": lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False),
    }


def _quack() -> dict[str, Function]:
    quack = importlib.import_module("quack")
    softmax = importlib.import_module("quack.softmax").softmax
    entropy = importlib.import_module("quack.cross_entropy").cross_entropy
    return {
        "softmax": softmax,
        "rmsnorm": lambda x, w: quack.rmsnorm(x, w, eps=1e-6),
        "cross-entropy": lambda x, y: entropy(x, y, reduction="none"),
    }


PEERS: Mapping[str, Callable[[], dict[str, Function]]] = {"liger": _liger, "quack": _quack}
IN_PLACE = ("cross-entropy", "swiglu")  # whose gradients Liger writes over what forward left, so that a second is wrong


def peers_of(given: Case | Backward) -> dict[str, Function]:
    """The functions of peers that are installed and have this case; they take its tensors."""
    word, found = given.name.split()[0], dict[str, Function]()
    for name, functions in PEERS.items():
        try:
            known = functions()
        except (ImportError, AttributeError):
            continue
        if word in known and not (isinstance(given, Backward) and word in IN_PLACE):
            found[name] = known[word]
    return found
