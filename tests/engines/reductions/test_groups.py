import numpy as np
import pyarrow as pa
import pytest

import noyau
from noyau.engines.laws import check_laws
from noyau.errors import InputError

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")  # kernels, not NumPy

NOISE = np.random.default_rng(0)
X = NOISE.normal(size=3000) + 1e6
KEYS = {
    "few": NOISE.integers(-5, 5, 3000),
    "far apart": NOISE.integers(0, 9, 3000) * (1 << 58),
    "texts": NOISE.choice(["a", "bb", "ccc"], 3000).astype(object),
    "days": np.array(["2020-01-01", "2021-01-01"], "M8[D]")[NOISE.integers(0, 2, 3000)],
}


@pytest.mark.parametrize("keys", KEYS)
def test_groups_are_those_of_each_key(keys):
    key = KEYS[keys]
    result = noyau.stream(noyau.reductions.GroupMoments, {"key": key, "x": X}, memory=24 * 16 * 500).value
    names = np.unique(key.astype(str) if keys == "texts" else key)
    assert result["key"].tolist() == names.tolist()
    for at, name in enumerate(names):
        rows = X[key == name]
        assert result["rows"][at] == len(rows)
        assert result["sum"][at] == pytest.approx(rows.sum(), rel=1e-14)
        assert result["variance"][at] == pytest.approx(rows.var(), rel=1e-8)  # where the mean is 1e6 times as large


def test_sums_of_integers_are_exact_and_an_overflow_is_told():
    groups, key = noyau.reductions.GroupMoments(), np.zeros(8, int)
    assert groups.over(key, np.full(8, 2**59 + 1))["sum"].tolist() == [2**62 + 8]
    assert groups.over(np.arange(8), np.full(8, 2**62 + 1))["sum"].tolist() == [2**62 + 1] * 8
    half = groups.step(groups.zero(), key, np.full(8, 2**59))
    with pytest.raises(InputError, match="GroupMoments: a sum of int64 overflows: make float64 of its column"):
        groups.merge(half, half)
    for numbers in (np.full(8, 2**60), np.full(8, 2**63, np.uint64)):
        with pytest.raises(InputError, match="overflows"):
            groups.over(key, numbers)


def test_moments_of_all_rows():
    moments = noyau.stream(noyau.reductions.Moments, pa.table({"x": X}), memory=24 * 8 * 400).value
    assert (moments["rows"], moments["mean"]) == (3000, pytest.approx(X.mean()))
    assert moments["variance"] == pytest.approx(X.var(), rel=1e-8)
    assert noyau.reductions.Moments().finish(noyau.reductions.Moments().zero())["rows"] == 0
    assert check_laws(noyau.reductions.Moments()).ok and check_laws(noyau.reductions.GroupMoments()).ok
