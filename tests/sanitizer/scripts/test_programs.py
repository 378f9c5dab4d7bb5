from __future__ import annotations

import json
import os

import pytest

from noyau.errors import InputError
from noyau.jobs.cli import main
from noyau.sanitizer.scripts.programs import check_program

OPENMP = """\
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
double norm(const double *x, int n) {
    double s = 0;
#pragma omp parallel for
    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    return s;
}
int main(int argc, char **argv) {
    int n = atoi(argv[1]);
    double *x = malloc(n * sizeof *x);
    double *y = malloc(n * sizeof *y);
    for (int i = 0; i < n; i++) x[i] = i;
#pragma omp parallel for
    for (int i = 0; i <= n; i++) y[i] = 2;
    double total = 0;
#pragma omp parallel for reduction(+ : total)
    for (int i = 0; i < n; i++) total += y[i] + x[i];
    printf("%d of %d, %g\\n", argc, omp_get_max_threads(), norm(x, n) + total);
    free(x), free(y);
    return n == 7 ? 3 : 0;
}
"""
CUDA = """\
#include <cstdio>
#include <iostream>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t e = (call); if (e) { puts(cudaGetErrorString(e)); exit(1); } } while (0)
__global__ void add(const float *a, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + 1;
}
template <typename T> __global__ void sum(const T *a, T *out, int n) {
    extern __shared__ float s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    s[t] = i < n ? a[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
    }
    if (t == 0) atomicAdd(out, s[0]);
}
int main() {
    int n = 100, threads = 64;
    std::vector<float> a(n, 1.0f);
    float *da, *dc, *out, total;
    cudaEvent_t start;
    cudaStream_t stream;
    cudaFree(0);
    cudaFree(nullptr);
    cudaEventCreate(&start);
    cudaStreamCreate(&stream);
    CHECK(cudaMalloc(&da, n * sizeof(float)));
    CHECK(cudaMalloc((void **)&dc, n * sizeof(float)));
    cudaMallocManaged(&out, sizeof(float));
    *out = 0;
    cudaMemcpyAsync(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream);
    add<<<(n + threads - 1) / threads, threads, 0, stream>>>(da, dc, n);
    CHECK(cudaGetLastError());
    sum<float><<<dim3(2), threads, threads * sizeof(float)>>>(dc, out, n);
    cudaDeviceSynchronize();
    std::cout << *out << std::endl;
    return 0;
}
"""


def checked(tmp_path, name, text, *arguments, **options):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return check_program(path, arguments, **options)


def seen(found):
    return sorted((each.kind, int(each.place.rpartition(":")[2])) for each in found.findings)


def test_a_program_of_openmp_runs_with_its_own_main(tmp_path, capfd):
    found = checked(tmp_path, "prog.c", OPENMP, "20", maps=True)
    assert [str(each).splitlines()[:2] for each in found.maps] == [
        ["prog on line 16: who writes y[20]", "  y[0..5]    thread 0"]
    ]
    assert capfd.readouterr().out == "2 of 4, 2700\n"  # of the first run alone
    assert seen(found) == [("out-of-bounds", 17), ("race", 8)]
    told = {each.kind: each for each in found.findings}
    assert "thread 3 of 4 writes y at 20, which has 20 cells" in told["out-of-bounds"].message
    assert "reads s, written by thread 0 of 4 on the same line" in told["race"].message
    assert told["race"].owners == ("thread 1 of 4", "thread 0 of 4")
    assert "#pragma omp atomic" in told["race"].remedy
    assert "prog: watched in 2 runs, " in str(found)
    assert checked(tmp_path, "prog.c", OPENMP, "7").fault == "it ended with status 3"
    crashed = checked(tmp_path, "prog.c", OPENMP)
    assert [each.kind for each in crashed.findings] == ["crash"]


def test_a_race_names_its_variable_where_its_lines_leave_no_doubt(tmp_path):
    text = """\
#include <stdio.h>
#include <omp.h>
int main(void) {
    int id, n = 0, cells[2] = {0}, *pointer = &n;
    char word[8];
    #pragma omp parallel num_threads(3)
    {
        id = omp_get_thread_num();
        cells[1] = id;
        *pointer = 3;
        n = snprintf(word, 8, "%d", 3);
    }
    printf("%d %d %d %s\\n", id, n, cells[1], word);
}
"""
    races = [each for each in checked(tmp_path, "prog.c", text).findings if each.kind in ("race", "written-twice")]
    named = {each.place.rpartition(":")[2] for each in races if " id, " in each.message}
    assert named == {"8"}
    others = [each.message for each in races if " id, " not in each.message]
    assert others
    assert all(" a variable on the stack, " in message for message in others)


