from __future__ import annotations

from noyau.jobs.profile.render import labels
from tests.jobs.profile.samples import profile


def test_columns_are_named_after_what_differs():
    assert labels(profile(1, 128), str) == ["sequence=1", "sequence=128"]
    assert labels(profile(1, 1), str) == ["batch=1, sequence=1"] * 2
