"""The choice of an engine: by its name, or by what it collects; what is not installed is one line that says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from noyau.engines import trial
from noyau.engines.partitions import Answer, Task, over
from noyau.engines.processes_engine import idle
from noyau.engines.sources import Arrays, open_source
from noyau.engines.work import Work
from noyau.errors import CheckError, InputError, MissingExtraError
from noyau.workers.resources import processors

NAMES = ("local", "threads", "processes", "cuda", "dask", "spark")
_HERE = ("local", "threads", "cuda")  # of this process; each of the others is a file, NAME_engine.py
_PACKAGES = {"dask": ("dask", "dask"), "spark": ("pyspark", "spark"), "cuda": ("torch", "torch")}  # with their extras
_FEW = 2  # parts of a thread, so that each thread reads parts of its own
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
        if hasattr(origin, "cut_parts") or isinstance(origin, Arrays):
            return origin
        remedy = "name files or arrays, or say engine='local'"
        raise InputError(f"{self.name}: what comes one after the other cannot go to other processes; {remedy}")

    def parts(self, origin: Any, columns: Sequence[str]) -> Iterable[Any]:
        """The parts of a source; for other processes, of what this one reads as a whole."""
        cuts = self.name not in _HERE and hasattr(origin, "cut_parts")
        parts: Iterable[Any] = origin.cut_parts(columns) if cuts else origin.parts(columns)
        return parts

    def settled(self, work: Work, origin: Any, sink: Any, workers: int | None) -> Engine:
        """Threads or processes in the place of "local", as a trial has it."""
        one, count = work.reduction, workers or processors()
        is_one_process = one.sequential if one else Path(sink.output).suffix != ".parquet"
        if self.name != "local" or is_one_process:
            return self
        start_s = 0.0 if idle() >= count else trial.START_S
        first = list(islice(origin.parts(work.reading.columns), 2))
        name, why = trial.choose(work, first, origin.size or getattr(origin, "estimate", 0), count, start_s)
        return replace(self, name=name, why=f"{name}: {why}")

    def run(
        self, work: Work, parts: Iterable[Any], sink: Any, workers: int | None, answers: list[Answer]
    ) -> Iterator[int]:
        """Run the work on each part; yield each number of rows done. CheckError where states cannot be merged,
        InputError for a sink that one process alone writes."""
        count, one = workers or processors(), work.reduction
        if self.name == "cuda":
            return iter(self._module.over(work, parts, sink, self._module.devices_of(self.address)))
        if self.name in _HERE:
            rest = iter(parts)
            first = list(islice(rest, _FEW * count))
            parts = chain(first, rest)
            is_many = len(first) == _FEW * count and all(getattr(part, "is_read_alone", False) for part in first)
            if one is None or one.sequential or not is_many:
                return work.over(parts, sink, count)
            return over(Task(work, packs=False), partial(in_threads, count=count), parts, sink, answers)
        if one is not None and one.sequential:
            remedy = "say engine='local', or make it a monoid"
            raise CheckError(f"{self.name}: {work.value.name} takes its rows in order, and parts run at once; {remedy}")
        folder = None if one else Path(sink.output).absolute()
        if folder is not None and folder.suffix != ".parquet":
            raise InputError(
                f"{self.name}: {sink.output} is written by one process: name x.parquet, or say engine='local'"
            )
        task = Task(work, folder, 1 if self.name == "processes" else workers or 1)
        run = partial(self._module.run, address=self.address, count=count)
        return over(task, run, parts, sink, answers)

    @property
    def _module(self) -> Any:
        return import_module(f"noyau.engines.{self.name}_engine")


def in_threads(task: Task, parts: Iterable[tuple[int, Any]], count: int) -> Iterator[Answer]:
    """The answers of all parts, each read and folded by one thread: what it reads is in the cache of its core."""
    waiting = deque[Future[Answer]]()
    with ThreadPoolExecutor(count, "noyau-stream") as pool:
        try:
            for number, part in parts:
                waiting.append(pool.submit(task.run, number, part))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
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
