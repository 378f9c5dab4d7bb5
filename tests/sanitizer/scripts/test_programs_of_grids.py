"""Programs in CUDA C++ whose blocks, streams and host wait for one another, as they should or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from noyau.errors import FindingKind
from noyau.sanitizer.scripts.programs import check_program

RIGHT = r"""
#include <cstdio>
#include <memory>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <cub/cub.cuh>
namespace cg = cooperative_groups;
using namespace nvcuda;
__global__ void steps(float *a, float *b, int n) {
    cg::grid_group grid = cg::this_grid();
    for (int s = 0; s < 3; ++s) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) b[i] = a[(i + 1) % n] + a[i];
        grid.sync();
        float *t = a; a = b; b = t;
    }
}
__global__ void chain(volatile int *flags, int *sums) {
    if (threadIdx.x == 0) {
        int before = 0, b = gridDim.x - 1 - blockIdx.x; /* of blocks that run later */
        if (b > 0) {
            while (flags[b - 1] == 0) {}
            __threadfence();
            before = sums[b - 1];
        }
        sums[b] = before + 1;
        __threadfence();
        flags[b] = 1;
    }
}
__global__ void halves(const half2 *x, nv_bfloat16 *y, float *sum) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    half2 v = x[threadIdx.x] + half2(1.0f, 2.0f);
    float s = cg::reduce(warp, __low2float(v) + __high2float(v), cg::plus<float>());
    if (warp.thread_rank() == 0) atomicAdd_system(sum, isnan(s) || isinf(s) ? 0.0f : s);
    y[threadIdx.x] = __hmul(__float2bfloat16(2.0f), __float2bfloat16(threadIdx.x));
}
__global__ __noinline__ void phases(int *out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> ready[2];
    __shared__ int s[64];
    if (threadIdx.x < 2) init(&ready[threadIdx.x], blockDim.x);
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        s[threadIdx.x] = i * threadIdx.x;
        ready[i % 2].arrive_and_wait();
        out[threadIdx.x] = s[63 - threadIdx.x];
        ready[(i + 1) % 2].wait(ready[(i + 1) % 2].arrive());
    }
}
__global__ void product(const half *a, const half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
    wmma::fill_fragment(z, 0.5f);
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, b, 16);
    wmma::mma_sync(z, x, y, z);
    wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
