"""`torch.compile(module, backend="noyau")`: what dynamo captures goes through AOTAutograd to noyau.

torch finds it by the entry point `noyau` of the group `torch_dynamo_backends`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from noyau.torch_modules.compiling import Record, compile_graph
from noyau.torch_modules.wishes import Wishes, wishes_from


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **others: Any
) -> Callable[..., Any]:
    """A graph that dynamo captured as a function that computes the same, gradients too.

    `options` are the fields of noyau.torch_modules.wishes.Wishes: rest="eager" or "inductor", against="eager" or
    "inductor", budget_s=60, keep="faster". InputError for an option or a value that there is not."""
    return through(module, inputs, wishes_from({**(options or {}), **others}), Record())


def through(module: fx.GraphModule, inputs: Sequence[Any], wishes: Wishes, record: Record) -> Callable[..., Any]:
    """As `backend`; what becomes of each graph is told to `record`."""

    def compiler(kind: str) -> Callable[..., Any]:
        return partial(_compiled, kind, wishes, record)

    made = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(wishes.rest),
    )
    return made(module, inputs)  # type: ignore[no-any-return]


def _compiled(
    kind: str, wishes: Wishes, record: Record, module: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    return compile_graph(module, inputs, kind, wishes, record)


def decompositions(rest: str) -> Mapping[Any, Any]:
    """What is taken apart before noyau sees it: for inductor, what it wants to; else nothing, so that what no kernel
    covers runs as one kernel of torch's. noyau imports composites through their bodies."""
    if rest == "eager":
        return {}
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()  # type: ignore[no-any-return]
