"""Inputs of a user's own, from a file or a script."""

from __future__ import annotations

import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.verify.input_files import MOST, first_sample, load_samples, note_of
from tests.jobs.check.sketch import Sketch


@pytest.fixture
def graph():
    sketch = Sketch()
    x = sketch.input("a/x", DType.F32, "b", "s")
    n = sketch.input("n", DType.I64, "s")
    return sketch.graph(x, n)


def load_inputs(path, graph):
    (sample,) = load_samples(path, graph)
    return sample


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_a_file_gives_the_arrays_and_the_sizes(tmp_path, graph):
    x, n = np.ones((2, 5), np.float32), np.arange(5)
    inputs = load_inputs(saved(tmp_path / "in.npz", **{"n": n, "a/x": x}), graph)
    assert list(inputs.arrays) == ["a/x", "n"]
    assert np.array_equal(inputs.arrays["n"], n)
    assert inputs.sizes == {"b": 2, "s": 5}
    assert inputs.notes == ("a/x f32[2, 5]: from in.npz", "n i64[5]: from in.npz")


def test_every_array_that_does_not_fit_is_named(tmp_path, graph):
    path = saved(tmp_path / "in.npz", n=np.zeros((5, 1), np.int64), y=np.zeros(3))
    with pytest.raises(InputError, match=r"a/x is missing; the model has no input y; n has rank 2, not 1"):
        load_inputs(path, graph)
    path = saved(tmp_path / "in.npz", **{"n": np.zeros(5, np.int32), "a/x": np.zeros((1, 5))})
    with pytest.raises(InputError, match=r"a/x is float64, not float32; n is int32, not int64"):
        load_inputs(path, graph)


def test_sizes_that_disagree_are_refused(tmp_path, graph):
    path = saved(tmp_path / "in.npz", **{"n": np.zeros(4, np.int64), "a/x": np.zeros((1, 5), np.float32)})
    with pytest.raises(InputError, match=r"n has shape \(4,\), which does not fit \[s\] where"):
        load_inputs(path, graph)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (self.mark, "w"))


def test_a_pickle_is_never_loaded(tmp_path, graph):
    mark = tmp_path / "mark"
    objects = np.array([Trap(str(mark))], object)
    np.savez(tmp_path / "in.npz", allow_pickle=True, **{"n": objects, "a/x": np.zeros((1, 5), np.float32)})
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Trap(str(mark))))
    with pytest.raises(InputError, match=r"none\.npz cannot be read: No such file or directory$"):
        load_inputs(tmp_path / "none.npz", graph)
    for name in ("in.npz", "plain.npz"):
        with pytest.raises(InputError, match=r"cannot be read as an \.npz file of plain arrays"):
            load_inputs(tmp_path / name, graph)
    assert not mark.exists()


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "folder", "truncated", "bytes", "header", "one array"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, graph, damage):
    path = saved(tmp_path / "in.npz", **{"n": np.zeros(500, np.int64), "a/x": np.zeros((1, 500), np.float32)})
    match damage:
        case "missing" | "folder":
            path.unlink()
            if damage == "folder":
                path.mkdir()
        case "empty" | "text":
            path.write_bytes(b"" if damage == "empty" else b"not a zip\n")
        case "truncated":
            path.write_bytes(path.read_bytes()[:600])
        case "bytes" | "header":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(
                    "n.npy" if damage == "header" else "n", b"\x93NUMPY\x01\x00"[: 8 if damage == "header" else 3]
                )
        case _:
            with path.open("wb") as file:
                np.save(file, np.zeros(3))
    with pytest.raises(InputError, match=r"in\.npz(: n is no array| cannot be read)"):
        load_inputs(path, graph)


