from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from noyau.workers.confinement import WITHOUT_FILES, WITHOUT_NETWORK, Limits, run_confined

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and Landlock are of Linux")
SECRET = Path(__file__).resolve()


def run(folder, function, **limits):
    """The ending of a function, and what it printed or raised."""

    def told():
        try:
            os.write(1, str(function()).encode())
        except BaseException as error:  # noqa: BLE001  the test reads which
            os.write(1, type(error).__name__.encode())

    ending = run_confined(told, folder, [sys.prefix, sys.base_prefix], Limits(**limits))
    return ending, (folder / "printed").read_text().strip()


def spin():
    while True:
        pass


def test_it_computes_and_writes_in_its_folder(tmp_path):
    ending, printed = run(tmp_path, lambda: Path("own").write_text("ok"))
    assert (ending.status, ending.is_late, printed) == (0, False, "2")
    assert (tmp_path / "own").read_text() == "ok"


def test_files_and_the_network_are_out_of_reach_where_the_system_lets_them_be(tmp_path):
    ending, printed = run(tmp_path, SECRET.read_text)
    assert printed == "PermissionError" or WITHOUT_FILES in ending.open
    _, printed = run(tmp_path, lambda: (tmp_path.parent / "there").write_text("x"))
    assert printed.endswith("PermissionError") or WITHOUT_FILES in ending.open
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        _, printed = run(tmp_path, lambda: socket.create_connection(("127.0.0.1", port), 1).close())
    assert printed.endswith(("PermissionError", "OSError", "ConnectionRefusedError")) or WITHOUT_NETWORK in ending.open


@pytest.mark.parametrize(
    ("function", "limits"),
    [(spin, {"cpu_s": 1.0, "clock_s": 60.0}), (lambda: time.sleep(60), {"clock_s": 0.2})],
    ids=["it computes", "it sleeps"],
)
def test_what_has_no_end_is_ended(tmp_path, function, limits):
    assert run(tmp_path, function, **limits)[0].is_late


def test_memory_has_a_limit(tmp_path):
    ending, printed = run(tmp_path, lambda: len(bytearray(1 << 30)), memory_bytes=1 << 28)
    assert (ending.is_late, printed) == (False, "MemoryError")


def test_a_status_comes_through_and_nothing_is_left_behind(tmp_path):
    def leave():
        if not os.fork():
            time.sleep(60)
        os._exit(7)

    start_s = time.monotonic()
    ending = run_confined(leave, tmp_path, [], Limits())
    assert (ending.status, ending.is_late) == (7, False)
    assert time.monotonic() - start_s < 50


def test_what_it_inherited_is_closed(tmp_path):
    here, there = os.pipe()
    _, printed = run(tmp_path, lambda: os.write(there, b"a reply of its own"))
    os.close(there)
    assert printed == "OSError"
    assert os.read(here, 1) == b""
    os.close(here)
