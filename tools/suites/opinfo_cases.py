"""Operators of PyTorch as cases: one operator on one sample that torch makes up for it, in the midst of
`f(x * 2).abs() + 1`, compiled and compared with torch's own run: values, dtypes, shapes, strides."""

from __future__ import annotations

import sys
import types
import unittest
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  it asks for it and needs none of it

OPERATORS = {f"{each.name}.{each.variant_test_name}".rstrip("."): each for each in op_db}
FAULTS = ("wrong", "exception", "hang")
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


@cache
def samples_of(operator: str, dtype: str, gradients: bool, count: int) -> list[Any]:
    """So many samples of an operator."""
    torch.manual_seed(0)
    every = list(OPERATORS[operator].sample_inputs("cpu", getattr(torch, dtype), requires_grad=gradients))
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


def difference(theirs: Sequence[torch.Tensor], ours: Sequence[torch.Tensor], truth: Callable[[], Any]) -> str:
    """How the values of results differ from torch's, or nothing. `truth`: them in float64, or why not."""
    if len(theirs) != len(ours):
        return f"{len(ours)} results, and torch has {len(theirs)}"
    for at, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        try:
            torch.testing.assert_close(other, one, equal_nan=True)
        except AssertionError as error:
            exact = truth()
            if isinstance(exact, str) or other.dtype != one.dtype or not other.shape == one.shape == exact[at].shape:
                return f"result {at}: {error}"
            far, near = ((each.to(exact[at].dtype) - exact[at]).abs().nan_to_num(0).max() for each in (other, one))
            if far > 2 * near or not torch.equal(other.isnan(), one.isnan()):
                return f"result {at} is off by {far:.3g}, torch by {near:.3g}: {error}"
    return ""


def outcome(*arguments: Any) -> list[torch.Tensor] | str:
    """As `run`, or why it did not come to an end."""
    try:
        return run(*arguments)
    except Exception as error:  # noqa: BLE001  any is a verdict
        return f"{type(error).__name__}: {error}"


def judge_by(case: Case, sample: Any, backend: str) -> tuple[str, str]:
    """The verdict on a case, and why."""
    for factor in (2, 1):  # 2 may lead out of what the operator takes
        theirs = outcome(case, sample, factor, "", {})
        if not isinstance(theirs, str):
            break
    else:
        return "refused", theirs
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ours = outcome(case, sample, factor, backend, {})
    faults = [str(each.message) for each in said if "a defect of noyau" in str(each.message)]
    if isinstance(ours, str) or faults:
        return "exception", ours if isinstance(ours, str) else faults[0]
    message = difference(theirs, ours, lambda: outcome(case, sample, factor, "", _DOUBLES))
    if not message and layouts(theirs) != layouts(ours):
        with FakeTensorMode(allow_non_fake_inputs=True):  # some operators of torch's do not lie as torch foretells
            foretold = outcome(case, sample, factor, "", {})
        if isinstance(foretold, str) or layouts(foretold) != layouts(ours):
            message = f"the strides are {layouts(ours)}, and torch's {layouts(theirs)}"
    return "wrong" if message else "right", message


def judge(case: Case) -> tuple[str, str]:
    """The verdict on a case, and why; "none" where there are not so many samples."""
    every = samples_of(case.operator, case.dtype, case.gradients, case.samples)
    if case.sample >= len(every):
        return "none", ""
    verdict, message = judge_by(case, every[case.sample], "noyau")
    is_torchs = verdict in FAULTS and judge_by(case, every[case.sample], "aot_eager")[0] in FAULTS
    return "torch's" if is_torchs else verdict, message
