"""One of Liger's functions, forward and backward, as a script: `liger_function.py FOLDER NAME`, where FOLDER is that of
liger_kernel."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import torch

_ROWS, _COLUMNS, _HEADS = 5, 40, 4
# The module of each function, its class, and its arguments as `_argument` reads them.
CASES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "attn_res": ("attn_res", "LigerAttnResFunction", ("query", "narrow", "narrow", 1e-6)),
    "cross_entropy": ("cross_entropy", "LigerCrossEntropyFunction", ("x", "labels", None)),
    "dyt": ("dyt", "LigerDyTFunction", ("x", "one", "row", "row")),
    "embedding": ("experimental.embedding", "LigerEmbeddingFunction", ("x", "labels")),
    "fused_add_rms_norm": ("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", ("x", "x", "row", 1e-6)),
    "fused_linear_cross_entropy": (
        "fused_linear_cross_entropy",
        "LigerFusedLinearCrossEntropyFunction",
        ("x", "weight", "labels"),
    ),
    "fused_neighborhood_attention": (
        "fused_neighborhood_attention",
        "LigerFusedNeighborhoodAttentionFunction",
        ("query", "query", "query", 3),
    ),
    "fused_linear_jsd": ("fused_linear_jsd", "LigerFusedLinearJSDFunction", ("x", "weight", "x", "weight")),
    "geglu": ("geglu", "LigerGELUMulFunction", ("x", "x")),
    "group_norm": ("group_norm", "LigerGroupNormFunction", ("cube", "heads", "heads", _HEADS, 2, 1e-6)),
    "jsd": ("jsd", "LigerJSDFunction", ("logs", "logs")),
    "kl_div": ("kl_div", "LigerKLDivLossFunction", ("logs", "shares")),
    "layer_norm": ("layer_norm", "LigerLayerNormFunction", ("x", "row", "row", 1e-6)),
    "multi_token_attention": (
        "multi_token_attention",
        "LigerMultiTokenAttentionFunction",
        ("scores", "taps", None, 1, 1),
    ),
    "poly_norm": ("poly_norm", "LigerPolyNormFunction", ("x", "three", "scalar")),
    "qwen2vl_mrope": (
        "qwen2vl_mrope",
        "LigerQwen2VLMRopeFunction",
        ("query", "query", "three_angles", "three_angles", [2, 3, 3]),
    ),
    "relu_squared": ("relu_squared", "LigerReLUSquaredFunction", ("x",)),
    "rms_norm": ("rms_norm", "LigerRMSNormFunction", ("x", "row", 1e-6)),
    "rope": ("rope", "LigerRopeFunction", ("query", "query", "angles", "angles")),
    "softmax": ("softmax", "LigerSoftmaxFunction", ("x",)),
    "sparsemax": ("sparsemax", "LigerSparsemaxFunction", ("x", -1)),
    "swiglu": ("swiglu", "LigerSiLUMulFunction", ("x", "x")),
    "tvd": ("tvd", "LigerTVDLossFunction", ("shares", "shares")),
}


def _argument(word: Any) -> Any:
    """An argument by its word; what is no word is itself."""
    shapes = {
        "x": (_ROWS, _COLUMNS),
        "row": (_COLUMNS,),
        "one": (1,),
        "scalar": (),
        "narrow": (16,),
        "three": (3,),
        "heads": (_HEADS,),
    }
    shapes |= {"scores": (2, _HEADS, _ROWS, _ROWS), "taps": (_HEADS, _HEADS, 3, 3)}
    shapes |= {"weight": (_COLUMNS, _COLUMNS), "cube": (2, _HEADS, _COLUMNS), "query": (2, _HEADS, _ROWS, 16)}
    match word:
        case "labels":
            return torch.randint(0, _ROWS, (_ROWS,), device="cuda")
        case "angles":
            return torch.randn(1, _ROWS, 16, device="cuda")
        case "three_angles":
            return torch.randn(3, 2, _ROWS, 16, device="cuda")
        case "logs" | "shares":
            values = torch.randn(_ROWS, _COLUMNS, device="cuda").softmax(-1)
            return (values.log() if word == "logs" else values).detach().requires_grad_()
        case str():
            return torch.randn(shapes[word], device="cuda", requires_grad=True)
        case _:
            return word


def run_case(name: str) -> None:
    """A function on small tensors, and its derivative."""
    module, function, words = CASES[name]
    torch.manual_seed(0)
    arguments = [_argument(word) for word in words]
    results = getattr(import_module(f"liger_kernel.ops.{module}"), function).apply(*arguments)
    for result in results if isinstance(results, tuple) else (results,):
        if result is not None and result.requires_grad:
            result.backward(torch.randn_like(result), retain_graph=True)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    run_case(sys.argv[2])
