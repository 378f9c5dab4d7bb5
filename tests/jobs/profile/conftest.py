"""Where tests of `noyau.jobs.profile` run what they profile."""

from __future__ import annotations

import pytest


@pytest.fixture
def near(monkeypatch):
    """Here, and in no process of its own."""
    from noyau.jobs.profile import session_runs
    from tests.jobs.profile.near import NearWorker

    monkeypatch.setattr(session_runs, "Worker", NearWorker)
    monkeypatch.setattr(session_runs, "pin", lambda *_: None)
