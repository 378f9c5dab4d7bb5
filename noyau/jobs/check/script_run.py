"""A script or a notebook, run unchanged in a process of its own, with hooks that watch every kernel in it."""

import json
import linecache
import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noyau.errors import UnsupportedError
from noyau.ops.op_files import require_file
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.scripts.fakes import WATCHING, FunctionGuard, patch_allclose
from noyau.sanitizer.scripts.lint import lint_script
from noyau.sanitizer.scripts.notebooks import cells_of, remember_cells, run_cells
from noyau.sanitizer.scripts.record import OBSERVERS, ScriptCheck, ScriptSession, SeenKernel
from noyau.sanitizer.triton.kernel import ONE_THREAD
from noyau.timing.comparison import briefly
from noyau.verify.checks import KernelCheck
from noyau.workers.confinement import die_with_parent
from noyau.workers.import_path import import_path, when_imported
from noyau.workers.signals import INTERRUPTED, interrupt_once, wait_or_end

_COMPILES = "Triton was imported before and compiles: its launches are not watched; set TRITON_INTERPRET=1 and restart"
TIME_S = 600.0  # the time limit of a script
NOTEBOOK = ".ipynb"
_HOOKS = "noyau.sanitizer.scripts"


@contextmanager
def hooks_of_script(session: ScriptSession, launch: Any, text: str) -> Iterator[None]:
    """Watch, for `session`, the parallel functions of Numba, kernels of Numba-CUDA and Triton, and functions of torch
    extensions that are called within the block. `launch`: (grid, block) in place of the script's own; `text`: the code
    that runs, for Triton is imported only for a text that names it."""

    def judged(check: KernelCheck, place: str) -> None:
        """Record a check of a kernel without an op, which the script calls."""
        notes = () if check.certificate is None or not check.certificate.ok else (check.certificate.summary(),)
        watched = WatchedRun(check.findings, check.accesses or 0, notes=notes)
        session.add(check.name, check.language, place, ", ".join(check.shapes), watched)

    with ExitStack() as undone:
        undone.enter_context(briefly())
        patch_allclose(undone, partial(session.note_difference, "allclose"))
        OBSERVERS.append(judged)
        undone.callback(OBSERVERS.remove, judged)
        if find_spec("numba") is not None:
            begin = partial(_install, "numba_hooks", undone, session, launch, is_early=_names(text, "cuda"))
            if _names(text, "numba") or "numba" in sys.modules:
                begin()
            else:
                undone.enter_context(when_imported("numba", begin))
        elif _names(text, "numba"):
            session.notes.append("numba is not installed, so none of its kernels can run; run: pip install numba")
        begin = partial(_install, "triton_hooks", undone, session, launch and launch[0])
        has_triton = find_spec("triton") is not None and find_spec("torch") is not None
        if _names(text, "triton") or (has_triton and _names(text, "torch") and _names(text, "cuda")):
            begin()
        elif has_triton and "triton" not in sys.modules:
            os.environ["TRITON_INTERPRET"] = "1"
            undone.enter_context(when_imported("triton", begin))
        if _names(text, "cpp_extension") and f"{_HOOKS}.triton_hooks" in sys.modules:
            from noyau.sanitizer.scripts import torch_extensions as extensions

            scratch = Path(undone.enter_context(tempfile.TemporaryDirectory(prefix="noyau-")))
            own = extensions.Extensions(session, Path(sys.argv[0]).resolve().parent, TIME_S, scratch)
            undone.enter_context(extensions.stood_in(own))
        yield


def _install(hooks: str, undone: ExitStack, session: ScriptSession, launch: Any, **named: Any) -> None:
    """Install the hooks of a package until `undone` ends; those of Triton if it interprets."""
    if hooks != "triton_hooks" or _interprets(session):
        undone.enter_context(import_module(f"{_HOOKS}.{hooks}").install_hooks(session, launch, **named))


def _names(text: str, package: str) -> bool:
    """Whether a text names a package."""
    return re.search(rf"\b{package}\b", text) is not None


