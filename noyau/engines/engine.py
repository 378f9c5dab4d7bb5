"""The choice of an engine: by its name, or by what it collects; what is not installed is one line that says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from noyau.engines import trial
from noyau.engines.partitions import Answer, Task, over
from noyau.engines.sources import Arrays, open_source
from noyau.engines.work import Work
from noyau.errors import CheckError, InputError, MissingExtraError
from noyau.workers.resources import processors

NAMES = ("local", "threads", "processes", "cuda", "dask", "spark")
_HERE = ("local", "threads", "cuda")  # of this process; each of the others is a file, NAME_engine.py
_PACKAGES = {"dask": ("dask", "dask"), "spark": ("pyspark", "spark"), "cuda": ("torch", "torch")}  # with their extras
_CHUNK = 1 << 22  # bytes of the largest chunk: beyond the caches nothing becomes faster
_CHUNK_OF_GPU = 1 << 25  # which a launch takes as long as to begin


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, and the address of its scheduler where one is named. `is_own`: the source is a collection of it;
    `why`: it was chosen."""

    name: str
    address: str = ""
    is_own: bool = False
    why: str = ""

    @property
    def chunk(self) -> int:
        """Bytes of the largest chunk."""
        return _CHUNK_OF_GPU if self.name == "cuda" else _CHUNK

    def open(self, source: Any, columns: Sequence[str]) -> Any:
        """The source that a value is. InputError for one that comes once, in this process."""
        if self.is_own:
            return self._module.open_collection(source, columns)
        if self.name in _HERE:
            return open_source(source, columns)
        if isinstance(source, str | Path) and "::" not in str(source) and "://" not in str(source):
            source = Path(source).absolute()  # workers may run in another folder
        origin = open_source(source, columns)
        if hasattr(origin, "files") or isinstance(origin, Arrays):
            return origin
        remedy = "name files or arrays, or say engine='local'"
        raise InputError(f"{self.name}: what comes one after the other cannot go to other processes; {remedy}")

    def settled(self, work: Work, origin: Any, sink: Any, workers: int | None) -> Engine:
        """Threads or processes in the place of "local", as a trial has it."""
        is_rows = work.reduction is None
        if self.name != "local" or (is_rows and Path(sink.output).suffix != ".parquet"):
            return self
        if work.reduction is not None and work.reduction.sequential:
            return self
        from noyau.engines.processes_engine import idle

        count = workers or processors()
        start_s = 0.0 if idle() >= count else trial.START_S
        first = list(islice(origin.parts(work.reading.columns), 2))
        name, why = trial.choose(work, first, origin.size or getattr(origin, "estimate", 0), count, start_s)
        return replace(self, name=name, why=f"{name}: {why}")

    def run(
        self, work: Work, parts: Iterable[Any], sink: Any, workers: int | None, answers: list[Answer]
    ) -> Iterator[int]:
        """Run the work on each part; yield each number of rows done. CheckError where states cannot be merged,
        InputError for a sink that one process alone writes."""
        if self.name == "cuda":
            return iter(self._module.over(work, parts, sink, self._module.devices_of(self.address)))
        if self.name in _HERE:
            return work.over(parts, sink, workers or processors())
        if work.reduction is not None and work.reduction.sequential:
            remedy = "say engine='local', or make it a monoid"
            raise CheckError(f"{self.name}: {work.value.name} takes its rows in order, and parts run at once; {remedy}")
        folder = None if work.reduction else Path(sink.output).absolute()
        if folder is not None and folder.suffix != ".parquet":
            raise InputError(
                f"{self.name}: {sink.output} is written by one process: name x.parquet, or say engine='local'"
            )
        task = Task(work, folder, 1 if self.name == "processes" else workers or 1)
        run = partial(self._module.run, address=self.address, count=workers or processors())
        return over(task, run, parts, sink, answers)

    @property
    def _module(self) -> Any:
        return import_module(f"noyau.engines.{self.name}_engine")


def choose_engine(engine: str | None, source: Any) -> Engine:
    """The engine of this name, `"dask:ADDRESS"` with its scheduler; without one that of the source. InputError where
    there is no such engine, or it does not read the source; MissingExtraError where it is not installed."""
    first = source[0] if isinstance(source, list) and source else source
    own = {"dask": "dask", "pyspark": "spark"}.get(type(first).__module__.partition(".")[0], "")
    name, _, address = (engine or own or "local").partition(":")
    if name not in NAMES:
        raise InputError(f"there is no engine {name!r}: say {', '.join(NAMES)}")
    if own and name != own:
        raise InputError(f"engine={name!r} does not read a collection of {own}: say engine={own!r}, or name files")
    package, extra = _PACKAGES.get(name, ("noyau", ""))
    if find_spec(package) is None:
        raise MissingExtraError(f"engine={name!r} needs {package}; run: pip install 'noyau-kernels[{extra}]'")
    return Engine(name, address, bool(own))
