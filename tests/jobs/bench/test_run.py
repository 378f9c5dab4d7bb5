from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np
import pytest

import noyau
from noyau.errors import CheckError, InputError, SignatureError
from noyau.jobs.bench import track
from noyau.jobs.bench.record import Workload
from noyau.jobs.bench.run import combinations
from noyau.timing import sides
from tests.jobs.bench.samples import add_op


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch):
    """Cold inputs are made in no time."""
    for module in (sides, track):
        monkeypatch.setattr(module, "last_level_bytes", lambda: 1 << 20)


def inputs(rng, n=100):
    return rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)


def test_the_reference_the_kernels_and_the_peers_of_an_op_are_timed_together():
    found = noyau.bench(add_op(), peers={"np.add": np.add}, sizes={"n": 200}, budget_s=0.1)
    (at,) = found.at
    assert at.sizes == {"n": 200}
    assert [row.name for row in at.rows][:4] == ["reference", "by_cells", "twin", "in_numpy"]
    assert at.rows[-1].name == "np.add"
    assert {row.name for row in at.ranked} >= {"reference", "by_cells", "in_numpy", "np.add"}
    assert at.against == "reference"
    rounds = {len(samples) for samples in at.races["hot"].series.seconds}
    assert len(rounds) == 1
    assert at.time_s("np.add", "out=") > 0 and at.time_s("reference", "out=") is None


def test_what_is_wrong_is_told_with_its_cell_and_has_no_rank():
    found = noyau.bench(add_op(), sizes={"n": 200}, budget_s=0.1)
    (twin,) = [row for row in found.at[0].rows if row.name == "twin"]
    assert "out[199]" in twin.fault
    assert twin not in found.at[0].ranked
    assert not found.ok
    with pytest.raises(CheckError, match=r"add: twin \[c\] is not ranked: wrong at out\[199\]"):
        found.raise_if_bad()
    assert "twin [c] is wrong: wrong at out[199]" in str(found)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"sizes": 3}, "sizes=3 names no size"),
        ({"sizes": {"n": "a"}}, "n is 'a', and a size is an integer from 0"),
        ({"sizes": {"n": [8, -1]}}, "n is -1, and a size is an integer from 0"),
        ({"sizes": {"n": 2.5}}, "n is 2.5, and a size is an integer from 0"),
        ({"budget_s": -1}, "budget_s=-1 is no number of seconds above 0: budget_s=1"),
        ({"budget_s": "a"}, "budget_s='a' is no number of seconds above 0"),
        ({"peers": abs}, "peers=<built-in function abs> has no names"),
    ],
)
def test_wishes_that_are_none(said, told):
    with pytest.raises(InputError, match=re.escape(told)):
        noyau.bench({"a": np.exp, "b": np.exp}, lambda rng, n=8: (np.ones(n),), **said)


def test_sizes_may_be_any_integers():
    assert combinations({"n": np.arange(2), "m": range(1)}) == [{"n": 0, "m": 0}, {"n": 1, "m": 0}]


def test_a_peer_that_is_wrong_is_timed_and_not_ranked():
    (at,) = noyau.bench(add_op(), peers={"off": np.subtract}, sizes={"n": 50}, budget_s=0.05).at
    assert at.rows[-1].fault and at.time_s("off") > 0
    assert "off" not in [row.name for row in at.ranked]


def test_functions_are_compared_with_the_first_and_judged_by_it():
    found = noyau.bench(
        {"loop": lambda x, y: np.array([a + b for a, b in zip(x, y, strict=True)]), "add": np.add, "off": np.subtract},
        inputs,
        sizes={"n": [50, 100]},
        budget_s=0.1,
    )
    assert [at.sizes for at in found.at] == [{"n": 50}, {"n": 100}]
    for at in found.at:
        assert at.best == "add" and at.comparison("add").speedup > 2
        assert "wrong at" in at.rows[2].fault
    assert found.best == "add"


def test_a_sum_in_another_order_is_right_in_float64_too():
    x = np.random.default_rng(0).standard_normal(1000)
    found = noyau.bench(
        {"loop": lambda x: sum(x.tolist()), "numpy": np.sum, "less": lambda x: x[:-1].sum()}, (x,), budget_s=0.1
    )
    assert [row.name for row in found.at[0].ranked] == ["numpy", "loop"]
    assert found.at[0].rows[2].fault.startswith("wrong at output 0[]")


