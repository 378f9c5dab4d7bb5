"""The gradients of an op as torch's autograd gives them: packed, transposed and expanded tensors, and gradcheck."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from noyau.checking.certificate import several
from noyau.checking.findings import Finding, KernelCheck
from noyau.checking.gradients import NEAR, finding_of, first_wrong
from noyau.checking.gradients_cases import Array, GradientCase, Subject, cases_of, told
from noyau.dtypes import DType
from noyau.errors import NoyauError, UnsupportedError
from noyau.ops import Op

HALF_OF_32 = 1e-3  # instead of NEAR, where the op is signed as float32
NAME = "gradient in torch"
Lay = Callable[[torch.Tensor], torch.Tensor]


def packed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous()


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, the last axis the outermost in memory."""
    return tensor.T.contiguous().T if tensor.ndim == 2 else tensor.movedim(-1, 0).contiguous().movedim(0, -1)


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with a gap behind each."""
    room = torch.empty(*tensor.shape, 2, dtype=tensor.dtype)
    room[..., 0] = tensor
    return room[..., 0]


LAYOUTS: dict[str, Lay] = {"packed": packed, "transposed": transposed, "strided": spread}


def tensors_checked(op: Op[..., Any], sizes: Mapping[str, int], seed: int, place: str) -> KernelCheck:
    """What autograd gives for an op, beside the gradient that was found right."""
    findings: dict[str, Finding] = {}
    shapes: dict[str, None] = {}
    try:
        for subject, case in cases_of(op, sizes, DType.F64, seed):
            for finding in _of_case(op, subject, case, place):
                findings.setdefault(finding.kind, finding)
            shapes[told(subject, case)] = None
    except UnsupportedError as error:
        return KernelCheck(NAME, "torch", None, (), skipped=str(error))
    note = f"autograd is right on {several(len(shapes), 'case')}, on {', '.join(LAYOUTS)} tensors, and by gradcheck"
    return KernelCheck(NAME, "torch", None, tuple(findings.values()), tuple(shapes), (note,))


def _of_case(op: Op[..., Any], subject: Subject, case: GradientCase, place: str) -> Iterator[Finding]:
    want = subject.gradients(subject.derived, case)
    narrow = any(value.dtype in (DType.F32, DType.F16, DType.BF16) for value in subject.instance.inputs)
    for layout, lay in LAYOUTS.items():
        laid = GradientCase(f"{case.label}, {layout} tensors", case.inputs, case.above, case.on_kinks)
        try:
            got = gradients_by_torch(op, subject, laid, lay)
        except UnsupportedError:
            raise
        except (NoyauError, RuntimeError, ValueError, TypeError) as error:
            message = f"autograd ends with {type(error).__name__}: {error}; for {told(subject, laid)}"
            yield Finding(op.name, NAME, "torch", "gradient", place, told(subject, laid), message)
            return
        wrong = first_wrong(subject, laid, got, want, HALF_OF_32 if narrow else NEAR)
        if wrong is not None:
            yield finding_of(op, NAME, "torch", place, subject, laid, wrong)
            return
    if not narrow and not case.on_kinks and all(np.all(np.isfinite(each)) for each in want.values()):
        yield from _by_gradcheck(op, subject, case, place)


def gradients_by_torch(op: Op[..., Any], subject: Subject, case: GradientCase, lay: Lay) -> dict[str, Array]:
    """The gradients of the inputs, by autograd."""
    given = _tensors(subject, case, lay)
    made = op(*given.values())
    results = made if isinstance(made, tuple) else (made,)
    pairs = zip(subject.graph.outputs, results, strict=True)
    graded = [(result, case.above[name]) for name, result in pairs if name in case.above]
    weights = [lay(torch.from_numpy(np.array(above))).to(result.dtype) for result, above in graded]
    torch.autograd.backward([result for result, _ in graded], weights)
    floats = {name: each for name, each in given.items() if isinstance(each, torch.Tensor) and each.requires_grad}
    return {
        name: np.zeros(each.shape) if each.grad is None else each.grad.double().numpy() for name, each in floats.items()
    }


def _tensors(subject: Subject, case: GradientCase, lay: Lay) -> dict[str, Any]:
    """The arguments of a call: tensors, and numbers where the signature has scalars; floats require a gradient."""
    found: dict[str, Any] = {}
    for value in subject.instance.inputs:
        array = case.inputs[value.name]
        if value.scalar and not value.dtype.is_float:
            found[value.name] = array.item()
            continue
        tensor = torch.from_numpy(np.array(array))
        tensor = lay(tensor) if tensor.ndim else tensor
        found[value.name] = tensor.detach().requires_grad_(value.dtype.is_float)
    return found


def _by_gradcheck(op: Op[..., Any], subject: Subject, case: GradientCase, place: str) -> Iterator[Finding]:
    """torch's own check, on transposed tensors."""
    try:
        torch.autograd.gradcheck(op, tuple(_tensors(subject, case, transposed).values()), fast_mode=True)
    except (RuntimeError, NoyauError) as error:
        said = " ".join(str(error).split())[:300]
        message = f"torch.autograd.gradcheck fails for {told(subject, case)}: {said}"
        yield Finding(op.name, NAME, "torch", "gradient", place, told(subject, case), message)
