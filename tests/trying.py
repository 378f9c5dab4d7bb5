"""One random graph through the whole of fusion: passes, lowering, schedule; and what is wrong with the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.errors import GraphError, InputError, UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Fold, If, Kernel, Loop, Role, Statement
from noyau.ir.walk import expressions, operands
from tests.judged import Judge
from tests.random_graphs import Case, generate

MOST = 40_000  # steps of the interpreter; what takes more is left to C


@dataclass(frozen=True)
class Try:
    """A case on its way; every second one goes through the passes first."""

    case: Case
    seed: int

    @cached_property
    def graph(self) -> Graph:
        return check(normalise(self.case.graph)) if self.seed % 2 else self.case.graph

    @cached_property
    def lowered(self) -> Kernel:
        """UnsupportedError where there is no kernel."""
        return lower(self.graph, f"k{self.seed}")

    @cached_property
    def scheduled(self) -> Kernel:
        """The lowered kernel with another schedule for each seed."""
        lanes, around_bytes = (32, 1, 8, 4)[self.seed % 4], (1 << 22, 1, 256)[self.seed % 5 % 3]
        return schedule(self.lowered, Options(lanes, kept=self.seed % 3 > 0, around_bytes=around_bytes))

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.case.graph, self.case.inputs)

    def arrays(self, kernel: Kernel) -> list[np.ndarray]:
        """What the kernel takes: the inputs of the case, and scalars that the passes made inputs."""
        names = [buffer.source for buffer in kernel.of(Role.INPUT)]
        missing = tuple(name for name in names if name not in self.case.inputs)
        scalars = evaluate(replace(self.case.graph, outputs=missing), self.case.inputs) if missing else {}
        return [{**self.case.inputs, **scalars}[name] for name in names]

    def wrong(self, kernel: Kernel, outputs: Sequence[np.ndarray]) -> str | None:
        """The first thing that is wrong with what a kernel gave, or None."""
        for buffer, array in zip(kernel.of(Role.OUTPUT), outputs, strict=True):
            if reason := self.judge.wrong(buffer.source, array):
                return f"seed {self.seed}: {reason}"
        return None

    def interpreted(self, kernel: Kernel) -> str | None:
        """What is wrong when the interpreter runs the kernel, or None."""
        try:
            return self.wrong(kernel, run(kernel, self.arrays(kernel), seed=self.seed))
        except (GraphError, InputError) as error:
            return f"seed {self.seed}: {error}"


def attempt(seed: int) -> Try | None:
    """The graph of a seed with its kernel, or None where lowering refuses it."""
    made = Try(generate(seed), seed)
    try:
        return made if made.lowered else None
    except UnsupportedError:
        return None


def steps(kernel: Kernel, sizes: dict[str, int]) -> int:
    """Roughly how many steps the interpreter takes for a kernel."""

    def count(dim: Dim) -> int:
        at: dict[str, Any] = {**sizes, **{name: 0 for name in dim.names if name.startswith("#")}}
        try:
            return max(0, int(dim.evaluate(at)))
        except ZeroDivisionError:
            return 0

    def block(statements: Sequence[Statement]) -> int:
        total = len(statements)
        for statement in statements:
            if isinstance(statement, Loop | If):
                total += block(statement.body) * (count(statement.extent) if isinstance(statement, Loop) else 1)
            waiting = list(expressions(statement))
            while waiting:
                expr = waiting.pop()
                total += 1
                if isinstance(expr, Fold):
                    total += (block(expr.body) + 2) * int(np.prod([count(extent) for _, extent in expr.loops]))
                waiting += operands(expr)
        return total

    return sum(block(launch.body) for launch in kernel.launches)
