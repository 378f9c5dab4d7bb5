from __future__ import annotations

import json

import pytest

from noyau.toolchain import cache


@pytest.fixture(autouse=True)
def _records_of_one_test(monkeypatch):
    """What is recorded in one test is not known in another."""
    kept: dict[str, object] = {}
    monkeypatch.setattr(cache, "keep", lambda key, told: kept.update({key: json.loads(json.dumps(told))}))
    monkeypatch.setattr(cache, "recall", kept.get)
