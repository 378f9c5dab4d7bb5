"""What Dynamo does not look into, and who imports it."""

from __future__ import annotations

import subprocess
import sys

import torch

import noyau
from noyau.ops.torch.dynamo_skip import call_outside_graph

CALLS = """
import sys, torch, noyau
@noyau.op("float[n] -> float[n]")
def doubled(x):
    return x + x
@noyau.op
def unsigned(x):
    return x + 1
x = torch.ones(3, requires_grad=True)
assert torch.equal(torch.autograd.grad(doubled(x).sum(), x)[0], torch.full((3,), 2.0))
assert torch.equal(unsigned(x.detach()), torch.full((3,), 2.0))
print("torch._dynamo" in sys.modules)
"""


def test_calls_on_tensors_do_not_import_dynamo() -> None:
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


def test_a_call_that_is_not_traced_is_the_call() -> None:
    @noyau.op
    def unsigned(x, *, by=1):
        return x + by

    assert torch.equal(call_outside_graph(unsigned, [torch.ones(2)], {"by": 3}), torch.full((2,), 4.0))
