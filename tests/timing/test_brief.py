from __future__ import annotations

from noyau.timing.brief import allowed_s, briefly


def test_a_clock_has_its_budget_but_while_it_is_asked_to_be_brief():
    with briefly():
        with briefly():
            assert allowed_s(2.0) == 0.0
        assert allowed_s(2.0) == 0.0
    assert allowed_s(2.0) == 2.0
