"""Where tests of `noyau.profiling` run what they profile."""

from __future__ import annotations

import pytest


@pytest.fixture
def near(monkeypatch):
    """Here, and in no process of its own."""
    from noyau.profiling import running
    from tests.profiling.near import NearWorker

    monkeypatch.setattr(running, "Worker", NearWorker)
    monkeypatch.setattr(running, "pin", lambda *_: None)