def test_a_program_of_cuda_runs_without_a_gpu(tmp_path, capfd):
    found = checked(tmp_path, "prog.cu", CUDA, maps=True)
    drawn = [str(each).splitlines() for each in found.maps]
    assert drawn[0][0] == "add<<<2, 64>>>: who writes dc[100]"
    assert drawn[0][3].split() == ["dc[64..95]", "block", "1,", "warp", "0:", "threads", "0..31"]
    assert drawn[1] == [
        "sum<<<2, 64>>>: who writes out[1]",
        "  out[0]  block 1, warp 0: thread 0, after 1 other thread",
    ]
    assert capfd.readouterr().out.strip().isdigit()
    assert sorted(set(seen(found))) == [("out-of-bounds", 8), ("race", 16)]
    told = {each.kind: each for each in found.findings}
    outside = {each.message.partition(",")[0] for each in found.findings if each.kind == "out-of-bounds"}
    assert {f"thread 36 of block 1 reads {name} at 100" for name in ("da", "db")} & outside
    assert set(told["race"].owners) <= {f"thread {n} of block {b}" for n in range(64) for b in range(2)}
    assert told["race"].remedy.startswith("put a __syncthreads() between them")
    assert {(each.kernel, each.kind) for each in found.findings} == {("add", "out-of-bounds"), ("sum", "race")}
    assert str(found).count("threads took turns: 128 in 1 launch") == 2
    assert seen(checked(tmp_path, "prog.cu", CUDA, launch=((1,), (32,)))) == [("race", 16)]


def test_what_cannot_be_run_is_named(tmp_path):
    with pytest.raises(InputError, match=r"f\.c has no main\(\), so there is nothing to run; in Python, noyau.check"):
        checked(tmp_path, "f.c", "int f(void) { return 1; } /* main() */\n")
    with pytest.raises(InputError, match=r"none\.c cannot be read: No such file"):
        check_program(tmp_path / "none.c")
    text = "#include <cuda_runtime.h>\nint main() {\n    float *a;\n    cudaMallocArray(&a, 4);\n}\n"
    refused = checked(tmp_path, "f.cu", text)
    assert (
        str(refused)
        == "f: not checked: line 4 uses cudaMallocArray, which cannot be watched; check a kernel without it"
    )
    assert (refused.ok, refused.is_verified, refused.findings) == (True, False, ())
    refused = checked(tmp_path, "f.c", "int other(int);\nint main() { return other(1); }\n")
    assert str(refused).startswith("f: not checked: line 2 calls other, which cannot be watched")
    path, text = tmp_path / "f.cu", "int main() {\n    cub::DeviceScan::InclusiveSum(0, 0);\n}\n"
    path.write_text(text, encoding="utf-8")
    assert main(["check", str(path)]) == 3
    nested = "__global__ void g() {}\n__global__ void f() {\n    g<<<1, 1>>>();\n}\nint main() { f<<<1, 1>>>(); }\n"
    refused = checked(tmp_path, "f.cu", nested)
    assert "f: not checked: line 3: a launch from within a grid cannot be watched" in str(refused)
    assert (refused.fault, refused.findings, refused.is_verified) == ("", (), False)


def test_the_command_checks_programs(tmp_path, capfd):
    path, record = tmp_path / "prog.c", tmp_path / "found.json"
    text = "#include <stdio.h>\nint main(int n, char **words) { return puts(words[1]) < 0 || ANSWER != 42; }\n"
    path.write_text(text, encoding="utf-8")
    assert main(["check", str(path), "hello", "--flags=-DANSWER=42", "--json", str(record)]) == 0
    assert capfd.readouterr().out.startswith("hello\nprog: no race found in 1 run, ")
    assert json.loads(record.read_text(encoding="utf-8"))["ok"] is True
    assert main(["check", f"{path}::main"]) == 2
    assert main(["check", str(path), "--sanitizer"]) == 2
    told = capfd.readouterr().err
    assert "prog.c::main names a function, which is called in Python: noyau.check(" in told
    assert "prog.c is a program, and --sanitizer is not of programs" in told
    assert main(["check", str(path), "--flags=-DX='"]) == 2
    assert "cannot be read: no closing quotation; end each quote" in capfd.readouterr().err
    path.write_text("int main() {\n    return 0\n}\n", encoding="utf-8")
    assert main(["check", str(path)]) == 2
    assert "prog.c:2:13: error: expected ';'" in capfd.readouterr().err


