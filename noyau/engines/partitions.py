"""The task of an engine on one part of a source: in any process, by one thread, for the CPU level of the work.

An engine is a function `run(task, parts, address, count)` that yields the answers of all parts, or of neighbours."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from noyau.engines.reading import Chunk, Reading, rows_in
from noyau.engines.sinks import END, Fold
from noyau.engines.sources import columns_of
from noyau.engines.work import Work
from noyau.errors import BuildError, NoyauError, RaisedError, warn
from noyau.hosts.numpy.fast_calls import threads
from noyau.kernels.reference import reference
from noyau.toolchain.c import compiler as c_compiler


@dataclass(frozen=True)
class Partition:
    """A part of a source whose chunks an engine provides: DataFrames, Arrow batches, arrays, dicts of arrays."""

    label: str
    values: Iterable[Any]

    def chunks(self, reading: Reading) -> Iterator[Chunk]:
        for number, value in enumerate(self.values):
            yield from columns_of(value, reading, f"{self.label}, chunk {number}")


@dataclass(frozen=True)
class Answer:
    """The answer of a part, or of neighbouring parts. `last`: the number of the last part; `state`: packed if the task
    `packs`, None for rows that were written; `counts`: rows and lines left out; `parts`: label, rows and seconds of
    each; `compiled`: runs of a compiler; `notes`: warnings for the caller; `error`: a failure as data, so that no
    engine retries, rewords or logs it."""

    last: int
    state: Any = None
    counts: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[tuple[str, int, float], ...] = ()
    compiled: int = 0
    notes: frozenset[str] = frozenset()
    error: NoyauError | None = None


@dataclass(frozen=True)
class Task:
    """The work on each part. `folder`: the folder of its rows; `threads`: of a part; `home`: the calling process;
    `packs`: states are packed for another process."""

    work: Work
    folder: Path | None = None
    threads: int = 1
    home: int = field(default_factory=os.getpid)
    packs: bool = True

    def run(self, number: int, part: Any) -> Answer:
        """The answer of one part; an error, which names the rows, is part of the answer."""
        label = f"{self.work.engine}: "
        try:
            return self._run(number, part)
        except NoyauError as fault:
            error = fault if str(fault).startswith(label) else fault.reword(f"{label}{fault}")
        except Exception as fault:  # noqa: BLE001  of reading or merging; the caller raises it
            message = f"raised {type(fault).__name__}: {fault} on {part.label}"
            error = RaisedError(f"{label}{self.work.value.name} {message}")
        return Answer(number, error=error)

    def _run(self, number: int, part: Any) -> Answer:
        begin_s, compiled, rows, one = time.perf_counter(), c_compiler.runs[0], 0, self.work.reduction
        reading, sink = replace(self.work.reading, counts=Counter(), threads=False), self._sink()
        with self.settle() as notes:
            for at, chunk in enumerate(filter(rows_in, part.chunks(reading))):
                sink.write((number, at), self.work.run_at(chunk, part, rows))
                rows += rows_in(chunk)
            sink.write((number, END), None)
        done = ((part.label, rows, time.perf_counter() - begin_s),)
        state = one and (one.pack(sink.state) if self.packs else sink.state)
        return Answer(number, state, reading.counts, done, c_compiler.runs[0] - compiled, notes)

    def run_value(self, number: int, value: Any) -> Answer:
        """The answer of a partition that an engine holds: a DataFrame, an array, columns."""
        is_empty = isinstance(value, Mapping) and not value  # of a bag, whose columns are known from records only
        return self.run(number, Partition(f"partition {number}", [] if is_empty else [value]))

    def merge(self, answers: Sequence[Answer]) -> Answer:
        """Merge the answers of neighbours; the first error among them replaces the answer."""
        one, counts = self.work.reduction, Counter[str]()
        state = one and one.zero()
        for each in answers:
            if each.error is not None:
                return each
            state = one and one.merge(state, one.unpack(each.state))
            counts.update(each.counts)
        parts = tuple(part for each in answers for part in each.parts)
        notes = frozenset(note for each in answers for note in each.notes)
        last, compiled = max((each.last for each in answers), default=-1), sum(each.compiled for each in answers)
        return Answer(last, one.pack(state) if one else None, counts, parts, compiled, notes)

    def _sink(self) -> Any:
        if self.work.reduction is not None:
            return Fold(self.work.reduction, None)
        from noyau.engines.arrow_files import ParquetFolder

        return ParquetFolder(None, self.folder or Path())

    @contextmanager
    def settle(self) -> Iterator[frozenset[str]]:
        """A block with the CPU level and the threads of the task; yields notes, if the reference replaces kernels."""
        if os.getpid() != self.home:  # a worker process of the engine
            threads(self.threads)
        with ExitStack() as stack:
            notes = frozenset[str]()
            try:
                stack.enter_context(c_compiler.at_level(self.work.level))
            except BuildError as fault:
                stack.enter_context(reference())
                notes = frozenset([f"{fault}; {self.work.value.name} ran there as its reference"])
            yield notes


def over(
    task: Task, run: Callable[..., Iterable[Answer]], parts: Iterable[Any], sink: Any, answers: list[Answer]
) -> Iterator[int]:
    """Run a task on each part that the sink lacks, write the results, append the answers; yield the rows of each."""
    left = ((number, part) for number, part in enumerate(parts) if not sink.has((number, END)))
    notes = set[str]()
    for answer in run(task, left):
        if answer.error is not None:
            raise answer.error
        for note in answer.notes - notes:
            warn(f"{task.work.engine}: {note}")
        notes |= answer.notes
        one = task.work.reduction
        sink.write((answer.last, END), one and (one.unpack(answer.state) if task.packs else answer.state))
        task.work.reading.counts.update(answer.counts)
        answers.append(replace(answer, state=None))
        yield sum(rows for _, rows, _ in answer.parts)
