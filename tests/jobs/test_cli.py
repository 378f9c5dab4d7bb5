from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import noyau
from noyau.errors import InputError
from noyau.jobs import cli, command_line
from noyau.jobs.command_line import Command


@pytest.fixture
def command(monkeypatch):
    """Adds a command `try` that does what it is given."""

    def add(run):
        monkeypatch.setitem(cli.COMMANDS, "try", Command("tries", lambda parser: None, run))

    return add


MISSING = [
    *([command, "none.onnx"] for command in ("optimize", "show", "profile", "check")),
    ["diff", "a.onnx", "none.onnx"],
    *([command, "a.onnx", "--inputs", "none.npz"] for command in ("optimize", "profile", "check")),
    ["extract", "--between", "a:b", "none.onnx"],
    ["check", "a.onnx", "--against", "none.onnx"],
    ["optimize", "a.onnx", "--calibration", "none.npz"],
]


def fail(error: BaseException):
    def run(_):
        raise error

    return run


def test_the_script_is_the_program():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"noyau": "noyau.__main__:main"}


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["cache", "--nonsense"], ["doctor", "extra"], ["--nonsense"]])
def test_unusable_arguments_are_status_2(argv, capsys):
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("noyau")
    assert "error: " in captured.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        *((name, "") for name in ("optimize", "show", "profile", "check", "bench")),
        ("stream x.py::f", "SOURCE"),
        ("stream x.py::f x.csv -o", "-o/--output"),
        ("demo --folder", "--folder"),
        ("optimize m.onnx -o", "-o/--output"),
        ("cache --json", "--json"),
        ("diff a.onnx", "B.onnx"),
    ],
)
@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_text_names_no_file(words, argument, blank, capsys):
    """As a path it would be the working folder."""
    assert cli.main([*words.split(), blank]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"error: argument {argument}" in last and last.endswith(f": {blank!r} names no file")


@pytest.mark.parametrize("words", ["mcp", "bench x.py::f", "check x.py", "profile x.py"])
@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf"])
def test_a_limit_of_seconds_is_above_0(words, text, capsys):
    option = "--budget" if words.startswith("bench") else "--time"
    assert cli.main([*words.split(), f"{option}={text}"]) == 2
    assert capsys.readouterr().err == f"noyau: {option} {text} is no limit: give a number of seconds above 0\n"


@pytest.mark.parametrize("words", ["machine", "cache --clear", "extract m.onnx --between a:b", "stream x.py::f x.csv"])
def test_a_record_that_cannot_be_written_is_an_error_before_any_work(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("noyau.toolchain.cache.clear", lambda: pytest.fail("the cache was cleared"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    assert cli.main([*words.split(), "--json", str(tmp_path)]) == 2
    assert f"{tmp_path} cannot be written: it is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(f"{name} FILE" for name in ("check", "bench", "show", "profile")),
        *(f"{name} FILE::f" for name in ("check", "bench", "show", "profile")),
        "stream FILE::f x.csv",
        "stream x.py::f FILE",
        "bench x.py --inputs FILE",
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_of_the_same_words(words, tmp_path, capsys, monkeypatch):
    def refuse(file, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)

    file = tmp_path / "a file.py"
    file.touch()
    monkeypatch.setattr(command_line, "open", refuse, raising=False)
    assert cli.main([word.replace("FILE", str(file)) for word in words.split()]) == 2
    assert capsys.readouterr().err == f"noyau: {file} cannot be read: Permission denied\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("no")])
def test_folders_that_were_created_for_nothing_are_removed(error, command, tmp_path):
    def run(_):
        for place in ("old/new/inner/a.json", "old/kept/b.json"):
            command_line.require_record_places(None, tmp_path / place)
        (tmp_path / "old" / "kept" / "b.json").touch()
        raise error

    (tmp_path / "old").mkdir()
    command(run)
    assert cli.main(["try"]) in (2, 130)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["b.json", "kept", "old"]


def test_no_help_has_the_percent_sign_of_a_format_twice(capsys):
    for name in cli.COMMANDS:
        cli.main([name, "--help"])
    assert "%%" not in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--help"], ["--version"], *([name, "--help"] for name in cli.COMMANDS)])
def test_help_is_status_0(argv, capsys):
    assert cli.main(argv) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert ("usage: noyau" in captured.out) or captured.out == f"noyau {noyau.__version__}\n"


def test_help_names_every_command(capsys):
    cli.main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert all(f" {name} {command.summary} " in told for name, command in cli.COMMANDS.items())


def test_an_error_of_noyau_is_one_line_and_status_2(command, capsys):
    command(fail(InputError("input \x1b[31m'x'\nis wrong\t\u202e; give another")))
    assert cli.main(["try"]) == 2
    assert capsys.readouterr() == ("", "noyau: input ?[31m'x' is wrong ?; give another\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("Unable to allocate 711. PiB"), "there is too little memory: Unable to allocate 711. PiB; give"),
        (MemoryError(), "there is too little memory: it is full; give smaller sizes"),
        (OSError(errno.ENOSPC, "No space left on device", "/a b/c"), "/a b/c: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/x\n"), r"'/x\n': Permission denied"),
    ],
)
def test_an_end_of_memory_or_of_a_disk_is_one_line_and_status_2(command, capsys, error, message):
    command(fail(error))
    assert cli.main(["try"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"noyau: {message}") and err.count("\n") == 1


def test_a_defect_is_not_hidden(command):
    command(fail(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_ctrl_c_is_one_line_and_status_130(command, capsys):
    command(fail(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130
    assert capsys.readouterr() == ("", "noyau: interrupted\n")


@pytest.mark.parametrize("words", MISSING, ids=lambda each: " ".join(each))
def test_a_file_that_is_not_there_is_an_error_before_slow_imports(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.onnx").touch()
    monkeypatch.setitem(cli.COMMANDS, words[0], replace(cli.COMMANDS[words[0]], run=fail(AssertionError())))
    assert cli.main(words) == 2
    assert capsys.readouterr().err == f"noyau: {words[-1]} cannot be read: No such file or directory\n"


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


@pytest.mark.parametrize("printer", ["print", "Console().print"])
@pytest.mark.parametrize("count", [1, 10_000])
def test_a_reader_that_went_away_is_no_traceback(printer, count):
    program = f"""
import sys
from rich.console import Console
from noyau.jobs import cli, command_line
from noyau.jobs.command_line import Command
def run(_):
    for _ in range({count}):
        {printer}("a line")
    return 0
cli.COMMANDS["try"] = Command("tries", lambda parser: None, run)
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
from noyau.jobs import cli, command_line
from noyau.jobs.command_line import Command
def run(_):
    open({str(tmp_path / "started")!r}, "w").close()
    time.sleep(60)
cli.COMMANDS["try"] = Command("tries", lambda parser: None, run)
sys.exit(cli.main(["try"]))
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, env=os.environ) as process:
        deadline = time.monotonic() + 20
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"noyau: interrupted\n"
        assert process.wait(20) == 130


@pytest.mark.parametrize(
    ("choice", "words", "no_color", "force"),
    [
        ("never", {}, "1", ""),
        ("always", {"NO_COLOR": "1"}, "", "1"),
        ("auto", {}, None, None),
        ("auto", {"CLICOLOR": "0"}, "1", ""),
        ("auto", {"CLICOLOR": "1", "CLICOLOR_FORCE": "1"}, "", "1"),
        ("auto", {"CLICOLOR_FORCE": "0"}, None, None),
        ("auto", {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, "1", None),
        ("auto", {"CLICOLOR": "0", "FORCE_COLOR": "1"}, None, "1"),
    ],
)
def test_color_is_as_no_color_has_it_and_an_option_decides(choice, words, no_color, force, monkeypatch, capsys):
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.setenv(name, "x")  # so that what the command sets is put back
        monkeypatch.delenv(name)
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["cache", "--color", choice]) == 0
    assert (os.environ.get("NO_COLOR"), os.environ.get("FORCE_COLOR")) == (no_color, force)


@pytest.mark.parametrize(
    "words",
    [
        "--top 3 work.py a b -- --own",
        "work.py --top 3 a b -- --own",
        "work.py a b --top 3 -- --own",
        "work.py a --top 3 b -- --own",
    ],
)
@pytest.mark.parametrize("name", ["profile", "check"])
def test_options_stand_before_between_and_behind_arguments(name, words):
    words = words.replace("--top 3", "--top 3" if name == "profile" else "--launch 3,4")
    read = cli._parser().parse_args([name, *words.split()])
    assert read.arguments == ["a", "b", "--own"] and vars(read).get("target", read.__dict__.get("model")) == "work.py"
    assert (read.top == 3) if name == "profile" else (read.launch == "3,4")


def test_an_unknown_option_shows_the_usage_of_its_command(capsys):
    assert cli.main(["doctor", "--nonsense"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: noyau doctor ") and "noyau doctor: error: unrecognized arguments: --nonsense" in told


def test_what_stands_behind_two_dashes_is_no_option(capsys):
    assert cli.main(["show", "--", "--help"]) == 2
    assert "--help" in capsys.readouterr().err


def test_noyaus_own_reductions_are_a_target_and_no_place_to_write_to():
    """A record went to the file of the package."""
    read = cli._parser().parse_args(["stream", "noyau.reductions::Sum", "noyau.reductions", "--json=noyau.reductions"])
    assert read.target.endswith("__init__.py::Sum")
    assert (read.source, str(read.json)) == ("noyau.reductions", "noyau.reductions")
