from __future__ import annotations

import re
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import cuda
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

from noyau.errors import DeviceError
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.scripts import numba_cuda_hooks
from noyau.sanitizer.scripts.numba_hooks import install_hooks
from noyau.sanitizer.scripts.record import ScriptSession


@cuda.jit
def shift(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i + 1]


def test_kernels_that_were_compiled_before_are_watched_too():
    session = ScriptSession("here")
    with install_hooks(session):
        shift[1, 8](np.arange(5.0), out := np.zeros(5))
    (kernel,) = session.finish().kernels
    assert [each.kind for each in kernel.findings] == ["out-of-bounds"]
    assert out.tolist() == [1, 2, 3, 4, 0]


def test_all_is_as_before_afterwards():
    before = {name: getattr(cuda, name) for name in ("jit", "to_device", "synchronize", "is_available")}
    with install_hooks(ScriptSession("here")):
        assert cuda.is_available()
        assert cuda.jit is not before["jit"]
    assert {name: getattr(cuda, name) for name in before} == before


def total(x, s):
    s[0] = 0
    for i in range(x.size + 1):
        s[0] += x[i]


def test_a_function_of_guvectorize_is_a_launch_with_a_thread_for_each_element_of_its_batch():
    session = ScriptSession("here")
    with install_hooks(session):
        summed = numba.guvectorize(["void(float64[:], float64[:])"], "(n)->()", target="cuda")(total)
        assert summed(np.arange(12.0).reshape(2, 2, 3)).tolist() == [[3, 12], [21, 30]]
    (kernel,) = session.finish().kernels
    assert [(each.kind, "reads x at 3" in each.message) for each in kernel.findings] == [("out-of-bounds", True)]
    assert "called at" not in kernel.findings[0].message  # a line of a text that nobody wrote


@cuda.jit
def first_row(x, out):
    j = cuda.grid(1)
    out[j] = x[0, j] + x[1, 0]


@pytest.mark.parametrize(("columns", "kinds"), [(4, []), (3, ["uninitialised"])])
def test_cells_of_an_array_by_columns_that_the_host_fills_hold_values(columns, kinds):
    session = ScriptSession("here")
    with install_hooks(session):
        x, out = cuda.device_array((3, 4), order="F"), cuda.device_array(4)
        x[0, :columns], x[1, 0] = 1, 2
        first_row[1, 4](x, out)
        assert out.copy_to_host()[:3].tolist() == [3] * 3
    (kernel,) = session.finish().kernels
    assert [each.kind for each in kernel.findings] == kinds


@cuda.jit
def contextual(x):
    cuda.current_context()
    x[cuda.grid(1)] = 1


def test_a_launch_that_cannot_be_watched_is_left_out():
    session = ScriptSession("here")
    with install_hooks(session):
        x = cuda.device_array(8, np.float32)
        contextual[1, 8](x)
        assert x.copy_to_host().shape == (8,)  # and the script goes on
    (kernel,) = session.finish().kernels
    assert re.fullmatch(
        r"numba\.cuda\.current_context cannot be .* \(line \d+ of .*\); the launch was left out", kernel.unseen
    )
    assert kernel.findings == ()


def test_cells_that_an_earlier_launch_wrote_hold_values():
    @cuda.jit
    def double(x, first):
        i = cuda.grid(1) + first
        x[i] = x[i] * 2 if first else 1

    session = ScriptSession("here")
    with install_hooks(session):
        x = cuda.device_array(8, np.float32)
        double[1, 8](x, 0)
        double[1, 4](x, 4)
        assert x.copy_to_host().tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert session.finish().findings == ()


def test_the_rest_of_a_result_that_is_counted_is_not_missed():
    @cuda.jit
    def keep(x, out, count):
        i = cuda.grid(1)
        if x[i] > 0:
            out[cuda.atomic.add(count, 0, 1)] = x[i]

    session = ScriptSession("here")
    with install_hooks(session):
        for start in (0, 1):  # a count that says something else leaves cells unwritten
            out, count = cuda.device_array(8), cuda.to_device(np.array([start], np.int32))
            keep[1, 8](cuda.to_device(np.array([1.0, -1, 2, 3, -1, -1, 4, -1])), out, count)
            assert out.copy_to_host()[start : count.copy_to_host()[0]].tolist() == [1, 2, 3, 4]
            assert [each.kind for each in session.finish().findings] == ["unwritten"] * start


