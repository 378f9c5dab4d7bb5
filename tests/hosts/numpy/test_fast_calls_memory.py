from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import noyau
from noyau.hosts.numpy import fast_calls
from noyau.hosts.numpy.fast_calls import LEAST_BYTES, Pool, block_bytes, empty

F32 = np.dtype(np.float32)
MIB = 1 << 20


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_small_arrays_are_numpy_s_and_large_ones_of_the_pool():
    assert empty((10,), F32).flags.owndata
    large = empty((LEAST_BYTES // 4,), F32)
    assert not large.flags.owndata
    assert (large.flags.c_contiguous, large.flags.writeable, large.flags.aligned) == (True, True, True)
    assert address(large) % 64 == 0


@pytest.mark.parametrize("dtype", [np.float64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_every_dtype_and_shape(dtype):
    pool = Pool(MIB)
    made = pool.empty((3, 70_000), np.dtype(dtype))
    assert made.shape == (3, 70_000) and made.dtype == dtype and type(made) is np.ndarray
    made[...] = 1
    assert (made == 1).all()
    assert pickle.loads(pickle.dumps(made)).dtype == dtype


def test_what_was_dropped_is_used_again():
    pool = Pool(8 * MIB)
    first = pool.empty((MIB,), F32)
    where = address(first)
    second = pool.empty((MIB,), F32)
    assert address(second) != where
    del first
    assert pool.waiting_bytes == 4 * MIB
    assert address(pool.empty((MIB - 5,), F32)) == where  # of the same block, as it is of almost the same size
    assert pool.waiting_bytes == 4 * MIB


def test_a_view_keeps_its_memory():
    pool = Pool(8 * MIB)
    whole = pool.empty((MIB,), F32)
    whole[:] = 7
    where, views = address(whole), [whole[10:20], whole.reshape(2, -1).T, np.asarray(whole).view(np.int32)]
    while views:
        del whole
        other = pool.empty((MIB,), F32)
        assert address(other) != where
        other[:] = 0
        assert views[0].view(np.float32).ravel()[0] == 7
        whole = views.pop(0)
    del whole
    assert where in (address(pool.empty((MIB,), F32)), address(pool.empty((MIB,), F32)))


def test_a_memoryview_keeps_it_too():
    pool = Pool(8 * MIB)
    array = pool.empty((MIB,), F32)
    array[:] = 3
    seen = memoryview(array)
    del array
    pool.empty((MIB,), F32)[:] = 0
    assert seen[5] == 3


def test_what_waits_is_bounded_and_the_oldest_goes_first():
    pool = Pool(10 * MIB)
    held = [pool.empty((size * MIB,), np.dtype(np.uint8)) for size in (4, 5, 3)]
    places = [address(array) for array in held]
    while held:
        del held[0]
    assert pool.waiting_bytes == 8 * MIB  # without that of 4, which came first
    assert address(pool.empty((5 * MIB,), np.dtype(np.uint8))) == places[1]
    huge = pool.empty((64 * MIB,), np.dtype(np.uint8))
    del huge
    assert pool.waiting_bytes <= 10 * MIB


def test_a_pool_is_emptied():
    pool = Pool(8 * MIB)
    pool.empty((MIB,), F32)
    assert pool.clear() == 4 * MIB
    assert pool.clear() == pool.waiting_bytes == 0
    kept = pool.empty((MIB,), F32)
    assert pool.clear() == 0
    kept[:] = 1


def test_that_of_the_process_is_emptied():
    empty((MIB,), F32)
    assert fast_calls.clear() >= 4 * MIB
    assert fast_calls.pool().waiting_bytes == 0
    assert fast_calls.pool().limit_bytes >= 64 * MIB


@pytest.mark.parametrize("size_bytes", [LEAST_BYTES, LEAST_BYTES + 1, 3 * MIB - 1, 3 * MIB, 100 * MIB + 17])
def test_blocks_have_few_sizes_and_little_is_idle(size_bytes):
    found = block_bytes(size_bytes)
    assert found % mmap.PAGESIZE == 0
    assert size_bytes <= found <= size_bytes * 1.125 + mmap.PAGESIZE
    assert block_bytes(found) == found
    assert len({block_bytes(size) for size in range(4 * MIB, 8 * MIB, 10_007)}) <= 9


def test_no_memory_is_said_after_the_pool_has_given_its_own(monkeypatch):
    pool, tried = Pool(8 * MIB), list[int]()
    pool.empty((MIB,), F32)

    def refused(size_bytes: int) -> fast_calls.Block:
        tried.append(pool.waiting_bytes)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(fast_calls, "_map", refused)
    with pytest.raises(MemoryError, match="there is no room for a result of 2097152 bytes: Cannot allocate memory"):
        pool.empty((2 * MIB,), np.dtype(np.uint8))
    assert tried == [4 * MIB, 0]


def test_a_block_that_comes_back_in_the_midst_of_the_pool_waits():
    pool = Pool(8 * MIB)
    array = pool.empty((MIB,), F32)
    with pool._lock:  # the collector may run anywhere
        del array
    assert pool.waiting_bytes == 4 * MIB


def test_threads_share_a_pool():
    pool, wrong = Pool(4 * MIB), list[bool]()

    def work(number: int) -> None:
        for turn in range(200):
            array = pool.empty((70_000 + 5000 * (turn % 5),), F32)
            array[:] = number
            wrong.append(not (array == number).all())

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    gc.collect()
    assert not any(wrong) and len(wrong) == 1200
    assert 0 < pool.waiting_bytes <= 4 * MIB


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_memory_of_its_own():
    array = empty((MIB,), F32)
    array[:] = 1
    waits = empty((MIB,), F32)
    del waits
    with fast_calls.pool()._lock:  # another thread may have held it
        child = multiprocessing.get_context("fork").Process(target=_write, args=(array,))
        child.start()
        child.join(30)
    assert child.exitcode == 0
    assert (array == 1).all()
    assert (empty((MIB,), F32).size, child.exitcode) == (MIB, 0)


def _write(array: np.ndarray) -> None:
    array[:] = 2
    others = [empty((MIB,), F32) for _ in range(3)]
    for number, other in enumerate(others):
        other[:] = number
    sums = [float(other.sum()) for other in others]
    os._exit(0 if sums == [0, MIB, 2 * MIB] and (array == 2).all() else 1)


def share_of_the_last(x):
    first = np.cumsum(x)
    return first / first.max()


def test_large_scratch_lies_in_memory_that_waits():
    cells = 6 * MIB  # the running sum of these takes more than a call keeps by itself
    op, x = noyau.op("f32[n] -> f32[n]")(share_of_the_last), np.ones(cells, np.float32)
    out = np.empty_like(x)
    for _ in range(2):
        op(x[:9])
        fast_calls.clear()
        assert op(x, out=out) is out
        assert fast_calls.pool().waiting_bytes >= x.nbytes
    assert np.allclose(out, np.arange(1, cells + 1) / cells)