def test_other_files_of_a_program_are_watched_alike(tmp_path, monkeypatch):
    part = "int all[4];\nvoid add(int n) {\n#pragma omp parallel for\n    for (int i = 0; i < n; i++) all[0] += i;\n}\n"
    text = "void add(int n);\nint main() { add(40); return 0; }\n"
    (tmp_path / "part.c").write_text(part, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = checked(tmp_path, "prog.c", text, flags="part.c")
    assert [(each.kind, each.place) for each in found.findings] == [("race", f"{tmp_path}/part.c:4")] * len(
        found.findings
    )
    assert found.findings and "all[0]" in found.findings[0].message
    (tmp_path / "part.c").write_text(part.replace("parallel for", "parallel for reduction(+ : all)"), encoding="utf-8")
    assert checked(tmp_path, "prog.c", text, flags="part.c").ok
    with pytest.raises(InputError, match=r"none\.c cannot be read: No such file or directory; give FILE"):
        checked(tmp_path, "prog.c", text, flags="none.c")


def test_two_files_may_have_shared_arrays_of_one_name(tmp_path, monkeypatch):
    part = """__global__ static void fill(int *x) {
        __shared__ int s[SIZE];
        s[threadIdx.x * SIZE / 32] = 1;
        __syncthreads();
        x[threadIdx.x] = s[(31 - threadIdx.x) * SIZE / 32];
    }
    void NAME(int *x) { fill<<<1, 32>>>(x); }
    """
    text = part.replace("SIZE", "64").replace("NAME", "wide")
    text += "void narrow(int *);\nint main() { int *x; cudaMalloc(&x, 128), wide(x), narrow(x); }\n"
    (tmp_path / "part.cu").write_text(part.replace("SIZE", "32").replace("NAME", "narrow"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert checked(tmp_path, "prog.cu", text, flags="part.cu").is_verified
    racy = part.replace("__syncthreads();", "").replace("SIZE", "32").replace("NAME", "narrow")
    (tmp_path / "part.cu").write_text(racy, encoding="utf-8")
    errors = checked(tmp_path, "prog.cu", text, flags="part.cu").errors
    assert {each.place for each in errors} == {f"{tmp_path}/part.cu:{line}" for line in (3, 5)}
    assert all(" s[" in each.message for each in errors)


def test_a_program_that_launches_nothing_says_so(tmp_path):
    found = checked(tmp_path, "prog.cu", '#include <cstdio>\nint main() { puts("no device"); }\n')
    assert not found.is_verified
    assert found.verdicts(everything=False)[0] == "prog.cu: not verified: it launches no kernel"


def test_files_beside_a_program_are_those_of_now(tmp_path, monkeypatch, capfd):
    for name in ("include", "sub"):
        (tmp_path / name).mkdir()
    (tmp_path / "include" / "bound.h").write_text("enum { most = 5 };\n", encoding="utf-8")
    (tmp_path / "sub" / "kernel.c").write_text("int twice(int x) { return 2 * x; }\n", encoding="utf-8")
    (tmp_path / "kernel.c").write_text('#include "sub/kernel.c"\n', encoding="utf-8")
    text = (
        '#include <stdio.h>\n#include <bound.h>\n#include "kernel.c"\nint main() { printf("%d", twice(most) + N); }\n'
    )
    monkeypatch.chdir(tmp_path)
    assert checked(tmp_path, "kernel_c.c", text, flags="-DN=1 -I include").ok
    (tmp_path / "sub" / "kernel.c").write_text("int twice(int x) { return 3 * x; }\n", encoding="utf-8")
    assert checked(tmp_path, "kernel_c.c", text, flags="-DN=1 -Iinclude").ok
    assert capfd.readouterr().out == "1116"


TWICE = """\
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int left = getchar();
#pragma omp parallel
    (void)left;
    FILE *out = fopen(argv[1], "a");
    fputc('r', out), fclose(out);
    while (argc == 2 && left == EOF) { }
    if (argc == 3) kill(getpid(), SIGINT);
    return 0;
}
"""


def test_a_run_in_silence_is_short_and_follows_no_interruption(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("noyau.sanitizer.scripts.programs.SILENT_S", 0.3)
    monkeypatch.setattr("noyau.sanitizer.scripts.programs.SILENT_TIMES", 0)
    log, held = tmp_path / "log", tmp_path / "given"
    held.write_text("x", encoding="utf-8")
    stdin = os.dup(0)
    try:
        os.dup2(os.open(held, os.O_RDONLY), 0)
        found = checked(tmp_path, "twice.c", TWICE, str(log))
    finally:
        os.dup2(stdin, 0)
    assert "in 2 runs" in str(found)
    assert found.ok
    assert log.read_text(encoding="utf-8") == "rr"
    stopped = checked(tmp_path, "twice.c", TWICE, str(log), "stop")
    assert stopped.ok
    assert not stopped.is_verified
    assert "not verified: line 8: it was interrupted" in str(stopped)
    assert log.read_text(encoding="utf-8") == "rrr"


def test_a_launch_that_is_cut_short_is_named_with_the_share_that_ran(tmp_path):
    text = """__global__ void fill(volatile int *a) {
    do a[blockIdx.x] = 1; while (blockIdx.x == 2);
}
int main() {
    int *a;
    cudaMalloc(&a, 16);
    fill<<<4, 1>>>(a);
    return cudaDeviceSynchronize();
}
"""
    path = tmp_path / "fill.cu"
    path.write_text(text, encoding="utf-8")
    stopped = check_program(path, time_s=0.2)
    assert not stopped.is_verified
    (seen,) = stopped.kernels
    assert seen.name == "fill"
    assert seen.accesses > 2
    assert seen.unseen == "line 7: it does not end within its time: 2 of 4 blocks of this launch ran"


def test_maps_are_of_memory_that_the_text_names(tmp_path):
    text = """#include <thread>
void fill(float *x, int at) { for (int i = 0; i < 4; i++) x[4 * at + i] = at; }
int main() {
    float *rows[2];
    for (int k = 0; k < 2; k++) rows[k] = new float[8];
    std::thread a(fill, rows[0], 0), b(fill, rows[1], 1);
    a.join(), b.join();
}
"""
    names = [array.name for each in checked(tmp_path, "rows.cpp", text, maps=True).maps for array in each.arrays]
    assert names == ["memory of line 5", "memory of line 5 (2)"]


def test_what_mends_a_program_names_no_op(tmp_path, capfd):
    text = """#include <cstdio>
__global__ void sum(const float *x, float *out, int n) { if (threadIdx.x == 0) *out += x[blockIdx.x]; }
int main() {
    float *x, *out;
    cudaMalloc(&x, 8);
    cudaMalloc(&out, 4);
    cudaMemset(x, 0, 8);
    sum<<<2, 32>>>(x, out, 2);
    cudaDeviceSynchronize();
}
"""
    remedies = {each.kind: each.remedy for each in checked(tmp_path, "sum.cu", text).findings}
    assert (
        remedies["uninitialised"] == "write each cell on every path before it is read; wait where another thread writes"
    )
    assert remedies["race"].startswith("no barrier orders two blocks")
    assert remedies["race"].endswith("or use atomicAdd")


def test_the_remedy_of_a_race_in_a_grid_follows_its_widest_pair(tmp_path, capfd):
    text = """__global__ void fold(float *x, int last) {
    __shared__ float part[64];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    if (t < 32) {
        float sum = part[t] + part[t + 32];
        part[t] = sum;
        sum += part[t ^ 1];
        x[blockIdx.x * 64 + t] = sum;
    }
    float next = x[(blockIdx.x * 64 + t + 1) % 128];
    if (last) x[blockIdx.x * 64 + t] = next;
}
int main() {
    float *x;
    cudaMalloc(&x, 512);
    cudaMemset(x, 0, 512);
    fold<<<2, 64>>>(x, 1);
    cudaDeviceSynchronize();
}
"""
    remedies = {each.place: each.remedy for each in checked(tmp_path, "fold.cu", text).findings}
    in_warp = [remedy for place, remedy in remedies.items() if place.endswith((":8", ":9"))]
    assert in_warp
    assert all("or a __syncwarp() in a branch of one warp" in remedy for remedy in in_warp)
    between = [remedy for place, remedy in remedies.items() if place.endswith((":12", ":13"))]
    assert between
    assert all("write to a second array, read in a second launch" in remedy for remedy in between)


def test_lines_that_never_ran_are_named(tmp_path, capfd):
    text = """\
    static void scale(float *x, int n, float by) {
        if (by == 0) {
            for (int i = 0; i < n; ++i)
                x[i] = 0;
            return;
        }
        #pragma omp parallel for
        for (int i = 0; i < n; ++i) {
            x[i] *= by;
            if (i > 1000)
                x[i] = 7;
        }
    }
    void unused(float *x) { x[0] = 1; }
    void of_functions(float *(*made)(void)) { made()[0] = 1; }
    int main(void) {
        float x[100] = {1};
        scale(x, 100, 2);
        return 0;
    }
    """
    found = checked(tmp_path, "prog.c", text)
    assert found.is_verified
    assert found.notes == ("lines 4, 11 never ran",)
    assert "prog.c: lines 4, 11 never ran" in str(found)
    assert checked(tmp_path, "prog.c", text.replace("100, 2", "100, 0")).notes == ("lines 9-11 never ran",)


REALLOCATED = """\
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static int is_used;
static void *use(void *block) {
    *(int *)block += 1;
    __atomic_store_n(&is_used, 1, __ATOMIC_RELAXED); /* orders nothing */
    return 0;
}
int main(void) {
    int *q = malloc(40), *r = malloc(40), *s = malloc(12), sum = 0;
    for (int i = 0; i < 10; ++i) q[i] = r[i] = i;
    free(q);
    q = realloc(q, 80); /* freed */
    sum += q[3];
    r = realloc(r + 1, 80); /* no start */
    sum += r[3];
    s[0] = s[1] = 0xCBCBCBCB;
    s = realloc(s, 24);
    sum += s[1] == s[0];
    sum += s[2] > 1; /* not in the old block */
    sum += s[5] > 1; /* behind it */
    unsigned char *c = calloc(7, 1);
    memset(c, 0xCB, 7);
    c = realloc(c, 1 << 21);
    c[7] = 0xCB;
    c = realloc(c, 1 << 22);
    sum += c[6] + c[7];
    c = realloc(realloc(c, 5), 9);
    sum += c[4];
    sum += c[5] > 0; /* cut off before */
    s = realloc(NULL, 16);
    sum += s[1] > 0; /* a new block */
    s[0] = 0;
    pthread_t one;
    pthread_create(&one, 0, use, s);
    while (!__atomic_load_n(&is_used, __ATOMIC_RELAXED)) {}
    s = realloc(s, 160); /* beside its use */
    pthread_join(one, 0);
    return sum == 0;
}
"""


def test_realloc_frees_a_block_and_what_is_behind_its_copy_holds_no_value(tmp_path):
    faults = [
        ("crash", "freed */", "freed twice"),
        ("crash", "no start */", "no start of a block"),
        ("uninitialised", "not in the old block */", ""),
        ("uninitialised", "behind it */", ""),
        ("uninitialised", "cut off before */", ""),
        ("uninitialised", "a new block */", ""),
        ("race", "beside its use */", ""),
    ]
    found = checked(tmp_path, "prog.c", REALLOCATED)
    texts, lines = [each.message for each in found.findings], REALLOCATED.splitlines()
    assert seen(found) == sorted((kind, _line(lines, f"/* {end}")) for kind, end, _ in faults)
    assert all(any(words in text for text in texts) for *_, words in faults)


def _line(lines, end):
    return next(number for number, line in enumerate(lines, 1) if line.endswith(end))


READ_BY_A_LIBRARY = """\
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    FILE *f = tmpfile();
    for (int i = 0; i < 1024; ++i) fputc(i % 9 == 8 ? 0xCB : i % 9, f);
    rewind(f);
    unsigned char *b = malloc(512), sum = 0;
    if (fread(b, 1, 512, f) != 512) return 1;
    b = realloc(b, 1040);
    if (fread(b + 512, 1, 512, f) != 512) return 1;
    for (int i = 0; i < 1024; ++i) sum += b[i];
    b[1031] = 7;
    sum += b[1030] > 3;
    return sum == 0;
}
"""


def test_bytes_that_a_library_wrote_hold_values_whichever_they_are(tmp_path):
    assert seen(checked(tmp_path, "prog.c", READ_BY_A_LIBRARY)) == [("uninitialised", 13)]
