"""The items of a launch, shared out in C: each is run once, whoever comes."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files

import pytest

from noyau.toolchain.c import compiler as c_compiler

COUNTING = """
#include <pthread.h>
static _Atomic int *runs;
static _Atomic int64_t fails_at;
static int32_t count(const noyau_call *call, int64_t begin, int64_t end) {
    (void)call;
    for (int64_t item = begin; item < end; item++) {
        if (item == fails_at) return NOYAU_INDEX_OUT_OF_BOUNDS;
        runs[item]++;
    }
    return NOYAU_OK;
}
static void *each(void *work) { return run_shares(work), NULL; }
/* The status of a launch for so many threads, of which so many come; how many shares there were. */
__attribute__((visibility("default")))
int32_t launch(int64_t extent, int64_t item_bytes, int threads, int come, int64_t fails, int *counts, int *shares) {
    noyau_kernel kernel = {.run = count};
    noyau_call call = {0};
    launch_work work;
    pthread_t made[8];
    runs = (_Atomic int *)counts, fails_at = fails;
    share_out(&work, &kernel, &call, extent, item_bytes, threads);
    *shares = work.shares;
    for (int k = 1; k < come; k++) pthread_create(&made[k], NULL, each, &work);
    run_shares(&work);
    for (int k = 1; k < come; k++) pthread_join(made[k], NULL);
    return atomic_load(&work.status);
}
"""


@cache
def library() -> ctypes.CDLL:
    texts = [files("noyau").joinpath(path).read_text() for path in ("codegen/c/noyau.h", "hosts/shares.h")]
    return ctypes.CDLL(str(c_compiler.compile_library(["\n".join([*texts, COUNTING])])))


def launch(extent: int, item_bytes: int, threads: int, come: int, fails: int = -1) -> tuple[int, list[int], int]:
    """The status, how often each item was run, and the number of shares."""
    counts, shares = (ctypes.c_int * max(extent, 1))(), ctypes.c_int()
    status = library().launch(
        ctypes.c_int64(extent), ctypes.c_int64(item_bytes), threads, come, ctypes.c_int64(fails), counts,
        ctypes.byref(shares),
    )  # fmt: skip
    return status, list(counts)[:extent], shares.value


@pytest.mark.parametrize("come", [1, 2, 5], ids="{} come".format)
@pytest.mark.parametrize("threads", [1, 2, 3, 64, 1000])
@pytest.mark.parametrize(("extent", "item_bytes"), [(1, 8), (17, 1 << 20), (5000, 40_000), (100_003, 8), (1 << 20, 0)])
def test_each_item_runs_once_whoever_comes(extent: int, item_bytes: int, threads: int, come: int) -> None:
    status, counts, shares = launch(extent, item_bytes, threads, come)
    assert status == 0
    assert set(counts) == {1}
    assert 1 <= shares <= min(threads, extent, 64)


def test_each_thread_has_a_share_where_there_is_enough() -> None:
    assert launch(1024, 16_384, 4, 1)[2] == 4
    assert launch(1024, 8, 4, 1)[2] == 1  # less than a piece of traffic
    assert launch(3, 1 << 20, 4, 1)[2] == 3


def test_what_fails_ends_the_launch_and_is_told() -> None:
    assert launch(100_000, 1000, 2, 1, fails=0)[:2] == (1, [0] * 100_000)
    status, counts, _ = launch(100_000, 1000, 2, 2, fails=0)
    assert status == 1
    assert max(counts) <= 1


def test_pieces_begin_with_a_line_where_items_are_many() -> None:
    """Of 12 bytes an item, a piece of 32 KiB is 2730 items: it has 2752."""
    status, counts, _ = launch(100_000, 12, 2, 1, fails=2745)
    assert status == 1
    assert sum(counts) == 2745
