"""Gradients on a CUDA device: the kernels of a derived graph, and what autograd does for torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from gpu_cases import Backward, Case, Tensors

from noyau.codegen.language import GENERATIONS
from noyau.compiler.autodiff.adjoints import DerivedGradient, derive, gradient_name
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.errors import UnsupportedError
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.ir.graph import Graph
from noyau.ir.loops import Role
from noyau.kernels.programs.program import KernelStep, Program, program
from noyau.toolchain.triton.module import load

Values = dict[str, torch.Tensor]


class Steps:
    """The kernels of a graph in a language, launched one after the other on tensors by their names."""

    def __init__(self, graph: Graph, name: str, language: str = "triton") -> None:
        generation = GENERATIONS[language]
        self.program: Program = program(graph, name, None, generation.schedule, joining=join_rows_and_columns)
        text = generation.printer(self.program.kernels, name)
        functions = load(text) if language == "triton" else {k.name: CudaKernel(text, k) for k in self.program.kernels}
        self.steps = []
        for step in self.program.steps:
            if not isinstance(step, KernelStep):
                raise UnsupportedError(f"{name} has a step that is no kernel: {step.reason}")
            ends = [tuple(b.source or b.name for b in step.kernel.of(role)) for role in (Role.INPUT, Role.OUTPUT)]
            self.steps.append((functions[step.kernel.name], *ends))

    def __call__(self, given: Mapping[str, torch.Tensor]) -> Values:
        """Every value that the kernels read or make."""
        values = dict(given)
        for function, read, made in self.steps:
            results = function(*(values[name] for name in read))
            values.update(zip(made, results if isinstance(results, tuple) else (results,), strict=True))
        return values


class Gradient:
    """The gradient of a case: what runs forward once, and `calls`, which are timed."""

    def __init__(self, backward: Backward) -> None:
        case = backward.case
        graph = case.generate().graph
        self.names = [node.output for node in graph.inputs]
        self.derived: DerivedGradient = derive(graph, self.names[: backward.wanted])
        self.graph, self.called = graph, case.op.name
        self.backs = dict[str, Steps]()
        for language in ("triton", "cuda"):
            with suppress(UnsupportedError):
                self.backs[language] = Steps(self.derived.backward, f"{self.called}_back", language)

    def calls(self, tensors: list[torch.Tensor], grads: Tensors) -> dict[str, Callable[[], Tensors]]:
        """What gives the gradients, by its language; it reads what forward has left."""
        forward = Steps(self.derived.forward, self.called)(dict(zip(self.names, tensors, strict=True)))
        given = {name: forward[name] for name in self.derived.saved}
        given |= {gradient_name(name): grad for name, grad in zip(self.graph.outputs, grads, strict=True)}
        outputs = self.derived.backward.outputs

        def run(back: Steps) -> Tensors:
            made = back(given)
            return tuple(made[name] for name in outputs)

        read = {name for _, names, _ in self.backs["triton"].steps for name in names} & given.keys()
        self.read_bytes = sum(given[name].numel() * given[name].element_size() for name in read)
        return {language: partial(run, back) for language, back in self.backs.items()}


def random_like(made: Any) -> Tensors:
    """Gradients that reach the results."""
    noise = torch.Generator("cuda").manual_seed(1)
    outputs = made if isinstance(made, tuple) else (made,)
    return tuple(torch.randn(t.shape, generator=noise, device="cuda").to(t.dtype) for t in outputs)


def by_autograd(
    function: Callable[..., Any], tensors: list[torch.Tensor], wanted: int, grads: Tensors
) -> Callable[[], Tensors]:
    """What has autograd give the gradients of a function of torch, which has run forward."""
    leaves = [t.detach().clone().requires_grad_(at < wanted) for at, t in enumerate(tensors)]
    made = function(*leaves)
    outputs = made if isinstance(made, tuple) else (made,)
    return lambda: torch.autograd.grad(outputs, leaves[:wanted], grads, retain_graph=True)


def truth_of(case: Case, tensors: list[torch.Tensor], wanted: int, grads: Tensors) -> Tensors:
    """The gradients in float64."""
    wide = [t.double() if t.is_floating_point() else t for t in tensors]
    return by_autograd(case.eager, wide, wanted, tuple(grad.double() for grad in grads))()
