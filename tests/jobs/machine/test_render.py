from __future__ import annotations

from dataclasses import replace

from noyau.jobs import cli
from noyau.jobs.machine.render import levels
from noyau.timing import rates as timing_rates
from tests.timing.test_rates import made


def test_rates_of_functions_and_of_conversions_are_two_tables_that_fit_a_terminal(monkeypatch, empty_cache, capsys):
    dtypes = ("f16", "f64", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz")
    rates = {"exp_f32": 4.4e9, "floor_divide_f64": 1e8, "bf16_high_to_f32": 9e9}
    rates.update((f"f32_to_{dtype}", 3e9) for dtype in dtypes)
    monkeypatch.setattr(timing_rates, "_measure", lambda options: replace(made(), rates=rates))
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["machine"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    first = lines.index("billions of values per second, one thread, in a cache")
    assert lines[first + 1 : first + 4] == ["               f32  f64", " exp           4.4", " floor_divide       0.1"]
    second = lines.index("billions of conversions per second, likewise: from the row to the column")
    assert [line.split() for line in lines[second + 1 :]] == [
        ["from", "f16", "f32", "f64", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz"],
        ["bf16_high", "9"],
        ["f32", *"3333333"],
    ]


def test_a_size_stands_for_each_level():
    sizes = tuple(1 << power for power in range(13, 29))
    assert levels({"L1": 32 << 10, "L2": 512 << 10, "L3": 32 << 20}, sizes) == {
        "L1": 16 << 10,
        "L2": 256 << 10,
        "L3": 16 << 20,
        "DRAM": 256 << 20,
    }
    assert levels({}, sizes) == {"DRAM": 256 << 20}
