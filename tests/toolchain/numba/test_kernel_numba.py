"""Kernels of language numba as functions of arrays: what is refused, seen between guards, kept on disk, shared."""

from __future__ import annotations

import builtins
import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching

from noyau.codegen.numba import printer as numba_printer
from noyau.errors import BuildError, CheckError, InputError, MissingExtraError
from noyau.toolchain.numba import kernel as numba_kernel
from noyau.toolchain.numba.kernel import NumbaKernel
from tests.codegen.numba_kernels import compiled, kernel_of

ROOT = Path(__file__).resolve().parents[3]
ROWS = np.random.default_rng(1).standard_normal((5, 70)).astype(np.float32)


def changed(name, before, after):
    """The kernel of another text."""
    text = numba_printer.together([kernel_of(name)])
    assert before in text
    return NumbaKernel(text.replace(before, after), kernel_of(name))


def test_bits_are_those_of_one_thread_on_any_number():
    wanted = compiled("log_softmax_kept")(ROWS)[0].tobytes()
    for threads in (2, 3, 64):
        assert compiled("log_softmax_kept")(ROWS, threads=threads)[0].tobytes() == wanted
    assert compiled("log_softmax_kept")(ROWS, pieces=7, order=lambda count: range(count)[::-1])[0].tobytes() == wanted


def test_two_threads_may_call_one_kernel():
    made, wanted = compiled("log_softmax_kept"), compiled("log_softmax_kept")(ROWS)[0].tobytes()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: made(ROWS, threads=2)[0].tobytes(), range(40)))
    assert set(results) == {wanted}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_kernel_runs_in_a_forked_child():
    made, wanted = compiled("log_softmax_kept"), compiled("log_softmax_kept")(ROWS, threads=2)[0].tobytes()
    child = os.fork()
    if child == 0:
        os._exit(0 if made(ROWS, threads=2)[0].tobytes() == wanted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_outputs_go_where_they_are_asked_to():
    made, out = compiled("log_softmax_kept"), np.empty_like(ROWS)
    assert made(ROWS, out=[out])[0] is out
    assert out.tobytes() == made(ROWS)[0].tobytes()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([], "log_softmax_kept has 1 outputs, got 0 to write to"),
        ([np.empty((5, 71), np.float32)], r"wants a writable, packed float32 of shape \(5, 70\) for output 0"),
        ([np.empty((5, 70))], "wants a writable, packed float32"),
        ([np.empty((70, 5), np.float32).T], "wants a writable, packed float32"),
        ([ROWS], "cannot write output 0 over another array; give it its own memory"),
    ],
)
def test_what_cannot_be_written_to(out, message):
    with pytest.raises(InputError, match=message):
        compiled("log_softmax_kept")(ROWS, out=out)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((), "log_softmax_kept takes 1 inputs, got 0"),
        ((ROWS.astype(float),), "x is f32 of rank 2, not float64"),
        ((ROWS[0],), "x is f32 of rank 2"),
    ],
)
def test_arrays_that_do_not_fit(arrays, message):
    with pytest.raises(InputError, match=message):
        compiled("log_softmax_kept")(*arrays)


def test_an_index_out_of_bounds_is_told():
    table, ids = np.ones((3, 4), np.float32), np.array([[0, 3]])
    for pieces in (1, 2):
        with pytest.raises(InputError, match="gathered: an index is outside the axis that it looks into"):
            compiled("gathered").call_guarded(table, ids, pieces=pieces)
    with pytest.raises(InputError, match="an index is outside"):
        compiled("gathered")(table, ids, threads=2)


def test_inputs_of_any_layout_are_taken():
    wide = np.arange(60, dtype=np.float32).reshape(6, 10)
    made = compiled("softmax_inner")
    for view in (wide[::2, 1:9], wide[::-1], wide.T, np.broadcast_to(wide[:1], wide.shape)):
        ends = [buffer.shape for buffer in kernel_of("softmax_inner").buffers]
        arrays = [view] if len(ends) == 2 else [view, *(np.zeros(view.shape, np.float32) for _ in ends[2:])]
        got = made.call_guarded(*arrays)[0]
        assert got.tobytes() == made(*map(np.ascontiguousarray, arrays))[0].tobytes()


