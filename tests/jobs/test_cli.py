from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

import noyau
from noyau.errors import InputError
from noyau.jobs import cli
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler


@pytest.fixture
def command(monkeypatch):
    """Adds a command `try` that does what it is given."""

    def add(run):
        monkeypatch.setitem(cli.COMMANDS, "try", cli.Command("tries", cli._declare_nothing, run))

    return add


def fail(error: BaseException):
    def run(_):
        raise error

    return run


def test_the_script_is_installed():
    scripts = importlib.metadata.entry_points(group="console_scripts", name="noyau")
    assert not scripts or next(iter(scripts)).value == "noyau.jobs.cli:main"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["cache", "--nonsense"], ["doctor", "extra"], ["--nonsense"]])
def test_unusable_arguments_are_status_2(argv, capsys):
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("noyau")
    assert "error: " in captured.err.splitlines()[-1]


@pytest.mark.parametrize("argv", [["--help"], ["--version"], *([name, "--help"] for name in cli.COMMANDS)])
def test_help_is_status_0(argv, capsys):
    assert cli.main(argv) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert ("usage: noyau" in captured.out) or captured.out == f"noyau {noyau.__version__}\n"


def test_help_names_every_command(capsys):
    cli.main(["--help"])
    told = capsys.readouterr().out
    assert all(f"    {name} " in told and command.summary in told for name, command in cli.COMMANDS.items())


def test_an_error_of_noyau_is_one_line_and_status_2(command, capsys):
    command(fail(InputError("input \x1b[31m'x'\nis wrong\t\u202e; give another")))
    assert cli.main(["try"]) == 2
    assert capsys.readouterr() == ("", "noyau: input ?[31m'x' is wrong ?; give another\n")


def test_a_defect_is_not_hidden(command):
    command(fail(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_ctrl_c_is_one_line_and_status_130(command, capsys):
    command(fail(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130
    assert capsys.readouterr() == ("", "noyau: interrupted\n")


def test_the_status_of_a_command_is_passed_on(command):
    for status in (0, 1):
        command(lambda _, status=status: status)
        assert cli.main(["try"]) == status


def test_a_warning_is_one_line(command, capsys):
    before = warnings.showwarning

    def warn(_):
        warnings.simplefilter("always")
        warnings.warn("the cache\nis not used", RuntimeWarning, stacklevel=1)
        return 0

    command(warn)
    assert cli.main(["try"]) == 0
    assert capsys.readouterr().err == "noyau: warning: the cache is not used\n"
    assert warnings.showwarning is before


def test_cache_tells_and_clears(empty_cache, capsys):
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{empty_cache}: 0.0 MiB of at most 512 MiB\n"
    cache.store(cache.digest("x"), ".so", lambda path: path.write_bytes(bytes(3 * 2**20)))
    cli.main(["cache"])
    assert "3.0 MiB of at most" in capsys.readouterr().out
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 file, 3.0 MiB, from {empty_cache}\n"
    assert list(empty_cache.iterdir()) == []


def test_doctor_says_what_is_there(empty_cache, capsys):
    assert cli.main(["doctor"]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["noyau"] == noyau.__version__
    assert c_compiler.level() in told["machine"]
    assert c_compiler.find_compiler().version in told["compiler"]
    assert str(empty_cache) in told["cache"]
    assert told["numpy"] == importlib.metadata.version("numpy")
    assert {"gpu", "numba", "triton", *cli._PACKAGES} <= set(told)


def test_doctor_without_a_compiler_is_status_1(empty_cache, capsys, monkeypatch, tmp_path):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "no C compiler" in told
    assert "pip install 'noyau[cc]'" in told
    assert "torch        not installed" in told


@pytest.mark.parametrize("count", [1, 100_000])
def test_a_reader_that_went_away_is_no_traceback(count):
    program = f"""
import sys
from noyau.jobs import cli
def run(_):
    for _ in range({count}):
        print("a line")
    return 0
cli.COMMANDS["try"] = cli.Command("tries", cli._declare_nothing, run)
sys.exit(cli.main(["try"]))
"""
    reader, writer = os.pipe()
    os.close(reader)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    run = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, env=buffered, check=False, timeout=60
    )
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, b"")


def test_ctrl_c_of_a_process(tmp_path):
    program = f"""
import sys, time
from noyau.jobs import cli
def run(_):
    open({str(tmp_path / "started")!r}, "w").close()
    time.sleep(60)
cli.COMMANDS["try"] = cli.Command("tries", cli._declare_nothing, run)
sys.exit(cli.main(["try"]))
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, env=os.environ) as process:
        deadline = time.monotonic() + 20
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"noyau: interrupted\n"
        assert process.wait(20) == 130
