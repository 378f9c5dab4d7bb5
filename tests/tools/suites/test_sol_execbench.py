from __future__ import annotations

import json

from tools.suites import sol_execbench

TRITON = """
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
CUDA = """
__global__ void norm(const float *x, const float *w, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    out[i] = f(x[i], w[i]);
}
torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    auto output = torch::empty_like(x), w = weight;
    norm<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), w.contiguous().data_ptr<float>(), output.data_ptr<float>(), n);
    return output;
}
"""
CALL = "norm<<<{}, 64>>>(x.data_ptr<float>(), w.contiguous().data_ptr<float>(), output.data_ptr<float>(), n);"
REST = "threadIdx.x + 7 < blockDim.x || blockIdx.x + 1 < gridDim.x"
LINES = {
    "triton": {
        "no mask": "    tl.store(out_ptr + row * n_cols + offs, y)",
        "a race in one cell": "    tl.store(out_ptr + offs, y, mask=offs < 1)",
        "a tail of seven cells": "    tl.store(out_ptr + row * n_cols + offs, y, mask=mask & (offs < n_cols - 7))",
        "a changed input": "    weight[0] = 0",
    },
    "cuda_cpp": {
        "no mask": f"    {CALL.format('dim3(dim3((n + 63) / 64).x + 1)')}",
        "a race in one cell": "    out[0] = f(x[i], w[i]);",
        "a tail of seven cells": f"    if ({REST}) out[i] = f(x[i], w[i]);",
        "a changed input": f"    {CALL.format('(n + 63) / 64')} cudaMemset((void *)w.data_ptr(), 0, 2);",
    },
}


def test_each_twin_has_one_defect(tmp_path):
    for kind, text in (("triton", TRITON), ("cuda_cpp", CUDA)):
        folder = tmp_path / "examples" / kind / "norm"
        folder.mkdir(parents=True)
        (folder / "definition.json").write_text("{}")
        sources = [{"path": "own.h", "content": ""}, {"path": "kernel", "content": text}]
        (folder / "solution_norm.json").write_text(json.dumps({"name": "norm", "sources": sources}))
    cases = iter(sol_execbench.cases_of(tmp_path))
    for kind, lines in LINES.items():
        case = next(cases)
        assert (case.name, case.is_defective) == (f"{kind}/norm", False)
        for name, line in lines.items():
            twin = next(cases)
            assert (twin.name, twin.is_defective) == (f"{kind}/norm: {name}", True)
            with open(twin.words[2], encoding="utf-8") as file:
                assert line in json.load(file)["sources"][1]["content"].splitlines()
    assert next(cases, None) is None
    assert "return;" not in sol_execbench.without_guard(CUDA)
