from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from noyau.errors import CheckError, NoyauError
from noyau.workers.worker import ForkedWorker, Request

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
KNOWN = {"here": 1}


def does(deed: str):
    """What the other end is asked for."""
    print("it talks")
    match deed:
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "raise":
            raise ValueError("no")
    return os.getpid(), KNOWN["here"]


def hears_sigterm(path):
    def end(number, frame):
        path.touch()
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
    path.with_name("ready").touch()
    time.sleep(60)


@pytest.fixture
def worker():
    with ForkedWorker("it", 5.0) as made:
        yield made


def test_it_is_a_copy_of_this_process(worker):
    KNOWN["here"] = 7
    pid, known = worker.ask(does, "")
    assert pid != os.getpid()
    assert known == 7
    assert worker.ask(does, "")[0] == pid
    worker.end()
    assert worker.ask(does, "")[0] != pid


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("exit", "it ended its process with status 3: it talks"),
        ("hang", "it did not answer within 0.5 s and was ended"),
        ("raise", "it: failed with ValueError: no"),
    ],
)
def test_what_goes_wrong_there_is_one_reason_here(worker, deed, told):
    worker.patience_s = 0.5
    with pytest.raises(CheckError, match=told):
        worker.ask(does, deed)
    worker.patience_s = 5.0
    assert worker.ask(does, "")[1] == KNOWN["here"]


def test_refusals_keep_their_kind(worker):
    with pytest.raises(NoyauError, match="it: nothing is open yet"):
        worker.call(len)


def test_its_state_is_an_object_of_this_process_each_time_it_starts():
    with ForkedWorker("it", 5.0, state=lambda: KNOWN["here"]) as worker:
        assert worker.call(operator.call) == KNOWN["here"]
        worker.end()
        assert worker.call(operator.call) == KNOWN["here"]


def test_handlers_of_signals_are_not_copied(tmp_path):
    before = signal.signal(signal.SIGTERM, lambda *_: (tmp_path / "done").touch())
    try:
        with ForkedWorker("it", 5.0) as worker:
            pid = worker.ask(os.getpid)
            os.kill(pid, signal.SIGTERM)
            with pytest.raises(CheckError, match=r"it crashed \(SIGTERM\)"):
                worker.ask(os.getpid)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not (tmp_path / "done").exists()


def test_it_may_take_a_while_to_end(tmp_path):
    with ForkedWorker("it", 5.0, grace_s=5.0) as worker:
        worker.begin(Request(hears_sigterm, (tmp_path / "done",)))
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
    assert (tmp_path / "done").exists()


def test_another_thread_may_kill_it():
    worker = ForkedWorker("it", 30.0)
    worker.start()
    threading.Timer(0.1, worker.kill).start()
    with pytest.raises(CheckError, match=r"it crashed \(SIGKILL\)"):
        worker.ask(time.sleep, 20.0)


def test_children_that_nobody_waits_for_reply_too():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with ForkedWorker("it", 5.0) as worker:
            assert worker.ask(os.getpid) != os.getpid()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_copy_that_cannot_be_made_leaves_nothing_open(monkeypatch):
    def none():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", none)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        ForkedWorker("it").start()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_torch_has_one_thread_in_a_copy(monkeypatch):
    threads = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=threads.append))
    with ForkedWorker("it", 5.0, state=threads) as worker:
        assert worker.call(list) == [1]
    assert threads == []


def test_it_ends_with_its_parent():
    program = """
import sys
from noyau.workers.worker import ForkedWorker
worker = ForkedWorker("it")
worker.start()
print(worker._process.pid, flush=True)
import os
os.kill(os.getpid(), 9)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    pid = int(found.stdout)
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s and _lives(pid):
        time.sleep(0.02)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    """Whether a process is there, and not only waits for its parent to ask how it ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
