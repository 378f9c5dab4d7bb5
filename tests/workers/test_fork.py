from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from noyau.errors import CheckError, NoyauError
from noyau.workers.fork import ForkedWorker

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
KNOWN = {"here": 1}


class Told:
    """What the other end holds."""

    def __init__(self, deed: str) -> None:
        self.deed = deed

    def lasts(self, calls: int) -> float:
        return 0.0

    def tell(self):
        print("it talks")
        match self.deed:
            case "exit":
                os._exit(3)
            case "hang":
                time.sleep(60)
            case "raise":
                raise ValueError("no")
        return [os.getpid(), KNOWN["here"]]


def asked(worker, deed=""):
    worker.ask("open", factory=f"{__name__}:Told", deed=deed)
    return worker.ask("tell")["told"]


@pytest.fixture
def worker():
    sys.modules.setdefault(__name__, sys.modules[Told.__module__])
    with ForkedWorker("it", 5.0) as made:
        yield made


def test_it_is_a_copy_of_this_process(worker):
    KNOWN["here"] = 7
    pid, known = asked(worker)
    assert pid != os.getpid()
    assert known == 7
    assert asked(worker)[0] == pid
    worker.end()
    assert asked(worker)[0] != pid


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
        asked(worker, deed)
    worker.patience_s = 5.0
    assert asked(worker)[1] == KNOWN["here"]


def test_refusals_keep_their_kind(worker):
    with pytest.raises(NoyauError, match="it: nothing is open yet"):
        worker.ask("tell")


def test_it_ends_with_its_parent():
    program = """
import sys
from noyau.workers.fork import ForkedWorker
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
