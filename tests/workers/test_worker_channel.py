from __future__ import annotations

import threading
import time

import pytest

from noyau.workers.worker import Channel, pair


@pytest.fixture
def ends():
    here, there = pair()
    there = Channel(there)
    yield here, there
    here.close()
    there.close()


def test_messages_come_whole_and_in_order(ends):
    here, there = ends
    messages = [b"", b"one", b"x" * 5_000_000, b"last"]
    thread = threading.Thread(target=lambda: [here.send(message) for message in messages])
    thread.start()
    assert [there.receive() for _ in messages] == messages
    thread.join()


def test_what_does_not_come_in_time(ends):
    here, there = ends
    start_s = time.monotonic()
    with pytest.raises(TimeoutError):
        here.receive(0.1)
    there.end.send((100).to_bytes(8, "big") + b"a part")
    with pytest.raises(TimeoutError):
        here.receive(0.1)
    assert 0.2 <= time.monotonic() - start_s < 10


def test_what_is_not_taken_in_time(ends):
    with pytest.raises(TimeoutError):
        ends[0].send(b"x" * 50_000_000, 0.1)


def test_an_end_that_closes(ends):
    here, there = ends
    there.end.send((100).to_bytes(8, "big") + b"a part")
    there.close()
    with pytest.raises(EOFError):
        here.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        here.send(b"more")
