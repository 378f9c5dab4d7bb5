"""The process of a submission: its calls, every access of its kernels watched, and its other acts.

A submission may forge all that is written here, for it runs in this process: only bytes of it are compared."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noyau.errors import BuildError, InputError, NoyauError, UnansweredError, UnsupportedError
from noyau.hosts.torch.tensors import tensor_of
from noyau.jobs.check.script_run import hooks_of_script
from noyau.jobs.check.submissions.problem import POISONS
from noyau.jobs.check.submissions.process import write_results
from noyau.jobs.check.submissions.torch_formats import (
    FORMATS,
    Format,
    Pace,
    Poison,
    aliases,
    function_of,
    load,
    plain_arrays,
    reach,
    tensors_in,
    with_tensors,
)
from noyau.jobs.check.torch_checks import spread
from noyau.kernels.call import error_of
from noyau.sanitizer.scripts.record import ScriptSession
from noyau.sanitizer.scripts.torch_extensions import Extensions, is_compiled, stood_in
from noyau.sanitizer.scripts.triton_host import mark_tensors
from noyau.workers.confinement import DEVICES

_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEEDS = {
    **dict.fromkeys(("socket.__new__", "socket.connect", "socket.bind"), "opened a socket"),
    **dict.fromkeys(("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system"), "started a process"),
    "subprocess.Popen": "started a process", "os.kill": "sent a signal",
    "os.remove": "removed a file", "os.rename": "moved a file", "os.rmdir": "removed a folder",
}  # fmt: skip
_MODES = ("triton_host.py", "torch_formats.py")  # files with frames between a text and each call of torch


class RefusedAct(PermissionError):
    """An act of a submission beyond its computation."""


def guard(folder: Path) -> None:
    """Refuse, from here on, acts that a submission has no need of, and note them in a file. Only the system restrains a
    text that bypasses Python."""
    notes = os.open(folder / "deeds", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    own = f"{folder.resolve()}{os.sep}"

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        act = _DEEDS.get(event)
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            path = os.path.realpath(os.fspath(arguments[0])) if isinstance(arguments[0], str | bytes) else own
            act = None if path in DEVICES or str(path).startswith(own) else f"wrote to {path!r}"
        if act is not None and _is_own(own):
            os.write(notes, f"{act}\n".encode("utf-8", "replace"))
            raise RefusedAct(f"a submission may not: it {act}")

    sys.addaudithook(refuse)


def _is_own(folder: str) -> bool:
    """Whether the innermost frame outside of Python's standard library is of a file in a folder."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe(2)))
    outside = (file for file in files if not file.startswith((*_LIBRARIES, "<frozen")) and file != __file__)
    return next(outside, "").startswith(folder)


def write_answers(wish: Mapping[str, Any], folder: Path) -> None:
    """Call a submission on the inputs in a folder, and write its results, findings and end there."""
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True  # a submission may not write to the folders that it imports from
    tempfile.tempdir, os.environ["XDG_CACHE_HOME"] = str(folder), str(folder / "cache")  # for a compiler
    session = ScriptSession(wish["called"], goes_on=False)
    extensions = Extensions(session, folder, wish["time_s"])
    seen = _Notes(session, folder)
    session.keep = seen.write
    kind, text = "", ""
    with ExitStack() as undone:
        undone.enter_context(hooks_of_script(session, None, "numba triton"))
        undone.enter_context(stood_in(extensions))
        try:
            format_of = FORMATS[wish["format"]](wish, folder)
            guard(folder)
            kind = "load"
            file, name = wish["entry"]
            files = [each for each in wish["files"] if is_compiled(each)]
            owner = extensions.of_files("submission", files, wish["flags"]) if is_compiled(file) else load(folder, file)
            function = function_of(owner, name)
            kind = "call"
            _call_all(wish, partial(_Trial, wish, format_of, function, folder), folder, seen, extensions)
            kind = "done"
        except SystemExit as end:
            kind, text = "exit", f"it ended with sys.exit({end.code!r})"
        except MemoryError:
            kind = "memory"
        except BaseException as fault:  # noqa: BLE001  any end is recorded for the judge
            kind, text = _kind_of(kind, fault, folder)
    seen.write()
    (folder / "ending.json").write_text(json.dumps({"kind": kind, "text": text[:2000]}), "utf-8")


def _kind_of(stage: str, fault: BaseException, folder: Path) -> tuple[str, str]:
    """The kind of end of an exception, and the exception as text."""
    words = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    match fault:
        case RefusedAct():
            return "refused", str(fault)
        case ModuleNotFoundError(name=str(name)) if not (folder / f"{name.partition('.')[0]}.py").is_file():
            return "unsupported", f"it imports {name}, which is not installed"
        case BuildError() | UnansweredError():
            return "syntax" if isinstance(fault, BuildError) else "late", str(fault)
        case SyntaxError():
            return "syntax", f"{type(fault).__name__}: {fault.msg} (line {fault.lineno})"
        case InputError() if stage == "load":
            return "unsupported", str(fault)
        case NoyauError():
            return "unsupported" if isinstance(fault, UnsupportedError) else "raised", str(fault)
        case RuntimeError() if "allocate memory" in str(fault) or "bad_alloc" in str(fault):
            return "memory", words
    if stage == "load" or _is_at(fault, folder):
        return "raised", f"it raised {words}"
    judged = error_of("it", fault)
    return ("unsupported" if isinstance(judged, UnsupportedError) else "raised"), str(judged)


