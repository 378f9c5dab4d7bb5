from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.jobs.profile.onnx_overheads import CHAINS, LENGTH, chain


@pytest.mark.parametrize(("inputs", "rank"), CHAINS)
def test_a_chain_is_a_model_that_runs(inputs, rank):
    model = chain(inputs, rank)
    onnx.checker.check_model(model)
    assert [len(node.input) for node in model.graph.node] == [inputs] * LENGTH
    session = open_session(chain(inputs, rank, 3).SerializeToString(), optimized=False)
    found = run(session, {"x": np.ones([1] * rank, np.float32)})["y"]
    assert found.tolist() == np.full([1] * rank, 1 if inputs == 1 else 1 + 3 * (inputs - 1), np.float32).tolist()


def test_a_chain_of_one():
    assert [list(node.output) for node in chain(1, 0, 1).graph.node] == [["y"]]
