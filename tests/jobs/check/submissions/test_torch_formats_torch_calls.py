from __future__ import annotations

import numpy as np
import torch

from noyau.jobs.check.submissions import torch_formats
from noyau.jobs.check.submissions.torch_formats import KernelBench, Pace


def test_a_pace_tells_from_the_calls_before_whether_one_more_has_time(monkeypatch):
    now_s = [5.0]
    monkeypatch.setattr(torch_formats, "spent_s", lambda: now_s[0])

    def ended(pace, after_s, cells):
        now_s[0] += after_s
        pace.note(cells)

    pace = Pace(10.0)
    assert pace.allows(1 << 40)  # nothing is known yet
    ended(pace, 1.0, 100)
    assert pace.allows(1 << 40)  # of one call it is not known what of its time is of its size
    ended(pace, 2.0, 100)
    assert not pace.allows(400)  # 1 s, and 1 s of its size, 8 times: 9 s of the 7 that are left
    assert pace.allows(300)
    now_s[0] = 14.5
    assert not pace.allows(1)


def test_a_module_is_built_anew_for_other_arguments_of_any_size(tmp_path):
    bench = KernelBench({}, tmp_path)

    class Model:
        def __init__(self, table):
            self.table = table

    for ones in (torch.ones(4000), np.ones(4000), torch.ones(4000, dtype=torch.bfloat16)):
        other = ones.clone() if isinstance(ones, torch.Tensor) else ones.copy()
        other[2000] = 3
        first = bench.build(Model, [ones])
        assert bench.build(Model, [ones]) is first
        assert bench.build(Model, [other]).table[2000] == 3
        assert bench.build(Model, {"table": ones}).table is ones