def _is_at(fault: BaseException, folder: Path) -> bool:
    """Whether the submission's own Python, outside of its kernels, raised an exception or called what raised it, or its
    call did not fit its parameters."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(fault.__traceback__)]
    own = [at for at, file in enumerate(frames) if file.startswith(str(folder))]
    if not own:
        return frames[-1].endswith(_MODES)
    below = [Path(file) for file in frames[own[-1] + 1 :] if not file.endswith(_MODES)]
    return not any({"triton", "numba", "noyau"} & set(file.parts) for file in below)


def _call_all(
    wish: Mapping[str, Any], trial_of: Callable[[int], _Trial], folder: Path, seen: _Notes, extensions: Extensions
) -> None:
    """Call each trial whose inputs are there, while there is time."""
    pace = Pace(wish["time_s"])
    for number in range(len(wish["trials"])):
        if str(number) not in wish["unset"]:  # the reference did not get that far
            continue
        trial = trial_of(number)
        if not pace.allows(trial.cells):
            continue
        calls = list("a" if pace.costs_s else POISONS)
        for call in calls:
            is_stated = wish["trials"][number]["is_stated"] and call != "strided"
            extensions.poison = POISONS[call]
            try:
                trial.call(call)
            except Exception as fault:
                kind, text = _kind_of("call", fault, folder)
                if is_stated or kind not in ("raised", "unsupported"):
                    raise
                (folder / f"refused-{number}-{call}").write_text(json.dumps({"kind": kind, "text": text}), "utf-8")
                break
            finally:
                seen.take(number, call)
        pace.note(trial.cells, len(calls))


class _Trial:
    """A trial in memory that keeps its addresses from call to call."""

    def __init__(
        self, wish: Mapping[str, Any], format_of: Format, function: Callable[..., Any], folder: Path, number: int
    ) -> None:
        self.wish, self.format_of, self.function, self.folder, self.number = wish, format_of, function, folder, number
        self.data = {name: torch.load(folder / f"in-{number}-{name}.pt", weights_only=False) for name in "ab"}
        self.marks = json.loads((folder / f"marks-{number}").read_text("ascii"))
        self.unset = set(wish["unset"][str(number)])
        self.memory = [np.array(each) for each in plain_arrays(tensors_in(self.data["a"]))]
        self.held: list[torch.Tensor] = []  # results of the first call; their bytes are in `contents`
        self.contents: list[bytes] = []
        self.tensors: list[torch.Tensor] = []
        self.cells = sum(each.size for each in self.memory)

    def call(self, name: str) -> None:
        """Call the submission: `a`; `b`, on other values in the same memory; `c`, on the values of a again, in the
        tensors of b; `strided`, with a gap behind each value. Write its results, and the inputs afterwards."""
        byte = POISONS[name]
        self.place(name, byte)
        with Poison(byte):
            arguments = self.wish["trials"][self.number]["arguments"]
            results = self.format_of.call(self.function, with_tensors(self.data["a"], self.tensors), arguments)
        arrays, tensors = plain_arrays(results), tensors_in(results)
        shared, is_tensor = aliases(tensors, self.tensors), isinstance(results, torch.Tensor)
        facts = {"count": len(arrays), "aliases": shared, "is_tensor": is_tensor}
        if name == "a":
            self.held, self.contents = tensors, [each.tobytes() for each in plain_arrays(tensors)]
        facts["changed"] = name == "b" and [each.tobytes() for each in plain_arrays(self.held)] != self.contents
        facts["is_same_memory"] = name == "b" and list(map(reach, tensors)) == list(map(reach, self.held))
        write_results(self.folder / f"out-{self.number}-{name}", [*arrays, *plain_arrays(self.tensors)], facts)

    def place(self, name: str, byte: int) -> None:
        """Write the values of a call into the submission's inputs."""
        values = tensors_in(self.data["b" if name == "b" else "a"])
        if name == "c":
            for tensor, value in zip(self.tensors, values, strict=True):
                tensor.copy_(value)  # torch increments the tensor's version
            return
        if name == "strided":
            self.tensors = self.mark([spread(each) if each.ndim and each.numel() else each for each in values])
            return
        for array, value in zip(self.memory, plain_arrays(values), strict=True):
            array[...] = value
        shared = enumerate(map(tensor_of, self.memory))
        self.tensors = self.mark([self.fresh(each, byte) if at in self.unset else each for at, each in shared])

    def mark(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors, marked as on a GPU where the originals are."""
        return [mark_tensors(each) if is_there else each for each, is_there in zip(tensors, self.marks, strict=True)]

    def fresh(self, like: torch.Tensor, byte: int) -> torch.Tensor:
        """Poisoned memory for a result among the inputs, so that unwritten cells show."""
        with Poison(byte):
            return torch.empty_like(like)


class _Notes:
    """The observations of a session, each finding with the call that showed it."""

    def __init__(self, session: ScriptSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.at = 0, "a"
        self.findings: list[dict[str, Any]] = []

    def take(self, trial: int, call: str) -> None:
        """Take the findings of a call; the session then forgets them, for the next call may show them again."""
        self.findings += self.fresh(trial, call)
        self.session.kernels = {key: replace(each, findings=()) for key, each in self.session.kernels.items()}
        self.at = trial, call

    def fresh(self, trial: int, call: str) -> list[dict[str, Any]]:
        """The findings since the last call."""
        every = (finding for kernel in self.session.kernels.values() for finding in kernel.findings)
        return [{"trial": trial, "call": call, "finding": asdict(finding)} for finding in every]

    def write(self) -> None:
        """Write all of it: a submission may end at any time."""
        kernels = [asdict(replace(each, findings=())) for each in self.session.kernels.values()]
        record = {"kernels": kernels, "findings": self.findings + self.fresh(*self.at), "notes": self.session.notes}
        fresh = self.folder / "record.partial"
        fresh.write_text(json.dumps(record), "utf-8")
        fresh.replace(self.folder / "record.json")