def _interprets(session: ScriptSession) -> bool:
    """Whether Triton is there and interprets in this process, or will."""
    missing = next((name for name in ("triton", "torch") if find_spec(name) is None), None)
    if missing is not None:
        session.notes.append(f"{missing} is not installed, so no kernel of Triton can run; run: pip install {missing}")
        return False
    if "triton.runtime.jit" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    elif os.environ.get("TRITON_INTERPRET", "0") in ("", "0"):
        session.notes.append(_COMPILES)
        return False
    return True


def check_script(
    path: Path,
    arguments: Sequence[str] = (),
    launch: Any = None,
    time_s: float = TIME_S,
    *,
    maps: bool = False,
    say: Callable[[str], object] = str,
) -> ScriptCheck:
    """Run a script with its arguments, or the cells of a notebook in order: its output is printed, and each call of a
    parallel function of Numba, and each launch of a kernel of Numba-CUDA or Triton, is watched on its own arguments. No
    GPU is needed. `launch`: (grid, block) for every launch, in place of the script's own; `time_s`: the time limit;
    `maps`: draw who writes what in a small launch of each kernel; `say`: receives what was seen, each ten seconds.
    A bad end (an exception, a crash) is the `fault` of the record, the end by the time limit is its `unseen`; earlier
    findings are kept. InputError if there is no such file, or it is no notebook."""
    require_file(path, "give SCRIPT.py, BOOK.ipynb or FILE.py::OP")
    if path.suffix == NOTEBOOK:
        remember_cells(cells_of(path), path.name)
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        record = Path(folder) / "record.json"
        wish = {"path": str(path), "arguments": list(arguments), "launch": launch, "record": str(record), "maps": maps}
        state = partial(_read, record, ScriptCheck(path.name, ()))
        text = f"{path.name} runs, kernels seen: "
        cut, end = _end_reason(json.dumps(wish), time_s, lambda: say(f"{text}{len(state().kernels)}"))
        check = state()
    place = re.search(r" \((?:.*, )?line \d+\)$", check.fault) if cut else None
    fault = f"{cut}{place[0] if place else ''}" or check.fault or end
    if cut not in ("", INTERRUPTED):
        check, fault = replace(check, unseen=f"{fault}, which is its limit; give it longer with --time"), ""
    if not (check.kernels or check.unseen or fault):
        check = replace(check, unseen=_unseen_calls(path))
    return replace(check, fault=fault, advice=(*check.advice, *lint_script(path)))


def _unseen_calls(path: Path) -> str:
    """Why nothing was seen of a script or a notebook that calls an op or a compiled library; "" if it calls neither."""
    cells = cells_of(path) if path.suffix == NOTEBOOK else ()
    text = "\n".join(each.text for each in cells) if cells else path.read_text("utf-8", "replace")
    ops = re.findall(r"^@(?:\w+\.)?op\b.*\n(?:(?:@|[ \t]|\)).*\n)*def (\w+)", text, re.MULTILINE)
    if ops:
        return f"a run checks no op, and nothing else was launched: call noyau.check({ops[0]}) where it is defined"
    if re.search(r"\b(?:CDLL|cdll|dlopen|load_library)\b", text):
        return 'a compiled library is not watched: call noyau.check("FILE.c::FUNCTION", arguments) with its text'
    return ""


def _end_reason(wish: str, time_s: float, report: Callable[[], object]) -> tuple[str, str]:
    """Why the process was cut off, and how else it ended; empty texts if it ended well."""
    command = (sys.executable, "-m", "noyau.jobs.check.script_run")
    with subprocess.Popen(command, env={**ONE_THREAD, **os.environ, "NOYAU_SCRIPT": wish}) as process:
        cut = wait_or_end(process, time_s, signal.SIGINT, report)
    status = process.returncode
    if status < 0:
        return cut, f"it crashed (signal {-status})"
    return cut, f"it ended with status {status}" if status else ""


