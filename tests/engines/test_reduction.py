from functools import partial

import numpy as np
import pytest

import noyau
from noyau.engines.laws import check_laws, is_near, load_checked, load_target
from noyau.engines.reduction import as_reduction
from noyau.errors import CheckError, InputError, SignatureError

COUNTED = (noyau.reductions.Top, noyau.reductions.Reservoir, noyau.reductions.Nearest)


@noyau.reduction
class Extent:
    def zero(self):
        return np.inf, -np.inf

    def step(self, state, x):
        return min(state[0], x.min()), max(state[1], x.max())

    def merge(self, a, b):
        return min(a[0], b[0]), max(a[1], b[1])

    def finish(self, state):
        return state[1] - state[0]


def variant(name="Broken", **methods):
    facts = {key: methods.pop(key) for key in ("version", "in_order", "sequential") if key in methods}
    plain = {each: getattr(Extent, each) for each in ("zero", "step", "merge", "finish")}
    return noyau.reduction(**facts)(type(name, (), {**plain, **methods}))


def test_a_state_is_little_endian_bytes_with_a_version():
    extent = Extent()
    content = extent.pack((np.array([1.5, 2], ">f8"), 3))
    back = extent.unpack(content)
    assert (back[0].tolist(), back[1]) == ([1.5, 2], 3)
    assert back[0].dtype == np.dtype(float) and b"<f8" in content and b">f8" not in content
    assert extent.unpack(extent.pack({"a": 1}))["a"] == extent.unpack(extent.pack(1)) == 1
    with pytest.raises(InputError, match="are no state of Extent"):
        extent.unpack(content[:40])
    with pytest.raises(InputError, match="of Extent, version 1, not of Extent, version 2"):
        variant("Extent", version=2)().unpack(content)
    with pytest.raises(SignatureError, match="part 0 of a state is no array"):
        extent.pack((object(),))


@pytest.mark.parametrize("columns", [(np.empty(0),), (np.empty((0, 3)),)], ids=["numbers", "vectors"])
def test_no_rows_have_a_result(columns):
    """Of each reduction that noyau has, also as a chunk among others."""
    kinds = [kind for kind in vars(noyau.reductions).values() if isinstance(kind, type)]
    assert len(kinds) == 11
    for kind in kinds:
        one = kind(((0.0, 0.0, 0.0),)) if kind is noyau.reductions.Nearest and columns[0].ndim == 2 else kind()
        if columns[0].ndim == 2 and not {"TallQR", "LeastSquares", "Nearest"} & {one.name}:
            continue
        beside = {"y": np.empty(0), "key": np.empty(0, np.int64)}
        result = one.over(*(beside.get(name, columns[0]) for name in one.columns))
        assert result is not None
        maker, rng = getattr(one, "inputs", None), np.random.default_rng(0)
        some = [*(maker(rng, 50) if maker else {name: rng.normal(size=50) for name in one.columns}).values()]
        states = [one.step(one.zero(), *(each[:0] for each in some)), one.step(one.zero(), *some)]
        assert is_near(one.finish(one.merge(*states)), one.over(*some))


@pytest.mark.parametrize(
    "call",
    [
        *(partial(kind, count=count) for kind in COUNTED for count in (-1, 2.5, "two", None)),
        *(partial(noyau.reductions.Quantiles, at) for at in (1.5, (-0.1,), (np.nan,), ("half",))),
        *(partial(noyau.reductions.Histogram, *each) for each in ((0, 0), (1, 0), (0, np.inf), (np.nan, 1))),
        *(partial(noyau.reductions.Histogram, 0, 1, bins) for bins in (0, -1, 2.5)),
        *(partial(noyau.reductions.DistinctSample, eps) for eps in (0, -1, 2, np.nan)),
        *(partial(noyau.reductions.HyperLogLog, bits) for bits in (3, 4.5, "four")),
    ],
    ids=str,
)
def test_parameters_that_fit_no_rows_are_refused_before_rows_come(call):
    with pytest.raises(ValueError, match=r"give |4 to 18 bits|could not convert"):
        call()


