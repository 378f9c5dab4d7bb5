from __future__ import annotations

import re

import pytest

from noyau.sanitizer.lint.clocks import diagnose_c_clocks

HEAD = """
#include "common.h"
#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s", cudaGetErrorString(e)); exit(1); } } while (0)
#define WAITED() do { CHECK(cudaGetLastError()); \\
        CHECK(cudaDeviceSynchronize()); } while (0)
using Clock = std::chrono::high_resolution_clock;
template <typename T> __global__ void __launch_bounds__(256) add(const T *x, T *out) { long long t = clock(); }
__device__ float twice(float x) { return 2 * x; }
static inline double seconds(void) { struct timeval t; gettimeofday(&t, NULL); return t.tv_sec + 1e-6 * t.tv_usec; }
void read_into(double *at) { *at = omp_get_wtime(); }
void run(float *x) {
    add<float><<<4, 256>>>(x, x); // launched
}
void run_and_wait(float *x) { run(x); finish(); }
void finish() { cudaStreamSynchronize(0); }
"""
TIMED = {
    "chrono": "auto a = Clock::now(); add<<<4, 256>>>(x, x); // launched\nauto b = Clock::now(); // clock\nuse(b - a);",
    "at once": "auto a = std::chrono::steady_clock::now();\nadd<float><<<4, 256>>>(x, x); // launched\n"
    "auto t = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - a).count(); // clock",
    "clock": "clock_t a = clock();\nadd<<<g, b>>>(x, x); // launched\n"
    "float ms = (float)(clock() - a) / CLOCKS_PER_SEC; // clock",
    "time of day": "struct timeval a, b; gettimeofday(&a, 0);\nadd<<<1, 32>>>(x, x); // launched\n"
    'gettimeofday(&b, 0); // clock\nprintf("%f", (b.tv_sec - a.tv_sec) + 1e-6 * (b.tv_usec - a.tv_usec));',
    "clock_gettime": "timespec a, b;\nclock_gettime(CLOCK_MONOTONIC, &a);\nadd<<<1, 32>>>(x, x); // launched\n"
    "clock_gettime(CLOCK_MONOTONIC, &b); // clock\nlong ns = b.tv_nsec - a.tv_nsec;",
    "OpenMP, added up": "double t = -omp_get_wtime();\nadd<<<4, 256>>>(x, x); // launched\n"
    "t += omp_get_wtime(); // clock",
    "a clock of one's own": "double a = seconds();\n"
    'add<<<4, 256>>>(x, x); // launched\nprintf("%f", seconds() - a); // clock',
    "a clock that is handed the variable": "double a, b;\nread_into(&a);\nadd<<<4, 256>>>(x, x); // launched\n"
    "read_into(&b); // clock\ns = b - a;",
    "a function that launches": "double a = seconds();\nrun(x); // called\ndouble b = seconds(); // clock\ns = b - a;",
    "a helper for the difference": "double a = seconds();\nadd<<<4, 256>>>(x, x); // launched\n"
    "double b = seconds(); // clock\nreport(a, b);",
    "words of the library": "double a = seconds();\nadd<<<4, 256>>>(x, x); // launched\n"
    'std::vector<std::pair<int, int>> v(3); float f = static_cast<float>(n); printf("%d", std::max(1, 2));\n'
    "double b = seconds(); // clock\nauto d = duration<double>(b - a);",
    "in a loop, checked": "for (int k = 0; k < 9; ++k) {\n double a = seconds();\n add<<<4, 256>>>(x, x); // launched\n"
    " CHECK(cudaGetLastError());\n dim3 grid(4), block(8, 8);\n std::vector<float> v(3);\n"
    " CHECK(cudaMemset(x, 0, 4));\n s += seconds() - a; // clock\n CHECK(cudaDeviceSynchronize());\n}",
    "a copy within the device": "double a = seconds();\nadd<<<4, 256>>>(x, x); // launched\n"
    "cudaMemcpy(y, x, 4, cudaMemcpyDeviceToDevice);\ndouble b = seconds(); // clock\ns = b - a;",
    "a copy to memory that is not paged": "cudaMallocHost(&h, 4);\ndouble a = seconds();\n"
    "add<<<4, 256>>>(x, x); // launched\ncudaMemcpyAsync(h, x, 4, cudaMemcpyDeviceToHost, s);\n"
    "double b = seconds(); // clock\nt = b - a;",
}
SILENT = {
    "waits": "double a = seconds(); add<<<4, 256>>>(x, x); cudaDeviceSynchronize(); double b = seconds(); s = b - a;",
    "waits in a macro": "double a = seconds(); add<<<4, 256>>>(x, x); WAITED(); double b = seconds(); s = b - a;",
    "waits in an argument": "double a = seconds(); add<<<4, 256>>>(x, x); CHECK(cudaEventSynchronize(e));"
    "s = seconds() - a;",
    "copies back": "double a = seconds(); add<<<4, 256>>>(x, x); cudaMemcpy(h, x, 4, cudaMemcpyDeviceToHost);"
    "double b = seconds(); s = b - a;",
    "copies back to memory that is paged": "double a = seconds(); add<<<4, 256>>>(x, x);"
    "cudaMemcpyAsync(h, x, 4, cudaMemcpyDeviceToHost, s); double b = seconds(); s = b - a;",
    "frees": "double a = seconds(); add<<<4, 256>>>(x, x); cudaFree(x); double b = seconds(); s = b - a;",
    "a function that waits": "double a = seconds(); run_and_wait(x); double b = seconds(); s = b - a;",
    "a call that is not seen through": "double a = seconds(); add<<<4, 256>>>(x, x); checked_by_another_file();"
    "double b = seconds(); s = b - a;",
    "a method that is not seen through": "double a = seconds(); add<<<4, 256>>>(x, x); stream.join();"
    "double b = seconds(); s = b - a;",
    "a method of what is pointed to": "double a = seconds(); add<<<4, 256>>>(x, x); if (n > 2) timer->stop();"
    "double b = seconds(); s = b - a;",
    "a template that is not seen through": "double a = seconds(); add<<<4, 256>>>(x, x); bool ok = n > right<float>(x);"
    "s = seconds() - a;",
    "a check of another file": "double a = seconds(); add<<<4, 256>>>(x, x); cudaCheckError(); s = seconds() - a;",
    "a comparison with a call": "double a = seconds(); add<<<4, 256>>>(x, x); int k = n > right(x); s = seconds() - a;",
    "launched before": "add<<<4, 256>>>(x, x); double a = seconds(); cpu(x); double b = seconds(); s = b - a;",
    "a warm-up between two timings": "double a = seconds(); double b = seconds(); s = b - a; add<<<4, 256>>>(x, x);"
    "a = seconds(); cudaDeviceSynchronize(); b = seconds(); s = b - a;",
    "no clock before": "add<<<4, 256>>>(x, x); double b = seconds(); s = b;",
    "in a comment": 'double a = seconds(); /* add<<<4, 256>>>(x, x); */ puts("add<<<1, 1>>>()"); s = seconds() - a;',
    "other numbers": "double a = seconds(); add<<<4, 256>>>(x, x); int k = m - n; cudaDeviceSynchronize();",
}


def told(body):
    text = f"{HEAD}\nint main() {{\n{body}\n}}\n"
    marks = {
        word: number
        for number, line in enumerate(text.splitlines(), 1)
        for word in re.findall(r"// (launched|called|clock)$", line)
    }
    return diagnose_c_clocks(text, "prog.cu"), marks


@pytest.mark.parametrize("name", TIMED)
def test_a_clock_that_does_not_wait_is_told(name):
    (found,), marks = told(TIMED[name])
    assert (found.kind, found.file, found.line, found.about) == ("launch", "prog.cu", marks["clock"], "add")
    assert found.other_line == marks["launched"]
    assert f"does not wait for add, launched on line {marks.get('called', marks['launched'])}" in found.message
    assert found.mend == "call cudaDeviceSynchronize() before the clock is read, or time with events"


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_where_something_waits_or_may(name):
    assert told(SILENT[name])[0] == []
