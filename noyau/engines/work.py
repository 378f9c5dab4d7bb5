"""The work on a stream: columns become arguments, an op or a step runs on each chunk, and errors name the rows.

Arrow's threads read ahead, a pool computes, the caller's thread writes in order: the same bits for any thread count."""

import pickle
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.engines.derived import derive
from noyau.engines.reading import Chunk, Reading, cast_column, rows_in, with_ahead
from noyau.engines.reduction import Reduction
from noyau.engines.sinks import END, Piece
from noyau.errors import NoyauError, RaisedError
from noyau.ops.op import Op
from noyau.toolchain.c import compiler as c_compiler

AHEAD = 1  # chunks that are read ahead
_KEPT = 8  # unpickled works that a worker process memoises


@dataclass
class Work:
    """An op or a reduction with its columns. `columns`: the column, or columns side by side, of each argument with
    rows; `arguments`: the others; `keep`: columns copied to the sink; `sample`: a few rows, or none; `engine`: its name
    in errors; `level`: the CPU level of its kernels in every process."""

    value: Op[..., Any] | Reduction
    columns: Mapping[str, str | Sequence[str]]
    arguments: Mapping[str, Any]
    keep: Sequence[str]
    reading: Reading
    sample: Chunk
    engine: str = "local"
    level: str = field(default_factory=c_compiler.level)
    reduction: Reduction | None = field(init=False)
    graph: Any = field(init=False)  # of an op that gives a result for each row

    def __post_init__(self) -> None:
        plan: Any = self.value
        if isinstance(self.value, Op):
            plan = derive(self.value, {**self.arguments, **self.bound(self.sample)})
        self.reduction = plan if isinstance(plan, Reduction) else None
        self.graph = None if self.reduction else plan.graph

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of its constructor; a process makes it once, with its kernels."""
        return _work_of, (self.content,)

    @cached_property
    def content(self) -> bytes:
        sample = {name: array[:0] for name, array in self.sample.items()}
        wishes = dict(self.columns), dict(self.arguments), tuple(self.keep), replace(self.reading, counts=Counter())
        return pickle.dumps((self.value, *wishes, sample, self.engine, self.level))

    @cached_property
    def taken(self) -> tuple[str, ...]:
        """The columns of the reduction, in order; cached, since reading a signature takes as long as many rows."""
        return self.reduction.columns if self.reduction else ()

    @property
    def outputs(self) -> list[str]:
        """The names of the results of an op."""
        return [term.name for term in self.value.require_signature().outputs] if isinstance(self.value, Op) else []

    def bound(self, chunk: Chunk) -> dict[str, np.ndarray]:
        """The arguments with rows, each in the dtype of the signature."""
        inputs = self.value.require_signature().inputs if isinstance(self.value, Op) else ()
        signed = {term.name: term.element.numpy for term in inputs if isinstance(term.element, DType)}
        arrays = {}
        for name, column in self.columns.items():
            array = chunk[column] if isinstance(column, str) else np.stack([chunk[each] for each in column], axis=1)
            arrays[name] = cast_column(array, signed.get(name), f"{self.value.name}: {name}", column)
        return arrays

    def run(self, chunk: Chunk) -> Any:
        """The state of a chunk; for a sequential reduction its columns; for a map the results of its rows."""
        arrays = self.bound(chunk)
        if self.reduction is not None:
            columns = [arrays[name] for name in self.taken]
            return columns if self.reduction.sequential else self.reduction.step(self.reduction.zero(), *columns)
        outputs = dict(zip(self.outputs, self.results(arrays), strict=True))
        return {**{name: chunk[name] for name in self.keep}, **outputs}

    def results(self, arrays: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        """The results of an op for some rows, in the order of the signature."""
        assert isinstance(self.value, Op)
        results = self.value(**self.arguments, **arrays)
        return results if len(self.outputs) > 1 else [results]

    def run_at(self, chunk: Chunk, part: Any, start: int) -> Any:
        """Run it on a chunk; errors name the engine, the file and the rows."""
        place = f"{part.label}, rows {start} to {start + rows_in(chunk)}"
        try:
            return self.run(chunk)
        except NoyauError as error:
            raise error.reword(f"{self.engine}: {self.value.name} on {place}: {error}") from error
        except Exception as error:
            message = f"raised {type(error).__name__}: {error}"
            raise RaisedError(f"{self.engine}: {self.value.name} {message} on {place}") from error

    def over(self, parts: Iterable[Any], sink: Any, workers: int) -> Iterator[int]:
        """Run it on each part that the sink lacks, and write the results; yield each number of rows done."""
        with ThreadPoolExecutor(workers, "noyau-stream") as pool:
            results = (
                (piece, rows_in(chunk), None if piece[1] == END else pool.submit(self.run_at, chunk, part, start))
                for piece, part, start, chunk in self._pieces(parts, sink)
            )
            for piece, rows, future in with_ahead(results, workers + AHEAD):
                sink.write(piece, None if future is None else future.result())
                yield rows

    def _pieces(self, parts: Iterable[Any], sink: Any) -> Iterator[tuple[Piece, Any, int, Chunk]]:
        for at, part in enumerate(parts):
            if sink.has((at, END)):
                continue
            start = 0
            for number, chunk in enumerate(filter(rows_in, part.chunks(self.reading))):
                if not sink.has((at, number)):
                    yield (at, number), part, start, chunk
                start += rows_in(chunk)
            yield (at, END), part, start, {}


_MAKING = threading.Lock()
_works = lru_cache(_KEPT)(lambda content: Work(*pickle.loads(content)))  # noqa: S301  of a process that runs the same ops


def _work_of(content: bytes) -> Work:
    """The work of these bytes in this process, unpickled once and kept in an LRU cache of _KEPT."""
    with _MAKING:
        return _works(content)
