from __future__ import annotations

import os
import sys

import numpy as np

from noyau.jobs.check.attempts import usual_case
from noyau.jobs.check.sanitized_runs import maps_of
from noyau.jobs.cli import main
from noyau.ops.op_files import load_ops

FILE = '''\
import numba
from numba import cuda
import noyau

TEXT = """void double_c(const float *x, float *out, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) out[i] = 2 * x[i];
}
"""


@noyau.op("f32[n] -> out: f32[n]")
def double(x):
    return 2 * x


@double.kernel(name="prange")
@numba.njit(parallel=True)
def double_prange(x, out):
    for i in numba.prange(x.size):
        out[i] = 2 * x[i]


@double.kernel(name="cuda", launch=lambda n: ((n + 15) // 16, 16))
@cuda.jit
def double_cuda(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]


double.kernel(TEXT, language="c", entry="double_c", name="in c", options={"flags": ["-fopenmp"]})
PTX = """__global__ void ptx(const float *x, float *out, long n) {
    asm("nop;");
}
"""
double.kernel(PTX, language="cuda", entry="ptx", name="ptx", launch=(1, 32))
'''


def test_a_map_of_each_kernel_of_an_op(tmp_path):
    path = tmp_path / "ops.py"
    path.write_text(FILE, encoding="utf-8")
    (op,) = load_ops(str(path))
    instance, arrays, size = usual_case(op)
    assert size.startswith("n = ")
    assert len(instance.inputs) == len(arrays) == 1
    assert arrays[0].dtype == np.float32
    prange, cuda, c, ptx = maps_of(op)
    last = arrays[0].size - 1
    assert str(prange).splitlines()[1] == f"  out[0..{last}]  iterations 0..{last}"
    assert str(cuda).splitlines()[2].split() == ["out[16..31]", "block", "1,", "warp", "0:", "threads", "0..15"]
    assert str(c).splitlines()[0] == f"double[in c] on line 6: who writes out[{last + 1}]"
    assert len(str(c).splitlines()) == 5  # four threads
    assert "line 34 uses asm: PTX cannot be watched" in str(ptx)


def test_the_command_tells_nothing_of_an_op_without_kernels(tmp_path, capsys):
    path = tmp_path / "ops.py"
    path.write_text("import noyau\n\n\n@noyau.op('f32[n] -> f32[n]')\ndef f(x):\n    return x\n", encoding="utf-8")
    assert main(["check", str(path), "--map", str(tmp_path / "f.svg")]) == 2
    assert "there is nothing to draw of" in capsys.readouterr().err


def test_a_wrong_kernel_counts_for_more_than_nothing_to_draw(tmp_path, capsys, monkeypatch):
    path = tmp_path / "ops.py"
    text = FILE.partition("@double")[0] + "# import triton\n\n\n@double.kernel(name='coarse')\ndef coarse(x, out):\n"
    path.write_text(text + "    out[...] = 3 * x\n", encoding="utf-8")
    told = []
    monkeypatch.setattr(
        "noyau.jobs.check.sanitized_runs.maps_of", lambda op: told.append(os.environ.get("TRITON_INTERPRET")) or []
    )
    monkeypatch.setattr("noyau.workers.nvml.has_driver", lambda: False)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert main(["check", str(path), "--map", str(tmp_path / "f.svg")]) == 1
    assert "there is nothing to draw of" in capsys.readouterr().err
    assert told == ["1"]
    assert "TRITON_INTERPRET" not in os.environ
    monkeypatch.setattr("noyau.workers.nvml.has_driver", lambda: True)
    assert main(["check", str(path), "--map", "-"]) == 1
    assert told == ["1", None]