# Between guards.


def test_what_is_written_outside_shows():
    """A store of 1 more cell, after each of its own."""
    text = numba_printer.together([kernel_of("any_of_bools")])
    line = next(line for line in text.splitlines() if line.startswith("        v1["))
    made = NumbaKernel(text.replace(line, f"{line}\n        v1[u64(i0 + 1)] = True"), kernel_of("any_of_bools"))
    with pytest.raises(CheckError, match="any_of_bools wrote outside output 0, 1 cells after its end"):
        made.call_guarded(np.ones((3, 4), bool))


def test_what_is_never_written_shows():
    with pytest.raises(CheckError, match=r"log_softmax_kept never wrote 70 cells of output 0; the first is \[4, 0\]"):
        changed("log_softmax_kept", "range(begin, end)", "range(begin, min(end, 4))").call_guarded(ROWS)


def test_an_unknown_status_is_told():
    made = changed("gathered", "return 1", "return 9")
    with pytest.raises(CheckError, match="gathered returned the status 9, which has no meaning"):
        made(np.ones((3, 4), np.float32), np.array([[3]]))


def test_a_text_that_numba_refuses_is_told():
    with pytest.raises(BuildError, match=r"Numba does not compile swiglu \(.*kernel.py\): .*nowhere"):
        changed("swiglu", "    for i", "    nowhere()\n    for i")


# On disk.


def test_what_is_compiled_is_kept(empty_cache):
    """In a folder of the cache; another process loads it, and compiles nothing."""
    made = NumbaKernel(numba_printer.together([kernel_of("swiglu")]), kernel_of("swiglu"))
    assert made.path.read_text("ascii") == numba_printer.together([kernel_of("swiglu")])
    assert made.path.is_relative_to(empty_cache)
    assert list(made.path.parent.glob("__pycache__/*.nbi"))
    script = (
        "from tests.codegen.numba_kernels import compiled; made = compiled('swiglu'); "
        "print(sum(launch.stats.cache_hits[next(iter(launch.stats.cache_hits))] for launch in made._launches))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr


def test_where_the_disk_is_full(empty_cache, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(caching.IndexDataCacheFile, "save", full)
        made = NumbaKernel(numba_printer.together([kernel_of("swiglu")]), kernel_of("swiglu"))
    assert not list(made.path.parent.glob("__pycache__/*.nbc"))
    assert made(ROWS, ROWS)[0].shape == ROWS.shape


def test_scalar_functions_that_are_alike_are_compiled_once_a_process(empty_cache):
    text = numba_printer.together([kernel_of("log_softmax_f64")])
    first, second = (numba_kernel.load(f"# {number}\n{text}")[1] for number in range(2))
    other = numba_kernel.load(text.replace("2.511554176208322e-08", "2.511554176208323e-08"))[1]  # in what exp calls
    assert first["noyau_exp_f64"] is second["noyau_exp_f64"]
    assert first["noyau_exp_f64"] is not other["noyau_exp_f64"]
    assert first["noyau_log_f64"] is other["noyau_log_f64"]


def test_a_missing_numba_names_the_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "numba":
            raise ImportError("No module named 'numba'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    spec = importlib.util.spec_from_file_location("another", numba_kernel.__file__)
    with pytest.raises(MissingExtraError, match=r"numba is not installed; run: pip install 'noyau-kernels\[numba\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_an_output_of_a_negative_size_is_refused():
    made = kernel_of("swiglu")
    buffers = tuple(
        replace(buffer, shape=(buffer.shape[0] - 9, *buffer.shape[1:])) if buffer.role.value == "output" else buffer
        for buffer in made.buffers
    )
    kernel = replace(made, buffers=buffers)
    with pytest.raises(InputError, match=r"swiglu: output 0 would have the shape \(-7, 3\); give larger inputs"):
        NumbaKernel(numba_printer.together([kernel]), kernel)(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
