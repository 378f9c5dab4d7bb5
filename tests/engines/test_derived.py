import numpy as np
import pytest

import noyau
from noyau.engines.derived import derive
from noyau.engines.laws import check_laws
from noyau.errors import InputError, SignatureError, UnsupportedError


@noyau.op("f32[n] -> m: f32, s: f64, t: bool")
def moments(x):
    return np.mean(x), (x.astype(np.float64) ** 2).sum(), x.max() > 2


@noyau.op("f64[n, k], f64[n] -> xx: f64[k, k], xy: f64[k]")
def normal_equations(x, y):
    return x.T @ x, x.T @ y


@noyau.op("i64[n], f64[n] -> f64[g]", sizes={"g": 5})
def group_sums(key, x):
    out = np.zeros(5)
    np.add.at(out, key, x)
    return out


@noyau.op("f64[n], f64 -> at: i64, log: f64, least: f64[2]")
def places(x, scale):
    return np.argmax(x), np.log(np.exp(x * scale).sum()), np.stack([x.min(), x.max()])


@noyau.op("f64[n, k] -> f64[k]")
def of_products(x):
    return np.prod(np.cumsum(np.concatenate([x, x[:, ::-1]], axis=1), axis=1)[:, :3], axis=0)


def inputs():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3))
    yield moments, [x[:, 0].astype(np.float32)]
    yield normal_equations, [x, x[:, 1]]
    yield group_sums, [rng.integers(-5, 5, 100), x[:, 0]]
    yield places, [x[:, 0], np.float64(2)]
    yield of_products, [x / 8 + 1]


@pytest.mark.parametrize(("op", "arrays"), list(inputs()), ids=lambda each: getattr(each, "name", ""))
def test_chunks_give_what_one_pass_does(op, arrays):
    columns = dict(zip(op.description.reference.parameters, arrays, strict=True))
    reduction = derive(op, columns)
    state = reduction.zero()
    for first, last in ((0, 1), (1, 30), (30, 30), (30, 100)):
        chunk = reduction.step(reduction.zero(), *(columns[name][first:last] for name in reduction.columns))
        state = reduction.merge(state, reduction.unpack(reduction.pack(chunk)))
    results, wants = reduction.finish(state), op.reference(*arrays)
    pairs = zip(results, wants, strict=True) if isinstance(wants, tuple) else [(results, wants)]
    for result, want in pairs:
        np.testing.assert_allclose(result, want, rtol=1e-5)
        assert result.dtype == np.asarray(want).dtype


def test_no_rows_give_what_numpy_does():
    sums = derive(group_sums, {"key": np.zeros(0, int), "x": np.zeros(0)})
    assert sums.finish(sums.zero()).tolist() == [0.0] * 5
    largest = derive(moments, {"x": np.zeros(0, np.float32)})
    with pytest.raises(InputError, match="moments: no row came through"):
        largest.finish(largest.zero())


def test_a_derived_reduction_keeps_the_laws():
    assert check_laws(derive(moments, {"x": np.zeros(0, np.float32)})).ok
    assert derive(places, {"x": np.zeros(0), "scale": 1.0}).in_order


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda x: x - x.mean(), "takes two passes"),
        (lambda x: x[::-1], "moves rows"),
        (lambda x: np.cumsum(x), "combines a row with others"),
        (lambda x: x * np.arange(len(x)), "reads the number of a row"),
    ],
)
def test_what_needs_all_rows_at_once_is_refused(function, fault):
    with pytest.raises(UnsupportedError, match=fault):
        derive(noyau.op("f64[n] -> f64[n]", name="whole")(function), {"x": np.zeros(0)})


def test_what_has_no_rows_is_refused():
    with pytest.raises(SignatureError, match="no input has rows"):
        derive(noyau.op("f64 -> f64")(lambda x: x + 1), {"x": np.float64(1)})
    both = noyau.op("f64[n] -> a: f64, b: f64[n]", name="both")(lambda x: (x.sum(), x))
    with pytest.raises(UnsupportedError, match="make two ops"):
        derive(both, {"x": np.zeros(0)})
    begun = noyau.op("i64[n] -> f64[5]", name="begun")(counted_from_one)
    with pytest.raises(UnsupportedError, match="combines a row with others"):
        derive(begun, {"key": np.zeros(0, int)})


def counted_from_one(key):
    out = np.ones(5)
    np.add.at(out, key, 1.0)
    return out


def test_kernels_that_are_wrong_do_not_run(monkeypatch):
    monkeypatch.setattr("noyau.engines.derived.array_runner", lambda built: lambda *arrays: [np.array(-1.0)] * 3)
    reduction = derive(moments, {"x": np.zeros(0, np.float32)})
    assert reduction.over(np.arange(4, dtype=np.float32))[0] == 1.5


@noyau.op("f64[n] -> f64")
def total_and(x, *, more=0.0):
    return x.sum() + more


@noyau.op("f64[n] -> y: f64[n]")
def moved_by(x, *, more=0.0):
    return x + more


@pytest.mark.parametrize("engine", ["local", "threads"])
def test_constants_of_an_op_are_among_its_arguments(engine, tmp_path):
    x, more = np.arange(10.0), {"more": 1.5}
    assert noyau.stream(total_and, x, arguments=more, engine=engine).value == 46.5
    noyau.stream(moved_by, x, tmp_path / "y.npy", arguments=more, engine=engine)
    assert np.load(tmp_path / "y.npy").tolist() == (x + 1.5).tolist()
    for op, sink in ((total_and, None), (moved_by, tmp_path / "z.npy")):
        with pytest.raises(SignatureError, match=f"^{op.name} has no parameter less; it takes x, more$"):
            noyau.stream(op, x, sink, arguments={"less": 1.5}, engine=engine)
