"""Programs in CUDA C++ with launches of many accesses, and with launches that do again what one before did."""

from __future__ import annotations

import re

import pytest

from noyau.sanitizer.scripts.programs import check_program


def checked(tmp_path, text):
    path = tmp_path / "prog.cu"
    path.write_text(text, encoding="utf-8")
    return check_program(path)


LARGE = """#include <cstdio>
__global__ void scaled(const int *x, int *out, int *last, int n) {
    __shared__ int tile[64];
    int at = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = x[at];
    __syncthreads();
    for (int i = 0; i < 64; ++i) out[at] = tile[i] + tile[threadIdx.x];
    WRONG
}
int main() {
    static int host[64 * 256];
    int *x, *out, *last;
    cudaMalloc(&x, sizeof host), cudaMalloc(&out, sizeof host), cudaMalloc(&last, 4);
    for (int i = 0; i < 64 * 256; ++i) host[i] = i;
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    for (int i = 0; i < 3; ++i) scaled<<<256, 64>>>(x, out, last, i);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    long sum = 0;
    for (int i = 0; i < 64 * 256; ++i) sum += host[i];
    printf("%ld\\n", sum);
}
"""


@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        ("", set()),
        ("if (blockIdx.x >= 254) out[at + 128] = 0;", {"out-of-bounds"}),  # the last blocks are watched always
        ("last[0] = at;", {"race"}),
        ("if (at == 0 || blockIdx.x == 255) *last = at;", {"race"}),  # of the first block and the last one
    ],
)
def test_of_a_grid_of_many_accesses_a_part_is_watched_and_all_of_it_runs(tmp_path, monkeypatch, capfd, wrong, kinds):
    monkeypatch.setattr("noyau.sanitizer.c.run.WATCHED", 100_000)
    found = checked(tmp_path, LARGE.replace("WRONG", wrong))
    if "out-of-bounds" not in kinds:
        assert capfd.readouterr().out.split()[0] == str(
            sum(range(64 * 256)) + sum(64 * b + 63 for b in range(256)) * 64
        )
    (seen,) = [each for each in found.kernels if each.name == "scaled"]
    watched, of_all = map(int, re.search(r"(\d+) of (\d+) blocks were", seen.unseen).groups())
    assert of_all == 3 * 256 and 16 < watched < 160
    assert 150_000 < seen.accesses < 900_000
    assert {each.kind for each in seen.findings if each.severity == "error"} == kinds


HOST = """#include <cstdio>
__global__ void twice(const int *x, int *out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }
int main() {
    static int table[1000];
    int *x, *out, host[64];
    cudaMalloc(&x, sizeof host); cudaMalloc(&out, sizeof host);
    cudaMemset(x, 0, sizeof host);
    for (int k = 0; k < 100000; ++k) table[k % 1000] += k;
    twice<<<1, 64>>>(x, out);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    printf("%d %d\\n", host[1], table[1]);
}
"""


