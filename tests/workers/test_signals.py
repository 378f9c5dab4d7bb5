from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from noyau.workers import signals
from noyau.workers.signals import Termination, defer_signals, raise_on_signals, time_limit, wait_or_end


def send(number: int, then: list[str] | None = None) -> None:
    os.kill(os.getpid(), number)
    if then is not None:
        then.append("the rest")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_that_end_a_process_are_exceptions_within(name):
    number = getattr(signal, name)
    with pytest.raises(Termination) as ended, raise_on_signals():
        send(number)
    assert ended.value.signal.name == name
    assert not isinstance(ended.value, Exception)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raise_on_signals():
            send(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_interrupts_wait_until_the_end():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), defer_signals():
        send(signal.SIGINT, done)
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_request_to_end_waits_too():
    done: list[str] = []
    with pytest.raises(Termination), raise_on_signals(), defer_signals():
        send(signal.SIGTERM, done)
    assert done == ["the rest"]


def test_without_a_signal_nothing_happens():
    with raise_on_signals(), defer_signals():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_nothing_changes():
    found = []

    def work() -> None:
        with raise_on_signals(), defer_signals():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


TELLS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), sys.exit(5)))
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("interrupts", "time_s", "reason"),
    [(False, 0.1, "it did not end within 0.1 s"), (True, 60.0, "it was interrupted")],
)
def test_a_process_that_is_cut_off_tells_what_it_knows(interrupts, time_s, reason):
    command = [sys.executable, "-c", TELLS, "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, raise_on_signals():
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if interrupts:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert wait_or_end(process, time_s) == reason
        assert process.stdout.read() == b"told\n"


def test_a_wait_reports_each_time_that_it_goes_on(monkeypatch):
    monkeypatch.setattr(signals, "REPORT_S", 0.02)
    reports = []
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:

        def report():
            reports.append(process.poll())
            if len(reports) == 2:
                process.communicate(b"\n")

        assert wait_or_end(process, 60.0, report=report) == ""
    assert reports == [None, None]


def test_a_process_that_ends_by_itself_has_no_reason():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        assert wait_or_end(process, 60.0) == ""
    assert process.returncode == 0


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seconds", [1e20, float("inf")])
def test_a_limit_that_no_thread_can_wait_for_is_none(seconds):
    before = threading.active_count()
    with time_limit(seconds):
        assert threading.active_count() == before
