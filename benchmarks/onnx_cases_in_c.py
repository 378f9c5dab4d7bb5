"""How many of ONNX's own operator cases are right in generated C: `python benchmarks/onnx_cases_in_c.py [--write]`.

Of the cases that are right through the interpreter (benchmarks/onnx_cases.py), each output is lowered, scheduled,
printed and built as a kernel of its own. A case is *right* when the kernels give what ONNX says, *refused* when one of
them cannot be lowered or printed, with the reason, *wrong* otherwise. The kernels are built without optimization: the
texts are the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_cases
from onnx_cases import Outcome

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph
from noyau.ir.loops import Kernel
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native

LIST = Path(__file__).parents[1] / "tests" / "frontends" / "onnx_cases_in_c.json"
QUICK = CompilerOptions(export=True, extra=("-O0",))


class CollectedError(Exception):
    """The kernels of a case are known; it runs once they are built."""


class InC:
    """An executor of graphs: the first time it collects kernels, and once they are built it runs them."""

    def __init__(self) -> None:
        self.case = ""
        self.kernels: dict[tuple[str, str], tuple[Graph, Kernel]] = {}
        self.natives: dict[tuple[str, str], Native] = {}

    def __call__(self, graph: Graph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        keys = [(self.case, output) for output in graph.outputs]
        if not all(key in self.natives for key in keys):
            for key, output in zip(keys, graph.outputs, strict=True):
                normal = normalise(drop_unused(Graph(graph.nodes, (output,))))
                kernel = schedule(lower(normal, f"case_{len(self.kernels)}"))
                c_printer.source(kernel)
                self.kernels[key] = normal, kernel
            raise CollectedError
        known = {node.output: node.kind.value for node in graph.nodes if isinstance(node.kind, Constant)}
        given = {**known, **inputs}
        return {output: self.run(key, given) for key, output in zip(keys, graph.outputs, strict=True)}

    def run(self, key: tuple[str, str], given: Mapping[str, Any]) -> np.ndarray:
        normal, _ = self.kernels[key]
        arrays = [
            np.asarray(given[node.output]).reshape(np.shape(given[node.output]) if node.shape else ())
            for node in normal.inputs
        ]
        return self.natives[key].call_guarded(*arrays)[0]

    def build(self) -> None:
        """Build what was collected, a kernel a text, many texts a library."""
        waiting = list(self.kernels)
        for start in range(0, len(waiting), 100):
            keys = waiting[start : start + 100]
            library = compile_library([c_printer.source(self.kernels[key][1]) for key in keys], QUICK)
            self.natives |= {key: Native(library, f"{self.kernels[key][1].name}_kernel") for key in keys}


def judged(found: Iterable[Any]) -> Iterator[Outcome]:
    """The outcome in C of each of these cases that is right through the interpreter."""
    executor, parameters, waiting = InC(), onnx_cases.parameters_of(cases := list(found)), []
    for case in cases:
        executor.case = case.name
        try:
            onnx_cases.judge(case, parameters[case.name], executor)
        except CollectedError:
            waiting.append(case)
        except UnsupportedError as error:
            yield Outcome(case.name, "refused", str(error))
    executor.build()
    for case in waiting:
        executor.case = case.name
        yield onnx_cases.judge(case, parameters[case.name], executor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    right = {name for name, (verdict, *_) in json.loads(onnx_cases.LIST.read_text()).items() if verdict == "right"}
    found = [case for case in onnx_cases.cases() if case.name in right and arguments.only in case.name]
    outcomes = list(judged(found))
    print(dict(Counter(outcome.verdict for outcome in outcomes)))
    for outcome in outcomes:
        if outcome.verdict == "wrong":
            print(f"wrong: {outcome.name}: {outcome.reason}")
    if arguments.write:
        LIST.write_text(onnx_cases.listed(outcomes), encoding="utf-8")
    return int(any(outcome.verdict == "wrong" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