__device__ double add_by_swaps(double *sum, double value) {
    unsigned long long *bits = (unsigned long long *)sum, old = *bits, guess;
    do {
        guess = old;
        old = atomicCAS(bits, guess, (unsigned long long)__double_as_longlong(value + __longlong_as_double(guess)));
    } while (guess != old);
    return __longlong_as_double(old);
}
template <class T> __device__ T max(const T &a, const T &b) { return a > b ? a : b; }
struct Most {
    __device__ float operator()(float a, float b) const { return max(max(a, b), 0.5f); }
};
__global__ void of_cub(double *sum, int *places) {
    using Reduce = cub::BlockReduce<float, 64>;
    using Scan = cub::BlockScan<int, 64>;
    using Warps = cub::WarpReduce<int>;
    __shared__ Reduce::TempStorage reduces;
    __shared__ Scan::TempStorage scans;
    __shared__ Warps::TempStorage warps[2];
    const int t = threadIdx.x;
    float most = Reduce(reduces).Reduce((float)(t * 37 % 64), Most());
    if (t == 0) add_by_swaps(sum, most);
    __syncthreads();
    float few[2] = {1, 2}, all = Reduce(reduces).Sum(few);
    if (t == 0) add_by_swaps(sum, all);
    int place, count, both;
    Scan(scans).ExclusiveSum(t % 3 == 0, place, count);
    __syncthreads();
    Scan(scans).InclusiveScan(t, both, cub::Max());
    if (t % 3 == 0) places[place] = both + count;
    int ones = Warps(warps[t / 32]).Sum(1);
    if (t % 32 == 0) add_by_swaps(sum, ones);
}
__global__ void add(int *x, int by) { x[threadIdx.x] += by; }
__global__ void add_system(int *x) { atomicAdd_system(x, 1); }
void count_up(cudaStream_t, cudaError_t, void *x) { *(int *)x += 1; }
void launch(void (*kernel)(int *, int), int *x) { kernel<<<1, 32>>>(x, 1); }
template <class T> T *managed(size_t n) {
    T *made;
    cudaMallocManaged(&made, n * sizeof(T));
    return made;
}
int main() {
    int n = 300;
    float *a = managed<float>(n), *b = managed<float>(n), *c = managed<float>(256), *sum = managed<float>(1);
    for (int i = 0; i < n; ++i) a[i] = 1, b[i] = 0;
    void *given[] = {&a, &b, &n};
    if (cudaLaunchCooperativeKernel((void *)steps, dim3(4), dim3(64), given)) return 1;
    int *flags, *sums, last, *x = managed<int>(64);
    cudaMalloc(&flags, 20), cudaMalloc(&sums, 20), cudaMemset(flags, 0, 20);
    chain<<<5, 32>>>(flags, sums);
    cudaMemcpy(&last, sums + 4, 4, cudaMemcpyDeviceToHost);
    half *h = managed<half>(256), *k = managed<half>(256);
    for (int i = 0; i < 256; ++i) h[i] = i % 17 ? 0 : 2, k[i] = i;
    nv_bfloat16 *y = managed<nv_bfloat16>(64);
    *sum = 0;
    halves<<<1, 64>>>((half2 *)k, y, sum);
    product<<<1, 32>>>(h, k, c);
    phases<<<1, 64>>>(x);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    add<<<1, 32, 0, stream>>>(x, 10);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    for (int i = 0; i < 2; ++i) cudaGraphLaunch(exec, stream);
    launch(add, x);
    cudaStreamSynchronize(stream);
    double *total = managed<double>(1);
    int *places = managed<int>(22), *pinned, *back;
    *total = 0;
    of_cub<<<2, 64>>>(total, places);
    cudaMallocHost(&pinned, 128), cudaMallocHost(&back, 128), cudaMalloc(&flags, 128);
    cudaEvent_t is_sent;
    cudaEventCreate(&is_sent);
    add_system<<<1, 32>>>(places);
    for (int old = -1, now = 0; old != now;) old = *places, now = __sync_val_compare_and_swap(places, old, 63);
    for (int k = 0; k < 2; ++k) {
        for (int i = 0; i < 32; ++i) pinned[i] = i;
        cudaMemcpyAsync(flags, pinned, 128, cudaMemcpyHostToDevice, stream);
        cudaEventRecord(is_sent, stream);
        add<<<1, 32, 0, stream>>>(flags, 1);
        cudaMemcpyAsync(back, flags, 128, cudaMemcpyDeviceToHost, stream);
        cudaEventSynchronize(is_sent);
    }
    cudaStreamAddCallback(stream, count_up, back, 0);
    cudaStreamSynchronize(stream);
    printf("%g %d %d %d\n", *total, places[21], back[0], back[31]);
    printf("%g %d %g %g %g %d\n", b[7], last, (float)y[5], *sum, c[17], x[0]);
}
"""
WRONG = r"""
#include <cstdio>
namespace A { __device__ int counter; }
__global__ void tail(const float *x, float *y, int n) {
    int i = 4 * threadIdx.x;
    if (i + 3 < n) for (int k = 0; k < 4; ++k) y[i + k] = x[i + k];
}
__global__ void doubles(int *x) { x[threadIdx.x] *= 2; }
__global__ void counts(volatile int *x) { *x = *x + 1; }
__global__ void shared() { A::counter += 1; }
__global__ void of_host(float *x) { x[threadIdx.x] = 1; }
__global__ void adds_late(int *x) {
    if (*x < 99) atomicAdd(x, 1);
}
#include <cub/block/block_reduce.cuh>
__global__ void reduces_twice(float *x) {
    __shared__ cub::BlockReduce<float, 64>::TempStorage own;
    float s = cub::BlockReduce<float, 64>(own).Sum(x[threadIdx.x]);
    s += cub::BlockReduce<float, 64>(own).Sum(1);
    if (threadIdx.x == 0) x[0] = s;
}
__global__ void carved(float *x) {
    extern __shared__ float part[];
    *(double *)(part + 3) = x[0];
}
__global__ void vectors(const float *x, float *y) {
    float second = ((const float4 *)(x + 1))->y; // a load of one float
    float4 four = *reinterpret_cast<const float4 *>(x + 1);
    *y = four.x + four.w + second;
}
#include <cuda/pipeline>
__global__ void staged(const float *x, float *y) {
    __shared__ float own[2][8];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto stages = cuda::make_pipeline(block, &state);
    for (int k = 0; k < 3; ++k) {
        stages.producer_acquire(); // the third waits for a stage that nobody has released
        cuda::memcpy_async(block, own[k % 2], x + 8 * k, 32, stages);
        stages.producer_commit();
    }
    stages.consumer_wait();
    y[threadIdx.x] = own[0][7 - threadIdx.x];
    stages.consumer_release();
}
int main() {
    int *pinned, *of_it;
    cudaMallocHost(&pinned, 64);
    cudaMalloc(&of_it, 64);
    for (int k = 0; k < 2; ++k) {
        for (int i = 0; i < 16; ++i) pinned[i] = i;
        cudaMemcpyAsync(of_it, pinned, 64, cudaMemcpyHostToDevice);
    }
    cudaDeviceSynchronize();
    float *f;
    cudaMallocManaged(&f, 256);
    for (int i = 0; i < 64; ++i) f[i] = i;
    reduces_twice<<<1, 64>>>(f);
    adds_late<<<1, 32>>>(of_it);
    carved<<<1, 1, 32>>>(f);
    vectors<<<1, 1>>>(f, f + 60);
    staged<<<1, 8>>>(f, f + 32);
    cudaStream_t first, second;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    doubles<<<1, 16, 0, first>>>(of_it);
    cudaMemcpyPeerAsync(f, 0, of_it, 0, 64, second);
    cudaDeviceSynchronize();
    float h[30], *x, *y, *of_malloc = (float *)malloc(64);
    cudaMalloc(&x, sizeof h);
    cudaMalloc((void **)&y, sizeof h);
    cudaMemset(x, 0, sizeof h);
    tail<<<1, 32>>>(x, y, 30);
    cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost);
    int *m;
    cudaMallocManaged(&m, 64);
    for (int i = 0; i < 16; ++i) m[i] = i;
    doubles<<<1, 16>>>(m);
    printf("%d\n", m[3]);
    cudaDeviceSynchronize();
    counts<<<2, 1>>>(m);
    shared<<<1, 2>>>();
    of_host<<<1, 16>>>(of_malloc);
}
"""


def checked(tmp_path, text, time_s=120.0):
    path = tmp_path / "prog.cu"
    path.write_text(text, encoding="utf-8")
    return check_program(path, time_s=time_s)


def test_blocks_that_wait_for_one_another_are_right(tmp_path, capfd):
    found = checked(tmp_path, RIGHT)
    assert capfd.readouterr().out == "638 85 2 32\n8 5 10 8320 34.5 210\n"
    assert [str(each) for each in found.errors] == []
    assert found.is_verified
    names = [each.name for each in found.kernels]
    assert names == ["steps", "chain", "halves", "product", "phases", "add", "kernel", "of_cub", "add_system"]
    assert {each.name: each.calls for each in found.kernels}["add"] == 4


def test_each_finding_names_its_kernel_and_what_is_wrong(tmp_path, capfd):
    found = checked(tmp_path, WRONG)
    assert capfd.readouterr().out == "6\n"
    said = {each.kernel: (str(each.kind), each.message) for each in found.errors}
    messages = "\n".join(each.message for each in found.errors)
    assert said["tail"] == (
        "unwritten",
        "the host copies 2 of the 30 cells of y, which nobody wrote; the first is y[28]",
    )
    assert said["prog"][0] == "race"
    assert said["prog"][1].startswith("the host reads m[3], written by thread 3 of block 0 on line 8")
    assert "read by a copy that was not waited for" in messages
    assert "own[32], read by thread 0 of block 0" in said["reduces_twice"][1]
    assert said["adds_late"][0] == "race"
    assert said["counts"][1].startswith("thread 0 of block 1 writes m[0], written by thread 0 of block 0")
    assert "A::counter, written by thread 0 of block 0" in said["shared"][1]
    assert said["carved"][1].startswith("an access of 8 bytes at an address that is not a multiple of 8 at part")
    misaligned = [each for each in found.errors if each.kernel == "vectors"]
    assert [WRONG.splitlines()[int(each.place.rpartition(":")[2]) - 1].split()[:2] for each in misaligned] == [
        ["float4", "four"]
    ]
    assert said["vectors"][1].startswith("an access of 16 bytes at an address that is not a multiple of 16 at f")
    staged = [each.message for each in found.errors if each.kernel == "staged"]
    assert staged[0] == "thread 0 of block 0 waits at a barrier for threads that never arrive"
    assert {each.remedy for each in misaligned} == {"give the pointer the alignment of what it points to"}
    assert "a copy in stream 2 reads of_it[0], written by a kernel in stream 1 on line 8" in messages
    assert said["of_host"][0] == "crash"
    assert "the grid touches memory of the host at of_malloc" in said["of_host"][1]
    remedies = {each.kernel: each.remedy for each in found.errors}
    assert remedies["prog"] == "wait for the grid before the host touches it: cudaDeviceSynchronize()"


HEADERS = {
    "sums.cuh": r"""#pragma once
