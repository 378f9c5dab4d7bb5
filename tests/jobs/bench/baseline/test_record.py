from __future__ import annotations

import pytest

from noyau.jobs.bench.baseline.record import Change, ChangeRecord
from noyau.timing.machine import Machine
from noyau.timing.verdict import Comparison

MACHINE = Machine("a CPU", 2, "x86-64-v3", "gcc", "Linux", {})


def change(ratio: float, spread: float = 0.0, pairs: int = 200) -> Change:
    """A candidate that takes `ratio` times as long as before, by pairs that stray so far."""
    now_s = tuple(1e-3 * ratio * (1 + spread * (-1) ** number) for number in range(pairs))
    return Change({"n": 5}, "f", "hot", Comparison((1e-3,) * pairs, now_s), 0.05)


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict", "sure"),
    [(1.10, 0, "SLOWER", True), (1.03, 0, "ok", True), (0.8, 0, "FASTER", True), (1.0, 0.2, "in doubt", False)],
)
def test_the_verdict_is_of_the_interval(ratio, spread, verdict, sure):
    each = change(ratio, spread)
    assert (each.verdict, each.is_sure, each.is_slower) == (verdict, sure, verdict == "SLOWER")


def test_pairs_of_two_races_are_one_change():
    joined = change(1.1).join(change(1.2))
    assert joined.comparison.pairs == 400 and 1.1 <= joined.slowdown <= 1.2
    assert joined.is_slower and not change(0.99).join(change(1.2)).join(change(1.3)).join(change(0.98)).is_slower


def test_a_comparison_is_printed_with_its_verdict_first_and_within_its_width():
    record = ChangeRecord(
        "f", "main", "2026-01-02", MACHINE, (change(1.1), change(1.0)), {"g": "wrong"}, ("a note",), 0.05
    )
    lines = [str(line) for line in record.renderables(80, ascii_only=False)]
    assert lines[0].startswith("f: WRONG against the baseline main of 2026-01-02: 1 candidate of now")
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert ["f,", "hot", "1", "ms", "1.1", "ms", "+10.0%", "[+10.0,", "+10.0]", "%", "SLOWER"] in map(str.split, lines)
    assert "g is wrong: wrong" in text and "A note." in text and "95 % interval" in text
    assert not record.ok and len(record.to_json()["changes"][0]["after_s"]) == 200
