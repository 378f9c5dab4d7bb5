from __future__ import annotations

import hashlib
import threading

from noyau.timing.conditions import others_rest


def test_what_works_in_another_thread_is_waited_for():
    """As OpenMP's threads do, it works without Python's lock."""
    began, over = threading.Event(), threading.Event()

    def work() -> None:
        while not over.is_set():
            began.set()
            hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 200_000)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        began.wait()
        assert any(not others_rest(5e-3) for _ in range(1000))  # between two words it asks for the lock, and waits
    finally:
        over.set()
        thread.join()
    assert others_rest(10.0)
