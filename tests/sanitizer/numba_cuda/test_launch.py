from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cuda, float32, float64, uint8
from numba.cuda import libdevice
from numba.cuda.libdevice import tanhf

from noyau.errors import DeviceError, UnsupportedError
from noyau.sanitizer.numba_cuda import device as device_words
from noyau.sanitizer.numba_cuda.launch import WatchedArgument, configuration_of, launch_kernel
from noyau.sanitizer.numba_cuda.rewrite import divisor
from tests.sanitizer.numba_cuda.tutorials import TUTORIALS


def seen_of(kernel, launch, *values, unset=(), most=1 << 40):
    """A launch and what was seen in it."""
    names = kernel.py_func.__code__.co_varnames
    arguments = [WatchedArgument(name, value, name not in unset) for name, value in zip(names, values, strict=False)]
    launch = launch_kernel(kernel, configuration_of(launch), arguments, most)
    return launch, launch.recorder.shadow.observations()


def lines_of(launch, seen):
    """Each finding as its kind and its two lines, counted from the kernel's first one."""
    first = min(site.line for site in launch.recorder.sites)
    sites = launch.recorder.sites
    return [(each.kind, sites[each.site].line - first, each.other_site) for each in seen]


@pytest.mark.parametrize("name", TUTORIALS)
def test_correct_kernels_are_silent_and_right(name):
    kernel, launch, values, want = TUTORIALS[name]
    values = [np.array(value) if isinstance(value, np.ndarray) else value for value in values]
    run, seen = seen_of(kernel, launch, *values)
    assert seen == []
    assert run.recorder.shadow.accesses > 0
    if want is not None:
        np.testing.assert_allclose(values[-1].squeeze(), want(), rtol=1e-5, atol=1e-5)


@cuda.jit
def rarely(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i if i != x.size - 1 else 0] = x[i]


def test_a_race_on_one_cell_of_many():
    x, out = np.arange(10_000, dtype=np.float32), np.zeros(10_000, np.float32)
    run, (race,) = seen_of(rarely, (157, 64), x, out)
    assert (race.kind, race.owner, race.other_owner, race.cell) == ("race", 9999, 0, 0)
    assert run.configuration.owner(9999) == "thread 15 of block 156"


@cuda.jit
def reads_past(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i - 1]


def test_an_index_below_zero_wraps_and_is_told_apart():
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    _, (found,) = seen_of(reads_past, (1, 4), x, out)
    assert (found.kind, found.cell, found.extent) == ("negative-index", -1, 4)
    assert out.tolist() == [3, 0, 1, 2]


@cuda.jit
def atomic_and_plain(out):
    cuda.atomic.add(out, 0, 1)
    out[0] = 5


def test_an_atomic_and_a_plain_write_race():
    _, seen = seen_of(atomic_and_plain, (1, 2), np.zeros(1, np.int32))
    assert {each.kind for each in seen} == {"race"}


@cuda.jit
def barrier_between(x):
    t = cuda.threadIdx.x
    x[t] = t
    cuda.syncthreads()
    x[cuda.blockDim.x - 1 - t] += 1


def test_a_barrier_orders_within_a_block_alone():
    assert seen_of(barrier_between, (1, 8), np.zeros(8, np.int32))[1] == []
    (race, *_) = seen_of(barrier_between, (2, 8), np.zeros(8, np.int32))[1]
    assert race.kind == "race"


@cuda.jit
def without_the_warp(x):
    own = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    own[t] = x[t]
    x[t] = own[31 - t]


def test_threads_of_a_warp_are_not_ordered_by_themselves():
    run, seen = seen_of(without_the_warp, (1, 32), np.zeros(32, np.float32))
    race = next(each for each in seen if each.kind == "race")
    assert run.recorder.memories[race.memory].name == "own"


def test_numbers_compute_as_on_the_device():
    @cuda.jit
    def wraps(x, out):
        out[0] = x[0] + x[1]

    out = np.zeros(1, np.uint8)
    seen_of(wraps, (1, 1), np.array([200, 100], np.uint8), out)
    assert out[0] == 44
    wide = np.zeros(1, np.int64)
    seen_of(wraps, (1, 1), np.array([2**31 - 1, 1], np.int32), wide)
    assert wide[0] == 2**31


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ((1, 2048), "the block of a launch is 2048; each extent lies between 1 and 1024"),
        ((1, (64, 64)), "a block of (64, 64) has 4096 threads; a GPU takes 1024"),
        (((1, 70000), 32), "the grid of a launch is (1, 70000); each extent lies between 0 and 65535"),
        ((1, 0), "the block of a launch is 0; each extent lies between 1 and 1024"),
        ((1, 1.5), "the block of a launch is one to three integers; got 1.5"),
        ((1, (1, 1, 1, 1)), "the block of a launch is one to three integers; got (1, 1, 1, 1)"),
        (7, "a launch is (grid, block), a stream and bytes of shared memory; got 7"),
    ],
)
def test_a_launch_that_no_gpu_takes(launch, message):
    with pytest.raises(DeviceError, match=f"^{re.escape(message)}$"):
        configuration_of(launch)


