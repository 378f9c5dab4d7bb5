"""Checks of results: against an op's reference in float64, or the first of some plain functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.dtypes import from_numpy
from noyau.errors import NoyauError
from noyau.ir.graph import Graph
from noyau.jobs.bench.inputs import Views
from noyau.timing.output_checks import Arrays, Check, arrays_of, by_graph, by_reference
from noyau.timing.pairwise import Contender, call_once
from noyau.verify.values import LazyGraph


def by_op(graph: Graph, views: Views, dtypes: Sequence[np.dtype[Any]], spelling: LazyGraph | None = None) -> Check:
    """By the certificate against an op's reference, of which `graph` is made, and `spelt` traced. Results of other
    widths are narrowed."""
    judged = by_graph(graph, spelling)

    def check(inputs: Arrays, outputs: Arrays) -> str:
        misfit = _count(outputs, len(dtypes))
        return misfit or _short(judged(views.memory_as_given(tuple(inputs)), narrowed(outputs, dtypes)))

    return check


def by_function(judge: Contender, dtypes: Sequence[np.dtype[Any]]) -> Check:
    """Against a plain function: for the truth in float64, or longer where inputs are float64, as far as it takes that;
    as it is for what is allowed."""

    def results(*arrays: np.ndarray) -> list[np.ndarray]:
        return arrays_of(judge.gives(judge.run(*judge.takes(arrays))))

    def check(inputs: Arrays, outputs: Arrays) -> str:
        def truth(*widened: np.ndarray) -> list[np.ndarray]:
            longer = any(array.dtype == np.float64 for array in inputs)
            wide = [array.astype(np.longdouble) if longer and _is_float(array.dtype) else array for array in widened]
            try:
                return [_in_float64(each) for each in call_once(judge, wide)]
            except NoyauError:  # it takes no wider floats
                return results(*(array.copy() for array in inputs))

        return _count(outputs, len(dtypes)) or by_reference(results, truth)(inputs, narrowed(outputs, dtypes))

    return check


def _in_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.longdouble else array


def narrowed(outputs: Arrays, dtypes: Sequence[np.dtype[Any]]) -> list[np.ndarray]:
    """Floats in the dtypes that are wanted; all else as it is."""
    return [
        array.astype(dtype) if _is_float(array.dtype) and _is_float(dtype) else array
        for array, dtype in zip(outputs, dtypes, strict=True)
    ]


def _is_float(dtype: np.dtype[Any]) -> bool:
    dtype_known = from_numpy(dtype)
    return dtype_known is not None and dtype_known.is_float


def _count(outputs: Arrays, expected: int) -> str:
    return "" if len(outputs) == expected else f"gave {len(outputs)} results, and {expected} are wanted"


def _short(summary: str) -> str:
    """The summary of a certificate of one run, without the number of runs."""
    return summary.removeprefix("tried on 1 case: ")
