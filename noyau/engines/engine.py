"""The choice of an engine: by its name, or by what it collects; what is not installed is one line that says so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from noyau.engines.partitions import Answer, Task, over
from noyau.engines.processes_engine import IDLE, START_S, choose
from noyau.engines.reading import with_ahead
from noyau.engines.sources import Arrays, open_source
from noyau.engines.work import Work
from noyau.errors import CheckError, InputError, MissingExtraError
from noyau.workers.resources import processors

NAMES = ("local", "threads", "processes", "cuda", "dask", "spark")
_HERE = ("local", "threads", "cuda")  # of this process; each of the others is a file, NAME_engine.py
_PACKAGES = {"dask": ("dask", "dask"), "spark": ("pyspark", "spark"), "cuda": ("torch", "torch")}  # with their extras
_FEW = 2  # parts of a thread, so that each thread reads parts of its own
CHUNK, CHUNKS = 1 << 21, {"cuda": 1 << 25}  # bytes of the largest chunk: what the cache of a core keeps, or more


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine. `address`: of its scheduler; `is_own`: the source is a collection of it; `why`: it was chosen."""

    name: str
    address: str = ""
    is_own: bool = False
    why: str = ""

    def open(self, source: Any, columns: Sequence[str]) -> Any:
        """The source that a value is. InputError for one that comes once, in this process."""
        if self.is_own:
            return self._module.open_collection(source, columns)
        if self.name in _HERE:
            return open_source(source, columns)
        if isinstance(source, str | Path) and "::" not in str(source) and "://" not in str(source):
            source = Path(source).absolute()  # workers may run in another folder
        origin = open_source(source, columns)
        if hasattr(origin, "cut_parts") or isinstance(origin, Arrays):
            return origin
        remedy = "name files or arrays, or say engine='local'"
        raise InputError(f"{self.name}: chunks that come one after the other cannot go to other processes; {remedy}")

    def settle(self, work: Work, origin: Any, size: int | None, sink: Any, workers: int | None) -> Engine:
        """Threads or processes in the place of "local", as a trial has it. `size`: the rows, where they are known."""
        one, count = work.reduction, workers or processors()
        is_one_process = one.sequential if one else Path(sink.output).suffix != ".parquet"
        if self.name != "local" or is_one_process:
            return self
        start_s = START_S / (10 if len(IDLE.get(os.getpid(), ())) >= count else 1)  # a trial takes a while too
        first = list(islice(origin.parts(work.reading.columns), 2))
        name, why = choose(work, first, lambda: size or origin.size or origin.estimate, count, start_s)
        return replace(self, name=name, why=f"{name}: {why}")

    def run(self, work: Work, origin: Any, sink: Any, workers: int | None, answers: list[Answer]) -> Iterator[int]:
        """Run the work on each part; yield each number of rows done. CheckError where states cannot be merged,
        InputError for a sink that one process alone writes, or a source that cannot be cut."""
        count, one = workers or processors(), work.reduction
        cuts = self.name not in _HERE and not self.why and hasattr(origin, "cut_parts")  # parts are those of threads
        parts: Iterator[Any] = iter((origin.cut_parts if cuts else origin.parts)(work.reading.columns))
        if self.name == "cuda":
            return iter(self._module.over(work, parts, sink, self.address))
        if self.name in _HERE:
            first = list(islice(parts, _FEW * count))
            parts = chain(first, parts)
            is_many = len(first) == _FEW * count and all(getattr(part, "format", "csv") != "csv" for part in first)
            if one is None or one.sequential or not is_many:  # a text is parsed by threads of Arrow's
                return work.over(parts, sink, count)
            return over(Task(work, packs=False), partial(in_threads, count=count), parts, sink, answers)
        if one is not None and one.sequential:
            remedy = "say engine='local', or make it a monoid"
            raise CheckError(f"{self.name}: {work.value.name} takes its rows in order, and parts run at once; {remedy}")
        folder = None if one else Path(sink.output).absolute()
        if folder is not None and folder.suffix != ".parquet":
            remedy = "name x.parquet, or say engine='local'"
            raise InputError(f"{self.name}: {sink.output} is written by one process: {remedy}")
        task = Task(work, folder, 1 if self.name == "processes" else workers or 1)
        return over(task, partial(self._module.run, address=self.address, count=count), parts, sink, answers)

    @property
    def _module(self) -> Any:
        return import_module(f"noyau.engines.{self.name}_engine")


def in_threads(task: Task, parts: Iterable[tuple[int, Any]], count: int) -> Iterator[Answer]:
    """The answers of all parts, each read and folded by one thread: what it reads is in the cache of its core."""
    if count == 1:  # another thread would be as many turns more as there are parts
        yield from (task.run(number, part) for number, part in parts)
        return
    with ThreadPoolExecutor(count, "noyau-stream") as pool:
        try:
            for answer in with_ahead((pool.submit(task.run, number, part) for number, part in parts), count):
                yield answer.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


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
