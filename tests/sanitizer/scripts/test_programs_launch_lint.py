"""Which kernel a launch is of, and its text; what is said of launches is in tests/advice, with examples/defects."""

from __future__ import annotations

from noyau.kernels.c.syntax import syntax
from noyau.sanitizer.scripts.programs import check_program, text_of

TEXT = """\
#include <cuda_runtime.h>
__device__ float all(float v) { return __shfl_xor_sync(~0u, v, 1); }
__device__ float sum(float v) { return all(v) + 1; }
__global__ void rows(float *x) { int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = sum(i); }
template <int N> __global__ void ones(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = N; }
int main() {
    float *x;
    cudaMalloc(&x, 64 * 50 * sizeof(float));
    rows<<<64, 32>>>(x); // a block is a warp, which the kernel's own functions rely on
    ones<1><<<64,
        50>>>(x);
    ones<2><<<dim3(64), dim3(50)>>>(x); // noyau: allow(launch) to be measured
    for (int k = 0; k < 3; ++k) ones<3><<<64, 32>>>(x);
    // rows<<<1, 1>>>(x);
    return 0;
}
"""


def launch_on(text, line):
    launch = syntax(text, "cuda").launch_on(line)
    return launch and (launch.name, launch.line)


def test_the_kernel_of_a_launch_is_read_from_its_line():
    assert [launch_on(TEXT, line) for line in (9, 10, 11, 12, 13)] == [
        *(("rows", 9), ("ones", 10), ("ones", 10), ("ones", 12), ("ones", 13))
    ]
    assert [launch_on(TEXT, line) for line in (8, 14)] == [None, None]
    assert launch_on("a<<<1, 2>>>(); b<<<1, 2>>>();", 1) is None


def test_the_text_of_a_kernel_has_the_functions_that_it_names():
    assert "__shfl_xor_sync" in text_of(TEXT, "rows")
    assert "__shfl_xor_sync" not in text_of(TEXT, "ones")
    assert text_of(TEXT, "of_another_file") == TEXT


def test_launches_of_a_program_are_told_once_each_on_their_lines(tmp_path):
    path = tmp_path / "prog.cu"
    path.write_text(TEXT, encoding="utf-8")
    found = check_program(path)
    assert found.ok
    told = [(each.kernel, each.kind, each.severity, each.place.rpartition(":")[2]) for each in found.findings]
    assert told == [("ones", "launch", "warning", "10"), ("ones", "launch", "warning", "13")]
    assert found.findings[0].message.startswith("[64, 50] has blocks of 50 threads, no multiple of 32")
    assert found.findings[1].message.startswith("[64, 32] has blocks of 32 threads: a multiprocessor holds 32 blocks")
    forced = check_program(path, launch=((4,), (256,)))
    assert forced.findings == ()