def test_a_reference_that_returns_a_view_is_timed_with_memory_of_its_own():
    def turned(x):
        return x.T

    op = noyau.op("f32[m, n] -> f32[n, m]")(turned)
    found = noyau.bench(op, sizes={"m": 3, "n": 40}, budget_s=0.05, peers={"np": lambda x: x.T.copy()})
    (at,) = found.at
    assert found.ok and {row.name for row in at.ranked} >= {"reference", "np"}


def test_the_reference_is_not_judged_by_itself_in_another_order_of_memory():
    op = noyau.op("f32[m, n] -> f32[m]")(lambda x: x.sum(1))
    x = np.random.default_rng(0).random((30, 3000), np.float32)
    (at,) = noyau.bench(op, (np.asfortranarray(x),), budget_s=0.05).at
    assert at.against == "reference"


def test_an_op_may_be_one_of_several_functions():
    op = noyau.op("f32[n] -> f32[n]")(lambda x: x * 2)
    found = noyau.bench({"op": op, "numpy": lambda x: x + x}, (np.ones(30, np.float32),), budget_s=0.05)
    assert found.ok and len(found.at[0].ranked) == 2
    assert found.at[0].time_s("op", "out=") > 0 and found.at[0].time_s("numpy", "out=") is None


def test_numbers_and_whatever_is_no_array_are_passed_on():
    def scaled(x, factor, name):
        assert name == "it"
        return x * factor

    found = noyau.bench({"a": scaled, "b": lambda x, f, name: f * x}, (np.ones(9), 3.0, "it"), budget_s=0.05)
    assert found.ok
    assert found.at[0].inputs == ("float64[9]", "3.0", "'it'")


def test_arrays_keep_their_order_in_memory():
    seen = set()

    def look(x):
        seen.add(x.strides)
        return x.sum(0)

    noyau.bench({"a": look}, (np.zeros((6, 5), np.float32, order="F"),), budget_s=0.05)
    assert seen <= {(4, 24), (8, 48)}  # float32, and float64 for the truth


def test_functions_without_arguments_are_timed():
    found = noyau.bench({"a": lambda: np.zeros(3), "b": lambda: np.zeros(3) * 1}, budget_s=0.05)
    assert found.ok and len(found.at[0].ranked) == 2


def test_what_raises_is_told_in_a_line_and_the_others_are_timed():
    def broken(x):
        raise ZeroDivisionError("by zero\nand more")

    found = noyau.bench({"a": np.exp, "b": broken, "c": np.exp}, (np.ones(9),), budget_s=0.05)
    assert "does not run on float64[9]: ZeroDivisionError: by zero" in found.at[0].rows[1].fault
    assert [row.name for row in found.at[0].rows if not row.out] == ["a", "c"] and not found.ok
    assert found.at[0].rows[1].fault.endswith("by zero")


def test_a_peer_that_cannot_run_is_no_fault_of_the_others():
    def broken(x):
        raise ZeroDivisionError("by zero")

    op = noyau.op("f64[n] -> f64[n]")(lambda x: np.exp(x))
    found = noyau.bench(op, (np.ones(9),), peers={"b": broken}, budget_s=0.02)
    (peer,) = (row for row in found.at[0].rows if row.name == "b")
    assert found.ok and "by zero" in peer.skipped and not peer.fault


def test_what_remembers_its_results_is_found_out():
    known = {}

    def remembers(x, y):
        key = (id(x), x.shape)
        known[key] = known[key] if key in known else x + y
        return known[key].copy()

    many = {"n": 40_000}  # so that few sets are in the rotation, and each is used again soon
    found = noyau.bench({"add": np.add, "remembers": remembers}, inputs, sizes=many, budget_s=0.1)
    assert "in a run that was timed" in found.at[0].rows[1].fault


def test_a_kernel_that_needs_a_gpu_is_skipped_and_nothing_is_wrong():
    op = noyau.op("f32[n] -> f32[n]")(lambda x: x + 1)
    op.kernel("__global__ void grey(const float *x, float *out, long n) {}", language="cuda", launch=(1, 1))
    found = noyau.bench(op, sizes={"n": 10}, budget_s=0.05)
    row = next(row for row in found.at[0].rows if row.language == "cuda")
    assert "needs a GPU" in row.skipped
    assert found.ok


