"""A watched launch of a kernel of Triton in a process of its own, since Triton interprets only where it was asked to
before it was imported.

A kernel of Triton with every access watched: where Triton interprets, and else in a process in which it does.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import NoyauError, UnsupportedError
from noyau.kernels.isolated_library import read, write
from noyau.kernels.triton.calls import is_interpreted
from noyau.kernels.user_kernel import HandKernel, python_function, settled
from noyau.ops.reload import Home, home_of, reloaded
from noyau.sanitizer.access_map import Map
from noyau.sanitizer.records import Watched
from noyau.sanitizer.routes import Case
from noyau.sanitizer.triton.run import watch_here
from noyau.signatures.binding import bind
from noyau.verify.findings import restored
from noyau.workers.timing_client import Worker

if TYPE_CHECKING:
    from noyau.ops.op import Op

Array = np.ndarray
_FACTORY = f"{__name__}:served"
_PATIENCE_S, _LOADING_S = 60.0, 120.0
_LOCAL = "it is watched in a process of its own, which finds its op as a global of a file; put it into one"
_WORKERS: dict[str, Worker] = {}  # the one of the last file of which an op was watched


def watch_apart(case: Case) -> Watched:
    """The kernel on its arrays, watched in another process, which stays for the next one of its op.

    UnsupportedError where that process cannot find its op; CheckError where it raises, crashes or does not end."""
    kernel = case.kernel
    home = home_of(_op_with(kernel))
    if home is None:
        raise UnsupportedError(f"{kernel.called}: {_LOCAL}")
    worker = _worker(home, kernel.called)
    chosen = {n: v for n, v in kernel.usage.constants.items() if isinstance(v, bool | int | float | str)}
    known = {n: v for n, v in case.constants.items() if isinstance(v, bool | int | float | str)}
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        given = [write(Path(folder) / f"{k}.in", np.asarray(array)) for k, array in enumerate(case.arrays)]
        told = {"kernel": kernel.name, "chosen": chosen, "constants": known, "size": case.size}
        worker.patience_s = _LOADING_S if not worker.is_running else _PATIENCE_S
        worker.ask("open", factory=_FACTORY, home=asdict(home), told=told, given=given, folder=folder)
        return _watched(worker.ask("tell")["told"])


def _worker(home: Home, name: str) -> Worker:
    """A process in which Triton interprets, for the ops of a file."""
    if home.file not in _WORKERS:
        end()
        _WORKERS[home.file] = Worker(name, environment={"TRITON_INTERPRET": "1"})
    worker = _WORKERS[home.file]
    worker.name = name
    return worker


@atexit.register
def end() -> None:
    """End the process, if there is one."""
    while _WORKERS:
        _WORKERS.popitem()[1].end()


def _op_with(kernel: HandKernel) -> Op[..., Any]:
    """The op that a kernel is of, among the globals of its function and of what it imports."""
    from noyau.ops.op import Op

    scope = getattr(python_function(kernel.function or _op_with), "__globals__", {})
    modules = [vars(value) for value in scope.values() if isinstance(value, ModuleType)]
    for names in (scope, *modules):
        for value in list(names.values()):
            if isinstance(value, Op) and any(each.target is kernel.target for each in value.kernels.values()):
                return value
    raise UnsupportedError(f"{kernel.called}: {_LOCAL}")


def _watched(told: Mapping[str, Any]) -> Watched:
    """The record that the other end has told."""
    findings = tuple(restored(each) for each in told["findings"])
    outputs = tuple(read(each) for each in told["outputs"])
    return Watched(findings, told["accesses"], tuple(told["allowed"]), tuple(told["notes"]), outputs)


def served(
    home: Mapping[str, Any],
    told: Mapping[str, Any],
    given: Sequence[Mapping[str, Any]],
    folder: str,
) -> Served:
    """The other end: what a worker holds."""
    return Served(reloaded(Home(**home)), told, [read(each) for each in given], Path(folder))


class Served:
    """A kernel, and the inputs of one launch."""

    def __init__(self, op: Op[..., Any], told: Mapping[str, Any], arrays: Sequence[Array], folder: Path) -> None:
        self.op, self.told, self.arrays, self.folder = op, told, arrays, folder

    def lasts(self, calls: int) -> float:
        raise NoyauError("a kernel that is watched is not timed")

    def tell(self) -> Any:
        """One launch; what was seen, and where its outputs lie."""
        from noyau.sanitizer.triton.run import watch_here

        op, name = self.op, self.told["kernel"]
        assert op.signature is not None
        bound = bind(op.signature, self.arrays, op.known(self.told["constants"]), op.name)
        kernel = op.kernels.get(name) or op.kernels[name.partition(" (")[0]]  # one choice of its constants
        chosen = settled(kernel, tuple(self.told["chosen"].items()))
        case = Case(chosen, bound.instance, bound.arrays, self.told["constants"], self.told["size"])
        seen = watch_here(case)
        return {
            "findings": [{part.name: getattr(each, part.name) for part in fields(each)} for each in seen.findings],
            "accesses": seen.accesses,
            "allowed": seen.allowed,
            "notes": seen.notes,
            "outputs": [write(self.folder / f"{k}.out", each) for k, each in enumerate(seen.outputs or ())],
        }


def watch(case: Case, maps: list[Map] | None = None) -> Watched:
    """The kernel on its arrays, watched, on tensors of the CPU, whether there is a GPU or not; where Triton
    interprets, a map of it is put into `maps`.

    UnsupportedError where it cannot be; CheckError where it raises, crashes or does not end."""
    return watch_here(case, maps) if is_interpreted(case.kernel.function) else watch_apart(case)
