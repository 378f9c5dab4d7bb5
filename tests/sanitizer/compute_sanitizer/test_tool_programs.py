from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import noyau
from noyau.errors import BuildError, UnsupportedError
from noyau.sanitizer.c.build import with_launch_calls
from noyau.sanitizer.compute_sanitizer.tool import compiled, written
from noyau.signatures.binding import bind

INCLUDE = Path(noyau.__file__).parent / "sanitizer" / "c" / "include"
TEXT = """#include <cuda_runtime.h>
__global__ void scale(const float *x, float by, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * x[i] * FACTOR;
}
void scale_on_host(const float *x, float by, float *out, int n) {
    for (int i = 0; i < n; i++) out[i] = by * x[i];
}
"""


@noyau.op("f32[n], f32 -> out: f32[n]")
def scaled(x, by):
    return x * by


scaled.kernel(TEXT, language="cuda", entry="scale", launch=lambda n: ((n + 31) // 32, 32), constants={"FACTOR": 1})
scaled.kernel(TEXT, language="cuda", entry="scale_on_host", constants={"FACTOR": 1})


def program_of(name, folder):
    bound = bind(scaled.signature, (np.arange(100, dtype=np.float32), np.float32(2)), {}, "scaled")
    return written(scaled.kernels[name], bound.instance, bound.arrays, {}, folder)


def test_a_grid_is_launched_on_memory_of_the_device(tmp_path):
    program, held = program_of("scale", tmp_path)
    text = program.read_text()
    assert "#define FACTOR 1\n" in text
    assert '#line 1 "a text"\n#include <cuda_runtime.h>' in text
    assert (
        "scale<<<dim3(4, 1, 1), dim3(32, 1, 1), 0>>>(noyau_any{a[0]}, *(const float *)a[1], noyau_any{a[2]}, " in text
    )
    places = re.findall(r"noyau_place\(file, (\d+), (\w+), (\w+)\)", text)
    assert places == [("400", "true", "true"), ("4", "true", "false"), ("400", "false", "true"), ("8", "true", "false")]
    assert held.read_bytes()[:404] == np.arange(100, dtype=np.float32).tobytes() + np.float32(2).tobytes()


def test_a_function_of_the_host_is_called(tmp_path):
    text = program_of("scale_on_host", tmp_path)[0].read_text()
    assert "scale_on_host(noyau_any{a[0]}, *(const float *)a[1], noyau_any{a[2]}, *(const long long *)a[3]);" in text
    assert "noyau_place(file, 400, false, false)" in text


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("name", ["scale", "scale_on_host"])
def test_the_text_is_right_for_a_compiler(name, tmp_path):
    program, _ = program_of(name, tmp_path)
    plain = with_launch_calls(program.read_text(), name)
    source = tmp_path / "plain.cpp"
    source.write_text(plain)
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{INCLUDE}", "-include", "noyau_cuda.h", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_nvcc_says(tmp_path, monkeypatch):
    program, _ = program_of("scale", tmp_path)
    kernel = scaled.kernels["scale"]
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text('#!/bin/sh\ncase "$*" in *-lineinfo*) echo "error: no such thing"; exit 1;; esac\n')
    nvcc.chmod(0o755)
    monkeypatch.setattr("noyau.sanitizer.compute_sanitizer.tool.find_tool", lambda name: str(nvcc))
    with pytest.raises(BuildError, match=r"^scaled\[scale\] does not compile: error: no such thing$"):
        compiled(program, kernel)
    nvcc.write_text("#!/bin/sh\n")
    assert compiled(program, kernel) == tmp_path / "program"
    monkeypatch.setattr("noyau.sanitizer.compute_sanitizer.tool.find_tool", lambda name: None)
    with pytest.raises(BuildError, match="nvcc is not installed"):
        compiled(program, kernel)


def test_a_call_in_pieces_is_refused(tmp_path):
    @noyau.op("f32[n] -> out: f32[n]")
    def twice(x):
        return x + x

    text = "void twice(const float *x, float *out, int64_t begin, int64_t end) {}"
    twice.kernel(f"#include <stdint.h>\n{text}", language="cuda", entry="twice")
    bound = bind(twice.signature, (np.ones(8, np.float32),), {}, "twice")
    with pytest.raises(UnsupportedError, match=r"^twice\[twice\] is called in pieces"):
        written(twice.kernels["twice"], bound.instance, bound.arrays, {}, tmp_path)
