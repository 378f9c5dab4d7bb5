"""How many of ONNX's own operator cases are right: `python benchmarks/onnx_cases.py [--write] [--only NAME]`.

A case is *right* when no node of it is a boundary and its outputs are what ONNX says; *boundary* when some node stays
with the runtime, with the reason; *refused* when the model cannot be read, with the reason; *wrong* otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import ModelError, NoyauError
from noyau.frontends.onnx import Imported, import_model
from noyau.ir.checking import check
from noyau.ir.evaluation import evaluate
from noyau.ir.graph import Graph

LIST = Path(__file__).parents[1] / "tests" / "frontends" / "onnx_cases.json"
Execute = Callable[[Graph, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case, and why."""

    name: str
    verdict: str  # "right", "boundary", "refused" or "wrong"
    reason: str = ""


def cases() -> Iterator[Any]:
    """Every operator case that this release of onnx carries, in its order."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from collect_testcases("")


def judge(case: Any, execute: Execute = evaluate) -> Outcome:
    """Import one case, and run it by `execute` where every node has a meaning."""
    try:
        imported = import_model(case.model)
        check(imported.graph)
    except ModelError as fault:
        return Outcome(case.name, "refused", str(fault))
    if imported.opaque:
        return Outcome(case.name, "boundary", next(iter(imported.opaque.values())))
    for inputs, outputs in case.data_sets:
        try:
            fault = _differ(case, imported, execute, inputs, outputs)
        except (NoyauError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            return Outcome(case.name, "wrong", fault)
    return Outcome(case.name, "right")


def _differ(case: Any, imported: Imported, execute: Execute, inputs: list[Any], outputs: list[Any]) -> str | None:
    """What is wrong with the outputs, or None."""
    names = [value.name for value in case.model.graph.input]
    feeds = {**{name: imported.load_initializer(name) for name in imported.initializers}, **dict(zip(names, inputs))}
    got = execute(imported.graph, feeds)
    for name, want in zip(imported.graph.outputs, outputs, strict=True):
        fault = _compare(np.asarray(got[name]), np.asarray(want), case.rtol, case.atol)
        if fault:
            return f"{name}: {fault}"
    return None


def _compare(got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> str | None:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "iub":
        return None if np.array_equal(got, want) else f"{got.ravel()[:8]} instead of {want.ravel()[:8]}"
    wide, truth = got.astype(np.float64), want.astype(np.float64)
    if np.allclose(wide, truth, rtol=rtol, atol=atol, equal_nan=True):
        return None
    return f"off by {np.nanmax(np.abs(wide - truth))}: {wide.ravel()[:4]} instead of {truth.ravel()[:4]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--reasons", action="store_true", help="count the reasons of the boundaries")
    arguments = parser.parse_args()
    outcomes = [judge(case) for case in cases() if arguments.only in case.name]
    print(dict(Counter(outcome.verdict for outcome in outcomes)))
    for outcome in outcomes:
        if outcome.verdict == "wrong":
            print(f"wrong: {outcome.name}: {outcome.reason}")
    if arguments.reasons:
        for (verdict, reason), count in Counter((o.verdict, o.reason) for o in outcomes).most_common():
            print(f"{count:5} {verdict} {reason}")
    if arguments.write:
        listed = {o.name: [o.verdict, o.reason] if o.reason else [o.verdict] for o in outcomes}
        LIST.write_text(json.dumps(dict(sorted(listed.items())), indent=0) + "\n", encoding="utf-8")
    return int(any(outcome.verdict == "wrong" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
