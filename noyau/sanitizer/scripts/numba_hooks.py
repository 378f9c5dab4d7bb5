"""Hooks for a running script that watch calls of Numba's parallel functions, on the script's own arguments, and
launches of Numba-CUDA if its package can be imported."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from numba.core.registry import CPUDispatcher

from noyau.errors import NoyauError
from noyau.sanitizer.lint.arithmetic import sums_of_call
from noyau.sanitizer.numba.kernel import MOST, Watching, map_of, watch_call
from noyau.sanitizer.recording_array import Recorder
from noyau.sanitizer.routes import copy_argument, restore
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.record import ScriptSession, describe_shapes, place_of
from noyau.workers.import_path import when_imported

_BINDING = "NUMBA_CUDA_USE_NVIDIA_BINDING"  # "0": numba-cuda avoids NVIDIA's Python packages where possible
_UNCHECKED = "it cannot be imported"
CUDA_HOOKS = "noyau.sanitizer.scripts.numba_cuda_hooks"


@contextmanager
def install_hooks(session: ScriptSession, launch: Any = None, *, is_early: bool = True) -> Iterator[None]:
    """Watch calls for `session`. `launch`: replaces the launch configuration of CUDA kernels. `is_early`: import
    numba.cuda, which takes a second, now rather than with the script's own import."""
    with ExitStack() as undone:
        patch(undone, CPUDispatcher, "__call__", _LoopHooks(session).parallel(CPUDispatcher.__call__))
        watch = partial(_watch_cuda, session, launch, undone)
        if is_early or "numba.cuda" in sys.modules:
            watch()
        else:
            undone.enter_context(when_imported("numba.cuda", watch))
        yield


def _watch_cuda(session: ScriptSession, launch: Any, undone: ExitStack) -> None:
    """Watch Numba-CUDA kernels until `undone` ends, if it can be imported."""
    try:
        hooks = import_cuda(CUDA_HOOKS)
    except (ImportError, AttributeError) as fault:  # the package is missing, or its release has other names
        session.lacks[str(fault)] = f"{_UNCHECKED}: {' '.join(str(fault).split())}"
    else:
        undone.enter_context(hooks.install_hooks(session, launch))


def import_cuda(name: str) -> ModuleType:
    """Import a module that imports numba.cuda. ImportError if a required package is missing."""
    try:
        return import_module(name)
    except ImportError:
        if _BINDING in os.environ:
            raise
    for each in [each for each in sys.modules if each == "numba.cuda" or each.startswith("numba.cuda.")]:
        del sys.modules[each]
    os.environ[_BINDING] = "0"
    return import_module(name)


class _LoopHooks:
    """Stand-ins for calls of Numba's functions while a script runs."""

    def __init__(self, session: ScriptSession) -> None:
        self.session = session
        self.watching = False  # True within a watched loop, whose callees run unwatched

    def parallel(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(function: Any, *args: Any, **named: Any) -> Any:
            for each in sums_of_call(function, args):
                finding = each.finding(self.session.script, function.py_func.__name__, "numba")
                self.session.advice.setdefault(finding.id, finding)
            if self.watching or not function.targetoptions.get("parallel"):
                return plain(function, *args, **named)
            return self.run_loops(function, plain, args, named)

        return called

    def run_loops(self, function: Any, plain: Callable[..., Any], args: Any, named: Any) -> Any:
        """Watch a call of a parallel function; if that fails, run Numba's compiled function."""
        name, place = function.py_func.__name__, place_of(function)
        arguments = inspect.signature(function.py_func).bind(*args, **named)
        arguments.apply_defaults()
        if arguments.kwargs:  # Numba itself reports keyword-only parameters
            return plain(function, *args, **named)
        before = copy_argument(arguments.args)
        shapes = describe_shapes(list(arguments.arguments), arguments.args)
        self.watching = True
        traced = self.session.trace(name, place)
        recorder = Recorder(MOST, traced)
        watching = Watching(function, recorder)
        try:
            watched, result = watch_call(function, arguments.args, shapes, self.session.script, watching)
            if traced is not None:
                self.session.draw(map_of(name, recorder, traced, arguments.arguments, traced.accesses >= MOST), place)
        except Exception as fault:  # noqa: BLE001  for any fault the script continues with Numba's function
            raised = "" if isinstance(fault, NoyauError) else f"in Python it raised {type(fault).__name__}: "
            seen = watching.report_run(self.session.script, name, shapes) if raised else None  # it may explain it
            self.session.add(name, "numba", place, shapes, seen, f"{raised}{fault}".partition("\n")[0])
            restore(arguments.args, before)
            return plain(function, *args, **named)
        finally:
            self.watching = False
        self.session.add(name, "numba", place, shapes, watched, watching.note)
        return result
