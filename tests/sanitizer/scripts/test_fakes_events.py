from __future__ import annotations

from noyau.sanitizer.scripts.fakes import FakeEvent


def test_events_take_the_time():
    start, stop = FakeEvent(), FakeEvent(timing=True)
    start.record()
    stop.record(stream=0)
    stop.synchronize()
    assert stop.query()
    assert 0 <= start.elapsed_time(stop) < 60_000