def test_a_count_of_nothing_and_columns_of_other_lengths():
    key = np.arange(9)
    assert noyau.reductions.Top(0).over(key * 1.0).size == 0
    assert noyau.reductions.Reservoir(0).over(key, key).size == 0
    assert noyau.reductions.Nearest(count=0).over(key, key)["key"].shape == (1, 0)
    assert noyau.reductions.Nearest(np.empty((0, 2))).over(key, np.ones((9, 2)))["key"].shape[0] == 0
    assert noyau.reductions.Quantiles(0.5).over(key).shape == (1,)
    with pytest.raises(InputError, match=r"^Reservoir takes columns of one length, and these have 9, 8 rows$"):
        noyau.reductions.Reservoir().over(key, key[:8])


def test_what_is_no_reduction_is_refused():
    with pytest.raises(SignatureError, match="it has no zero"):
        noyau.reduction(type("Nothing", (), {}))
    with pytest.raises(SignatureError, match="it is no class"):
        noyau.reduction(len)
    with pytest.raises(SignatureError, match="Sized needs other parameters"):
        as_reduction(variant("Sized", __init__=lambda self, size: None))


@pytest.mark.parametrize(
    ("law", "methods"),
    [
        ("merge(zero, s) is not s", {"merge": lambda self, a, b: a}),
        ("merge(s, zero) is not s", {"merge": lambda self, a, b: b, "in_order": True}),
        (
            "merge is not associative",
            {"merge": lambda self, a, b: b if a[0] > a[1] else a if b[0] > b[1] else (a[0], (a[1] + b[1]) / 2)},
        ),
        ("merged chunks are not one pass", {"step": lambda self, state, x: (x.min(), x.max())}),
        (
            "merge is not commutative",
            {"step": lambda self, state, x: (0.0, x[-1]), "merge": lambda self, a, b: b if b[1] > -9 else a},
        ),
        ("it depends on where a chunk ends", {"step": lambda self, s, x: (min(s[0], x.mean()), max(s[1], x.mean()))}),
        ("a state is not what its bytes give back", {"unpack": lambda self, content: (0.0, 1.0)}),
        ("ZeroDivisionError", {"finish": lambda self, state: 1 / 0}),
    ],
)
def test_a_broken_law_is_named(law, methods):
    check = noyau.check(variant(**methods))
    assert law in check.findings[0].message
    assert not check.ok and not check.is_verified
    if methods.get("in_order") is None:
        with pytest.raises(CheckError, match="Broken is no monoid"):
            noyau.stream(variant(**methods), np.arange(9.0))


def test_laws_that_hold_are_told():
    check = check_laws(Extent())
    assert check.ok and check.is_verified and "its laws hold in 12 rounds" in str(check)
    assert check_laws(variant(sequential=True, merge=None)()).ok
    with pytest.raises(SignatureError, match="makes no column x"):
        check_laws(variant(inputs=lambda self, rng, n: {})())


def test_the_example_is_a_monoid():
    mean = load_target("examples/reductions.py::WeightedMean", {"above": 1.0})
    assert check_laws(mean).ok
    assert mean.over(np.array([1.0, 5, 9]), np.array([1.0, 2, 3])) == pytest.approx(37 / 5)


def test_a_file_of_ops_runs_once(tmp_path):
    file = tmp_path / "ops.py"
    text = "import noyau\n\n\n@noyau.op('f64[n] -> f64[n]')\ndef double(x):\n    return 2 * x\n"
    file.write_text(text + f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n")
    assert load_target(f"{file}::double").name == "double"
    assert [op.name for target in (file, f"{file}::double") for op in load_checked(str(target))[0]] == ["double"] * 2
    assert (tmp_path / "runs").read_text() == "xxx"  # three calls
