"""Waiting for what is compiled beside; no GPU is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from noyau.torch_modules import device_beside


def test_events_that_are_never_set_cost_one_patience_a_kernel(monkeypatch):
    now, asked = [100.0], []

    def given_up(patience_s):
        asked.append(patience_s)
        now[0] += patience_s

    never = SimpleNamespace(wait=given_up)
    monkeypatch.setattr(device_beside, "monotonic", lambda: now[0])
    monkeypatch.setattr(device_beside, "BEGUN", {"softmax": [never] * 3})
    kernel: Any = SimpleNamespace(operator="softmax")
    device_beside.wait(kernel)
    assert asked == [device_beside.PATIENCE_S, 0.0, 0.0]
    device_beside.wait(kernel)  # the next case
    assert len(asked) == 3
    device_beside._begin("softmax", lambda: pytest.fail("it was begun"))
    device_beside.wait(SimpleNamespace(operator="another"))
