from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from importlib.resources import files

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.hosts.numpy.c_library import library
from noyau.hosts.numpy.fast_calls import Argument, FastCall, threads
from noyau.toolchain.c import compiler as c_compiler
from tests.hosts.numpy.kernels import fast_call_of

CELLS = 200_000
FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def twice(x):
    return x + x


def total(x):
    return x.sum()


def taken(x, at):
    return x[at]


@pytest.fixture(autouse=True)
def count():
    """Threads are as many as before, afterwards."""
    before = threads()
    yield
    threads(before)


@pytest.fixture(scope="module")
def fast_call() -> FastCall:
    return fast_call_of(twice, "f32[n] -> f32[n]")


# out[i]: where something of the thread that wrote it lies, once it has had time to be joined by others.
WHO = """
#include <time.h>
static _Thread_local char mine;
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) { sizes[0] = shapes[0][0]; return 0; }
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 1 << 20; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    nanosleep(&(struct timespec){0, 1000000}, 0);
    for (int64_t i = begin; i < end; i++) ((int64_t *)call->buffers[1])[i] = (int64_t)&mine;
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 7}, ranks[] = {1, 1};
NOYAU_EXPORT const noyau_kernel who_kernel = {
    "who", 1, 1, 0, 1, 1, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""


def test_no_more_threads_than_asked_for_run():
    header = files("noyau").joinpath("codegen", "c", "noyau.h").read_text(encoding="ascii")
    path = c_compiler.compile_library(["#define _POSIX_C_SOURCE 200809L\n" + header + WHO])
    fast_call, x = FastCall(path, "who_kernel", [Argument(DType.F32, 1)]), np.ones(64, np.float32)
    for number in (8, 3, 2, 1, 5):
        threads(number)
        found = [len(set(fast_call((x,)).tolist())) for _ in range(10)]
        assert max(found) <= number
        assert number == 1 or max(found) > 1


def workers() -> int:
    made = library()
    assert made is not None
    return int(made.code.noyau_threads_workers())


def test_how_many_threads_a_call_has():
    assert threads() >= 1
    assert threads(3) == 3 == threads()
    assert threads(1) == 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "two"])
def test_no_thread_at_all_is_refused(wrong):
    with pytest.raises(InputError, match="a call runs on at least 1 thread, and threads"):
        threads(wrong)


@pytest.mark.parametrize(
    ("function", "signature", "shape"),
    [
        (softmax, "f32[m, n] -> f32[m, n]", (701, 333)),
        (softmax, "f32[m, n] -> f32[m, n]", (3, 70_001)),
        (twice, "f32[n] -> f32[n]", (CELLS,)),
        (total, "f32[n] -> f32", (1_000_003,)),
        (total, "f32[n] -> f32", (17,)),
    ],
)
def test_bits_do_not_depend_on_the_threads(function, signature, shape):
    through, x = fast_call_of(function, signature), np.random.default_rng(5).random(shape, np.float32)
    found = set()
    for number in (1, 2, 3, 8, 65):
        threads(number)
        found |= {through((x,)).tobytes() for _ in range(3)}
    assert len(found) == 1


def test_small_work_wakes_nobody_and_a_launch_by_itself_only_where_it_is_large():
    program = (
        "import numpy as np; from tests.hosts.numpy.kernels import fast_call_of;"
        "from tests.hosts.numpy.test_c_library_threads import twice, threads, workers;"
        "threads(4); fast_call = fast_call_of(twice, 'f32[n] -> f32[n]');"
        "[fast_call((np.ones(3000, np.float32),)) for _ in range(100)]; print(workers());"
        "fast_call((np.ones(20_000, np.float32),)); print(workers());"
        "[fast_call((np.ones(20_000, np.float32),)) for _ in range(100)]; print(workers() > 0);"
        "fast_call((np.ones(1_000_000, np.float32),)); print(workers());"
        "threads(2); fast_call((np.ones(1_000_000, np.float32),)); print(workers())"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=_root())
    assert told.stdout.split() == ["0", "0", "True", "3", "3"]


def test_a_status_of_any_piece_fails_the_call():
    through = fast_call_of(taken, "f32[n], i64[m] -> f32[m]")
    threads(4)
    at = np.zeros(CELLS, np.int64)
    for where in (0, CELLS // 2, CELLS - 1):
        at[where] = 5
        with pytest.raises(InputError, match="taken: an index is outside the axis"):
            through((np.ones(5, np.float32), at))
        at[where] = 4
    assert (through((np.ones(5, np.float32), at)) == 1).all()


def test_callers_at_once_are_all_served(fast_call):
    threads(4)
    wrong = list[bool]()

    def work(number: int) -> None:
        x = np.full(CELLS, number, np.float32)
        wrong.extend(not (fast_call((x,)) == 2 * number).all() for _ in range(100))

    callers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == [False] * 600


def test_beside_blas(fast_call):
    """A matrix product has threads of its own, which look for work for a while."""
    threads(2)
    a = np.random.default_rng(1).random((300, 300))
    want = (2 * (a @ a).astype(np.float32)).ravel()
    for _ in range(30):
        np.testing.assert_array_equal(fast_call(((a @ a).astype(np.float32).ravel(),)), want)


def test_other_threads_of_python_run_meanwhile(fast_call):
    x, out, seen = np.ones(20_000_000, np.float32), np.empty(20_000_000, np.float32), list[int]()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(5):
        fast_call((x,), out)
    done.set()
    watcher.join()
    assert len(seen) > 5


@FORK
@pytest.mark.parametrize("before", [False, True])
def test_a_forked_child_has_threads_of_its_own(before):
    program = (
        "import os, sys, numpy as np; from tests.hosts.numpy.kernels import fast_call_of;"
        "from tests.hosts.numpy.test_c_library_threads import twice, threads, workers;"
        "threads(3); fast_call, x = fast_call_of(twice, 'f32[n] -> f32[n]'), np.ones(1_000_000, np.float32);"
        f"[fast_call((x,)) for _ in range(20 * {before})];"
        "child = os.fork();"
        "right = all((fast_call((x,)) == 2).all() for _ in range(20)) and workers() == 2;"
        "child or os._exit(0 if right else 1);"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not right)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=_root(), timeout=60)


@FORK
def test_a_fork_while_another_thread_computes(fast_call):
    threads(3)
    x, done = np.ones(3_000_000, np.float32), threading.Event()

    def work() -> None:
        while not done.is_set():
            fast_call((x,))

    other = threading.Thread(target=work)
    other.start()
    try:
        codes = []
        for _ in range(5):
            child = multiprocessing.get_context("fork").Process(target=_computes, args=(fast_call,))
            child.start()
            child.join(30)
            if child.is_alive():
                child.kill()
            codes.append(child.exitcode)
    finally:
        done.set()
        other.join()
    assert codes == [0] * 5


def _computes(fast_call: FastCall) -> None:
    x = np.ones(500_000, np.float32)
    os._exit(0 if all((fast_call((x,)) == 2).all() for _ in range(5)) else 1)


def test_signals_are_python_s(fast_call):
    """Workers take none: a handler runs in the main thread, soon."""
    threads(4)
    fast_call((np.ones(CELLS, np.float32),))
    got = list[int]()
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
            fast_call((np.ones(CELLS, np.float32),))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(got) == 20


def _root() -> str:
    return os.getcwd()