def test_accesses_of_the_host_leave_those_of_grids_their_room(tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.sanitizer.c.run.WATCHED_IN_A_SECOND", 1_000)
    (seen,) = [each for each in checked(tmp_path, HOST).kernels if each.name == "twice"]
    assert seen.unseen == "" and seen.accesses >= 128


def test_a_block_that_makes_too_many_accesses_alone_is_watched_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.sanitizer.c.run.WATCHED", 10_000)
    text = (
        LARGE.replace("<<<256, 64>>>", "<<<1, 64>>>")
        .replace("i < 64; ++i) out", "i < 64 * 64; ++i) out")
        .replace("tile[i]", "tile[i % 64]")
    )
    (seen,) = [each for each in checked(tmp_path, text.replace("WRONG", "")).kernels if each.name == "scaled"]
    assert "0 of 3 blocks were" in seen.unseen and seen.accesses < 400_000


REPEATED = """#include <cstdio>
__device__ int seed = 2;
__global__ void twice(const int *x, int *out) { out[threadIdx.x] = seed * x[threadIdx.x]; }
__global__ void in_place(int *x) { x[threadIdx.x] += 1; }
__global__ void counted(int *total) { atomicAdd(total, 1); }
__global__ void printed() { if (threadIdx.x == 0) printf("here\\n"); }
int main() {
    int *x, *out, *total, host[64];
    cudaMalloc(&x, 256), cudaMalloc(&out, 256), cudaMalloc(&total, 4);
    cudaMemset(x, 0, 256), cudaMemset(total, 0, 4);
    for (int i = 0; i < 8; ++i) {
        twice<<<1, 64>>>(x, out);
        BETWEEN
    }
    for (int i = 0; i < 3; ++i) in_place<<<1, 64>>>(x), counted<<<1, 64>>>(total), printed<<<1, 64>>>();
    cudaMemcpy(host, out, 256, cudaMemcpyDeviceToHost);
    printf("%d ", host[5]);
    cudaMemcpy(host, x, 256, cudaMemcpyDeviceToHost);
    printf("%d ", host[5]);
    cudaMemcpy(host, total, 4, cudaMemcpyDeviceToHost);
    printf("%d\\n", host[0]);
}
"""


@pytest.mark.parametrize(
    ("between", "runs", "first"),
    [
        ("", 1, 0),
        ("cudaMemcpy(host, out, 256, cudaMemcpyDeviceToHost);", 1, 0),
        ("cudaMemset(x + i, 1, 4);", 8, 2 * 0x01010101),
        ("in_place<<<1, 64>>>(x);", 8, 14),
        ("cudaMemset(out, 0, 256);", 8, 0),
        (
            "if (i == 3) { int three = 3; cudaMemcpyToSymbol(seed, &three, 4), cudaMemset(x, 1, 256); }",
            2,
            3 * 0x01010101,
        ),
        ("int *other = x; x = out, out = other;", 8, 0),
    ],
)
def test_a_launch_that_does_again_what_one_before_did_is_not_run(tmp_path, capfd, between, runs, first):
    kernels = {each.name: each for each in checked(tmp_path, REPEATED.replace("BETWEEN", between)).kernels}
    *printed, numbers = capfd.readouterr().out.splitlines()
    assert printed == ["here"] * 3
    grown = 8 if "in_place" in between else 0
    start = {2 * 0x01010101: 0x01010101, 3 * 0x01010101: 0x01010101}.get(first, 0)
    assert numbers.split() == [str(first), str(start + 3 + grown), "192"]
    assert (kernels["twice"].calls, kernels["twice"].accesses) == (8, runs * 64 * 3)
    assert not any(each.findings or each.unseen for each in kernels.values())


IN_TURN = """#include <cstdio>
__device__ int total;
__global__ void first(const int *x, int *out) { out[threadIdx.x] = x[threadIdx.x] + 1; }
__global__ void second(int *out) { out[threadIdx.x] *= 3; }
__global__ void counted(const int *out) { atomicAdd(&total, out[threadIdx.x]); }
int main() {
    int *x, *out, host[64], zero = 0;
    cudaMalloc(&x, 256), cudaMalloc(&out, 256);
    cudaMemset(x, 0, 256);
    for (int i = 0; i < 8; ++i) {
        first<<<1, 64>>>(x, out);
        second<<<1, 64>>>(out);
        BETWEEN
    }
    cudaMemcpy(host, out, 256, cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&zero, total, 4);
    printf("%d %d\\n", host[5], zero);
}
"""


@pytest.mark.parametrize(
    ("between", "runs", "numbers"),
    [
        ("", 2, ["3", "0"]),  # the second time it begins with what the last launch of the other one left
        ("if (i == 4) cudaMemset(x, 1, 256);", 4, [str(3 * 0x01010102), "0"]),
        ("second<<<1, 64>>>(x);", 2, ["3", "0"]),
        ("counted<<<1, 64>>>(out);", 2, ["3", str(8 * 64 * 3)]),
        ("cudaMemset(out, 0, 256);", 8, ["0", "0"]),
    ],
)
def test_launches_in_turn_that_find_what_they_found_before_are_not_run(tmp_path, capfd, between, runs, numbers):
    kernels = {each.name: each for each in checked(tmp_path, IN_TURN.replace("BETWEEN", between)).kernels}
    assert capfd.readouterr().out.split() == numbers
    assert (kernels["first"].calls, kernels["first"].accesses) == (8, runs * 64 * 2)
    assert not any(each.findings or each.unseen for each in kernels.values())


COOPERATIVE = """#include <cstdio>
#include <cooperative_groups.h>
__global__ void sum(const int *x, int *out) {
    atomicExch(out + blockIdx.x, x[blockIdx.x] + 1);
    cooperative_groups::this_grid().sync();
    if (!blockIdx.x && !threadIdx.x) out[4] = out[0] + out[1] + out[2] + out[3];
}
int main() {
    int *x, *out, host = 0;
    cudaMalloc(&x, 16), cudaMalloc(&out, 20);
    cudaMemset(x, 0, 16), cudaMemset(out, 0, 20);
    void *given[] = {&x, &out};
    for (int i = 0; i < 8; ++i) cudaLaunchCooperativeKernel((void *)sum, 4, 1, given, 0, 0);
    cudaMemcpy(&host, out + 4, 4, cudaMemcpyDeviceToHost);
    printf("%d\\n", host);
}
"""


def test_a_cooperative_launch_that_finds_what_one_before_found_is_not_run(tmp_path, capfd):
    (kernel,) = checked(tmp_path, COOPERATIVE).kernels
    assert capfd.readouterr().out == "4\n"
    assert (kernel.calls, kernel.accesses, kernel.findings) == (8, 2 * 13, ())


WRITTEN = """#include <cstdio>
__global__ void twice(const int *x, int *out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }
__global__ void after_atomic(int *x, int *total, int i) { atomicAdd(total, 1), x[threadIdx.x] = i; }
__global__ void after_print(int *x, int *total, int i) { printf(""), x[threadIdx.x] = i + *total; }
int main() {
    int *x, *out, *total, host[64];
    cudaMalloc(&x, 256), cudaMalloc(&out, 256), cudaMalloc(&total, 4);
    cudaMemset(x, 0, 256), cudaMemset(total, 0, 4);
    for (int i = 1; i < 4; ++i) {
        WRITES<<<1, 64>>>(x, total, i);
        twice<<<1, 64>>>(x, out);
        cudaMemcpy(host, out, 256, cudaMemcpyDeviceToHost);
        printf("%d ", host[63]);
    }
}
"""


@pytest.mark.parametrize("writes", ["after_atomic", "after_print"])
def test_a_launch_runs_again_after_one_that_nothing_is_kept_of_has_written(tmp_path, capfd, writes):
    kernels = {each.name: each for each in checked(tmp_path, WRITTEN.replace("WRITES", writes)).kernels}
    assert capfd.readouterr().out.split() == ["2", "4", "6"]
    assert kernels["twice"].accesses == 3 * 64 * 2


BYTES = """#include <cstdio>
__global__ void filled(unsigned char *x) {
    for (int i = blockIdx.x * 64; i < blockIdx.x * 64 + LAST; ++i) x[threadIdx.x * 16384 + i] = 0xCB;
}
__global__ void read(const unsigned char *x, int *out) {
    int sum = 0;
    for (int i = 0; i < 64; ++i) sum += x[threadIdx.x * 16384 + (255 - blockIdx.x) * 64 + i];
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
int main() {
    static unsigned char host[64 * 16384];
    unsigned char *x;
    int *out;
    cudaMalloc(&x, sizeof host), cudaMalloc(&out, 4 * 16384);
    filled<<<256, 64>>>(x);
    read<<<256, 64>>>(x, out);
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
}
"""


@pytest.mark.parametrize(("last", "kinds"), [("64", set()), ("63", {"uninitialised", "unwritten"})])
def test_bytes_that_look_unwritten_are_those_that_no_block_wrote(tmp_path, monkeypatch, last, kinds):
    monkeypatch.setattr("noyau.sanitizer.c.run.WATCHED", 100_000)
    kernels = checked(tmp_path, BYTES.replace("LAST", last)).kernels
    assert all("blocks were" in each.unseen for each in kernels)
    assert {one.kind for each in kernels for one in each.findings} == kinds


RANDOM = r"""
#include <cuComplex.h>
#include <curand_kernel.h>
#include <nvToolsExt.h>
#include <cmath>
__global__ void seed(curandState *states) {
    curand_init(7, threadIdx.x, 0, &states[threadIdx.x]);
}
__global__ void draw(curandState *states, cuFloatComplex *out) {
    curandState &mine = states[threadIdx.x];
    cuFloatComplex z = make_cuFloatComplex(curand_uniform(&mine), curand_normal(&mine));
    out[threadIdx.x] = cuCdivf(cuCmulf(z, make_cuFloatComplex(3, 4)), make_cuFloatComplex(3, 4));
    curandStatePhilox4_32_10_t other;
    curand_init(7, threadIdx.x, 9, &other);
    out[threadIdx.x + 64].x = curand_uniform4(&other).w;
}
int main() {
    nvtxRangePush("draw");
    curandState *states;
    cuFloatComplex *out, *host = new cuFloatComplex[128]();
    cudaMalloc(&states, 64 * sizeof(curandState));
    cudaMallocManaged(&out, 128 * sizeof(cuFloatComplex));
    seed<<<1, 64>>>(states);
    draw<<<1, 64>>>(states, out);
    cudaDeviceSynchronize();
    nvtxRangePop();
    float sum = 0, low = 1, high = 0;
    for (int i = 0; i < 64; i++) {
        sum += cuCabsf(out[i]);
        low = fminf(low, fminf(cuCrealf(out[i]), out[i + 64].x));
        high = fmaxf(high, fmaxf(cuCrealf(out[i]), out[i + 64].x));
    }
    return !(low > 0 && low < .1 && high > .9 && high < 1.0001 && sum > 20 && sum < 150);
}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "kind", "line"),
    [
        ("", "", "", 0),
        ("= states[threadIdx.x]", "= states[threadIdx.x / 2]", "race", 11),
        ("&states[threadIdx.x]", "states", "race", 7),
        ("    seed<<<1, 64>>>(states);\n", "", "uninitialised", 11),
    ],
)
def test_random_numbers_of_a_kernel_have_states_that_are_watched(tmp_path, right, wrong, kind, line):
    assert right in RANDOM
    check = checked(tmp_path, RANDOM.replace(right, wrong, 1) if right else RANDOM)
    found = {(each.kind, int(each.place.rpartition(":")[2])) for each in check.findings}
    assert (kind, line) in found if kind else (not found and check.ok and check.is_verified), str(check)


STRUCTS = """\
#include <cstring>
struct Point { float x, y, z; int id[5]; };
__global__ void begin(Point *p, float4 *f) { p[threadIdx.x].x = 1, f[threadIdx.x].x = 2; }
__global__ void copied(const Point *from, Point *to) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void moved(Point *p) {
    Point own = p[threadIdx.x];
    own.y = 2 * own.x;
    p[threadIdx.x] = own;
}
__global__ void vectors(const float4 *f, Point *p) {
    float4 v = f[threadIdx.x];
    p[threadIdx.x].z = v.x;
}
__global__ void shared(Point *p) {
    __shared__ Point s[32];
    if (threadIdx.x >= FIRST) s[threadIdx.x].id[2] = 3;
    __syncthreads();
    p[threadIdx.x] = s[31 - threadIdx.x];
}
__global__ void bytes(const Point *from, Point *to) { memcpy(to + threadIdx.x, from + threadIdx.x, sizeof *to); }
int main() {
    Point *p, *q, *r;
    float4 *f;
    cudaMalloc(&p, 32 * sizeof *p), cudaMalloc(&q, 32 * sizeof *q), cudaMalloc(&r, 32 * sizeof *r);
    cudaMalloc(&f, 32 * sizeof *f);
    begin<<<1, MANY>>>(p, f);
    begin<<<1, MANY>>>(r, f);
    copied<<<1, 32>>>(p, q);
    bytes<<<1, 32>>>(r, q);
    moved<<<1, 32>>>(q);
    vectors<<<1, MANY>>>(f, q);
    shared<<<1, 32>>>(q);
}
"""


def test_a_value_that_is_copied_whole_is_read_where_nothing_of_it_was_set(tmp_path):
    assert checked(tmp_path, STRUCTS.replace("MANY", "32").replace("FIRST", "0")).is_verified  # members stay unset
    found = checked(tmp_path, STRUCTS.replace("MANY", "31").replace("FIRST", "1"))
    errors = {(each.kernel, each.kind, each.message.partition(" of block")[0]) for each in found.errors}
    assert errors == {(name, "uninitialised", "thread 31") for name in ("copied", "bytes", "shared")}


ON_STACKS = """\
#include <cstdio>
__device__ char *marks[64];
__global__ void noted(int is_waiting) {
    char own;
    marks[threadIdx.x] = &own;
    if (is_waiting && threadIdx.x % 16 == 3) __syncwarp(1u << threadIdx.x % 32);
    marks[threadIdx.x] = &own;
}
int main() {
    char *kept[64];
    for (int k = 0; k < 2; ++k) {
        noted<<<1, 64>>>(k);
        cudaMemcpyFromSymbol(kept, marks, sizeof kept);
        int many = 1;
        for (int i = 1; i < 64; ++i) many += kept[i] != kept[i - 1];
        printf("%d ", many);
    }
}
"""


def test_threads_that_do_not_wait_share_a_stack(tmp_path, capfd):
    assert checked(tmp_path, ON_STACKS).ok
    assert capfd.readouterr().out.split() == ["1", "5"]  # behind each one that waits the next ones have another
