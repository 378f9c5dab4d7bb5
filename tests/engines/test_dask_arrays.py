import dask
import dask.array as da
import numpy as np
import pytest

import noyau
from noyau.errors import InputError, SignatureError, UnsupportedError
from tests.engines.engine_cases import COLUMNS, WANT, group_sums, highest, scaled

X, KEY = (da.from_array(COLUMNS[name], chunks=size) for name, size in (("x", 700), ("key", 500)))
BOTH = np.stack([COLUMNS["x"], COLUMNS["key"]], axis=1)


def test_an_op_gives_a_lazy_array():
    totals, twice = group_sums(KEY, X), scaled(X[X > 3], by=2.0)
    assert isinstance(totals, da.Array) and totals.shape == (5,) and totals.compute().tolist() == WANT
    assert isinstance(twice, da.Array) and np.array_equal(twice.compute(), 2 * COLUMNS["x"][COLUMNS["x"] > 3])
    assert dask.compute(*highest(X)) == highest(COLUMNS["x"])
    assert group_sums(COLUMNS["key"], da.from_array(COLUMNS["x"], chunks=30)).compute().tolist() == WANT  # a tree


def test_other_axes_are_whole():
    wide = da.from_array(BOTH, chunks=(400, 1))
    gram = noyau.op("f64[n, k] -> f64[k, k]", name="gram")(lambda x: x.T @ x)
    assert np.allclose(gram(wide).compute(), BOTH.T @ BOTH)
    both = noyau.op("f64[n, k], f64[k] -> y: f64[n, k], s: f64[n]", name="both")(lambda x, w: (x * w, (x * w).sum(1)))
    results = both(wide, np.array([1.0, 2.0]))
    assert [each.shape for each in results] == [BOTH.shape, BOTH.shape[:1]]
    weighted = BOTH * [1, 2]
    for got, want in zip(dask.compute(*results), (weighted, weighted.sum(1)), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "message", "run"),
    [
        (InputError, "are not one number of rows", lambda: group_sums(KEY, X[:100])),
        (InputError, "by has no rows, and is an array of Dask", lambda: scaled(X, da.ones(()))),
        (SignatureError, "takes neither constants nor out=", lambda: scaled(X, 2.0, out=np.empty(3000))),
        (UnsupportedError, "which takes two passes", lambda: noyau.op("f64[n] -> f64[n]")(lambda x: x - x.mean())(X)),
    ],
)
def test_what_does_not_fit_is_one_error(kind, message, run):
    with pytest.raises(kind, match=message):
        run()


def test_a_lesser_cpu_runs_the_reference_and_says_so(monkeypatch):
    monkeypatch.setattr("noyau.engines.work.c_compiler.level_of", lambda machine, flags: "x86-64-v2")
    with monkeypatch.context() as patch:
        patch.setattr("noyau.engines.work.c_compiler.level_of", lambda machine, flags: "x86-64-v9")
        twice = scaled(X, 2.0)
    with pytest.warns(RuntimeWarning, match="this processor is x86-64-v2, and kernels are for x86-64-v9; scaled ran"):
        assert np.array_equal(twice.compute(scheduler="synchronous"), 2 * COLUMNS["x"])
