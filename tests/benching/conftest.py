from __future__ import annotations

import json

import pytest

from noyau.builders import records


@pytest.fixture(autouse=True)
def _records_of_one_test(monkeypatch):
    """What is recorded in one test is not known in another."""
    kept: dict[str, object] = {}
    monkeypatch.setattr(records, "keep", lambda key, told: kept.update({key: json.loads(json.dumps(told))}))
    monkeypatch.setattr(records, "recall", kept.get)
