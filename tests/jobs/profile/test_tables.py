from __future__ import annotations

from noyau.jobs.profile.render import label
from noyau.jobs.profile.tables import labels, spell_bytes
from tests.jobs.profile.samples import at, profile


def test_columns_are_named_after_what_differs():
    assert labels(profile(1, 128), str) == ["sequence=1", "sequence=128"]
    assert labels(profile(1, 1), str) == ["batch=1, sequence=1"] * 2
    assert label(at(7)) == "batch=1, sequence=7"


def test_bytes_in_words():
    assert [spell_bytes(each) for each in (0, 1023, 1 << 10, 3 << 19, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 MiB",
        "5 GiB",
    ]