def test_views_of_one_array_share_its_cells():
    @cuda.jit
    def move(source, target):
        i = cuda.grid(1)
        target[i] = source[i]

    session = ScriptSession("here")
    with install_hooks(session):
        whole = cuda.to_device(np.arange(9.0))
        move[1, 8](whole[:-1], whole[1:])
    assert [each.kind for each in session.finish().findings] == ["race"]


def test_a_kernel_without_a_launch():
    with install_hooks(ScriptSession("here")):
        with pytest.raises(DeviceError, match=f"^{re.escape('shift needs a launch: shift[grid, block](...)')}$"):
            shift(np.zeros(2), np.zeros(2))
        made = cuda.jit(shift.py_func)
        with pytest.raises(DeviceError, match="needs a launch"):
            made(np.zeros(2), np.zeros(2))


def test_device_functions_that_are_lambdas():
    half = cuda.jit(device=True)(lambda value: value / 2)

    @cuda.jit
    def halve(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = half(x[i])

    session = ScriptSession("here")
    with install_hooks(session):
        halve[1, 4](x := np.ones(3))
        made = cuda.jit(halve.py_func)
        made.inspect_types()
        assert list(made.signatures) == []
    assert x.tolist() == [0.5, 0.5, 0.5]
    assert session.finish().ok


def test_what_the_host_writes_holds_values():
    session = ScriptSession("here")
    with install_hooks(session):
        given, half, pinned = cuda.device_array(4), cuda.device_array(4), cuda.pinned_array(4)
        given.copy_to_device(np.arange(4.0))
        half[:2] = 1.0
        pinned[:] = 1.0
        for each in (given, pinned, half):
            shift[1, 4](each, np.zeros(3))
    (finding,) = session.finish().findings
    assert (finding.kind, finding.cell, finding.owners) == ("uninitialised", (2,), ("thread 1 of block 0",))
    assert finding.mend == "write each cell before it is read, with cuda.syncthreads() between two threads"


def kernels_of(script):
    """The kernels that are seen while a function runs, by name."""
    session = ScriptSession("here")
    with install_hooks(session):
        script()
    return {each.name: each for each in session.finish().kernels}, session.notes


@cuda.jit
def twice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


@cuda.jit
def count(x, c):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        if x[i] > 0:
            c[0] += 1


def test_for_all_launches_blocks_as_numba_would():
    x = np.ones(1000)
    kernels, _ = kernels_of(lambda: cuda.jit(twice.py_func).forall(1000)(x))
    assert (kernels["twice"].findings, x.tolist()) == ((), [2] * 1000)


def test_a_launch_is_configured_by_name():
    x = np.ones(100)
    kernels, _ = kernels_of(lambda: cuda.jit(twice.py_func).configure((4, 1), 32)(x))
    assert (kernels["twice"].findings, x.tolist()) == ((), [2] * 100)


def test_a_long_launch_keeps_what_was_seen_and_goes_on(monkeypatch):
    monkeypatch.setattr("noyau.sanitizer.scripts.numba_cuda_hooks.MOST", 10_000)
    x, c = np.ones(50_000, np.float32), np.zeros(1, np.int32)
    kernels, _ = kernels_of(lambda: count[2, 64](x, c))
    assert [each.kind for each in kernels["count"].findings] == ["race"]
    assert "after 10000 accesses of a launch" in kernels["count"].unseen
    assert c[0] == 50_000  # the script's values are right


def test_what_a_stand_in_cannot_do_leaves_a_launch_out_and_says_so():
    @cuda.jit
    def odd(x):
        x[0] = x.nothing()

    made = {}
    exec("def made(x):\n    x[0] = 1\n", made)
    kernels, _ = kernels_of(lambda: [cuda.jit(each)[1, 1](np.zeros(1)) for each in (odd.py_func, made["made"])])
    assert "raised AttributeError" in kernels["odd"].unseen
    assert "the source of made cannot be read" in kernels["made"].unseen
    assert not kernels["odd"].findings


def test_no_room_for_a_shadow_is_not_the_scripts(monkeypatch):
    def full(shadow, cells, *, is_set):
        raise MemoryError(f"there is no memory for the shadow of {cells} cells")

    monkeypatch.setattr(Shadow, "memory", full)
    kernels, _ = kernels_of(lambda: twice[1, 1](np.ones(4)))
    assert "the shadow of its arrays has no room" in kernels["twice"].unseen


def test_what_a_kernel_raises_by_itself_reaches_the_script():
    @cuda.jit
    def refusing(x):
        raise ValueError("too small")

    with install_hooks(ScriptSession("here")), pytest.raises(ValueError, match="too small"):
        refusing[1, 1](np.zeros(1))


def test_questions_about_compiled_code_are_answered():
    def ask():
        kernel = cuda.jit(twice.py_func)
        assert kernel.inspect_asm() == kernel.get_regs_per_thread() == {}
        assert kernel.inspect_llvm((None,)) == ""
        assert cuda.compile_ptx(twice.py_func, ()) == ("", None)
        with pytest.raises(AttributeError, match="no nothing without a GPU"):
            kernel.nothing()

    _, notes = kernels_of(ask)
    assert [note.partition(":")[0] for note in notes] == ["without a GPU nothing is compiled"]


def test_grids_may_be_lists():
    kernels, _ = kernels_of(lambda: (twice[[1], [8]](np.ones(8)), twice[[1, 1], [8, 1]](np.ones(8))))
    assert (kernels["twice"].calls, kernels["twice"].unseen) == (2, "")


def test_findings_in_numbas_own_text_are_warnings(monkeypatch):
    monkeypatch.setattr(numba_cuda_hooks, "_OWN", [Path(__file__).parent])
    kernels, _ = kernels_of(lambda: shift[1, 8](np.arange(5.0), np.zeros(5)))
    (found,) = kernels["shift"].findings
    assert (found.severity, found.message[:24]) == ("warning", "in Numba's own text: thr")
    monkeypatch.setattr(numba_cuda_hooks, "_OWN", [Path(__file__).parents[3]])  # those of its tests are to be found
    kernels, _ = kernels_of(lambda: shift[1, 8](np.arange(5.0), np.zeros(5)))
    assert [each.severity for each in kernels["shift"].findings] == ["error"]


def test_a_reduction_of_numba_whose_lanes_end_early_is_right():
    def total():
        assert cuda.reduce(lambda a, b: a + b)(np.ones(600)) == 600

    kernels, _ = kernels_of(total)
    assert [each.findings for each in kernels.values()] == [()]


def test_a_race_in_numbas_own_text_is_an_error_of_the_kernel_that_calls_it():
    @cuda.jit
    def draw(states, out):
        i = cuda.grid(1)
        out[i] = xoroshiro128p_uniform_float32(states, i // 2)

    def script():
        draw[1, 4](create_xoroshiro128p_states(4, seed=1), np.zeros(4, np.float32))

    kernels, _ = kernels_of(script)
    assert {(each.kind, each.severity) for each in kernels["draw"].findings} == {("race", "error")}
    line = draw.py_func.__code__.co_firstlineno + 3
    assert all(each.message.endswith(f"; called at line {line}") for each in kernels["draw"].findings)


def test_a_record_is_changed_where_it_lies_and_its_fields_are_watched():
    @cuda.jit
    def kernel(record, out):
        record.b = cuda.grid(1)
        out[cuda.grid(1)] = record.a

    records, out = np.array([(1.5, 0), (2.5, 0)], [("a", "f8"), ("b", "i4")]), np.zeros(4)
    kernels, _ = kernels_of(lambda: kernel[1, 4](records[1], out))
    assert [each.kind for each in kernels["kernel"].findings] == ["race"]
    assert (records["b"].tolist(), out.tolist()) == ([0, 3], [2.5] * 4)


def test_functions_of_another_language_are_not_checked():
    def script():
        triple = cuda.declare_device("triple", "float64(float64)")

        @cuda.jit
        def kernel(x):
            x[0] = triple(x[0])

        kernel[1, 1](np.ones(1))

    kernels, _ = kernels_of(script)
    assert "'ExternFunction' object is not callable" in kernels["kernel"].unseen


def test_device_functions_with_a_signature_convert_what_they_are_given():
    def script():
        half = cuda.jit("int32(int32)", device=True)(lambda x: x // 2)

        @cuda.jit
        def halves(x, out):
            out[0] = half(x[0])

        halves[1, 1](np.array([7.9], np.float32), out)

    out = np.zeros(1)
    _, notes = kernels_of(script)
    assert (out[0], notes) == (3, [])


class Foreign:
    """An array of another library."""

    def __init__(self, array):
        self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__


def test_arrays_of_other_libraries_are_the_memory_that_they_lend():
    def script():
        array = cuda.device_array(8, np.float64)
        assert cuda.is_cuda_array(Foreign(array)) and not cuda.is_cuda_array(np.ones(3))
        twice[1, 8](Foreign(cuda.to_device(np.ones(8))))
        fill[1, 8](Foreign(array))
        assert cuda.as_cuda_array(Foreign(array)).copy_to_host().tolist() == [7.0] * 8
        assert array.copy_to_host().tolist() == [7.0] * 8
        assert isinstance(array, cuda.devicearray.DeviceNDArray)

    @cuda.jit
    def fill(x):
        x[cuda.grid(1)] = 7

    kernels, _ = kernels_of(script)
    assert [(each.findings, each.unseen) for each in kernels.values()] == [((), "")] * 2


def test_a_kernel_has_the_types_that_it_was_launched_with():
    def script():
        kernel = cuda.jit(twice.py_func)
        kernel[1, 3](cuda.InOut(x := np.ones(3)))
        kernel[1, 3](cuda.In(x))
        assert x.tolist() == [2.0] * 3
        (types,) = kernel.signatures
        assert kernel.overloads[types].inspect_llvm() == "" and kernel.inspect_asm() == {types: ""}
        signed = cuda.jit("void(float64[:])")(twice.py_func)
        assert list(signed.inspect_asm().values()) == [""] and signed.get_regs_per_thread() == 0
        signed.compile(())

    _, notes = kernels_of(script)
    assert [note.partition(":")[0] for note in notes] == ["without a GPU nothing is compiled"]


@pytest.mark.skipif(not hasattr(cuda, "ldcg"), reason="this release has no hints for the cache")
def test_what_the_simulator_lacks_stays_as_it_is():
    def script():
        hint, nothing = cuda.ldcg, None

        @cuda.jit
        def loading(x, out):
            if nothing is None:
                out[cuda.grid(1)] = hint(x, cuda.grid(1))

        loading[1, 3](np.arange(3.0), out := np.zeros(3))
        assert out.tolist() == [0, 1, 2]

    kernels, _ = kernels_of(script)
    assert (kernels["loading"].unseen, kernels["loading"].findings) == ("", ())


@pytest.mark.skipif(not hasattr(cuda, "vectorize"), reason="numba.cuda of Numba itself has none")
def test_functions_of_numbers_by_the_decorator_of_numba_cuda():
    def script():
        @cuda.vectorize(["float64(float64, float64)"])
        def add(a, b):
            return a + b

        assert add(np.ones(3), 2).tolist() == [3.0] * 3

    _, notes = kernels_of(script)
    assert any(note.startswith("add (line ") for note in notes)


POINT = np.dtype([("x", np.float32), ("flag", np.int8), ("at", np.float64, (2,))], align=True)


@pytest.mark.parametrize(("rest", "kinds"), [(0, []), (3, ["unwritten"])])
def test_records_that_no_thread_wrote_are_found_and_fields_may_be_left_out(rest, kinds):
    @cuda.jit
    def points(out, rest):
        i = cuda.grid(1)
        if i < out.size - rest:
            out[i].x = i
            out[i].at[1] = 2 * i
            if i % 2 == 0:
                out[i].flag = 1

    @cuda.jit
    def copied(out, other):
        i = cuda.grid(1)
        if i < out.size:
            other[i] = out[i]

    session = ScriptSession("script.py")
    with install_hooks(session):
        out, other = cuda.device_array(40, POINT), cuda.device_array(40, POINT)
        points[2, 32](out, rest)
        copied[2, 32](out, other)
        assert other.copy_to_host()["x"][5] == 5
        assert out.copy_to_host()["at"][5, 1] == 10
    check = session.finish()
    assert [each.kind for each in check.findings] == kinds
    assert all(
        "3 of 40 cells that are copied to the host were never written, [37] first" in each.message
        for each in check.findings
    )