def main() -> int:
    """Run a script in this process: the request is in the environment; the record grows as kernels are watched."""
    wish = json.loads(os.environ.pop("NOYAU_SCRIPT"))
    path = Path(wish["path"])
    session = ScriptSession(path.name, maps={} if wish["maps"] else None)
    session.keep = lambda: _write(session.finish(), Path(wish["record"]))
    die_with_parent()
    signal.signal(signal.SIGINT, interrupt_once)
    sys.argv = [str(path), *wish["arguments"]]
    del sys.path[0]
    launch = wish["launch"] and tuple(tuple(each) if isinstance(each, list) else each for each in wish["launch"])
    fault, status = "", 0
    guard = FunctionGuard()
    finished, write, look = session.finish, _write, guard.look  # saved, for the script may replace them
    session.look = look
    with import_path(path.resolve()), hooks_of_script(session, launch or None, _text(path)):
        look(WATCHING)
        try:
            _run(path, session)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if status and not isinstance(end.code, int):
                sys.stderr.write(f"{end.code}\n")
                fault = f"it ended with sys.exit: {end.code}"
        except BaseException as error:  # noqa: BLE001  also Ctrl-C: earlier findings are still reported
            if not isinstance(error, KeyboardInterrupt):
                _print_traceback(error)
            is_driver = type(error).__name__ == "CudaSupportError"  # raised by an unwatched launch
            if lack := session.lacks.get(str(error), "") or (is_driver and next(iter(session.lacks.values()), "")):
                session.add("numba.cuda", "numba_cuda", str(path), "", None, lack)
            elif isinstance(error, UnsupportedError):
                session.add(path.name, "triton", str(path), "", None, str(error))
            else:
                fault = f"it ended with {type(error).__name__}: {error}{_where(error, path)}"
            if session.is_partial and fault:
                session.note(f"not checked from there on: {fault}, after a launch that could not run here")
                fault = ""
        names = look(WATCHING)
    write(finished(fault, names and f"it put functions of its own in place of {names}"), Path(wish["record"]))
    return status


def _text(path: Path) -> str:
    """The script, and the files beside it that it may import."""
    own = path.read_text(encoding="utf-8", errors="replace")
    words = set(re.findall(r"\w+", " ".join(re.findall(r"\b(?:import|from)\b.*", own))))
    beside = (each for each in path.resolve().parent.glob("*.py") if each.stem in words)
    return "\n".join([own, *(each.read_text(encoding="utf-8", errors="replace") for each in beside)])


def _run(path: Path, session: ScriptSession) -> None:
    if path.suffix == NOTEBOOK:
        session.notes += run_cells(cells_of(path), path.name)
    else:
        linecache.checkcache(str(path))
        lines = linecache.getlines(str(path))
        linecache.cache[str(path)] = (sum(map(len, lines)), None, lines, str(path))  # also after os.chdir
        runpy.run_path(str(path), run_name="__main__")


def _where(error: BaseException, path: Path) -> str:
    """The last line of the script in an exception's traceback."""
    frames = [(Path(frame.filename).name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    mine = [(name, line) for name, line in frames if name == path.name or name.startswith(f"{path.name}[")]
    if not mine:
        return ""
    name, line = mine[-1]
    cell = name.removeprefix(path.name).strip("[]")
    return f" ({cell}, line {line})" if cell else f" (line {line})"


def _print_traceback(error: BaseException) -> None:
    """Print the traceback as Python does, without the frames of noyau and of runpy."""
    exception = traceback.TracebackException.from_exception(error)
    ours = "<frozen runpy>", f"{files('noyau')}{os.sep}"
    frames = [each for each in exception.stack if not each.filename.startswith(ours)]
    exception.stack = traceback.StackSummary.from_list(frames)
    sys.stderr.write("".join(exception.format()))


def _write(check: ScriptCheck, record: Path) -> None:
    """Append the present check to the record: earlier entries stay, whatever the script does in this process."""
    with record.open("ab") as file:
        file.write(pickle.dumps(check))


def _read(record: Path, empty: ScriptCheck) -> ScriptCheck:
    """The last check of a record, with the findings of all before it; `empty` if no entry is complete."""
    checks, kernels = [empty], dict[tuple[str, str], SeenKernel]()
    with suppress(FileNotFoundError, EOFError, pickle.UnpicklingError), record.open("rb") as file:
        while True:
            checks.append(pickle.load(file))  # noqa: S301  from a process of our own
    for seen in (each for check in checks for each in check.kernels):
        earlier = kernels.get((seen.name, seen.place), seen)
        findings = {finding.id: finding for finding in (*seen.findings, *earlier.findings)}
        kernels[seen.name, seen.place] = replace(seen, findings=tuple(findings.values()))
    return replace(checks[-1], kernels=tuple(kernels.values()))


if __name__ == "__main__":
    sys.exit(main())
