from __future__ import annotations

import ast
import textwrap

import pytest

from noyau.sanitizer.lint.clocks import diagnose_clocks

HEAD = """
import time
import timeit
import numpy as np
from time import perf_counter
from numba import cuda

@cuda.jit
def add(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] - 1

host = np.ones(1000)
x = cuda.to_device(host)
out = cuda.device_array_like(x)

def run():
    add[4, 256](x, out)  # launched

def run_and_wait():
    add[4, 256](x, out)
    cuda.synchronize()
"""

TIMED = {
    "inline": """
        t0 = time.perf_counter()
        add[4, 256](x, out)  # launched
        print(time.perf_counter() - t0)  # clock
        cuda.synchronize()
    """,
    "two readings": """
        t0 = perf_counter()
        add[4, 256](x, out)  # launched
        t1 = perf_counter()  # clock
        cuda.synchronize()
        print(t1 - t0)
    """,
    "in a loop": """
        times = []
        for _ in range(10):
            t0 = time.time()
            add[4, 256](x, out)  # launched
            times.append((time.time() - t0) * 1e3)  # clock
    """,
    "in a function": """
        def timed():
            start = timeit.default_timer()
            add[4, 256](x, out)  # launched
            end = timeit.default_timer()  # clock
            return end - start
    """,
    "waited for the one before": """
        t0 = time.perf_counter()
        add[4, 256](x, out)
        cuda.synchronize()
        add[4, 256](x, out)  # launched
        print(time.perf_counter() - t0)  # clock
    """,
    "synchronize is not called": """
        t0 = time.perf_counter()
        add[4, 256](x, out)  # launched
        cuda.synchronize
        print(time.perf_counter() - t0)  # clock
    """,
}
WAITED = {
    "synchronize": """
        t0 = time.perf_counter()
        add[4, 256](x, out)
        cuda.synchronize()
        print(time.perf_counter() - t0)
    """,
    "copied back": """
        t0 = perf_counter()
        add[4, 256](x, out)
        y = out.copy_to_host()
        t1 = perf_counter()
        print(t1 - t0)
    """,
    "an array of the host is copied back by the launch": """
        t0 = perf_counter()
        add[4, 256](host, host)
        print(perf_counter() - t0)
    """,
    "launched before the clock is started": """
        add[4, 256](x, out)
        cuda.synchronize()
        t0 = perf_counter()
        y = host.sum()
        print(perf_counter() - t0)
        add[4, 256](x, out)
    """,
    "a function that waits": """
        t0 = perf_counter()
        run_and_wait()
        print(perf_counter() - t0)
        print(timeit.timeit(run_and_wait), timeit.timeit(lambda: run_and_wait(), number=3))
    """,
    "a table of functions is no launch": """
        table = {(1, 2): print}
        t0 = perf_counter()
        table["a"](x)
        a, b = 3, 2
        print(perf_counter() - t0, a - b)
    """,
}


def read(text):
    whole = HEAD + textwrap.dedent(text)
    remarks, _ = diagnose_clocks([(ast.parse(whole), "script.py")])
    return whole.splitlines(), remarks


@pytest.mark.parametrize("name", TIMED)
def test_a_clock_that_does_not_wait(name):
    lines, (remark,) = read(TIMED[name])
    assert (remark.kind, remark.about) == ("launch", "add")
    assert lines[remark.line - 1].endswith("# clock")
    assert lines[remark.other_line - 1].endswith("# launched")
    assert remark.mend == "call cuda.synchronize() before the clock is read, or time with events"


@pytest.mark.parametrize("name", WAITED)
def test_a_clock_that_waits(name):
    assert read(WAITED[name])[1] == []


@pytest.mark.parametrize(
    "call", ["timeit.timeit(run)", "timeit.timeit(lambda: run(), number=10)", "timeit.repeat('add[1, 32](x, out)')"]
)
def test_timeit(call):
    _, (remark,) = read(call)
    assert remark.message.startswith(f"{call.partition('(')[0]} does not wait for add, launched on ")


def test_a_function_that_launches_counts_where_it_is_called():
    lines, (remark,) = read("t0 = perf_counter()\nrun()\nprint(perf_counter() - t0)\n")
    assert lines[remark.line - 1].startswith("print(perf")
    assert lines[remark.other_line - 1] == "    add[4, 256](x, out)  # launched"


def test_kernels_of_triton_and_wrapped_ones():
    text = """
        import triton, torch, time
        @triton.autotune(configs=[], key=[])
        @triton.jit
        def scale(x, n): ...
        t0 = time.time()
        scale[(4,)](x, 100)
        print(time.time() - t0)
    """
    remarks, _ = diagnose_clocks([(ast.parse(textwrap.dedent(text)), "s.py")])
    assert [each.mend for each in remarks] == [
        "call torch.cuda.synchronize() before the clock is read, or time with events"
    ]


def test_text_that_timeit_is_given_and_that_is_no_python():
    assert read("timeit.timeit('add[')")[1] == []
