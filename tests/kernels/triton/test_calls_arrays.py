"""Kernels in Triton as a check runs them: in a process of its own, in the interpreter where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import noyau
from noyau.kernels.cuda_grids import variables
from tests.kernels import triton_ops


def found(op, **said):
    return {each.name: each for each in noyau.check(op, generated=False, budget_s=2, **said).kernels}


def test_right_kernels_are_right():
    checks = found(triton_ops.scaled)
    assert [name for name, each in checks.items() if not each.ok] == []
    notes = "; ".join(checks["tuned"].notes)
    assert "interpreter" in notes or "on NVIDIA" in notes
    assert "with each of 2 configurations in turn" in notes
    assert "on packed arrays" in notes
    assert len(checks["blocks"].certificate.outcomes) > 10


@pytest.mark.long
@pytest.mark.parametrize("op", [triton_ops.row_sums, triton_ops.doubled])
def test_strides_families_and_updates(op):
    (check,) = found(op).values()
    assert check.ok
    assert ("on packed arrays" in check.notes) == (op is triton_ops.doubled)


@pytest.mark.long
def test_each_bug_is_named():
    checks = found(triton_ops.wrong)
    kinds = {name: each.findings[0].kind for name, each in checks.items()}
    assert kinds == {
        "no_mask": "out-of-bounds",
        "no_tail": "unwritten",
        "in_place": "mutated-input",
        "far_away": "out-of-bounds",
        "refused": "crash",
    }
    assert "program 0 writes out at" in checks["no_mask"].findings[0].message
    assert "power of 2" in checks["refused"].findings[0].message


def test_a_process_without_a_gpu_interprets():
    import torch

    assert variables() == ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})


def test_what_no_other_process_finds_runs_here_or_is_skipped():
    local = noyau.op("f32[n], f32 -> f32[n]", name="scaled")(lambda x, by: x * by)
    local.kernel(triton_ops.blocks, launch=triton_ops.programs, constants={"BLOCK": 64})
    (check,) = found(local).values()
    told = "; ".join(check.notes)
    assert "in this process, which it could have ended" in told or "it into one" in check.skipped


NOWHERE = """
import noyau
from tests.kernels import triton_ops as ops

local = noyau.op("f32[n], f32 -> f32[n]", name="scaled")(lambda x, by: x * by)
local.kernel(ops.blocks, launch=ops.programs, constants={"BLOCK": 64})
print(noyau.check(local, generated=False, budget_s=0.3))
"""


def test_what_cannot_be_run_anywhere_is_not_called_wrong():
    """On a GPU, or where this process interprets, it runs here."""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", NOWHERE], capture_output=True, text=True, check=True, env=plain)
    assert "scaled[blocks]: not checked: it runs in a process of its own" in run.stdout or ": right on" in run.stdout
    assert "wrong" not in run.stdout
