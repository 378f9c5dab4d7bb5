"""Launches over wide and narrow elements, parts of numbers, functions with several bodies, and loads with hints."""

import math

import numpy as np
import pytest
from numba import cuda, float32, float64
from numba import types as numba_types
from numba.cuda.extending import overload

from noyau.errors import UnsupportedError
from noyau.sanitizer.numba_cuda.launch import WatchedArgument, configuration_of, launch_kernel
from noyau.sanitizer.recording_array import Recorder


def seen_of(kernel, launch, *values, unset=(), most=1 << 40):
    """A launch and what was seen in it."""
    names = kernel.py_func.__code__.co_varnames
    arguments = [WatchedArgument(name, value, name not in unset) for name, value in zip(names, values, strict=False)]
    launch = launch_kernel(kernel, configuration_of(launch), arguments, most)
    return launch, launch.recorder.shadow.observations()


def test_wide_elements_meet_narrow_ones_in_each_of_their_cells():
    @cuda.jit
    def meeting(out):
        a = cuda.shared.array(0, float32)
        b = cuda.shared.array(0, float64)
        if cuda.threadIdx.x == 0:
            b[0] = 1
        else:
            a[1] = 2
        cuda.syncthreads()
        out[cuda.threadIdx.x] = a[1]

    _, (race,) = seen_of(meeting, (1, 2, 0, 8), np.zeros(2))
    assert (race.kind, race.cell) == ("race", 1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bits_are_counted_in_as_many_as_a_number_has_where_it_lies(dtype):
    @cuda.jit
    def counted(x, out):
        i = cuda.grid(1)
        w = x[i]
        out[0, i] = cuda.clz(w)
        out[1, i] = cuda.popc(x[i])
        out[2, i] = cuda.ffs(w)
        out[3, i] = cuda.clz(w + 1)  # which is calculated in 64 bits

    seen_of(counted, (1, 3), np.array([1, -1, 6], dtype), out := np.zeros((4, 3), np.int64))
    bits = 8 * dtype().itemsize
    assert out.tolist() == [[bits - 1, 0, bits - 3], [1, bits, 2], [1, 1, 2], [62, 64, 61]]


def test_a_view_of_wider_elements_touches_each_of_their_cells():
    @cuda.jit
    def viewing(x, out):
        i = cuda.grid(1)
        out[i] = x.view(np.int32)[i]
        x[4 * i + 5] = 1

    run, (race,) = seen_of(viewing, (1, 2), np.arange(12, dtype=np.uint8), out := np.zeros(2, np.int32))
    assert (race.kind, race.cell, run.recorder.shadow.accesses) == ("race", 5, 18)
    assert out.tolist() == [0x03020100, 0x07060104]


def test_atomics_on_the_parts_of_complex_numbers():
    @cuda.jit
    def adding(x):
        cuda.atomic.add(x.real, 0, 1)
        x.imag[0] = 2

    _, (twice,) = seen_of(adding, (1, 2), x := np.zeros(1, complex))
    assert twice.kind == "written-twice" and x[0] == 2 + 2j


def scaled(x, times=2):
    """What no compiler looks into."""


@overload(scaled)
def scaled_array(x, times=2):
    if isinstance(x, numba_types.Array):

        def first(x, times=2):
            x[0] *= times

        return first
    return (lambda x, times=2: x * times) if isinstance(x, numba_types.Number) else None


def test_a_function_has_the_body_that_overload_gives_it_for_its_types():
    @cuda.jit
    def overloaded(x, out):
        i = cuda.grid(1)
        out[i] = scaled(x[i], times=3)
        scaled(x)

    _, seen = seen_of(overloaded, (1, 2), np.ones(2), out := np.zeros(2))
    assert {each.kind for each in seen} == {"race"} and out.tolist() == [3, 3]
    with pytest.raises(UnsupportedError, match="scaled cannot be watched as @overload has it"):
        launch_kernel(cuda.jit(lambda: scaled(None)), configuration_of((1, 1)), [])


@pytest.mark.skipif(not hasattr(cuda, "ldca"), reason="this release has no hints for the cache")
def test_loads_and_stores_with_a_hint_for_the_cache():
    @cuda.jit
    def hinted(x):
        own = cuda.local.array(1, float64, alignment=16)
        own[0] = cuda.ldca(x, cuda.grid(1))
        cuda.stcg(x, 0, own[0])

    _, (race, *_) = seen_of(hinted, (1, 2), np.arange(2.0))
    assert race.kind == "race"


HELD = np.arange(8.0)[::2]


@cuda.jit(device=True)
def held(i):
    return cuda_array[i]


class OnDevice:
    """An array of a device, as a launch is told of it."""


cuda_array = OnDevice()


def test_an_array_of_a_device_that_a_kernel_has_by_a_name_is_watched():
    @cuda.jit
    def reads(out):
        i = cuda.grid(1)
        out[i] = held(i + 1)

    def array_of(value):
        return HELD if value is cuda_array else value

    arguments = [WatchedArgument("out", out := np.zeros(4))]
    run = launch_kernel(reads, configuration_of((1, 4)), arguments, held=array_of)
    (outside,) = run.recorder.shadow.observations()
    assert (outside.kind, run.recorder.memories[outside.memory].name) == ("out-of-bounds", "cuda_array")
    assert out.tolist() == [2, 4, 6, 0]


@cuda.jit
def words(out, x):
    pair = cuda.short2(3, 4)
    out[0], out[1] = pair.x, pair.y
    out[2] = math.trunc(x[0])
    out[3] = math.remainder(0, 0)


@pytest.mark.skipif(not hasattr(cuda, "short2"), reason="this release has no short names for vectors")
def test_short_names_of_vectors_and_functions_of_short_floats():
    seen_of(words, (1, 1), out := np.zeros(4), np.full(1, -2.5, np.float32))
    assert out[:3].tolist() == [3, 4, -2] and math.isnan(out[3])


def test_a_field_of_records_is_made_once_for_all_of_them():
    whole = Recorder().array(np.zeros(8, [("a", np.int32), ("b", np.float32, (2,))]), "x")
    parts = [whole.field(name) for name in "ab"]
    for at in range(8):
        whole[at].a = whole[at]["b"][1]
    assert [whole.field(name) is part for name, part in zip("ab", parts, strict=True)] == [True, True]


@cuda.jit
def side_by_side(x, out):
    a, b = cuda.shared.array(32, float32), cuda.shared.array(32, float64)
    c, d = (
        cuda.shared.array(32, float32),
        cuda.shared.array(32, float32),
    )
    t = cuda.threadIdx.x
    a[t] = b[t] = c[t] = d[t] = x[t]
    out[t] = b[31 - t]


def test_shared_arrays_that_one_line_assigns_have_their_names():
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    launch, seen = seen_of(side_by_side, (1, 32), x, out)
    names = [each.name for each in launch.recorder.memories.values() if each.name not in ("x", "out")]
    assert names == ["a", "b", "c", "d"]
    assert {launch.recorder.memories[each.memory].name for each in seen} == {"b"}
