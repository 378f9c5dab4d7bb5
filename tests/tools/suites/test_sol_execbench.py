from __future__ import annotations

import json

from tools.suites import sol_execbench

SOLUTION = """
@triton.jit
def _kernel(x_ptr, w_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    y = tl.load(x_ptr + offs, mask=mask)
    row = tl.program_id(0)
    tl.store(out_ptr + row * n_cols + offs, y, mask=mask)

def run(x, weight, out):
    BLOCK = triton.next_power_of_2(x.shape[-1])
    _kernel[(len(x),)](
        x, weight.contiguous(), out, x.shape[-1], BLOCK=BLOCK,
    )
"""
LINES = {
    "no mask": "    tl.store(out_ptr + row * n_cols + offs, y)",
    "a race in one cell": "    tl.store(out_ptr + offs, y, mask=offs < 1)",
    "a tail of seven cells": "    tl.store(out_ptr + row * n_cols + offs, y, mask=mask & (offs < n_cols - 7))",
    "a changed input": "    weight[0] = 0",
}


def test_each_twin_has_one_defect(tmp_path):
    for kind in ("triton/norm", "cuda_cpp/norm"):
        folder = tmp_path / "examples" / kind
        folder.mkdir(parents=True)
        (folder / "definition.json").write_text("{}")
        record = {"name": "norm", "sources": [{"path": "kernel.py", "content": SOLUTION}]}
        (folder / "solution_norm.json").write_text(json.dumps(record))
    cases = sol_execbench.cases_of(tmp_path)
    assert [(each.name, each.is_defective) for each in cases] == [
        ("triton/norm", False),
        *((f"triton/norm: {name}", True) for name in sol_execbench.TWINS),
        ("cuda_cpp/norm", False),
    ]
    for name, case in zip(sol_execbench.TWINS, cases[1:], strict=False):
        with open(case.words[2], encoding="utf-8") as file:
            text = json.load(file)["sources"][0]["content"]
        assert LINES[name] in text.splitlines()
