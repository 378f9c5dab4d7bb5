"""Random graphs on tensors, forward and back, by kernels in C: each result within what float64 allows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.compiler.autodiff.adjoints import derive
from noyau.errors import UnsupportedError
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.ops.torch.graph_kernels import GraphOperator
from tests.judged import Judge
from tests.random_graphs import Case, generate


@np.errstate(all="ignore")
def verdict(case: Case) -> str:
    """right, or what is wrong; or why there is nothing to try: no floats, or no kernel."""
    graph = case.graph
    wanted = [node.output for node in graph.inputs if node.dtype.is_float]
    floats = [name for name in graph.outputs if graph[name].dtype.is_float]
    if not wanted or not floats:
        return "no floats"
    tensors = {name: tensor_of(each.copy()).requires_grad_(name in wanted) for name, each in case.inputs.items()}
    call = GraphOperator(graph, "random", lambda asked: iter([] if asked else [case.inputs]))
    try:
        made = call(*(tensors[name] for name in call.names))
        found = dict(zip(graph.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        noise = np.random.default_rng(0)
        above = {name: noise.normal(size=found[name].shape).astype(graph[name].dtype.numpy) for name in floats}
        slopes = torch.autograd.grad(
            [found[name] for name in floats], [tensors[name] for name in wanted], [*map(tensor_of, above.values())]
        )
    except UnsupportedError:
        return "no kernel"
    whole = derive(graph, wanted).gradient
    known = {**case.inputs, **{f"grad_{name}": each for name, each in above.items()}}
    forward, back = Judge(graph, case.inputs), Judge(whole, {n.output: known[n.output] for n in whole.inputs})
    told = [forward.wrong(name, array_of(each)) for name, each in found.items()]
    told += [back.wrong(name, array_of(each)) for name, each in zip(whole.outputs, slopes, strict=True)]
    return next((fault for fault in told if fault), "right")


def test_one():
    assert verdict(generate(3)) == "right"


@pytest.mark.long
@pytest.mark.parametrize("start", range(10_000, 10_200, 20))
def test_hundreds(start):
    found = {seed: verdict(generate(seed)) for seed in range(start, start + 20)}
    assert {seed: each for seed, each in found.items() if each not in ("right", "no floats", "no kernel")} == {}
    assert "right" in found.values()
