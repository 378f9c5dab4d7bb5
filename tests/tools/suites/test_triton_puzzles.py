"""A puzzle is launched on tensors of the shapes of its specification, and has to give what that gives."""

from __future__ import annotations

import pytest

from noyau.jobs.check.script_run import check_script
from tools.suites import triton_puzzles

PUZZLES = """
import torch
import triton
import triton.language as tl
from test_puzzle import test

class Kind:
    dims, dtype = (50,), "float32"

def doubled(x: Kind) -> Kind:
    return 2 * x

@triton.jit
def kernel(x_ptr, z_ptr, N0, B0: tl.constexpr):
    at = tl.program_id(0) * B0 + tl.arange(0, B0)
    tl.store(z_ptr + at, 2 * tl.load(x_ptr + at, mask=at < N0), mask=at < N0)

def run_puzzles(args, puzzles):
    if 1 in puzzles:
        assert test(kernel, doubled, nelem={"N0": 50}, print_log=args.log, device=args.device)
    if 2 in puzzles:
        assert test(kernel, doubled, nelem={"N0": 49})
"""


@pytest.mark.parametrize("name", ["puzzles.py", "puzzles_ans.py"])
def test_a_puzzle_is_a_number_of_the_file_with_solutions(tmp_path, name):
    (tmp_path / "puzzles.py").touch()
    (tmp_path / name).write_text(PUZZLES, "utf-8")
    cases = triton_puzzles.cases_of(tmp_path)
    assert [(case.name, case.is_defective) for case in cases] == [("1", False), ("2", False)]
    assert cases[1].words == ("triton_puzzle.py", str(tmp_path / name), "2")
    assert triton_puzzles.cases_of(tmp_path / "none") == []


def test_a_cell_that_is_not_stored_is_found(tmp_path):
    (tmp_path / "puzzles.py").write_text(PUZZLES, "utf-8")
    for case, is_right in zip(triton_puzzles.cases_of(tmp_path), (True, False), strict=True):
        found = check_script(case.folder / case.words[0], arguments=case.words[1:])
        assert (found.ok, found.kernels[0].calls) == (is_right, 1)
