from __future__ import annotations

import ctypes
import errno

import ml_dtypes
import numpy as np
import pytest

from noyau.errors import BuildError, OutputError
from noyau.hosts.numpy import c_library as numpy_c_library
from noyau.hosts.numpy.c_library import library, reads_arrays
from noyau.hosts.numpy.fast_calls import reads_scalars
from noyau.toolchain.c import compiler as c_compiler


def test_it_is_built_once_and_reads_arrays():
    made = library()
    assert made is not None and made is library()
    assert made.fast_calls


def test_arrays_are_read_where_they_are_and_nowhere_else():
    assert reads_arrays()
    assert reads_arrays(object.__basicsize__)
    wrong = [object.__basicsize__ + shift for shift in (-8, 8, 16, 1000)]
    assert [reads_arrays(head) for head in wrong] == [False] * 4


@pytest.mark.parametrize("head", [16, 32])
def test_the_fields_lie_behind_a_head_of_any_size(head):
    """As of an object of Python with a lock and two counts: a free-threaded build has 16 bytes more."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2]
    fields = ctypes.string_at(id(array) + object.__basicsize__, ctypes.sizeof(numpy_c_library._Fields))
    kind = ctypes.string_at(id(array) + object.__basicsize__ - 8, 8)
    object_bytes = ctypes.create_string_buffer(bytes(head - 8) + kind + fields)
    read = numpy_c_library._Fields.from_address(ctypes.addressof(object_bytes) + head)
    assert (read.data, read.nd, read.flags) == (array.ctypes.data, 2, array.flags.num)
    assert [read.strides[axis] for axis in range(2)] == [12, 8]
    assert numpy_c_library._is_read(array, object.__basicsize__)
    assert not numpy_c_library._is_read(array, object.__basicsize__ - 8)


@pytest.mark.parametrize(
    "kind",
    [np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.float16, np.float32, np.float64, ml_dtypes.bfloat16],
)
def test_scalars_are_their_bytes(kind):
    assert reads_scalars(np.dtype(kind))


def test_what_is_no_plain_scalar_is_not_read():
    assert not reads_scalars(np.dtype("U3"))


def test_without_a_compiler_there_is_none(monkeypatch):
    def refused(*_: object) -> None:
        raise BuildError("no C compiler")

    monkeypatch.setattr(c_compiler, "compile_library", refused)
    assert numpy_c_library.open_texts(*numpy_c_library.FILES) is None


def test_a_numpy_that_is_laid_out_otherwise_has_no_fast_calls(monkeypatch):
    monkeypatch.setattr(numpy_c_library, "reads_arrays", lambda: False)
    made = numpy_c_library.open_texts(*numpy_c_library.FILES)
    assert made is not None and not made.fast_calls


def test_without_numpy_s_table_results_are_made_in_python(monkeypatch):
    monkeypatch.setattr(numpy_c_library.np, "_core", None, raising=False)
    monkeypatch.setattr(numpy_c_library.np, "core", None, raising=False)
    assert numpy_c_library._new_array() == 0


def test_what_there_was_no_room_for_is_tried_again_but_not_at_once(monkeypatch):
    tries, now = [], [1000.0]

    def full(*_: object) -> None:
        tries.append(1)
        raise OutputError("no room") from OSError(errno.ENOSPC, "as the disk says")

    loading = numpy_c_library.Loader("letters", lambda: numpy_c_library.open_texts(*numpy_c_library.FILES))
    monkeypatch.setattr(numpy_c_library, "monotonic", lambda: now[0])
    with monkeypatch.context() as during:
        during.setattr(c_compiler, "compile_library", full)
        told = "which letters are read by, cannot be built now: no room; Python reads them"
        with pytest.warns(RuntimeWarning, match=told):
            assert [loading(), loading()] == [None, None]
        assert len(tries) == 1
    assert loading() is None and loading.awaits_room()
    now[0] += numpy_c_library.AGAIN_S
    assert not loading.awaits_room()
    assert loading() is loading() is not None


def test_in_a_cache_that_cannot_be_written_at_all_there_is_none(monkeypatch):
    def read_only(*_: object) -> None:
        raise OutputError("read-only") from OSError(errno.EROFS, "as the disk says")

    monkeypatch.setattr(c_compiler, "compile_library", read_only)
    assert numpy_c_library.open_texts(*numpy_c_library.FILES) is None
