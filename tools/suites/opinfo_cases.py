"""Operators of PyTorch as cases: one operator on one sample that torch makes up for it, in the midst of
`f(x * 2).abs() + 1`, compiled and compared with torch's own run: values, dtypes, shapes, strides."""

from __future__ import annotations

import sys
import types
import unittest
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  it asks for it and needs none of it

from tools.suites.torch_cases import FAULTS, difference, faults, outcome  # noqa: E402

OPERATORS = {f"{each.name}.{each.variant_test_name}".rstrip("."): each for each in op_db}
_DOUBLES = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, a dtype, and one of so many samples, which lie evenly among those that torch has; all for 0."""

    operator: str
    dtype: str
    sample: int
    samples: int = 0
    dynamic: bool = False
    gradients: bool = False
    keep: str = "faster"
    errors: bool = False  # of the samples that torch has to refuse

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype} {self.sample}"


@cache
def samples_of(operator: str, dtype: str, gradients: bool, count: int, errors: bool = False) -> list[Any]:
    """So many samples of an operator."""
    torch.manual_seed(0)
    described = OPERATORS[operator]
    if errors:
        every = [each.sample_input for each in described.error_inputs("cpu")] if described.error_inputs_func else []
    else:
        every = list(described.sample_inputs("cpu", getattr(torch, dtype), requires_grad=gradients))
    return every if not 0 < count < len(every) else [every[at * len(every) // count] for at in range(count)]


def _copy(each: Any, dtypes: dict[torch.dtype, torch.dtype]) -> Any:
    if not isinstance(each, torch.Tensor):
        return dtypes.get(each, each) if isinstance(each, torch.dtype) else each
    return deepcopy(each.detach()).to(dtypes.get(each.dtype, each.dtype)).requires_grad_(each.requires_grad)


def run(case: Case, sample: Any, factor: int, backend: str, dtypes: dict[torch.dtype, torch.dtype]) -> list[Any]:
    """The results of the operator in its surroundings, then its gradients; eager where `backend` is empty."""
    given, args, kwargs = tree_map(lambda each: _copy(each, dtypes), (sample.input, sample.args, sample.kwargs))

    def before(each: torch.Tensor) -> torch.Tensor:
        return each if each.dtype == torch.bool else each * factor

    def after(each: torch.Tensor) -> torch.Tensor:
        return (each if each.dtype == torch.bool else each.abs()) + 1

    def function(given: Any, args: Any, kwargs: Any) -> Any:
        result = OPERATORS[case.operator].op(tree_map_only(torch.Tensor, before, given), *args, **kwargs)
        return tree_map_only(torch.Tensor, after, sample.output_process_fn_grad(result))

    torch._dynamo.reset()
    options = {"keep": case.keep} if backend == "noyau" else None
    compiled = torch.compile(function, backend=backend or "eager", dynamic=case.dynamic, options=options)
    torch.manual_seed(0)
    whole = (compiled if backend else function)(given, args, kwargs)
    results = [each for each in tree_leaves(whole) if isinstance(each, torch.Tensor)]
    leaves = [each for each in tree_leaves((given, args, kwargs)) if getattr(each, "requires_grad", False)]
    roots = [each for each in results if each.requires_grad]
    if case.gradients and roots:
        ones = [torch.linspace(0.5, 1.5, each.numel()).to(each.dtype).reshape(each.shape) for each in roots]
        results += [each for each in torch.autograd.grad(roots, leaves, ones, allow_unused=True) if each is not None]
    return [each.detach() for each in results]


def layouts(results: Any) -> list[list[int]]:
    """The strides of results along axes where they matter, of those that have some."""
    pairs = [
        zip(each.stride(), each.shape, strict=True) if each.layout is torch.strided and each.numel() else ()
        for each in results
    ]
    return [[stride for stride, extent in each if extent > 1] for each in pairs]


def judge_by(case: Case, sample: Any, backend: str) -> tuple[str, str]:
    """The verdict on a case, and why."""
    for factor in (2, 1):  # 2 may lead out of what the operator takes
        theirs = outcome(run, case, sample, factor, "", {})
        if not isinstance(theirs, str):
            break
    if isinstance(theirs, str) and not case.errors:
        return "refused", theirs
    with faults() as of_noyau:
        ours = outcome(run, case, sample, factor, backend, {})
    if isinstance(ours, str) and isinstance(theirs, str) and not of_noyau:
        kinds = {each.partition(":")[0] for each in (theirs, outcome(run, case, sample, factor, "aot_eager", {}))}
        return ("right", "") if ours.partition(":")[0] in kinds else ("wrong", f"{ours}; torch: {theirs}")
    if isinstance(theirs, str):
        return "wrong", f"no error; torch: {theirs}"
    if isinstance(ours, str) or of_noyau:
        return "exception", ours if isinstance(ours, str) else of_noyau[0]
    message = difference(theirs, ours, lambda: outcome(run, case, sample, factor, "", _DOUBLES))
    if not message and layouts(theirs) != layouts(ours):
        with FakeTensorMode(allow_non_fake_inputs=True):  # some operators of torch's do not lie as torch foretells
            foretold = outcome(run, case, sample, factor, "", {})
        if isinstance(foretold, str) or layouts(foretold) != layouts(ours):
            message = f"the strides are {layouts(ours)}, and torch's {layouts(theirs)}"
    return "wrong" if message else "right", message


def judge(case: Case) -> tuple[str, str]:
    """The verdict on a case, and why; "none" where there are not so many samples."""
    every = samples_of(case.operator, case.dtype, case.gradients, case.samples, case.errors)
    if case.sample >= len(every):
        return "none", ""
    verdict, message = judge_by(case, every[case.sample], "noyau")
    is_torchs = verdict in FAULTS and judge_by(case, every[case.sample], "aot_eager")[0] in FAULTS
    return "torch's" if is_torchs else verdict, message