#include "parts/wait.h"
__global__ void sums(const int *x, int *out) {
    extern __shared__ int s[];
    s[threadIdx.x] = x[threadIdx.x];
    WAIT
    if (threadIdx.x == 0) out[0] = s[blockDim.x - 1];
}
inline void launch(const int *x, int *out) { sums<<<1, 64, 64 * sizeof(int)>>>(x, out); }
""",
    "parts/wait.h": '#ifndef PARTS\n#define PARTS\n#include "more.h"\n#endif\n',
    "parts/more.h": "#ifndef WAIT\n#define WAIT __syncthreads();\n#endif\n",
}
WITH_HEADER = r"""%s
#include "sums.cuh"
#include "sums.cuh"
int main() {
    int *x, *out, last = 0;
    cudaMalloc(&x, 256), cudaMalloc(&out, 4);
    cudaMemset(x, 0, 256);
    launch(x, out);
    cudaMemcpy(&last, out, 4, cudaMemcpyDeviceToHost);
    return last + x[99];
}
"""


def test_launches_and_dynamic_memory_in_headers_of_the_author(tmp_path):
    for name, text in HEADERS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = tmp_path / "main.cu"
    path.write_text((WITH_HEADER % "").replace(" + x[99]", ""), encoding="utf-8")
    found = check_program(path)
    assert found.is_verified and found.kernels[0].name == "sums"
    path.write_text(WITH_HEADER % "#define WAIT", encoding="utf-8")
    places = {(each.kind.value, Path(each.place).name) for each in check_program(path).errors}
    assert {("race", "sums.cuh:5"), ("out-of-bounds", "main.cu:10")} <= places


HANDED_ON = r"""
#include <cuda/atomic>
__device__ int lock, box;
__device__ cuda::atomic<int, cuda::thread_scope_device> ready{0};
__global__ void locked(int *count) { /* by threads of one block and of several */
    for (bool done = false; !done;)
        if (atomicCAS(&lock, 0, 1) == 0) {
            FENCE;
            *count += 1;
            FENCE;
            atomicExch(&lock, 0), done = true;
        }
}
__global__ void flagged(int *out) {
    if (blockIdx.x == 0) box = 42, ready.store(1, cuda::memory_order_RELEASE);
    else {
        while (ready.load(cuda::memory_order_acquire) == 0) {}
        *out = box;
    }
}
int main() {
    int *count;
    cudaMallocManaged(&count, 8);
    count[0] = 0;
    locked<<<2, 40>>>(count);
    flagged<<<2, 1>>>(count + 1);
    cudaDeviceSynchronize();
    return count[0] != 80 || count[1] != 42;
}
"""


def test_locks_and_flags_order_threads_where_there_are_fences(tmp_path):
    path = tmp_path / "handed.cu"
    path.write_text(HANDED_ON.replace("FENCE", "__threadfence()").replace("RELEASE", "release"), encoding="utf-8")
    assert check_program(path).is_verified
    path.write_text(HANDED_ON.replace("FENCE", "").replace("RELEASE", "relaxed"), encoding="utf-8")
    assert {(each.kernel, each.kind.value) for each in check_program(path).errors} == {
        ("locked", "race"), ("flagged", "race"),
    }  # fmt: skip


UNSET = """\
#include <cstdio>
#include <cuda_runtime.h>
__global__ void sums(const int *x, int *y) {
    __shared__ int sums[32];
    extern __shared__ int more[];
    const int i = threadIdx.x, lane = i % 32, warp = i / 32;
    if (lane == 31) sums[warp] = more[warp] = x[i];
    __syncthreads();
    if (warp == 0) sums[lane] += 1, more[lane] = 2 * more[lane]; /* of two warps: what the other lanes sum is dropped */
    __syncthreads();
    LINE
    y[i] = x[i] + sums[warp] + more[warp];
}
int main() {
    int *x, *y, h[64];
    cudaMalloc(&x, 256), cudaMalloc(&y, 256);
    cudaMemset(x, 0, 256);
    for (int k = 0; k < 2; ++k) sums<<<1, 64, 128>>>(x, y);
    cudaMemcpy(h, y, 256, cudaMemcpyDeviceToHost);
    return h[0] == 99;
}
"""


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("", "warning"),
        ("if (sums[lane] > 5) y[i] = 0;", "error"),  # a branch
        ("if (x[i] == 3) y[i] = 0; else y[i] = x[sums[lane] & 31];", "error"),  # an address
        ('y[i] = 0; if (warp && lane == 7) printf("%d", more[lane]);', "error"),
        ('y[i] = 0; if (warp && lane == 7) printf("%200s%200d", "", more[lane]);', "error"),
        ('y[i] = 0; if (warp && lane == 7) printf("%c", more[lane]);', "error"),  # which gcc turns into putchar
        ("if (!i) y[i] = sums[lane + 20];", "warning"),  # another value comes there
        ("__shared__ int never[64]; if (never[lane] > 5) y[i] = 0;", "error"),  # gcc took it for 0
    ],
)
def test_unset_shared_memory_is_an_error_where_something_depends_on_it(tmp_path, line, severity):
    found = checked(tmp_path, UNSET.replace("LINE", line))
    severities = {each.severity for each in found.findings if each.kind is FindingKind.UNINITIALISED}
    assert severity in severities and ("error" in severities) == (severity == "error")


WAITS = """\
#include <cstdio>
#include <cuda_runtime.h>
__global__ void wait(long long *out, long long ticks) {
    const long long start = clock64();
    long long now = start;
    while (now - start < ticks) now = clock64();
    const int before = (int)clock();
    while (clock() - before < (int)ticks) {}
    *out = now - start;
}
int main() {
    long long *out, past;
    cudaMalloc(&out, 8);
    for (int k = 0; k < 20; ++k) wait<<<1, 1>>>(out, 1 << 30);
    cudaMemcpy(&past, out, 8, cudaMemcpyDeviceToHost);
    printf("%d\\n", past >= 1 << 30);
}
"""


def test_a_kernel_that_waits_by_its_clock_ends(tmp_path, capfd):
    found = checked(tmp_path, WAITS, time_s=10.0)
    assert (found.findings, found.fault, capfd.readouterr().out) == ((), "", "1\n")


AXES = r"""
#include <cstdio>
#define ROWS 2
constexpr int WIDTH = 5;
__device__ int counts[3][2 * ROWS];
__global__ void rows(float *out) {
    __shared__ float tile[ROWS][WIDTH + 1]; // tile[3][4];
    const int i = threadIdx.x;
    tile[1][i % 6] = i;
    atomicAdd(&counts[2][1], 1);
    out[i] = tile[1][(i + 1) % 6] + counts[2][1];
}
int main() {
    float *out, host[6];
    cudaMalloc(&out, sizeof host);
    rows<<<1, 6>>>(out);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    printf("%g\n", host[1]);
}
"""


def test_cells_of_arrays_have_the_axes_that_the_text_declares(tmp_path):
    path = tmp_path / "prog.cu"
    path.write_text(AXES, encoding="utf-8")
    told = "\n".join(each.message for each in check_program(path).findings)
    assert "tile[1, 1]" in told and "counts[2, 1]" in told and "tile[7]" not in told
