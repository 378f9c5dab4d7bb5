"""Corrections of graphs that torch has traced.

Attention masks that depend on no input are dropped, or become `is_causal`, so that attention keeps torch's fastest
kernels. Results of norms under autocast get the dtypes of torch's CPU kernels, where its tensors without cells have
others: a kernel that was compiled to read those would be called with these. Draws under a checkpoint get results, and
backward no seeds of draws that there are not."""

import operator
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.functional import scaled_dot_product_attention

_MOST = 256  # nodes of a mask
_CHANGES = re.compile(
    r"setitem|(?!and_|or_|not_).*[a-z0-9]_$|.*(rand|dropout|vmap|batch_dim)|i(add|sub|mul|and|or|xor)$"
)
_STATES = {"graphsafe_run_with_rng_state": 0, "run_with_rng_state": 1}  # the place of the operator that they call


def arguments_of(node: fx.Node, names: Sequence[str]) -> dict[str, Any]:
    """Arguments of a call by the names of its parameters, whether they are positional or keywords."""
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def fold_masks(module: fx.GraphModule) -> None:
    """Evaluate constant masks in a graph of dynamo's. transformers writes a causal mask out where it is traced."""
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    for node in module.graph.find_nodes(op="call_function", target=scaled_dot_product_attention):
        words = arguments_of(node, ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"))
        mask, query, key = words.get("attn_mask"), *(words[name].meta.get("example_value") for name in ("query", "key"))
        parts = _parts(mask) if isinstance(mask, fx.Node) and query is not None and key is not None else []
        if not parts or not all(type(n) is int for n in (*query.shape, *key.shape)) or words.get("is_causal"):
            continue
        with unset_fake_temporarily(), torch.no_grad():
            for part in parts:
                if part not in interpreter.env:
                    interpreter.env[part] = interpreter.run_node(part)
            bits, batches = interpreter.env[mask], query.shape[:-2]
            if bits.dtype != torch.bool or torch.broadcast_shapes(bits.shape[:-2], batches) != batches:
                continue
            rows, columns = query.shape[-2], key.shape[-2]
            is_causal = bits.shape[-2:] == (rows, columns) == (rows, rows) and bool((bits == bits.tril()).all())
            is_causal = is_causal and int(bits.sum()) * 2 == bits.numel() // rows * (rows + 1)
            if is_causal or bits.all():
                node.args, node.kwargs = (), {**words, "attn_mask": None, "is_causal": is_causal}
    module.recompile()


def _parts(mask: fx.Node) -> list[fx.Node]:
    """The nodes that compute a mask, in order; empty where it depends on an input, random numbers or a mutation."""
    parts, new = {mask}, [mask]
    while new and len(parts) <= _MOST:
        new += [each for each in new.pop().all_input_nodes if each not in parts]
        parts |= set(new)
    names = {getattr(user.target, "__name__", str(user.target)) for part in parts for user in (part, *part.users)}
    is_pure = not new and all(part.op in ("call_function", "call_method") for part in parts)
    is_pure = is_pure and not any(map(_CHANGES.match, names))
    return [each for each in mask.graph.nodes if each in parts] if is_pure else []


_STATISTICS = {1: torch.float32, 2: torch.float32}  # of half floats, where a weight is of float32
_MIXED = {
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm"), _STATISTICS),
    **dict.fromkeys(("_native_batch_norm_legit", "_native_batch_norm_legit_functional"), _STATISTICS),
    **dict.fromkeys(("_batch_norm_with_update", "_batch_norm_with_update_functional"), _STATISTICS),
    "_native_batch_norm_legit_no_training": _STATISTICS,
    "native_group_norm_backward": {0: None},  # of the dtype of the gradient that it reads
}


def correct_dtypes(graph: fx.Graph) -> None:
    """Correct a graph of ATen operators: norms of half floats with weights of float32, and the nodes that read them."""
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


def complete_drawn(graph: fx.Graph) -> None:
    """Give results without cells to draws under a checkpoint, dropout and attention: torch's partition notes none."""
    for node in graph.nodes:
        name = getattr(node.target, "__name__", "") if "val" not in node.meta else ""
        if name == "run_and_save_rng_state":
            node.meta["val"] = tuple(part.meta["val"] for part in sorted(node.users, key=lambda part: part.args[1]))
        elif name in _STATES:
            words = {name: each for name, each in node.kwargs.items() if name != "rng_state"}
            called, *args = node.args[_STATES[name] :]
            args, words = fx.node.map_arg((args, words), lambda each: each.meta["val"])
            with detect_fake_mode() or nullcontext():
                node.meta["val"] = called(*args, **words)


def free_seeds(graph: fx.Graph) -> None:
    """Give attention's backward without dropout, which reads no seeds, empty ones: torch leaves its own on the host."""
    for node in list(graph.nodes):
        names = [each.name for each in getattr(getattr(node.target, "_schema", None), "arguments", ())]
        words = arguments_of(node, names) if "philox_seed" in names else {}
        for seed in (words["philox_seed"], words["philox_offset"]) if words.get("dropout_p") == 0 else ():
            if seed.meta["val"].dim():
                continue
            how = {name: getattr(seed.meta["val"], name) for name in ("dtype", "device")}
            with graph.inserting_before(node):
                own = graph.call_function(torch.ops.aten.empty.memory_format, ([],), how)
            own.meta["val"] = seed.meta["val"]
            node.replace_input_with(seed, own)


def _is_mixed(node: fx.Node) -> bool:
    """Whether a node reads half floats on the CPU, and weights of float32."""
    fakes: list[Any] = [each.meta.get("val") for each in node.all_input_nodes]
    tensors = [each for each in fakes if isinstance(each, torch.Tensor)]
    is_half = tensors[0].device.type == "cpu" and tensors[0].dtype in (torch.float16, torch.bfloat16)
    return is_half and any(each.dtype is torch.float32 for each in tensors)
