"""The command where its ends are not what it expects: closed, full, asked to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
from noyau.jobs import cli
from noyau.jobs.command_line import Command
def run(_):
    {body}
    return 0
cli.COMMANDS["try"] = Command("tries", lambda parser: None, run)
sys.exit(cli.main(["try"]))
"""


def shell(body: str, ends: str) -> subprocess.CompletedProcess[str]:
    """A run of a command that does what `body` says, with its ends as the shell has them."""
    program = f"exec {sys.executable} -c '{PROGRAM.format(body=body)}' {ends}"
    return subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)


@pytest.mark.parametrize("ends", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_ends_are_no_error(ends, tmp_path):
    """And no file that is opened then takes the place of one, so that what is printed cannot go into it."""
    body = (
        f'file = open("{tmp_path}/kept", "w"); print("aloud", flush=True); print("aloud", file=sys.stderr, flush=True)'
    )
    run = shell(f'{body}; import os; os.write(1, b"aloud"); os.write(2, b"aloud"); assert file.fileno() > 2', ends)
    assert run.returncode == 0
    assert (tmp_path / "kept").read_text() == ""


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
@pytest.mark.parametrize("count", [1, 100_000])
def test_a_full_disk_behind_stdout_is_one_line(count):
    run = shell(f'print("a line\\n" * {count})', "> /dev/full")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "noyau: what is printed, or a temporary file, cannot be written: No space left on device\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_process_that_is_asked_to_end_takes_back_what_it_began(name, tmp_path):
    body = f"""
    import tempfile
    with tempfile.TemporaryDirectory(dir="{tmp_path}"):
        open("{tmp_path}/started", "w").close()
        time.sleep(60)"""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        deadline = time.monotonic() + 20
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(getattr(signal, name))
        assert process.stderr.read() == f"noyau: ended by {name}\n"
        assert process.wait(20) == 128 + getattr(signal, name)
    assert os.listdir(tmp_path) == ["started"]


def test_the_command_is_there_at_once():
    """Nothing that takes long is imported before Ctrl-C is answered."""
    program = (
        "import sys; from noyau.jobs import cli; print([name for name in ('numpy', 'rich') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout == "[]\n"
