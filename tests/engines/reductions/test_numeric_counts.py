import numpy as np
import pytest

import noyau
from noyau.engines.laws import check_laws

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")  # kernels, not NumPy


def test_a_histogram_is_numpys():
    edges = np.linspace(-1, 2, 31)
    x = np.r_[np.random.default_rng(0).normal(size=3000), edges, np.nextafter(edges, 9), np.nextafter(edges, -9)]
    result = noyau.reductions.Histogram(-1, 2, 30).over(np.r_[x, np.nan, np.inf, -np.inf])
    counts, same = np.histogram(x, 30, (-1, 2))
    assert result["counts"].tolist() == counts.tolist() and result["edges"].tolist() == same.tolist()
    assert (result["below"], result["above"], result["nan"]) == ((x < -1).sum() + 1, (x > 2).sum() + 1, 1)
    assert check_laws(noyau.reductions.Histogram()).ok


@pytest.mark.parametrize("scale", [1.0, -3e-9, 1e20])
def test_a_quantile_is_within_its_bound(scale):
    x, at = np.random.default_rng(0).lognormal(sigma=3, size=4001) * scale, [0, 0.01, 0.5, 0.99, 1]
    quantiles = noyau.reductions.Quantiles(at)
    want = np.quantile(x, at, method="inverted_cdf")
    parts = [quantiles.step(quantiles.zero(), part) for part in (x[:7], np.r_[x[7:], np.nan])]
    got = quantiles.finish(quantiles.merge(*parts))
    assert np.all(abs(got - want) <= 2**-8 * abs(want))


def test_quantiles_of_both_signs_of_infinities_and_of_nothing():
    quantiles = noyau.reductions.Quantiles([0, 0.5, 1])
    assert quantiles.over(np.array([-np.inf, 5, np.inf])).tolist() == [-np.inf, pytest.approx(5, rel=2**-8), np.inf]
    assert quantiles.over(np.arange(-9.0, 10))[[0, 2]].tolist() == pytest.approx([-9, 9], rel=2**-8)
    assert np.isnan(quantiles.over(np.array([np.nan]))).all()
    assert check_laws(quantiles).ok
