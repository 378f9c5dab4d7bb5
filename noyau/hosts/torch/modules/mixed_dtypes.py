"""Results of norms under autocast in the dtypes that torch's kernels of the CPU give: its tensors without cells say
others, and what is made to read those would be given these."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

_STATISTICS = {1: torch.float32, 2: torch.float32}  # of half floats, where a weight is of float32
_MIXED = {
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm"), _STATISTICS),
    **dict.fromkeys(("_native_batch_norm_legit", "_native_batch_norm_legit_functional"), _STATISTICS),
    **dict.fromkeys(("_batch_norm_with_update", "_batch_norm_with_update_functional"), _STATISTICS),
    "_native_batch_norm_legit_no_training": _STATISTICS,
    "native_group_norm_backward": {0: None},  # of the dtype of the gradient that it is given
}


def correct_dtypes(graph: fx.Graph) -> None:
    """Correct what a graph of ATen operators says of norms of half floats with weights of float32, and of all that is
    computed of their results."""
    corrected: set[fx.Node] = set()
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload) and node.target is not operator.getitem:
            continue
        if not corrected.isdisjoint(node.all_input_nodes):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
            node.meta["val"] = node.target(*args, **kwargs)
            corrected.add(node)
        dtypes = _MIXED.get(str(node.target).removeprefix("aten.").partition(".")[0], {})
        if dtypes and _is_mixed(node):
            first = node.args[0].meta["val"].dtype
            node.meta["val"] = tuple(
                each.to(dtypes[at] or first) if at in dtypes and each is not None else each
                for at, each in enumerate(node.meta["val"])
            )
            corrected.add(node)


def _is_mixed(node: fx.Node) -> bool:
    """Whether it is given half floats on the CPU, and weights of float32."""
    fakes: list[Any] = [each.meta.get("val") for each in node.all_input_nodes]
    tensors = [each for each in fakes if isinstance(each, torch.Tensor)]
    is_half = tensors[0].device.type == "cpu" and tensors[0].dtype in (torch.float16, torch.bfloat16)
    return is_half and any(each.dtype is torch.float32 for each in tensors)
