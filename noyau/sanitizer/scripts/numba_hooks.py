"""While a script runs, calls of parallel functions of Numba are watched, on the script's own arguments; and launches of
Numba-CUDA, where its package can be imported."""

from __future__ import annotations

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

_BINDING = "NUMBA_CUDA_USE_NVIDIA_BINDING"  # "0": numba-cuda asks for no package of NVIDIA's, where it can do without
_UNCHECKED = "it cannot be imported"
CUDA_HOOKS = "noyau.sanitizer.scripts.numba_cuda_hooks"


@contextmanager
def install_hooks(session: ScriptSession, launch: Any = None, *, is_early: bool = True) -> Iterator[None]:
    """Watch what is called in the meantime, for `session`. `launch`: what kernels of CUDA are launched with, in place
    of what the script says. `is_early`: numba.cuda, which takes a second, is imported now, not once somebody does."""
    with ExitStack() as undone:
        patch(undone, CPUDispatcher, "__call__", _LoopHooks(session).parallel(CPUDispatcher.__call__))
        watch = partial(_watch_cuda, session, launch, undone)
        if is_early or "numba.cuda" in sys.modules:
            watch()
        else:
            undone.enter_context(when_imported("numba.cuda", watch))
        yield


def _watch_cuda(session: ScriptSession, launch: Any, undone: ExitStack) -> None:
    """Have kernels of Numba-CUDA watched until `undone` ends, where it can be imported."""
    try:
        hooks = import_cuda(CUDA_HOOKS)
    except (ImportError, AttributeError) as fault:  # of a package that is not there, or a release with other names
        session.lacks[str(fault)] = f"{_UNCHECKED}: {' '.join(str(fault).split())}"
    else:
        undone.enter_context(hooks.install_hooks(session, launch))


def import_cuda(name: str) -> ModuleType:
    """A module that imports numba.cuda. ImportError where a package that it needs is not there."""
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
    """Stand-ins of calls of Numba's functions while a script runs."""

    def __init__(self, session: ScriptSession) -> None:
        self.session = session
        self.watching = False  # a loop is: what it calls is called as it is

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
        """A call of a parallel function, watched; where it cannot be, it is Numba's own."""
        name, place = function.py_func.__name__, place_of(function)
        arguments = inspect.signature(function.py_func).bind(*args, **named)
        arguments.apply_defaults()
        if arguments.kwargs:  # Numba says what it has against parameters that are given by name only
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
        except Exception as fault:  # noqa: BLE001  whatever it is, the script goes on as Numba has it
            raised = "" if isinstance(fault, NoyauError) else f"in Python it raised {type(fault).__name__}: "
            seen = watching.report_run(self.session.script, name, shapes) if raised else None  # what led to it, perhaps
            self.session.add(name, "numba", place, shapes, seen, f"{raised}{fault}".partition("\n")[0])
            restore(arguments.args, before)
            return plain(function, *args, **named)
        finally:
            self.watching = False
        self.session.add(name, "numba", place, shapes, watched, watching.note)
        return result
