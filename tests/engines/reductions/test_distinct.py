import numpy as np
import pytest

import noyau
from noyau.engines.laws import check_laws
from noyau.engines.reductions.distinct import hash_values

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")  # kernels, not NumPy

NAMES = ("HyperLogLog", "DistinctSample")


@pytest.mark.parametrize("name", NAMES)
def test_a_distinct_count_is_within_its_bound_and_the_same_in_parts(name):
    counter = getattr(noyau.reductions, name)()
    x = np.random.default_rng(0).integers(0, 10**5, 2 * 10**5)
    whole = counter.over(x)
    assert check_laws(counter).ok
    assert whole == pytest.approx(len(np.unique(x)), rel=0.05)
    assert noyau.stream(counter, x, memory="1M").value == whole
    states = [counter.step(counter.zero(), part) for part in np.array_split(x, 7)]
    while len(states) > 1:
        states.append(counter.merge(states.pop(0), states.pop(0)))
    assert counter.finish(states[0]) == whole
    few = counter.over(x % 1000)
    assert few == 1000 if name == "DistinctSample" else few == pytest.approx(1000, rel=0.03)


def test_hashes_are_of_values():
    assert hash_values([0.0, 1.5]).tolist() == hash_values(np.array([-0.0, 1.5], np.float32)).tolist()
    assert hash_values(np.arange(3, dtype=np.int8)).tolist() == hash_values(np.arange(3, dtype=np.uint64)).tolist()
    assert hash_values(["a", "b", "a"])[[0, 0, 1]].tolist() == hash_values(np.array(["a", "a", "b"], object)).tolist()
    assert hash_values(np.array(["2020-01-01"], "M8[s]"), 1) != hash_values(np.array(["2020-01-01"], "M8[s]"), 2)
    assert len(np.unique(hash_values(np.arange(1000)))) == 1000


def test_registers_are_bounded():
    with pytest.raises(ValueError, match="HyperLogLog has 4 to 18 bits, not 3"):
        noyau.reductions.HyperLogLog(3)


def a_hundred_million(seed):
    """So many distinct values, in parts: odd multiples of a constant are a permutation of 64 bits."""
    for start in range(0, 10**8, 1 << 20):
        yield np.arange(start, min(start + (1 << 20), 10**8), dtype=np.uint64) * np.uint64(
            2 * seed + 0x9E3779B97F4A7C15
        )


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_million_values_are_counted_within_five_percent_in_19_of_20_seeds(name):
    errors = []
    for seed in range(20):
        counter = getattr(noyau.reductions, name)(seed=seed)
        whole, parts, largest = counter.zero(), [counter.zero() for _ in range(5)], 0
        for at, x in enumerate(a_hundred_million(seed)):
            whole = counter.step(whole, x)
            if seed == 0:
                parts[at % 5] = counter.merge(parts[at % 5], counter.step(counter.zero(), x))
            largest = max(largest, len(counter.pack(whole)))
        if seed == 0:
            a, b, c, d, e = parts
            tree = counter.merge(counter.merge(a, counter.merge(b, c)), counter.merge(d, e))
            assert counter.finish(tree) == counter.finish(whole)
        assert largest < 140_000
        errors.append(abs(counter.finish(whole) / 10**8 - 1))
    assert sum(error <= 0.05 for error in errors) >= 19, errors
