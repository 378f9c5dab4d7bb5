"""One of the functions of flash-linear-attention, forward and backward, as a script: `fla_function.py FOLDER NAME`, in
which FOLDER holds fla. Its packages are read without what lies around them, which needs transformers."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_BATCH, _TIME, _HEADS, _WIDTH = 1, 70, 2, 32  # one chunk of 64, and a tail
_QKV = ("x", "x", "x")
_DELTA = ("x", "unit", "x", "gates", "share")
# The module of each function, and its arguments as `_argument` reads them.
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "chunk_abc": ("ops.abc", (*_QKV, "slots")),
    "parallel_attn": ("ops.attn", _QKV),
    "fused_chunk_based": ("ops.based", ("narrow", "narrow", "x")),
    "parallel_based": ("ops.based", ("narrow", "narrow", "x")),
    "chunk_comba": ("ops.comba", ("unit", "unit", "x", "unit", "gate", "share")),
    "fused_recurrent_comba": ("ops.comba", ("unit", "unit", "unit", "x", "gate", "share")),
    "chunk_delta_rule": ("ops.delta_rule", ("x", "unit", "x", "share")),
    "fused_recurrent_delta_rule": ("ops.delta_rule", ("x", "unit", "x", "share")),
    "deltaformer_attn": ("ops.deltaformer", (*_QKV, "share")),
    "parallel_forgetting_attn": ("ops.forgetting_attn", (*_QKV, "gate")),
    "chunk_gated_delta_product": ("ops.gated_delta_product", ("x", "twice", "twice", "gate", "shares", 2)),
    "chunk_gated_delta_rule": ("ops.gated_delta_rule", ("x", "unit", "x", "gate", "share")),
    "fused_recurrent_gated_delta_rule": ("ops.gated_delta_rule", ("x", "unit", "x", "gate", None, None, "share")),
    "chunk_gated_oja_rule": ("ops.gated_oja_rule", _DELTA),
    "fused_recurrent_gated_oja_rule": ("ops.gated_oja_rule", _DELTA),
    "chunk_gdn2": ("ops.gdn2", ("x", "unit", "x", "gates", "unit", "unit")),
    "fused_recurrent_gdn2": ("ops.gdn2", ("x", "unit", "x", "gates", "unit", "unit")),
    "chunk_dplr_delta_rule": ("ops.generalized_delta_rule", (*_QKV, "unit", "unit", "gates")),
    "fused_recurrent_dplr_delta_rule": ("ops.generalized_delta_rule", (*_QKV, "unit", "unit", "gates")),
    "chunk_iplr_delta_rule": ("ops.generalized_delta_rule", (*_QKV, "unit", "unit")),
    "fused_recurrent_iplr_delta_rule": ("ops.generalized_delta_rule", (*_QKV, "unit", "unit")),
    "chunk_gla": ("ops.gla", (*_QKV, "gates")),
    "fused_recurrent_gla": ("ops.gla", (*_QKV, "gates")),
    "chunk_gsa": ("ops.gsa", (*_QKV, "slots", "slot_gates")),
    "fused_recurrent_gsa": ("ops.gsa", (*_QKV, "slots", "slot_gates")),
    "chunk_hgrn": ("ops.hgrn", ("rows", "row_gates")),
    "fused_recurrent_hgrn": ("ops.hgrn", ("rows", "row_gates")),
    "chunk_kda": ("ops.kda", _DELTA),
    "fused_recurrent_kda": ("ops.kda", _DELTA),
    "chunk_lightning_attn": ("ops.lightning_attn", (*_QKV, 0, 2)),
    "fused_recurrent_lightning_attn": ("ops.lightning_attn", (*_QKV, 0, 2)),
    "chunk_linear_attn": ("ops.linear_attn", _QKV),
    "fused_chunk_linear_attn": ("ops.linear_attn", _QKV),
    "fused_recurrent_linear_attn": ("ops.linear_attn", _QKV),
    "chunk_mesa_net": ("ops.mesa_net", ("x", "unit", "x", "gate", "share", "positive")),
    "parallel_parallax": ("ops.parallax", (*_QKV, "x")),
    "parallel_path_attn": ("ops.path_attn", (*_QKV, "wide_unit", "wide_share")),
    "parallel_rebased": ("ops.rebased", ("narrow", "narrow", "x")),
    "chunk_retention": ("ops.retention", _QKV),
    "fused_chunk_retention": ("ops.retention", _QKV),
    "fused_recurrent_retention": ("ops.retention", _QKV),
    "parallel_retention": ("ops.retention", _QKV),
    "chunk_rwkv6": ("ops.rwkv6", (*_QKV, "gates", "head_rows")),
    "fused_recurrent_rwkv6": ("ops.rwkv6", (*_QKV, "gates", "head_rows")),
    "chunk_rwkv7": ("ops.rwkv7", ("x", "gates", "x", "x", "unit", "unit")),
    "fused_recurrent_rwkv7": ("ops.rwkv7", ("x", "gates", "x", "x", "unit", "unit")),
    "chunk_simple_gla": ("ops.simple_gla", (*_QKV, "gate")),
    "fused_chunk_simple_gla": ("ops.simple_gla", (*_QKV, "gate")),
    "fused_recurrent_simple_gla": ("ops.simple_gla", (*_QKV, "gate")),
    "parallel_simple_gla": ("ops.simple_gla", (*_QKV, "gate")),
    "chunk_ttt_linear": ("ops.ttt", ("x", "unit", "x", "head_rows", "head_rows", "step")),
    "fused_chunk_ttt_linear": ("ops.ttt", ("x", "unit", "x", "head_rows", "head_rows", "step")),
    "parallel_wall_attn": ("ops.wall_attn", (*_QKV, "gates")),
    "chunk_global_cumsum": ("ops.utils", ("gates",)),
    "chunk_local_cumsum": ("ops.utils", ("gates", 64)),
    "logsumexp_fwd": ("ops.utils", ("rows",)),
    "mean_pooling": ("ops.utils", ("x", 64)),
    "softmax_fwd": ("ops.utils", ("rows",)),
    "l2norm": ("modules.l2norm", ("rows",)),
    "layer_norm": ("modules.layernorm", ("rows", "row", "row")),
    "rms_norm": ("modules.layernorm", ("rows", "row", "row")),
    "swiglu": ("modules.activations", ("rows", "rows")),
    "logsigmoid": ("modules.activations", ("rows",)),
    "token_shift": ("modules.token_shift", ("rows",)),
}


def _argument(word: Any) -> Any:
    """An argument by its word; what is no word is itself."""
    time = (_BATCH, _TIME)
    shapes = {"x": (*time, _HEADS, _WIDTH), "narrow": (*time, _HEADS, 16), "gate": (*time, _HEADS), "row": (_WIDTH,)}
    shapes |= {"unit": shapes["x"], "gates": shapes["x"], "share": shapes["gate"], "step": (*time, _HEADS, 1)}
    shapes |= {"twice": (_BATCH, 2 * _TIME, _HEADS, _WIDTH), "shares": (_BATCH, 2 * _TIME, _HEADS)}
    shapes |= {"slots": shapes["narrow"], "slot_gates": shapes["narrow"], "rows": (*time, _WIDTH)}
    shapes |= {"row_gates": shapes["rows"], "head_rows": (_HEADS, _WIDTH), "positive": (_HEADS, _WIDTH)}
    if not isinstance(word, str):
        return word
    is_wide, word = word.startswith("wide_") or word in ("gate", "gates", "positive"), word.removeprefix("wide_")
    values = torch.randn(shapes[word])
    match word:
        case "gate" | "gates" | "slot_gates" | "row_gates":
            values = values.sigmoid().log()
        case "share" | "shares":
            values = values.sigmoid()
        case "unit":
            values = values / values.norm(dim=-1, keepdim=True)
        case "positive":
            values = values.sigmoid() + 0.25
        case "step":
            values = values * 5e-3
    return values.to("cuda", torch.float32 if is_wide else torch.float16).requires_grad_()


def run_case(name: str) -> None:
    """A function on small tensors, and its derivative."""
    module, words = CASES[name]
    torch.manual_seed(0)
    import_module("fla.modules")  # some functions and these import each other
    results = getattr(import_module(f"fla.{module}"), name)(*map(_argument, words))
    for result in results if isinstance(results, tuple) else (results,):
        if isinstance(result, torch.Tensor) and result.requires_grad:
            with suppress(NotImplementedError):  # of functions that are forward alone
                result.backward(torch.randn_like(result), retain_graph=True)


if __name__ == "__main__":
    for package in ("fla", "fla.ops"):  # neither of these runs its own text
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(Path(sys.argv[1], *package.split(".")))]
    sys.modules["fla"].__version__ = "0"
    run_case(sys.argv[2])
