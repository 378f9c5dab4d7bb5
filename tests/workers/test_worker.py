from __future__ import annotations

import os
import select
import signal
import time

import pytest

from noyau.errors import CheckError, InputError, NoyauError
from noyau.timing.sides import lasts, tell
from noyau.workers.worker import Request, StateUse, Worker, ask_at_once, pin
from tests.timing.candidates import Sleeper


@pytest.fixture(scope="module")
def worker():
    with Worker("the candidate", patience_s=30.0) as made:
        yield made


def opened(worker: Worker, deed: str = "") -> Worker:
    worker.open(Sleeper, deed=deed)
    return worker


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_side_runs_in_a_process_of_its_own(worker):
    opened(worker)
    assert worker._process.pid != os.getpid()
    assert worker.call(lasts, 7) == pytest.approx(7e-3)
    told = worker.call(tell)
    assert told["deed"] == ""
    assert told["peak_bytes"] > 1 << 20


def test_one_side_follows_another_in_the_same_process(worker):
    first = opened(worker)._process.pid
    worker.open(Sleeper, time_s=2.0)
    assert worker.call(lasts, 1) == 2.0
    assert worker._process.pid == first


@pytest.mark.parametrize(
    ("deed", "kind", "reason"),
    [
        ("crash", CheckError, r"^the candidate crashed \(SIGSEGV\)"),
        ("exit", CheckError, r"^the candidate ended its process with status 3: no more of this \?\[2J$"),
        ("fail", CheckError, "^the candidate: failed with ZeroDivisionError: by zero$"),
        ("refuse", InputError, "^the candidate: not these$"),
        ("patch", CheckError, "time.perf_counter was replaced"),
    ],
)
def test_what_goes_wrong_is_one_reason_and_the_next_side_runs(worker, deed, kind, reason):
    opened(worker, deed)
    with pytest.raises(kind, match=reason):
        worker.call(lasts, 1)
    if deed == "patch":
        worker.end()
    assert opened(worker).call(lasts, 2) == pytest.approx(2e-3)


def test_commands_given_at_once_are_all_answered_before_one_is_an_error(worker):
    with Worker("the other", patience_s=30.0) as other:
        requests = [Request(Sleeper, (time_s,), scope=StateUse.OPENS) for time_s in (1.0, 2.0)]
        ask_at_once([worker, other], requests)
        assert [each.call(lasts, 1) for each in (worker, other)] == [1.0, 2.0]
        with pytest.raises(CheckError, match="the candidate"):
            ask_at_once([worker, other], [Request(int, ("it",), scope=StateUse.OPENS), requests[1]])
        assert other.call(lasts, 1) == 2.0  # its answer is not taken for that of another command


def test_what_hangs_is_ended():
    with Worker("the candidate", patience_s=3.0) as worker:
        opened(worker, "hang")
        process_id, start_s = worker._process.pid, time.monotonic()
        with pytest.raises(CheckError, match="did not answer within 3 s and was ended"):
            worker.call(lasts, 1)
        assert time.monotonic() - start_s < 30
        assert not alive(process_id)
        assert opened(worker).call(lasts, 1) == pytest.approx(1e-3)


def test_what_a_library_prints_is_no_answer(worker):
    assert opened(worker, "print").call(lasts, 3) == pytest.approx(3e-3)


def test_it_ends_with_the_block():
    with Worker("the candidate") as worker:
        process_id = opened(worker)._process.pid
        assert alive(process_id)
    assert not alive(process_id)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not bind processes to cores")
def test_workers_of_one_thread_take_turns_on_one_core():
    usable = os.sched_getaffinity(0)
    with Worker("one") as one, Worker("other") as other:
        pin((one, other), threads=1)
        homes = [os.sched_getaffinity(worker._process.pid) for worker in (one, other)]
        assert homes[0] == homes[1] == {max(usable)}
        pin((one, other), threads=2)
        assert os.sched_getaffinity(one._process.pid) == usable


def bytes_of(count: int) -> bytes:
    return b"a" * count


def unpickled():
    """A class of a function cannot travel."""

    class Local:
        pass

    return Local()


def bad():
    """Something whose unpickling fails."""
    return Exploding()


class Exploding:
    def __reduce__(self):
        return int, ("no number",)


def test_a_huge_request_and_a_huge_reply(worker):
    assert worker.ask(len, b"a" * 30_000_000) == 30_000_000
    assert worker.ask(bytes_of, 30_000_000) == bytes_of(30_000_000)


def test_a_reply_that_stops_in_its_midst_is_noticed():
    with Worker("the candidate", patience_s=1.0) as worker:
        pid = worker.ask(os.getpid)
        worker.begin(Request(bytes_of, (100_000_000,)))
        select.select([worker._channel], [], [], 30)  # it has begun
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(CheckError, match="did not answer within 1 s and was ended"):
            worker.reply()
        assert not alive(pid)


def test_results_that_cannot_travel(worker):
    with pytest.raises(CheckError, match=r"^the candidate: failed with AttributeError"):
        worker.ask(unpickled)
    with pytest.raises(CheckError, match=r"^the candidate stopped answering"):
        worker.ask(bad)
    assert worker.ask(os.getpid) != os.getpid()


def test_a_state_that_does_not_open_is_none(worker):
    opened(worker)
    with pytest.raises(CheckError, match="ValueError"):
        worker.open(int, "it")
    with pytest.raises(NoyauError, match="nothing is open"):
        worker.call(lasts, 1)
