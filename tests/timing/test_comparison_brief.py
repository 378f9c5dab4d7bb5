from __future__ import annotations

import pytest

from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.timing.comparison import allowed_s, briefly
from noyau.timing.verdict import FEWEST_PAIRS
from tests.small_models import plain, written


def test_a_clock_has_its_budget_but_while_it_is_asked_to_be_brief():
    with briefly():
        with briefly():
            assert allowed_s(2.0) == 0.0
        assert allowed_s(2.0) == 0.0
    assert allowed_s(2.0) == 2.0


@pytest.mark.usefixtures("lasting_workers")
def test_a_model_is_optimized_in_the_fewest_pairs_meanwhile(tmp_path):
    with briefly():
        made = optimize(written(plain(), tmp_path), OptimizeOptions(keep="all", budget_s=60.0))
    timings = [timing for one in made.candidates for timing in one.timings]
    assert timings and {timing.hot.pairs for timing in timings} == {FEWEST_PAIRS}
