"""Session 5: a counter that all threads share
===========================================

64 blocks of 64 threads each add one to a counter, so it should reach 4096. An increment is three steps, a read, an
addition and a write, and two threads that read the same number lose one count. Threads that take turns, as in a
simulator, hide that: there the racy kernel counts to 4096, by chance. `check` does not compare the count: two threads
write one cell, and nothing orders them, whatever the result was this time.

No GPU is needed: ``python examples/gallery/plot_thread_counter.py`` (needs ``pip install 'noyau-kernels[numba]'``).
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

import noyau

try:
    from numba import cuda, int32
except ImportError:
    print("this page needs Numba, which is not installed; run: pip install 'noyau-kernels[numba]'")
    raise SystemExit from None

BLOCK = 64


@noyau.op("-> i32[1]")
def threads():
    return np.full(1, 64 * BLOCK, np.int32)


# %%
# An atomic
# ---------
# An atomic reads, adds and writes as one step. All 4096 threads queue for one cell.
@threads.kernel(launch=(64, BLOCK), init={"out": 0})
@cuda.jit
def one_by_one(out):
    cuda.atomic.add(out, 0, 1)


# %%
# Fewer threads in the queue
# --------------------------
# The same with a condition to count. The threads of a block first count together: in a cell of shared memory, which is
# near; or without a cell, because a barrier can count as well; or warp by warp, by a vote. Then one thread queues for
# all.
@noyau.op("f32[n] -> i32[1]")
def positive(x):
    return (x > 0).sum(keepdims=True, dtype=np.int32)


def blocks(n):
    return (n + BLOCK - 1) // BLOCK, BLOCK


@positive.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def by_threads(x, out):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        cuda.atomic.add(out, 0, 1)


@positive.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def in_shared_memory(x, out):
    own = cuda.shared.array(1, int32)
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        own[0] = 0
    cuda.syncthreads()
    if i < x.size and x[i] > 0:
        cuda.atomic.add(own, 0, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(out, 0, own[0])


@positive.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def by_barrier(x, out):
    i = cuda.grid(1)
    count = cuda.syncthreads_count(i < x.size and x[i] > 0)
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(out, 0, count)


@positive.kernel(launch=blocks, init={"out": 0})
@cuda.jit
def by_votes(x, out):
    i = cuda.grid(1)
    voted = cuda.ballot_sync(0xFFFFFFFF, i < x.size and x[i] > 0)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, cuda.popc(voted))


# %%
# The broken twins
# ----------------
# One adds without an atomic; the other resets its cell in shared memory, and does not wait for the reset.
@cuda.jit
def increment(out):
    out[0] += 1


@cuda.jit
def no_barrier(x, out):
    own = cuda.shared.array(1, int32)
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        own[0] = 0
    if i < x.size and x[i] > 0:
        cuda.atomic.add(own, 0, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(out, 0, own[0])


def twins() -> tuple[noyau.Op, noyau.Op]:
    counter = noyau.op("-> i32[1]", name="threads")(threads.reference)
    counter.kernel(launch=(64, BLOCK), init={"out": 0})(increment)
    shared = noyau.op("f32[n] -> i32[1]", name="positive")(positive.reference)
    shared.kernel(launch=blocks, init={"out": 0})(no_barrier)
    return counter, shared


# %%
# In a simulator
# --------------
# Numba's own simulator, which an environment variable selects before Numba is imported, runs the threads of a block as
# threads of Python. They seldom disturb each other.
SIMULATED = """
import numpy as np
from numba import cuda

@cuda.jit
def increment(out):
    out[0] += 1

counted = np.zeros(1, np.int32)
increment[64, 64](counted)
print(f"the racy kernel, simulated: {counted[0]} of 4096")
"""


def simulated() -> str:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    ran = subprocess.run([sys.executable, "-c", SIMULATED], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def main() -> None:
    print(simulated())

    # %%
    # Right, and named
    # ----------------
    for op in (threads, positive):
        found = noyau.check(op, generated=False, budget_s=0.5)
        print(found)
        found.raise_if_bad()
    for twin in twins():
        print(noyau.check(twin, generated=False, budget_s=0.5))

    # %%
    # The clock
    # ---------
    # Only kernels for the processor run here: each of their threads counts for itself, and one addition per thread is
    # left. Kernels for a GPU are timed on a machine that has one.
    print(noyau.bench(positive, sizes={"n": 1 << 20}, budget_s=0.3))


if __name__ == "__main__":
    main()
