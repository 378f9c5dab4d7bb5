"""`noyau completion bash`: the script with which a shell completes commands, options and files, by shtab."""

import argparse

from noyau.errors import dependency
from noyau.jobs.command_line import Command

# The command that installs the script for each shell.
_PLACES = {
    "bash": "noyau completion bash > ~/.local/share/bash-completion/completions/noyau",
    "zsh": "noyau completion zsh > ~/.zfunc/_noyau, with fpath+=~/.zfunc before compinit in ~/.zshrc",
    "fish": "noyau completion fish > ~/.config/fish/completions/noyau.fish",
}


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_PLACES), help="; ".join(_PLACES.values()))


def _run(arguments: argparse.Namespace) -> int:
    """Print the script; values without choices complete as files. MissingExtraError without shtab."""
    with dependency("noyau completion needs shtab, which", "noyau-kernels[completion]"):
        import shtab
    every = arguments.parser._actions
    (commands,) = (each.choices.values() for each in every if isinstance(each, argparse._SubParsersAction))
    for action in (action for command in commands for action in command._actions):
        if action.nargs != 0 and action.choices is None:
            action.complete = shtab.FILE
    print(shtab.complete(arguments.parser, shell=arguments.shell))
    return 0


COMMAND = Command("print a script that completes commands in a shell", _declare, _run)