def test_a_grid_of_no_blocks_runs_nothing():
    run, seen = seen_of(barrier_between, (0, 8), np.zeros(8, np.int32))
    assert (run.recorder.shadow.accesses, seen) == (0, [])


def test_a_limit_of_accesses_ends_a_run():
    run, _ = seen_of(TUTORIALS["saxpy"][0], (4000, 64), np.float32(1), np.zeros(256_000), np.zeros(256_000), most=1000)
    assert 1000 < run.recorder.shadow.accesses < 10_000
    assert run.report_run("op", "kernel", "").is_cut


@cuda.jit
def branches(x):
    if x.size > 10:
        x[0] = 1
    else:
        x[1] = x[2]


def test_lines_are_those_with_an_access_that_ran():
    run, _ = seen_of(branches, (1, 1), np.zeros(4))
    first = branches.py_func.__code__.co_firstlineno
    assert {line - first for _, line in run.report_run("op", "kernel", "").lines} == {5}


def test_what_cannot_be_watched_is_named_with_its_line():
    @cuda.jit
    def contextual(x):
        cuda.current_context()

    line = contextual.py_func.__code__.co_firstlineno + 2
    with pytest.raises(
        UnsupportedError, match=rf"numba\.cuda\.current_context cannot be watched without a GPU \(line {line} of"
    ):
        seen_of(contextual, (1, 1), np.zeros(1))