def test_a_file_that_would_not_fit_in_memory_is_refused_unread(tmp_path, graph, monkeypatch):
    path = saved(tmp_path / "in.npz", **{"n": np.zeros(10**6, np.int64), "a/x": np.zeros((1, 10**6), np.float32)})
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 1000}.__getitem__)
    monkeypatch.setattr("numpy.load", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(InputError, match=r"its arrays would take 0.0 GB, and this machine has 0.0 GB"):
        load_inputs(path, graph)


def test_big_endian_and_bfloat16_arrays_are_taken(tmp_path):
    sketch = Sketch()
    graph = sketch.graph(sketch.input("x", DType.F32, "s"), sketch.input("y", DType.BF16, "s"))
    values = np.array([1.5, -2.0, 0.25], np.float32)
    path = saved(tmp_path / "in.npz", x=values.astype(">f4"), y=values.astype(ml_dtypes.bfloat16))
    arrays = load_inputs(path, graph).arrays
    assert arrays["x"].dtype == np.float32
    assert np.array_equal(arrays["x"], values)
    assert arrays["y"].dtype == ml_dtypes.bfloat16
    assert np.array_equal(arrays["y"].astype(np.float32), values)


def test_text_is_taken_as_it_is(tmp_path):
    sketch = Sketch()
    graph = sketch.graph(sketch.input("text", DType.OTHER))
    inputs = load_inputs(saved(tmp_path / "in.npz", text=np.array(["a", "b"])), graph)
    assert inputs.arrays["text"].tolist() == ["a", "b"]
    assert inputs.sizes == {}


def script(folder, text):
    path = folder / "mine.py"
    path.write_text(f"import numpy as np\nX, N = np.ones((2, 5), np.float32), np.arange(5)\n{text}\n")
    return path


YIELDS = "def inputs():\n    for rows in (2, 3, 2):\n        yield {'a/x': X[:1].repeat(rows, 0), 'n': N}"


def test_a_script_yields_samples(tmp_path, graph):
    path = script(tmp_path, YIELDS)
    samples = load_samples(path, graph)
    assert [each.sizes for each in samples] == [{"b": 2, "s": 5}, {"b": 3, "s": 5}, {"b": 2, "s": 5}]
    assert samples[1].notes == ("a/x f32[3, 5]: from sample 2 of mine.py", "n i64[5]: from sample 2 of mine.py")
    assert note_of(samples, path) == ("3 samples of mine.py: each is checked, and of each sizes the first is timed",)
    assert first_sample(path, graph).notes[-1] == "the first sample of mine.py: others are not looked at"


def test_a_list_is_as_good_as_a_function_and_arrays_may_be_filled_again(tmp_path, graph):
    assert len(load_samples(script(tmp_path, "inputs = [{'a/x': X, 'n': N}] * 2"), graph)) == 2
    text = "def inputs():\n    for number in (7, 8):\n        X[:] = number\n        yield {'a/x': X, 'n': N}"
    found = load_samples(script(tmp_path, text), graph)
    assert [each.arrays["a/x"].max() for each in found] == [7, 8]


def test_of_many_samples_the_first_are_taken(tmp_path, graph):
    path = script(tmp_path, "import itertools\ndef inputs():\n    return itertools.repeat({'a/x': X, 'n': N})")
    samples = load_samples(path, graph)
    assert len(samples) == MOST + 1
    assert note_of(samples, path)[0].endswith("; it yields more than the 16 that are taken")


def test_nan_is_allowed_and_said(tmp_path, graph):
    path = script(tmp_path, "X[0, :2] = np.nan, np.inf\ninputs = [{'a/x': X, 'n': N}]")
    note = "a/x f32[2, 5]: from sample 1 of mine.py, of which 2 cells are NaN or infinite"
    assert load_samples(path, graph)[0].notes[0] == note
    one = saved(tmp_path / "in.npz", **{"a/x": np.full((1, 1), np.nan, np.float32), "n": np.zeros(1, np.int64)})
    assert load_inputs(one, graph).notes[0].endswith("from in.npz, of which 1 cell is NaN or infinite")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"mine\.py has no `inputs`: name so a function that yields dicts of arrays"),
        ("def inputs():\n    yield from ()", r"mine\.py: its inputs yield no sample; give a function"),
        ("inputs = [[X, N]]", r"mine\.py: sample 1 is list, no dict: inputs is a function"),
        ("inputs = 3", r"mine\.py: its inputs fail after 0 samples with TypeError: 'int' object is not iterable"),
        ("def inputs(rng):\n    yield {}", r"its inputs fail after 0 samples with TypeError: inputs\(\) missing 1 req"),
        (YIELDS + "\n    raise OSError('no disk')", r"its inputs fail after 3 samples with OSError: no disk"),
        ("inputs = [{'a/x': X}]", r"sample 1 of mine\.py does not fit the model: n is missing"),
        ("inputs = [{'a/x': X, 'n': N, 'm': N}]", r"sample 1 of mine\.py .*: the model has no input m"),
        ("inputs = [{'a/x': X, 'n': N}, {'a/x': X * 1j, 'n': N}]", r"sample 2 .*: a/x is complex64, not float32"),
        ("inputs = [{'a/x': [[X], []], 'n': N}]", r"fail after 1 sample with ValueError|a/x is object, not float32"),
        ("inputs = [{'a/x': X[0], 'n': N}]", r"sample 1 of mine\.py does not fit the model: a/x has rank 1, not 2"),
        ("inputs = [{'a/x': X, 'n': N[:4]}]", r"sample 1 of mine\.py does not fit the model: n has shape \(4,\)"),
        ("raise ValueError('unready')", r"mine\.py fails with ValueError: unready"),
    ],
)
def test_a_script_that_gives_no_inputs_is_refused(tmp_path, graph, text, told):
    with pytest.raises(InputError, match=told):
        load_samples(script(tmp_path, text), graph)
