from __future__ import annotations

import json

import pytest
import torch

import noyau
from noyau.errors import InputError
from noyau.hosts.torch import fast_calls
from noyau.toolchain.c import compiler as c_compiler
from tests.jobs.optimize.torch.modules import Block, F


def test_groups_cuts_and_what_is_left(monkeypatch):
    fast_calls.library()  # by which profiles name kernels: no kernel itself
    monkeypatch.setattr(c_compiler, "compile_library", None)  # nothing is built
    found = noyau.explain(Block(), torch.randn(2, 5, 32), dynamic=True)
    (graph,) = json.loads(json.dumps(found.to_json()))["graphs"]
    assert graph["kind"] == "inference"
    assert ["native_layer_norm.default"] in [group["replaces"] for group in graph["groups"]]
    assert any(each["node"].startswith("addmm") for each in graph["left"])
    assert found.breaks == ()
    text = str(found)
    assert text.startswith("Block: 1 graph")
    assert 0 < graph["wall"]["products"] <= graph["wall"]["kernels"] <= 1
    assert f"would help next: {graph['wall']['next']}" in " ".join(text.split())
    assert "native_layer_norm" in text


def test_breaks_and_operators_that_noyau_does_not_know():
    def function(x):
        y = torch.linalg.inv(x.exp() + 1)
        torch._dynamo.graph_break()
        return F.softmax(y, 0)

    found = noyau.explain(function, (torch.eye(3),))
    assert len(found.graphs) == 2
    assert len(found.breaks) == 1
    assert len(found.walls) == 2 and all(found.walls)
    assert any("linalg_inv" in reason for reason in found.to_json()["graphs"][0]["opaque"].values())
    assert "graph break" in str(found)


def test_a_dtype_that_noyau_does_not_know_leaves_what_reads_it():
    found = noyau.explain(lambda x: x * 2, torch.ones(2, dtype=torch.complex64))
    assert "no dtype for torch.complex64" in found.to_json()["graphs"][0]["opaque"]["mul"]
    assert "no dtype for torch.complex64" in str(found)


def test_an_operator_that_takes_a_graph_is_left_to_torch_alone():
    def function(x):
        return F.softmax(torch.cond(x.sum() > 0, torch.sin, torch.cos, (x * 2 + 1,)) * 2, -1)

    found = noyau.explain(function, torch.ones(4, 4)).to_json()["graphs"][0]
    assert found["opaque"] == {"cond": "noyau does not know cond"}
    assert not found["whole"]


def test_a_profile_of_a_module_says_what_shares_of_the_wall_are():
    found = noyau.profile(torch.nn.Linear(64, 64), torch.ones(8, 64))
    assert 0 < found.products <= found.kernels <= 1
    assert "gaps" in str(found)
    with pytest.raises(InputError, match="a tensor or a tuple of the module's arguments"):
        noyau.profile(torch.nn.Linear(64, 64), 3)
