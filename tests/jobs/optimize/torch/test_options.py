from __future__ import annotations

import pytest

from noyau.errors import InputError
from noyau.jobs.optimize.torch.options import CompileOptions, options_from


def test_wishes_are_options():
    assert options_from({}) == CompileOptions()
    assert options_from({"rest": "inductor"}).rival == "inductor"
    assert options_from({"rest": "inductor", "against": "eager"}).rival == "eager"


def test_modes_of_torch_compile():
    assert options_from({"mode": "reduce-overhead"}) == options_from({"mode": "max-autotune"}) == CompileOptions()
    assert not options_from({"mode": "max-autotune-no-cudagraphs"}).graphs


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"nonsense": 1}, "noyau has no option nonsense; its options are: rest, against, budget_s, keep, certificate"),
        ({"rest": "x"}, "rest='x' is none of eager, inductor"),
        ({"against": "x"}, "against='x' is none of eager, inductor"),
        ({"keep": "some"}, "keep='some' is none of faster, not-slower, all"),
        ({"certificate": "none"}, "certificate='none' is none of smoke, full"),
        ({"graphs": 1}, "graphs=1 is neither True nor False"),
        ({"prompt": "no"}, "prompt='no' is neither True nor False"),
        ({"budget_s": -1}, "budget_s=-1 is no number of seconds from 0 on"),
        ({"budget_s": "long"}, "budget_s='long' is no number of seconds"),
        ({"budget_s": float("nan")}, "budget_s=nan is no number of seconds"),
        ({"budget_s": True}, "budget_s=True is no number of seconds"),
        ({"limit_s": False}, "limit_s=False is no number of seconds"),
        ({"limit_s": "long"}, "limit_s='long' is no number of seconds"),
        ({"verdicts": "lines"}, "verdicts='lines' is no list to which lines are added"),
        ({"mode": "fastest"}, "mode='fastest' is none of default, reduce-overhead, max-autotune, max-autotune-no-cuda"),
    ],
)
def test_wishes_that_mean_nothing(options, told):
    with pytest.raises(InputError, match=told):
        options_from(options)
