from __future__ import annotations

import pytest

from noyau.sanitizer.lint.launches import LaunchFacts, advise, is_free

FLAT = "i = cuda.grid(1)\nif i < x.size: out[i] = x[i]"
STRIDED = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = x[i];"


def launch(blocks, threads, *shape, text=FLAT, **more):
    return LaunchFacts((blocks, 1, 1), (threads, 1, 1), shape, text, **more)


def told(*given, **more):
    return [message for message, _ in advise(launch(*given, **more))]


def test_blocks_that_are_no_multiple_of_a_warp():
    (message,) = told(1000, 50, 50_000)
    assert message == (
        "[1000, 50] has blocks of 50 threads, no multiple of 32: 14 lanes of the last warp of each do nothing"
    )
    assert told(1000, 1, 1000) != []
    assert told(1, 10, 10) == []  # one block of what there is


def test_blocks_of_one_warp_where_any_other_would_do():
    (message,) = told(1000, 32, 32_000)
    assert message.startswith("[1000, 32] has blocks of 32 threads: a multiprocessor holds 32 blocks, so at most half")
    assert told(1000, 32, 32_000, text="own = cuda.shared.array(32, float32)") == []
    assert told(1000, 32, 1000, 32, text="row = cuda.blockIdx.x") == []
    assert told(4, 32, 128) == []


def test_a_block_for_each_cell():
    (message, mend), *none = advise(launch(100, 256, 100, idle=25_500))
    assert message == ("[100, 256] starts 25600 threads, and 25500 of them touch nothing: a block for each cell")
    assert mend == "launch (n + threads - 1) // threads blocks"
    assert none == []
    assert told(100, 256, 100, 256, idle=0) == []
    assert told(17, 32, 17, 1, idle=500) == []  # rows of one cell here, of more elsewhere
    assert told(100, 256, 100) == []  # nobody has looked


def test_grids_that_leave_multiprocessors_idle():
    (message,) = told(4, 128, 10_000_000)
    assert message == "[4, 128] has 4 blocks for 10000000 cells: of 132 multiprocessors 128 have nothing to do"
    assert told(4, 128, 10_000) == []
    assert told(128, 128, 10_000_000) == []
    assert told(4, 128, 10_000_000, sm_count=0) == []
    assert told(2, 1, 10_000_000, is_of_programs=True) == [
        "[2] has 2 programs for 10000000 cells: of 132 multiprocessors 130 have nothing to do"
    ]
    assert told(100_000, 1, 10_000_000, is_of_programs=True) == []


@pytest.mark.parametrize("blocks", [(67, 256), (132, 128), (528, 512), (1000, 1024)])
def test_usual_launches(blocks):
    assert told(*blocks, 300_000, idle=0) == []


@pytest.mark.parametrize(
    ("text", "free"),
    [
        (FLAT, True),
        (STRIDED, True),
        ("i = threadIdx.x + blockDim.x * blockIdx.x;", True),
        ("s[threadIdx.x] = 1;", False),
        ("row = cuda.blockIdx.x", False),
        ("v += __shfl_down_sync(0xffffffff, v, d);", False),
    ],
)
def test_whether_a_kernel_asks_for_its_block(text, free):
    assert is_free(text) is free


def test_what_a_compiled_kernel_leaves_room_for():
    (few,) = told(1056, 256, 10_000_000, registers=168)
    start = "[1056, 256] keeps 256 of 2048 threads of a multiprocessor busy (1 blocks): the 168 registers of a thread"
    assert few.startswith(start)
    (few,) = told(396, 128, 10_000_000, registers=32, shared_bytes=60_000)
    assert "keeps 384 of 2048 threads of a multiprocessor busy (3 blocks): the 60000 bytes of shared memory" in few
    assert told(528, 128, 10_000_000, registers=32) == []


def test_the_last_wave_of_blocks():
    (tail,) = told(1100, 256, 10_000_000, registers=32)
    told_ = (
        "[1100, 256] runs in 2 waves of up to 1056 blocks, and the last one has 44: most multiprocessors wait for it"
    )
    assert tail == told_
    assert told(2112, 256, 10_000_000, registers=32) == []
    assert told(20_000, 256, 10_000_000, registers=32) == []
