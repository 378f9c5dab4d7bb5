"""Programs in CUDA C++ whose copies go on beside their threads, alone or in a pipeline."""

from __future__ import annotations

import pytest

from noyau.sanitizer.c.reports import AWAIT
from noyau.sanitizer.scripts.programs import check_program


def checked(tmp_path, text):
    path = tmp_path / "prog.cu"
    path.write_text(text, encoding="utf-8")
    return check_program(path)


COPIES = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
#include <cstdio>
namespace cg = cooperative_groups;
__global__ void sums(const float *x, float *out, int n) {
    __shared__ float tile[2][64];
    auto block = cg::this_thread_block();
    int tiles = n / 64;
    float s = 0;
    cg::memcpy_async(block, tile[0], x, sizeof(float) * 64);
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) {
            cg::memcpy_async(block, tile[(t + 1) & 1], x + (t + 1) * 64, sizeof(float) * 64);
#ifndef BAD
            cg::wait_prior<1>(block);
#else
            block.sync();
#endif
        } else cg::wait(block);
        s += tile[t & 1][63 - threadIdx.x];
        block.sync();
    }
    out[threadIdx.x] = s;
}
template <int STAGES> __global__ void piped(const float *x, float *out, int n) {
    __shared__ float tile[STAGES][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int tiles = n / 64;
    float s = 0;
    for (int t = 0, next = 0; t < tiles; ++t) {
        for (; next < tiles && next < t + STAGES; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[next % STAGES], x + next * 64, sizeof(float) * 64, pipe);
            pipe.producer_commit();
        }
#ifndef BAD
        pipe.consumer_wait();
#endif
        s += tile[t % STAGES][63 - threadIdx.x];
        pipe.consumer_release();
    }
    out[threadIdx.x] = s;
}
__global__ void own(const float4 *x, float4 *out) {
    __shared__ float4 tile[2][32];
    auto pipe = cuda::make_pipeline();
    for (int k = 0; k < 2; ++k) {
        pipe.producer_acquire();
        cuda::memcpy_async(&tile[k][threadIdx.x], x + k * 32 + threadIdx.x, sizeof(float4), pipe);
        pipe.producer_commit();
    }
    float4 s = {0, 0, 0, 0};
    for (int k = 0; k < 2; ++k) {
#ifdef BAD
        if (k == 0) cuda::pipeline_consumer_wait_prior<1>(pipe);
#else
        pipe.consumer_wait();
#endif
        s.x += tile[k][threadIdx.x].x, s.w += tile[k][threadIdx.x].w;
        pipe.consumer_release();
    }
    out[threadIdx.x] = s;
}
__global__ void primitive(const float *x, float *out) {
    __shared__ alignas(16) float given[64];
    __shared__ __align__(16) float tile[64];
    __pipeline_memcpy_async(&tile[4 * threadIdx.x], &x[4 * threadIdx.x], 16, threadIdx.x ? 0 : 4);
    __pipeline_commit();
#ifdef BAD
    __syncthreads(); // others see what was there when it was passed
    __pipeline_wait_prior(0);
#else
    __pipeline_wait_prior(0);
    __syncthreads();
#endif
    given[threadIdx.x] = tile[63 - threadIdx.x] + tile[3 + threadIdx.x];
    out[threadIdx.x] = given[threadIdx.x];
}
__global__ void keeps(const float *x, float *out, int *count) {
    if ((int)x[threadIdx.x] % 3 == 0) out[atomicAdd(count, 1)] = x[threadIdx.x];
}
int main() {
    float *x, *o, h[256], r[128];
    for (int i = 0; i < 256; ++i) h[i] = i;
    cudaMalloc(&x, 1024), cudaMalloc(&o, 512);
    cudaMemcpy(x, h, 1024, cudaMemcpyHostToDevice);
    sums<<<1, 64>>>(x, o, 256);
    cudaMemcpy(r, o, 256, cudaMemcpyDeviceToHost);
    printf("%g ", r[63]);
    piped<2><<<1, 64>>>(x, o, 256);
    cudaMemcpy(r, o, 256, cudaMemcpyDeviceToHost);
    printf("%g ", r[63]);
    own<<<1, 32>>>((float4 *)x, (float4 *)o);
    cudaMemcpy(r, o, 512, cudaMemcpyDeviceToHost);
    printf("%g ", r[0]);
    primitive<<<1, 16>>>(x, o);
    cudaMemcpy(r, o, 64, cudaMemcpyDeviceToHost);
    printf("%g %g ", r[0], r[1]);
    int *count, many[1] = {0};
    cudaMalloc(&count, 4), cudaMalloc(&o, 128);
#ifdef BAD
    many[0] = 1; // which says that cells behind the last one are meant
#endif
    cudaMemcpy(count, many, 4, cudaMemcpyHostToDevice);
    keeps<<<1, 32>>>(x, o, count);
    cudaMemcpy(many, count, 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(r, o, 128, cudaMemcpyDeviceToHost);
    printf("%d\n", many[0]);
}
"""


def test_copies_that_go_on_are_waited_for_and_counted_cells_are_all_that_is_meant(tmp_path, capfd):
    found = checked(tmp_path, COPIES)
    assert capfd.readouterr().out == "384 384 128 63 66 11\n"
    assert [str(each) for each in found.errors] == []
    broken = checked(tmp_path, f"#define BAD\n{COPIES}")
    said = {each.kernel: (str(each.kind), each.message) for each in reversed(broken.errors)}
    goes_on = "reads tile[0, 63], into which the copy by thread 63 of block 0 on line 14 may still go on"
    assert said["sums"][0] == "uninitialised"
    assert goes_on in said["sums"][1]
    assert said["own"][1].startswith("thread 0 of block 0 reads tile[128], into which the copy by thread 0 of block 0")
    assert (said["piped"][0], said["primitive"][0], said["keeps"][0]) == ("race", "race", "unwritten")
    assert {each.remedy for each in broken.errors if "still go on" in each.message} == {AWAIT}


PIPELINES = """#include <cstdio>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
__global__ void staged(const int *x, int *y) {
    __shared__ int own[2][8];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto stages = cuda::make_pipeline(block, &state);
    for (int k = 0; k < 7; ++k) {
        if (k < 6) {
            stages.producer_acquire();
            cuda::memcpy_async(block, own[k % 2], x + 8 * k, 32, stages);
            stages.producer_commit();
        }
        if (!k) continue;
        stages.consumer_wait();
        y[8 * (k - 1) + threadIdx.x] = own[(k - 1) % 2][7 - threadIdx.x];
        stages.consumer_release();
    }
}
__global__ void of_roles(const int *x, int *y) {
    __shared__ int own[2][4];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    const bool produces = threadIdx.x < 4;
    auto stages = cuda::make_pipeline(
        cg::this_thread_block(), &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    for (int k = 0; k < 6; ++k)
        if (produces) {
            stages.producer_acquire();
            own[k % 2][threadIdx.x] = x[4 * k + threadIdx.x];
            stages.producer_commit();
        } else {
            cuda::pipeline_consumer_wait_prior<0>(stages);
            stages.consumer_wait();
            y[4 * k + threadIdx.x - 4] = own[k % 2][7 - threadIdx.x];
            stages.consumer_release();
        }
}
__global__ void of_warps(const int *x, int *y) {
    __shared__ cg::block_tile_memory<160> memory;
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<64>(block);
    int sum = cg::reduce(tile, x[threadIdx.x], cg::plus<int>());
    int more = tile.any(x[threadIdx.x] == 70) + tile.shfl(sum, 3);
    if (tile.thread_rank() == 0) y[tile.meta_group_rank()] = sum + more;
}
int main() {
    int *x, *y;
    cudaMallocManaged(&x, 640), cudaMallocManaged(&y, 640);
    for (int i = 0; i < 160; ++i) x[i] = i;
    staged<<<1, 8>>>(x, y), cudaDeviceSynchronize();
    printf("%d %d\\n", y[0], y[47]);
    of_roles<<<1, 8>>>(x, y), cudaDeviceSynchronize();
    printf("%d %d\\n", y[0], y[23]);
    of_warps<<<1, 160>>>(x, y), cudaDeviceSynchronize();
    printf("%d %d %d\\n", y[0], y[1], y[2]);
}
"""


@pytest.mark.parametrize("memory", ["memory", ""])  # GPUs of 8.0 and later reserve some
def test_pipelines_and_tiles_of_several_warps_are_waited_for(tmp_path, capfd, memory):
    found = checked(tmp_path, PIPELINES.replace("this_thread_block(memory)", f"this_thread_block({memory})"))
    first, second, third = sum(range(64)), sum(range(64, 128)), sum(range(128, 160))
    numbers = [7, 40, 3, 20, 2 * first, 2 * second + 1, 2 * third]
    assert list(map(int, capfd.readouterr().out.split())) == numbers
    assert [(each.name, each.findings, each.unseen) for each in found.kernels] == [
        (name, (), "") for name in ("staged", "of_roles", "of_warps")
    ]


STORED = "y[8 * (k - 1) + threadIdx.x] = own[(k - 1) % 2]"
RELEASE, COMMIT = "stages.consumer_release();", "stages.producer_commit();"


@pytest.mark.parametrize(
    ("kernel", "old", "new", "kind"),
    [
        ("staged", RELEASE, f"if (threadIdx.x != 3) {RELEASE}", "divergent-barrier"),
        ("of_roles", RELEASE, f"if (threadIdx.x != 5) {RELEASE}", "divergent-barrier"),
        ("of_roles", COMMIT, f"if (threadIdx.x) {COMMIT}", "divergent-barrier"),
        ("staged", "stages.consumer_wait();", "", "race"),
        ("staged", f"stages.consumer_wait();\n        {STORED}[7 - ", f"{STORED}[", "uninitialised"),  # each its own
        ("staged", "stages.producer_acquire();", "", "race"),
    ],
)
def test_a_stage_that_one_thread_does_not_wait_for_or_release_is_told(tmp_path, kernel, old, new, kind):
    head, name, rest = PIPELINES.partition(f"void {kernel}(")
    found = checked(tmp_path, head + name + rest.replace(old, new, 1))
    kinds = {each.name: {one.kind for one in each.findings} for each in found.kernels}
    assert kind in kinds.pop(kernel)
    assert not any(kinds.values())


ALONE = """#include <cstdio>
#include <cuda/pipeline>
__global__ void alone(const int *x, int *y) {
    __shared__ int own[2][32];
    const int at = threadIdx.x;
    auto stages = cuda::make_pipeline();
    for (int k = 0; k < 2; ++k) {
        stages.producer_acquire();
        cuda::memcpy_async(&own[k][at], x + 32 * k + at, 4, stages);
        stages.producer_commit();
    }
    cuda::pipeline_consumer_wait_prior<LEFT>(stages);
    y[at] = own[0][at] + own[1][at];
    stages.consumer_release();
    stages.producer_acquire();
    cuda::memcpy_async(&own[0][at], x + 64 + at, 4, stages);
    stages.producer_commit();
    stages.consumer_wait();
    y[at] += own[0][at];
    stages.consumer_release();
}
int main() {
    int *x, *y, host[96];
    for (int i = 0; i < 96; ++i) host[i] = i;
    cudaMalloc(&x, 384), cudaMalloc(&y, 128);
    cudaMemcpy(x, host, 384, cudaMemcpyHostToDevice);
    alone<<<1, 32>>>(x, y);
    cudaMemcpy(host, y, 128, cudaMemcpyDeviceToHost);
    printf("%d\\n", host[1]);
}
"""


def test_a_thread_that_has_waited_for_all_but_some_stages_has_consumed_them(tmp_path, capfd):
    (right,) = checked(tmp_path, ALONE.replace("LEFT", "0")).kernels
    assert (capfd.readouterr().out, right.findings, right.unseen) == ("99\n", (), "")
    (wrong,) = checked(tmp_path, ALONE.replace("LEFT", "1")).kernels
    assert [each.kind for each in wrong.findings] == ["uninitialised"] * 2


TOLD = """#include <cstdio>
#include <cooperative_groups.h>
#include <cuda/barrier>
namespace cg = cooperative_groups;
__global__ void sums(const float *x, float *out, int tiles) {
    __shared__ float tile[2][32];
    __shared__ cuda::barrier<cuda::thread_scope_block> full[2];
    auto block = cg::this_thread_block();
    if (block.thread_rank() < 2) init(&full[threadIdx.x], 32);
    block.sync();
    float s = 0;
    cuda::memcpy_async(block, tile[0], x, cuda::aligned_size_t<4>(128), full[0]);
    for (int t = 0; t < tiles; ++t) {
        const int next = (t + 1) % 2;
        if (t + 1 < tiles) cuda::memcpy_async(block, tile[next], x + 32 * t + 32, sizeof(float) * 32, full[next]);
        WAIT;
        s += tile[t % 2][AT];
        block.sync();
    }
    out[threadIdx.x] = s;
}
__global__ void alone(const float *x, float *out) {
    __shared__ float tile[32];
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    if (!threadIdx.x) {
        init(&ready, 33);
        cuda::memcpy_async(tile, x, sizeof tile, ready);
        auto first = ready.arrive();
    }
    __syncthreads();
    auto token = ready.arrive();
    if (!threadIdx.x) return;
    ready.wait(std::move(token));
    out[threadIdx.x] = tile[31 - threadIdx.x];
}
int main() {
    float *x, *y, host[128];
    for (int i = 0; i < 128; ++i) host[i] = i;
    cudaMalloc(&x, 512), cudaMalloc(&y, 128);
    cudaMemcpy(x, host, 512, cudaMemcpyHostToDevice);
    sums<<<1, 32>>>(x, y, 4);
    cudaMemcpy(host, y, 128, cudaMemcpyDeviceToHost);
    printf("%g ", host[1]);
    alone<<<1, 32>>>(x, y);
    cudaMemcpy(host, y, 128, cudaMemcpyDeviceToHost);
    printf("%g\\n", host[1]);
}
"""
WAITS = "full[t % 2].arrive_and_wait()"


def test_a_barrier_tells_when_a_copy_is_done(tmp_path, capfd):
    right = checked(tmp_path, TOLD.replace("WAIT", WAITS).replace("AT", "31 - threadIdx.x"))
    assert ([str(each) for each in right.errors], capfd.readouterr().out) == ([], "312 30\n")


@pytest.mark.parametrize(
    ("wait", "cell"), [("", "threadIdx.x"), ("full[t % 2].arrive(); block.sync()", "31 - threadIdx.x")]
)
def test_a_copy_that_a_barrier_tells_of_goes_on_until_somebody_has_waited(tmp_path, wait, cell):
    (sums, alone) = checked(tmp_path, TOLD.replace("WAIT", wait).replace("AT", cell)).kernels
    assert {each.kind for each in sums.findings} == {"uninitialised"} and not alone.findings
    assert all("may still go on" in each.message for each in sums.findings)


IN_PARTS = """#include <cstdio>
struct pair { double low, high; };
__global__ void gives(pair *out, int *many) {
    const int i = blockIdx.x * 32 + threadIdx.x, count = i % 3;
    for (int k = 0; k < count; ++k) out[k * 64 + i] = {1.0 * i, 2.0 * i};
    many[i] = COUNT;
}
int main() {
    pair *out, host[3 * 64];
    int *many;
    cudaMalloc(&out, sizeof host), cudaMalloc(&many, 64 * 4);
    gives<<<2, 32>>>(out, many);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    printf("%g\\n", host[5].low);
}
"""


@pytest.mark.parametrize(("count", "kinds"), [("count", []), ("3", ["unwritten"])])
def test_results_that_each_thread_counts_are_all_that_is_meant(tmp_path, capfd, count, kinds):
    found = checked(tmp_path, IN_PARTS.replace("COUNT", count))
    assert [each.kind for each in found.errors] == kinds
    assert capfd.readouterr().out == "5\n"


OF_HOST = """#include <cstdio>
#include <cstdlib>
__global__ void twice(const int *x, int *out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }
int main() {
    const int n = 1 << 18;
    int *host = (int *)malloc(n * 4), result[64], *x, *out, sum = 0;
    for (int i = 0; i < LAST; ++i) host[i] = i % 9 ? 0x12CB0000 + i : (int)0xCBCBCBCB;
    cudaMalloc(&x, 256), cudaMalloc(&out, 256);
    cudaMemcpy(x, host, 256, cudaMemcpyHostToDevice);
    twice<<<1, 64>>>(x, out);
    cudaMemcpy(result, out, 256, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; ++i) sum += host[i];
    for (int i = 0; i < 4096; ++i) sum += ((unsigned char *)host)[i];
    printf("%d %d\\n", result[1] == 2 * host[1], sum != 1);
}
"""


@pytest.mark.parametrize(("last", "kinds"), [("n", []), ("n - 1", ["uninitialised"])])
def test_a_large_array_of_the_host_needs_cells_only_where_it_looks_unset(tmp_path, capfd, last, kinds):
    found = checked(tmp_path, OF_HOST.replace("LAST", last))
    assert [each.kind for each in found.errors] == kinds
    assert all("reads host[1048572], which nobody wrote before" in each.message for each in found.errors)  # of bytes
    assert capfd.readouterr().out == "1 1\n"
    assert found.is_verified == (not kinds)


PINNED = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
__global__ void add(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
int main() {
    const int n = 1 << 18;
    int *to, *from, *x[5], wrong = 0;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMallocHost(&to, n * 4), cudaMallocHost(&from, n * 4);
    memset(to, 7, n * 2);
    for (int i = n / 2; i < n; ++i) to[i] = i;
    for (auto &each : x) {
        cudaMalloc(&each, n * 4);
        cudaMemcpyAsync(each, to, n * 4, cudaMemcpyHostToDevice, stream);
    }
    add<<<n / 256, 256, 0, stream>>>(x[0]);
    cudaMemcpyAsync(from, x[0], n * 4, cudaMemcpyDeviceToHost, stream);
    WAIT
    for (int i = n / 2; i < n; ++i) wrong += from[i] != i + 1;
    printf("%d\\n", wrong);
}
"""


@pytest.mark.parametrize(
    ("wait", "kinds"),
    [("cudaStreamSynchronize(stream);", []), ("", ["race"]), ("wrong += to[n / 2] = 0;", ["race", "race"])],
)
def test_pinned_memory_that_is_copied_as_a_whole_takes_few_cells(tmp_path, monkeypatch, wait, kinds):
    monkeypatch.setattr("noyau.sanitizer.c.run.MEMORY_MIB", 80)  # with a cell for each number it is 120 and more
    found = checked(tmp_path, PINNED.replace("WAIT", wait))
    assert ([each.kind for each in found.errors], found.is_verified) == (kinds, not kinds)


FILLED = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>
int main() {
    const int n = 1 << 18;
    int *host = (int *)malloc(n * 4), sum = 0;
    memset(host, VALUE, MANY * 4);
    for (int i = 0; i < n; ++i) sum += host[i];
    printf("%d\\n", sum != 1);
}
"""


@pytest.mark.parametrize(("many", "kinds"), [("n", []), ("(n - 1)", ["uninitialised"])])
@pytest.mark.parametrize("value", ["0", "1", "203"])
def test_what_a_fill_leaves_out_is_unset(tmp_path, value, many, kinds):
    found = checked(tmp_path, FILLED.replace("VALUE", value).replace("MANY", many))
    assert [each.kind for each in found.errors] == ([] if value == "203" else kinds)


BYTES = """\
#include <cstdio>
#include <cstdlib>
int main() {
    const int n = 1 << 25;
    unsigned char *host = (unsigned char *)malloc(n);
    int sum = 0;
    for (int i = 0; i < n; i += 512) host[i] = host[i + 1] = host[i + 2] = host[i + 3] = i % 1024 ? 203 : 7;
    for (int i = 0; i < n; i += 512) sum += host[i] + *(int *)(host + i);
    printf("%d\\n", sum != 1);
}
"""


def test_a_large_array_of_bytes_that_look_unset_takes_no_cell_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.sanitizer.c.run.MEMORY_MIB", 100)  # with cells it is 2048
    assert checked(tmp_path, BYTES).is_verified
