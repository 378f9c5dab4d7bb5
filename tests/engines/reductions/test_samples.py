import numpy as np
import pytest

import noyau
from noyau.engines.laws import check_laws
from noyau.engines.reductions.distinct import hash_values

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")  # kernels, not NumPy

NOISE = np.random.default_rng(0)


def test_the_largest_values():
    x = NOISE.integers(-(2**62), 2**62, 9000)
    assert noyau.stream(noyau.reductions.Top(7), x, memory="100K").value.tolist() == np.sort(x)[-7:][::-1].tolist()
    assert noyau.reductions.Top(2).over(np.array([1, np.nan, 3, 2])).tolist() == [3, 2]
    for values in (np.where(x > 1, np.nan, x), np.where(np.arange(len(x)) % 64, x, np.nan), np.round(x), np.zeros(999)):
        want = np.sort(values[~np.isnan(values)])[-7:][::-1]
        assert noyau.reductions.Top(7).over(values).tolist() == want.tolist()
    assert check_laws(noyau.reductions.Top()).ok


def test_a_reservoir_is_its_plain_form():
    key = NOISE.permutation(20_000)
    sample = noyau.reductions.Reservoir(50, seed=3)
    plain = key[np.argsort(hash_values(key, 3))[:50]] * 2
    columns = {"key": np.r_[key, key], "x": np.r_[key, key] * 2}  # rows that come again count once
    assert noyau.stream(sample, columns, memory=24 * 16 * 999).value.tolist() == plain.tolist()
    assert sample.over(key[:20], key[:20]).size == 20
    assert check_laws(sample).ok


def test_every_row_of_a_reservoir_is_as_likely():
    """1000 samples of 20 of 200 rows: 100 times each, give or take 9.5; chi squared of 199 degrees below 270 in all but
    one of a thousand."""
    rows, counts = np.arange(200), np.zeros(200)
    for seed in range(1000):
        counts[noyau.reductions.Reservoir(20, seed).over(rows, rows)] += 1
    assert counts.sum() == 20_000
    assert ((counts - 100) ** 2 / (100 * 0.9)).sum() < 270


def test_the_nearest_rows_are_those_of_all_distances():
    x, queries = NOISE.integers(0, 9, (2000, 2)) * 1.0, NOISE.normal(size=(3, 2)) * 3 + 4
    nearest = noyau.reductions.Nearest(queries, count=11)
    result = noyau.stream(nearest, {"key": np.arange(2000)[::-1], "x": x}, memory=24 * 24 * 256).value
    distances = np.linalg.norm(x[::-1][None] - queries[:, None], axis=-1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :11]  # of equal ones, the lesser keys
    assert result["key"].tolist() == order.tolist()
    np.testing.assert_allclose(result["distance"], np.take_along_axis(distances, order, 1))
    assert check_laws(noyau.reductions.Nearest(queries)).ok
    assert nearest.over(np.arange(4), x[:4])["key"].shape == (3, 4)


def test_a_parameter_that_does_not_fit_is_named():
    with pytest.raises(noyau.errors.SignatureError, match="Top needs other parameters"):
        noyau.stream(noyau.reductions.Top, np.zeros(3), arguments={"size": 3})
