"""How many of ONNX's own operator cases are right: `python benchmarks/onnx_cases.py [--write] [--only NAME]`.

A case is *right* when no node of it is a boundary and its outputs are what ONNX says; *boundary* when some node stays
with the runtime, with the reason; *refused* when the model cannot be read, with the reason; *wrong* otherwise.

The cases feed axes, shapes, pads and the like as inputs, where models hold constants. Where only that makes a boundary,
these inputs are made initializers, and the list says so.
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

from noyau.errors import ModelError, NoyauError, UnsupportedError
from noyau.frontends.onnx import ImportedModel, import_model
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check

LIST = Path(__file__).parents[1] / "tests" / "frontends" / "onnx_cases.json"
# The inputs that are parameters: axes, extents, counts. Models hold constants there.
PARAMETERS = {
    **dict.fromkeys(("BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow"), (0,)),
    **dict.fromkeys(("CenterCropPad", "CumProd", "CumSum", "Expand", "OneHot", "Reshape", "Split", "Tile"), (1,)),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"), (1,)),
    **dict.fromkeys(("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Squeeze", "Unsqueeze"), (1,)),
    "Dropout": (1, 2),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
}
Execute = Callable[[Graph, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case, and why."""

    name: str
    verdict: str  # "right", "boundary", "refused" or "wrong"
    reason: str = ""


def cases() -> Iterator[Any]:
    """Every operator case that this release of onnx carries, in its order; the results of pools, which are boundaries,
    are zeros: onnx takes ten seconds for them, cell by cell, when the cases are collected for the first time."""
    from onnx.backend.test.case.node import collect_testcases
    from onnx.reference.ops import op_pool_common

    def pool(padded: np.ndarray, x_shape: Any, kernel: Any, strides: Any, out_shape: Any, *_: Any, **__: Any) -> Any:
        return np.zeros([*x_shape[:2], *out_shape], padded.dtype)

    whole, op_pool_common.pool = op_pool_common.pool, pool
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = collect_testcases("")
    finally:
        op_pool_common.pool = whole
    yield from found


def parameters_of(found: list[Any]) -> dict[str, frozenset[str]]:
    """The names of the inputs that are parameters, by case; an expanded case has those of its origin."""
    named = {case.name: frozenset(_parameters(case.model.graph.node[0])) for case in found if case.model.graph.node}
    return {name: named.get(name.partition("_expanded")[0], frozenset()) for name in named}


def _parameters(node: Any) -> Iterator[str]:
    return (node.input[k] for k in PARAMETERS.get(node.op_type, ()) if k < len(node.input) and node.input[k])


def judge(case: Any, parameters: frozenset[str], execute: Execute = evaluate) -> Outcome:
    """Import one case, and run it by `execute` where every node has a meaning."""
    names, frozen = [value.name for value in case.model.graph.input], ""
    try:
        imported = import_model(case.model)
        if imported.opaque and len(case.data_sets) == 1:
            held = {name: array for name, array in zip(names, case.data_sets[0][0], strict=False) if name in parameters}
            settled = import_model(_frozen(case.model, held)) if held else imported
            imported, frozen = (imported, "") if settled.opaque else (settled, ", ".join(held))
        check(imported.graph)
    except ModelError as fault:
        return Outcome(case.name, "refused", str(fault))
    if imported.opaque:
        return Outcome(case.name, "boundary", next(iter(imported.opaque.values())))
    for inputs, outputs in case.data_sets:
        try:
            fault = _differ(case, imported, execute, dict(zip(names, inputs, strict=False)), outputs)
        except UnsupportedError:
            raise
        except (NoyauError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            return Outcome(case.name, "wrong", fault)
    return Outcome(case.name, "right", frozen and f"with {frozen} as constants")


def _frozen(model: Any, parameters: Mapping[str, Any]) -> Any:
    """The model in which these inputs are initializers."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.input[:]
    copy.graph.input.extend(value for value in model.graph.input if value.name not in parameters)
    for name, array in parameters.items():
        copy.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return copy


def _array(value: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _differ(
    case: Any, imported: ImportedModel, execute: Execute, inputs: Mapping[str, Any], outputs: list[Any]
) -> str | None:
    """What is wrong with the outputs, or None."""
    given = {node.output for node in imported.graph.inputs}
    feeds = {name: imported.load_initializer(name) for name in imported.initializers}
    feeds.update((name, _array(value)) for name, value in inputs.items() if name in given)
    got = execute(imported.graph, feeds)
    for name, want in zip(imported.graph.outputs, outputs, strict=True):
        fault = _compare(np.asarray(got[name]), np.asarray(_array(want)), case.rtol, case.atol)
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


def listed(outcomes: list[Outcome]) -> str:
    """The list as JSON, a line for each case."""
    rows = {each.name: [each.verdict, *([each.reason] if each.reason else [])] for each in outcomes}
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items())) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--reasons", action="store_true", help="count the reasons of the boundaries")
    arguments = parser.parse_args()
    found = list(cases())
    parameters = parameters_of(found)
    outcomes = [judge(case, parameters[case.name]) for case in found if arguments.only in case.name]
    frozen = sum(outcome.verdict == "right" and bool(outcome.reason) for outcome in outcomes)
    print(
        dict(Counter(outcome.verdict for outcome in outcomes)),
        f"({frozen} of the right ones with parameters as constants)",
    )
    for outcome in outcomes:
        if outcome.verdict == "wrong":
            print(f"wrong: {outcome.name}: {outcome.reason}")
    if arguments.reasons:
        for (verdict, reason), count in Counter((o.verdict, o.reason) for o in outcomes).most_common():
            print(f"{count:5} {verdict} {reason}")
    if arguments.write:
        LIST.write_text(listed(outcomes), encoding="utf-8")
    return int(any(outcome.verdict == "wrong" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