def test_a_kernel_of_another_dtype_is_skipped():
    op = noyau.op("float[n] -> float[n]")(lambda x: x + 1)
    text = "void more(const double *x, double *out, long n) { for (long i = 0; i < n; i++) out[i] = x[i] + 1; }"
    op.kernel(text, language="c", name="more")
    narrow, wide = (noyau.bench(op, (np.zeros(9, dtype),), budget_s=0.05) for dtype in (np.float32, np.float64))
    assert "it does not take these inputs" in narrow.at[0].rows[1].skipped and narrow.ok
    assert "more" in [row.name for row in wide.at[0].ranked]


def test_the_inputs_of_an_op_may_be_given():
    x = np.linspace(0, 1, 30, dtype=np.float32)
    found = noyau.bench(add_op(), (x, x), budget_s=0.05)
    assert found.at[0].sizes == {"n": 30}
    assert found.at[0].work.bytes_moved == 3 * 30 * 4


def test_one_array_is_the_only_argument():
    assert noyau.bench({"a": np.exp}, np.ones(9), budget_s=0.02).at[0].inputs == ("float64[9]",)


def test_the_record_has_every_sample():
    found = noyau.bench({"a": np.exp, "b": np.exp}, (np.ones(9),), budget_s=0.05, cold=True)
    told = json.loads(json.dumps(found.to_json()))
    assert told["ok"] and told["schema_version"] == 1
    timed = told["at"][0]["candidates"][1]["timed"]
    assert {(each["way"], each["temperature"]) for each in timed} == {
        (way, temperature) for way in ("returns", "out=") for temperature in ("hot", "cold")
    }
    assert all(len(each["samples_s"]) >= 6 and each["verdict"] for each in timed)
    assert told["at"][0]["candidates"][0]["verified"] > 0


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda: noyau.bench({}), InputError, "there is nothing to time"),
        (lambda: noyau.bench({"a": np.exp}, (np.ones(3),), sizes={"n": 3}), InputError, "sizes are of inputs that"),
        (lambda: noyau.bench({"a": np.exp}, ("x",)), InputError, "a fails with TypeError"),
        (lambda: noyau.bench({"a": lambda: None}), InputError, "a returns NoneType, not arrays or numbers"),
        (lambda: noyau.bench({"a": np.exp}, inputs, sizes={"n": []}), InputError, "0 sets of sizes are asked for"),
        (lambda: noyau.bench(add_op(), (np.ones(3), 1), sizes={"n": 3}), InputError, "both inputs and sizes"),
        (lambda: noyau.bench(add_op(), (np.ones(3), np.ones(3))), SignatureError, "does not fit"),
        (lambda: noyau.bench(add_op(), np.ones(3)), SignatureError, "takes 2 inputs"),
        (
            lambda: noyau.bench({"a": np.exp}, 3),
            InputError,
            "args= is a tuple of the arguments .* and no int",
        ),
        (lambda: noyau.bench(noyau.op(lambda x: x)), SignatureError, "has no signature"),
        (lambda: noyau.bench(add_op(), peers={"twin": np.add}), InputError, "two candidates are called twin"),
    ],
)
def test_what_cannot_be_timed_is_told(call, kind, told):
    with pytest.raises(kind, match=told):
        call()


def test_progress_is_told():
    steps: list[str] = []
    noyau.bench({"a": np.exp}, (np.ones(9),), budget_s=0.05, say=steps.append)
    assert steps == ["timing a", "first call of a", "timing 1 candidates, hot", "verifying runs that were timed"]


def test_what_is_neither_an_op_nor_functions_by_name_is_refused():
    with pytest.raises(InputError, match=r"noyau\.bench takes an op, or functions by name, and this is of the type"):
        noyau.bench(3)


def test_who_seems_too_fast_is_called_again_beside_the_floor(monkeypatch):
    """What is asked for one more time is that of the very candidate; what was told of it stands in its row."""
    calls, again = Counter(), []

    def counted(name):
        def one_more(x):
            calls[name] += 1
            return x + 1

        return one_more

    def mistake(self, time_s, threads, asked):
        before = calls.copy()
        took_s = asked()
        again.append((set(calls - before), took_s > 0))
        return "too fast" if len(again) == 2 else ""

    monkeypatch.setattr(Workload, "mistake", mistake)
    found = noyau.bench({name: counted(name) for name in ("first", "second")}, np.ones(100), budget_s=0.05)
    assert again == [({"first"}, True), ({"second"}, True)]
    assert [bool(row.notes) for row in found.at[0].rows] == [False, True]
