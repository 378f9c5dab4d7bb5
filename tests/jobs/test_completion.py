from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from noyau.jobs import cli

COMPLETE = """
source /dev/stdin
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_noyau; echo "${COMPREPLY[@]}"; }
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_with_every_command(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in cli.COMMANDS)
    assert "--fix-dim" in script or "fix-dim" in script


def test_bash_completes_commands_options_choices_and_files(capsys, tmp_path):
    assert cli.main(["completion", "bash"]) == 0
    (tmp_path / "model.onnx").write_bytes(b"")
    lines = ["noyau opti", "noyau optimize --fix", "noyau optimize m.onnx --keep not", "noyau show mod"]
    calls = "\n".join(f"complete_line {line}" for line in lines)
    done = subprocess.run(
        ["bash", "-c", f"{COMPLETE}{calls}"],
        input=capsys.readouterr().out,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.splitlines() == ["optimize", "--fix-dim", "not-slower", "model.onnx"], done.stderr


@pytest.mark.parametrize(
    ("shell", "words", "answer"),
    [("zsh", ["-n", "/dev/stdin"], ""), ("fish", ["-c", "source; complete -C 'noyau profile --tr'"], "--trace\t")],
)
def test_zsh_and_fish_read_their_scripts(shell, words, answer, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    done = subprocess.run([shell, *words], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith(answer) and not done.stderr


def test_without_shtab_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "zsh"]) == 2
    assert (
        "needs shtab, which is not installed; run: pip install 'noyau-kernels[completion]'" in capsys.readouterr().err
    )
