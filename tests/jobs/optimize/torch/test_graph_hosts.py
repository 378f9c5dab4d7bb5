from __future__ import annotations

import pytest
import torch

import noyau
from noyau.jobs.optimize.render import page
from noyau.jobs.optimize.torch import graph_hosts


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.nn.functional.gelu(self.one(x)) * 2) + 1


def test_a_report_of_a_module_draws_its_graph_before_and_after(monkeypatch):
    report = noyau.optimize(Net().eval(), (torch.randn(4, 8),), keep="all").report
    (section,) = (each for each in page(report).sections if each["kind"] == "graphs")
    assert section["title"] == "The inference graph before and after"
    before, after = section["drawings"]
    names = [node["lines"][0] for node in before["nodes"]]
    assert {"gelu.default", "mul.Tensor", "native_layer_norm.default", "add.Tensor"} <= set(names)
    grouped = {node["lines"][0] for node in before["nodes"] if node["group"]}
    assert "gelu.default" in grouped and "addmm.default" not in grouped
    kernel = next(node for node in after["nodes"] if node["group"])
    assert kernel["lines"] == [kernel["group"]] and len(after["nodes"]) < len(before["nodes"])
    ends = {(before["nodes"][a]["lines"][0], before["nodes"][b]["lines"][0]) for a, b, *_ in before["edges"]}
    assert ("addmm.default", "gelu.default") in ends and ("native_layer_norm.default", "add.Tensor") in ends
    reached = {number for edge in after["edges"] for number in edge[:2]}
    assert reached == set(range(len(after["nodes"])))


@pytest.mark.long
def test_a_graph_of_more_nodes_than_a_browser_lays_out_is_said_to_be(monkeypatch):
    monkeypatch.setattr(graph_hosts, "MOST", 3)
    report = noyau.optimize(Net().eval(), (torch.randn(4, 8),)).report
    (section,) = (each for each in page(report).sections if each["kind"] == "graphs")
    assert all(not each["nodes"] and "are more than a browser lays out" in each["note"] for each in section["drawings"])
