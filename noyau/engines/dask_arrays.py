"""Ops on Dask arrays, which return lazy Dask arrays: `blockwise` maps each block of rows to one object cell, its
results or the state of its folds, and `da.reduction` merges states in a tree of neighbours."""

import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed

from noyau.engines.derived import OpReduction, rows_of
from noyau.engines.partitions import Task
from noyau.engines.reading import Reading
from noyau.engines.work import Work
from noyau.errors import InputError, SignatureError, warn
from noyau.ir.dims import Dim
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.sizes import bind
from noyau.ops.op import Op

_FAN = 16  # states that one merge takes
_CELLS: Any = np.empty((0,), object)  # Dask's `meta` of arrays of object cells


def call(op: Op[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an op on Dask arrays. SignatureError for constants or out=, InputError for arguments that do not fit,
    UnsupportedError where the reference needs all rows at once."""
    arguments, constants = op.arguments(args, {name: value for name, value in kwargs.items() if name != "out"})
    if constants or kwargs.get("out") is not None:
        remedy = "give the parameter that default, or use da.map_blocks"
        raise SignatureError(f"{op.name}: a call on arrays of Dask takes neither constants nor out=; {remedy}")
    others = dict(zip(op.description.reference.parameters, arguments, strict=True))
    rows = [term.name for term in op.require_signature().inputs if term.dims and term.dims[0] == Dim.of(rows_of(op))]
    blocks = {name: _one_chunk(others.pop(name)) for name in rows}
    if (stray := next((name for name, each in others.items() if isinstance(each, da.Array)), None)) is not None:
        raise InputError(f"{op.name}: {stray} has no rows, and is an array of Dask: compute() it before")
    lengths = {name: each.shape[0] for name, each in blocks.items()}
    if len({each for each in lengths.values() if not np.isnan(each)}) > 1:
        raise InputError(f"{op.name}: {lengths} are not one number of rows")
    sample = {name: np.empty((0, *each.shape[1:]), each.dtype) for name, each in blocks.items()}
    work = Work(op, {name: name for name in rows}, others, (), Reading(tuple(rows), 1), sample, "dask")
    return _results(Task(work), list(blocks.values()))


def _one_chunk(value: Any) -> Any:
    """The array rechunked so that only its rows are split."""
    array = value if isinstance(value, da.Array) else da.from_array(np.asarray(value))
    return array.rechunk(dict.fromkeys(range(1, array.ndim), -1))


def _results(task: Task, blocks: Sequence[Any]) -> Any:
    ranks = [each.ndim for each in blocks]  # each axis but the rows has an index of its own
    indices = [(0, *range(1 + sum(ranks[:at]), sum(ranks[: at + 1]))) for at in range(len(ranks))]
    pairs = [part for pair in zip(blocks, indices, strict=True) for part in pair]
    chunks, _ = da.core.unify_chunks(*pairs)
    content = pickle.dumps(task)
    options = {"dtype": object, "meta": _CELLS, "concatenate": True, "adjust_chunks": {0: lambda rows: 1}}
    cells, one = da.blockwise(partial(_cell, content), (0,), *pairs, **options), task.work.reduction
    if isinstance(one, OpReduction):
        merge = partial(_merge_states, content)
        options = {"axis": 0, "concatenate": False, "split_every": _FAN, "meta": _CELLS}
        whole = da.reduction(cells, _same, partial(merge, rank=0), combine=merge, dtype=object, **options)
        state, evaluator = delayed(whole.to_delayed().item()), Evaluator(False, one.sizes)
        nodes = [one.after[name] for name in one.after.outputs]
        shapes = [(evaluator.shape(node), node.dtype.numpy) for node in nodes]
        results = [da.from_delayed(delayed(_finish)(content, state, at), *each) for at, each in enumerate(shapes)]
    else:
        graph, inputs = task.work.graph, {**task.work.arguments, **task.work.sample}
        names = [node.output for node in graph.inputs]
        sizes = bind([node.shape for node in graph.inputs], [np.shape(inputs[name]) for name in names], names)
        evaluator = Evaluator(False, sizes)
        results = [
            _column(cells, at, (chunks[0], *((n,) for n in evaluator.shape(graph[name])[1:])), graph[name].dtype.numpy)
            for at, name in enumerate(graph.outputs)
        ]
    return results[0] if len(results) == 1 else tuple(results)


def _column(cells: Any, at: int, chunks: tuple[Any, ...], dtype: np.dtype) -> Any:
    """The Dask array of result `at`, which has rows, from cells that contain all results of a block."""
    added, meta = list(range(1, len(chunks))) or None, np.empty((0,) * len(chunks), dtype)
    return da.map_blocks(lambda cell: list(cell[0].values())[at], cells, chunks=chunks, new_axis=added, meta=meta)


def _cell_of(value: Any, rank: int) -> np.ndarray:
    cell = np.empty((1,) * rank, object)
    cell[(0,) * rank] = value
    return cell


def _cell(content: bytes, *blocks: np.ndarray) -> np.ndarray:
    """The object cell of a block: the state of its rows, or their results."""
    task = pickle.loads(content)  # noqa: S301  of the process that asks
    with task.settle() as notes:
        for note in notes:
            warn(note)
        return _cell_of(task.work.run(dict(zip(task.work.columns, blocks, strict=True))), 1)


def _same(cells: np.ndarray, **options: Any) -> np.ndarray:
    return cells


def _merge_states(content: bytes, cells: Any, rank: int = 1, **options: Any) -> np.ndarray:
    one = pickle.loads(content).work.reduction  # noqa: S301  of the process that asks
    state = one.zero()
    for cell in cells if isinstance(cells, list) else [cells]:
        state = one.merge(state, cell[0])
    return _cell_of(state, rank)


def _finish(content: bytes, state: np.ndarray, at: int) -> Any:
    result = pickle.loads(content).work.reduction.finish(state[()])  # noqa: S301  of the process that asks
    return np.asarray(result[at] if isinstance(result, tuple) else result)
