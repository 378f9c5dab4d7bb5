"""The check of an op's gradient: as a formula, in float64; as kernels, by the certificate; as torch runs it."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.checking.certificate import several
from noyau.checking.findings import Finding, KernelCheck
from noyau.checking.gradients_cases import Arrays, GradientCase, Subject, cases_of, told
from noyau.checking.gradients_kernels import kernels_checked
from noyau.dtypes import DType
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.ops import Op

NEAR = 1e-6  # times 1 + |want|: what two formulas in float64 may differ by
ROUGH = 1e-4  # times 1 + the largest |want|: what differences may be off by


@dataclass(frozen=True, slots=True)
class Wrong:
    """A cell of a gradient that is not what it should be."""

    name: str
    cell: tuple[int, ...]
    got: float
    want: float
    how: str


def check_gradients(op: Op[..., Any], sizes: Mapping[str, int], seed: int, budget_s: float) -> list[KernelCheck]:
    """The gradient of an op with a signature, each way in which it is calculated.

    First what the op gives back (derived, or by its `gradient`), in float64, beside the derivative of the traced
    reference and central differences; then the kernels of it, on arrays that lie as they like; then, where torch can be
    imported, what autograd gives. SignatureError without a signature, InputError where no inputs can be made up."""
    if op.signature is None:
        raise SignatureError(f"{op.name} has no signature, so its gradient cannot be checked; give it one")
    found, end_s = [_formula(op, sizes, seed)], time.monotonic() + budget_s
    if found[0].skipped or not found[0].ok:
        return found
    found.append(kernels_checked(op, sizes, seed, end_s, _place(op)))
    if importlib.util.find_spec("torch") is not None:
        from noyau.checking.torch_gradients import tensors_checked

        found.append(tensors_checked(op, sizes, seed, _place(op)))
    return found


def _place(op: Op[..., Any]) -> str:
    """Where the gradient stands: where it was written, else where the op is."""
    code = getattr(op.description.gradient, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else op.description.place


def _formula(op: Op[..., Any], sizes: Mapping[str, int], seed: int) -> KernelCheck:
    """The gradient as a formula."""
    written = op.description.gradient
    language = "numpy" if written is not None else "derived"
    findings: dict[str, Finding] = {}
    shapes: dict[str, None] = {}
    try:
        for subject, case in cases_of(op, sizes, DType.F64, seed):
            shapes[told(subject, case)] = None
            for finding in _of_case(subject, case, op, language):
                findings.setdefault(finding.severity, finding)
    except (SignatureError, UnsupportedError) as error:
        if written is None:
            return KernelCheck("gradient", language, None, (), skipped=f"it has none: {error}")
        finding = Finding(op.name, "gradient", language, "gradient", _place(op), "", str(error))
        return KernelCheck("gradient", language, None, (finding,))
    if not shapes:
        raise InputError(f"{op.name}: no inputs could be made up for its gradient; give inputs=")
    beside = "the derivative of the reference and central differences" if written else "central differences"
    notes = (f"its formula is right on {several(len(shapes), 'case')}, beside {beside}",)
    return KernelCheck("gradient", language, None, tuple(findings.values()), tuple(shapes), notes)


def _of_case(subject: Subject, case: GradientCase, op: Op[..., Any], language: str) -> Iterator[Finding]:
    """What is wrong with the formula on one case."""
    got = subject.gradients(subject.derived, case)
    want = None if subject.right is None else subject.gradients(subject.right, case)
    wrong = first_wrong(subject, case, got, want)
    if wrong is None:
        return
    finding = finding_of(op, "gradient", language, _place(op), subject, case, wrong)
    if case.on_kinks and subject.may_be(case, got):
        differs = f"upon ties it is another rule than torch's: {finding.message}"
        finding = replace(finding, severity="warning", message=differs)
    yield finding


def first_wrong(
    subject: Subject, case: GradientCase, got: Arrays, want: Arrays | None, near: float = NEAR
) -> Wrong | None:
    """The cell that is furthest from the derivative; without one, from central differences, which say nothing upon
    kinks. Cells of which the truth is not finite are left out."""
    if want is None and case.on_kinks:
        return None
    missing = next((name for name in subject.names if name not in got and want and np.any(want[name] != 0)), None)
    if missing is not None and want is not None:
        at = np.unravel_index(int(np.argmax(np.abs(want[missing]))), want[missing].shape)
        cell = tuple(map(int, at))
        return Wrong(missing, cell, 0.0, float(want[missing][cell]), "it gives None")
    for name, found in got.items():
        truth = _differences(subject, case, name) if want is None else np.asarray(want[name], np.float64)
        room = ROUGH * (1 + np.nanmax(np.abs(truth), initial=0)) if want is None else near * (1 + np.abs(truth))
        if np.shape(found) != truth.shape:
            return Wrong(
                name, (), float("nan"), float("nan"), f"its shape is {list(np.shape(found))}, not {list(truth.shape)}"
            )
        with np.errstate(all="ignore"):
            away = np.where(np.isfinite(found), np.abs(found - truth), np.inf) - room
        away = np.where(np.isfinite(truth), away, -np.inf)
        if away.size and away.max() > 0:
            cell = tuple(map(int, np.unravel_index(int(np.argmax(away)), away.shape)))
            how = "by central differences" if want is None else "the derivative of the reference, in float64"
            return Wrong(name, cell, float(np.asarray(found)[cell]), float(truth[cell]), how)
    return None


def _differences(subject: Subject, case: GradientCase, name: str) -> np.ndarray:
    made = np.zeros(np.shape(case.inputs[name]))
    for cell in np.ndindex(made.shape):
        made[cell] = subject.difference(case, name, cell)
    return made


def finding_of(
    op: Op[..., Any], kernel: str, language: str, place: str, subject: Subject, case: GradientCase, wrong: Wrong
) -> Finding:
    """What is wrong with a gradient, in words: the input, the cell, what came and what is right."""
    where = f"{wrong.name}[{', '.join(map(str, wrong.cell))}]"
    message = f"wrong gradient of {wrong.name} at {where} for {told(subject, case)}: "
    if wrong.got != wrong.got and wrong.want != wrong.want:
        message += wrong.how
    else:
        message += f"got {wrong.got:.9g}, want {wrong.want:.9g} ({wrong.how})"
        if "differences" not in wrong.how:
            message += f"; {subject.difference(case, wrong.name, wrong.cell):.9g} by central differences"
    return Finding(op.name, kernel, language, "gradient", place, told(subject, case), message, wrong.cell)