@cuda.jit(device=True)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@cuda.jit(device=True)
def halve_together(x, n):
    cuda.syncthreads()
    return halve_together(x, n // 2) if n > 1 else x


@cuda.jit
def of_itself(out):
    i = cuda.grid(1)
    place = cuda.local.array(4, np.int32)
    place[0] = i
    for at, _ in zip(place, (i,)):  # noqa: B905  which the compiler refuses
        if i < out.size:
            out[i] = fibonacci(at)


def test_a_function_may_call_itself_and_zip_reads_no_more_than_it_gives():
    out = np.zeros(8, np.int64)
    _, seen = seen_of(of_itself, (1, 16), out)
    assert seen == []
    assert out.tolist() == [0, 1, 1, 2, 3, 5, 8, 13]


def test_a_lane_that_its_own_mask_leaves_out_is_named():
    @cuda.jit
    def kernel(x):
        x[cuda.laneid] = cuda.shfl_up_sync(0x7FFFFFFF, x[cuda.laneid], 1)

    run, _ = seen_of(kernel, (1, 32), np.zeros(32))
    (found,) = run.report_run("op", "kernel", "").findings
    assert found.message == "thread 31 of block 0 calls with a mask that leaves out its own lane"


@cuda.jit
def extremes(x, most, least, most_number):
    for i in range(x.size):
        cuda.atomic.max(most, 0, x[i])
        cuda.atomic.min(least, 0, x[i])
        cuda.atomic.nanmax(most_number, 0, x[i])


def test_an_atomic_maximum_leaves_a_cell_beside_what_is_no_number():
    cells = [np.array([2.0]), np.array([2.0]), np.array([np.nan])]
    seen_of(extremes, (1, 1), np.array([np.nan, 1.0, 7.0, np.nan]), *cells)
    assert [each[0] for each in cells] == [7, 1, 7]


@cuda.jit
def votes_of_half_a_warp(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    if cuda.any_sync(0xFFFFFFFF, x[i] > 0):
        out[i] = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 8)
    cuda.syncwarp()


def test_lanes_that_have_ended_are_awaited_by_nobody():
    out = np.zeros(16)
    run, _ = seen_of(votes_of_half_a_warp, (1, 32), np.arange(16.0), out)
    assert run.report_run("op", "kernel", "").findings == ()
    assert out.tolist() == [*range(8, 16), *range(8)]


def test_a_function_that_waits_may_not_call_itself():
    @cuda.jit
    def kernel(x):
        x[0] = halve_together(x[0], 4)

    with pytest.raises(UnsupportedError, match="halve_together waits for other threads and calls itself; write a loop"):
        seen_of(kernel, (1, 1), np.zeros(1))


def test_threads_are_named_by_their_places():
    made = configuration_of(((2, 2), (4, 4, 2)))
    assert made.owner(0) == "thread (0, 0, 0) of block (0, 0)"
    assert made.owner(32 + 16 + 5) == "thread (1, 1, 1) of block (1, 0)"
    assert str(made) == "[(2, 2), (4, 4, 2)]"


@cuda.jit
def edges(x, count, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = i / count[i]
        out[i, 1] = -i // 2 + (-i) % 3
        out[i, 2] = np.int8(i + 125)
        out[i, 3] = uint8(x[i])
        count[i] //= 2 - x.ndim
        out[i, 4] = x[-1]


def test_numbers_are_as_on_a_device():
    x, out = np.array([-1.5, 2.9, np.nan, 300.0]), np.zeros((4, 5))
    _, seen = seen_of(edges, (1, 8), x, np.array([0, 0, 2, 1]), out)
    assert seen == []
    want = [[np.nan, 0, 125, 255, 300], [np.inf, 1, 126, 2, 300], [1, 0, 127, 0, 300], [3, -2, -128, 44, 300]]
    np.testing.assert_array_equal(out, want)


def test_a_zero_divides_as_numpys():
    with np.errstate(all="ignore"):
        assert [1 / divisor(0), -1 / divisor(0.0), 5 // divisor(0)] == [np.inf, -np.inf, 0]
    assert divisor(3) == 3


@cuda.jit
def moved(p, q):
    i = cuda.grid(1)
    if i < p.size:
        p[i].x += p[i]["m"]
        q[i] = p[i]
        p[i].m = 0


@cuda.jit
def shifted(p):
    i = cuda.grid(1)
    if i < p.size - 1:
        p[i].x = p[i + 1].x


def test_fields_of_records_are_watched_each_on_its_own():
    kind = np.dtype([("x", np.float32), ("m", np.int32)])
    p, q = np.array([(1, 2), (3, 4)], kind), np.zeros(2, kind)
    assert seen_of(moved, (1, 8), p, q)[1] == []
    assert (p.tolist(), q.tolist()) == ([(3, 0), (7, 0)], [(3, 2), (7, 4)])
    run, (race,) = seen_of(shifted, (1, 8), np.zeros(3, kind))
    assert (race.kind, run.recorder.memories[race.memory].cell_text(race.cell)) == ("race", "p.x[1]")


@cuda.jit
def triples(p, n):
    i = cuda.grid(1)
    if i < 3 * p.size:
        p[i // 3].v[i % n] = i


@cuda.jit
def parts(x, k):
    i = cuda.grid(1)
    if i < 2 * x.size:
        if i % 2:
            x.real[i // 2] = i
        else:
            x.imag[(i // 2 + k) % x.size] = i
    if k and i < x.size:
        x[i] = k


@cuda.jit
def as_bytes(x, n):
    i = cuda.grid(1)
    narrow = x.view(np.int8)
    if i < narrow.size:
        narrow[i] = 1
    if i < n:
        x[i] = 70000


TRIPLE = np.dtype([("m", np.int8), ("v", np.float32, (3,))])
UNION = np.dtype({"names": ["x", "m"], "formats": [np.int32, np.int8], "offsets": [0, 2]})


@cuda.jit
def members(p):
    i = cuda.grid(1)
    if i < 2 * p.size:
        if i % 2:
            p[i // 2].x = 70000 + i
        else:
            p[i // 2].m = i


PARTS = [
    (triples, (np.zeros(4, TRIPLE), 3), ""),
    (triples, (np.zeros(4, TRIPLE), 2), "p.v[0]"),
    (members, (np.zeros(4, UNION),), "p.m[0]"),
    (members, (np.zeros(4, [("x", "i4"), ("m", "i1")]),), ""),
    (parts, (np.zeros(4, np.complex64), 0), ""),
    (parts, (np.zeros(4, np.complex128), 1), "x[0]"),
    (as_bytes, (np.zeros(4, np.int32), 0), ""),
    (as_bytes, (np.zeros(4, np.int32), 4), "x[0]"),
    (as_bytes, (np.zeros(4, np.int32)[1:], 2), "x[1]"),
]


@pytest.mark.parametrize(("kernel", "args", "cell"), PARTS, ids=lambda each: getattr(each, "__name__", ""))
def test_parts_of_an_element_are_watched_by_their_bytes(kernel, args, cell):
    run, races = seen_of(kernel, (1, 32), *args)
    places = [run.recorder.memories[race.memory].cell_text(race.cell) for race in races if race.kind == "race"]
    assert places[:1] == [cell] * bool(cell)


@cuda.jit
def converts(x, whole, short, few):
    i = cuda.grid(1)
    if i < x.size:
        whole[i] = np.int32(x[i])
        short[i] = np.int16(x[i])
        few[i] = np.uint8(x[i])


def test_floats_become_integers_as_on_a_device():
    x = np.array([np.inf, -np.inf, np.nan, 2.0**31, -3e9, 70000.0, -1.5, 258.7], np.float32)
    whole, short, few = (np.zeros(8, dtype) for dtype in (np.int32, np.int16, np.uint8))
    seen_of(converts, (1, 8), x, whole, short, few)
    most, least = 2**31 - 1, -(2**31)
    assert whole.tolist() == [most, least, 0, most, least, 70000, -1, 258]
    assert short.tolist() == [-1, 0, 0, -1, 0, 70000 - 65536, -1, 258]
    assert few.tolist() == [255, 0, 0, 255, 0, 70000 % 256, 255, 2]


@cuda.jit
def of_libdevice(x, out):
    i = cuda.grid(1)
    if i < x.size:
        whole, power = libdevice.frexpf(x[i])
        out[i] = tanhf(x[i]) + libdevice.fmaf(whole, float32(2), float32(power))


@cuda.jit
def doubles(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


def test_functions_of_libdevice():
    x = np.array([0.5, 3.0, -40.0], np.float32)
    out = np.zeros(3, np.float32)
    _, seen = seen_of(of_libdevice, (1, 4), x, out)
    whole, power = np.frexp(x)
    assert seen == []
    np.testing.assert_allclose(out, np.tanh(x) + 2 * whole + power, rtol=1e-6)


def test_a_function_of_libdevice_that_is_unknown_ends_only_kernels_that_call_it(monkeypatch):
    device_words._signature.cache_clear()
    monkeypatch.setattr(device_words, "function_of", lambda name: None)
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    _, seen = seen_of(doubles, (1, 4), x, out)
    assert (seen, out.tolist()) == ([], [2.0, 2.0, 2.0])
    with pytest.raises(UnsupportedError, match=r"^numba.cuda.libdevice.frexpf cannot be watched without a GPU"):
        seen_of(of_libdevice, (1, 4), x, out)


@cuda.jit
def overlapping(x, out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[(t + 1) % 32] = 2 * x[t]
    cuda.syncthreads()
    out[t] = a[t] + b[t]


@cuda.jit
def carved(x, out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, float64)[16:]
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = x[t]
    cuda.syncthreads()
    out[t] = a[31 - t] + b[31 - t]


def test_dynamic_shared_memory_is_one_memory():
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    launch, seen = seen_of(overlapping, (1, 32, 0, 4 * 32), x, out)
    assert {each.kind for each in seen} == {"race"}
    assert {launch.recorder.memories[each.memory].name for each in seen} == {"a"}
    _, seen = seen_of(carved, (1, 32, 0, 12 * 32), x, out)
    assert (seen, out.tolist()) == ([], (2 * x[::-1]).tolist())
    _, seen = seen_of(carved, (1, 32, 0, 12 * 32 - 8), x, out)
    assert {each.kind for each in seen} == {"out-of-bounds"}


@cuda.jit
def in_steps(x, y):
    own = cuda.shared.array(32, float32)
    i, grid = cuda.grid(1), cuda.cg.this_grid()
    own[cuda.threadIdx.x] = y[i] = x[i]
    grid.sync()
    x[i] = y[x.size - 1 - i] + own[cuda.threadIdx.x]


@cuda.jit
def some_blocks_wait(x):
    if cuda.blockIdx.x:
        cuda.cg.this_grid().sync()
    x[cuda.grid(1)] = 1


def test_a_grid_waits_for_itself():
    x = np.arange(64, dtype=np.float32)
    want = x[::-1] + x
    _, seen = seen_of(in_steps, (2, 32), x, np.zeros(64, np.float32), unset=("y",))
    assert (seen, x.tolist()) == ([], want.tolist())
    launch, (found,) = seen_of(some_blocks_wait, (2, 32), np.zeros(64))
    assert (found.kind, found.owner, found.other_owner) == ("divergent-barrier", 32, 0)
    (finding,) = launch.report_run("op", "kernel", "").findings
    assert "has come to its end: it does not come" in finding.message


@cuda.jit
def named(out):
    print(cuda.threadIdx, cuda.blockDim)
    out[cuda.grid(1)] = 1


def test_three_numbers_are_printed_as_on_a_gpu(capsys):
    seen_of(named, (1, 2), np.zeros(2))
    assert capsys.readouterr().out == "(0, 0, 0) (2, 1, 1)\n(1, 0, 0) (2, 1, 1)\n"
