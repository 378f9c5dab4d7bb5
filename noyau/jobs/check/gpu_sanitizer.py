"""The kernels of an op for a GPU, launched there while compute-sanitizer looks."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import NoyauError
from noyau.jobs.check.attempts import usual_case
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.sanitizer.compute_sanitizer.driver import ENVIRONMENT, WISH
from noyau.sanitizer.compute_sanitizer.programs import compiled, written
from noyau.sanitizer.compute_sanitizer.tool import TOOLS, ToolReport, merge_witnesses, missing, run_tools
from noyau.sanitizer.records import Site
from noyau.verify.findings import Finding, KernelCheck, OpCheck
from noyau.workers.array_files import write_arrays


def second_opinion(op: Op[..., Any], checked: OpCheck, target: str, tools: Sequence[str] = TOOLS) -> OpCheck:
    """A check with what compute-sanitizer reports of the same kernels beside what noyau has seen; why it was not asked
    stands in the note."""
    if not any(LANGUAGES[each.language].on_gpu for each in checked.kernels):
        return checked
    why = missing()
    if why:
        return replace(checked, note="; ".join(filter(None, [checked.note, why])))
    kernels = tuple(_looked_at(op, each, target, tools) for each in checked.kernels)
    return replace(checked, kernels=kernels)


def _looked_at(op: Op[..., Any], check: KernelCheck, target: str, tools: Sequence[str]) -> KernelCheck:
    kernel = op.kernels.get(check.name)
    if kernel is None or not LANGUAGES[kernel.language].on_gpu:
        return check
    try:
        findings, size = _findings(op, kernel, target, tools)
    except NoyauError as error:
        return replace(check, notes=(*check.notes, f"compute-sanitizer: {error}"))
    note = f"compute-sanitizer: {', '.join(tools)} on {size}"
    return replace(check, findings=merge_witnesses(check.findings, findings), seen=(*check.seen, note))


def _findings(op: Op[..., Any], kernel: UserKernel, target: str, tools: Sequence[str]) -> tuple[list[Finding], str]:
    instance, arrays, size = usual_case(op)
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        folder = Path(name)
        if LANGUAGES[kernel.language].is_text:
            program, array_file = written(kernel, instance, arrays, {}, folder)
            reports = run_tools([str(compiled(program, kernel)), str(array_file)], tools=tools)
        else:
            reports = run_tools(*_process(op, kernel, arrays, target, folder), tools=tools)
    findings = [_of(each, op.name, kernel, size) for each in reports]
    return [each for each in findings if each is not None], size


def _process(
    op: Op[..., Any], kernel: UserKernel, arrays: Sequence[np.ndarray], target: str, folder: Path
) -> tuple[list[str], dict[str, str]]:
    """The command that launches a kernel of Python, and its environment."""
    array_file = write_arrays({str(number): np.asarray(array) for number, array in enumerate(arrays)}, folder)
    wish = {"target": target.partition("::")[0], "op": op.name, "kernel": kernel.name, "given": array_file}
    return [sys.executable, "-m", "noyau.sanitizer.compute_sanitizer.driver"], {**ENVIRONMENT, WISH: json.dumps(wish)}


def _of(report: ToolReport, op: str, kernel: UserKernel, size: str) -> Finding | None:
    """A report as a finding, unless a mark on its line allows it."""
    report = replace(report, site=_in_text(report.site, kernel), other=_in_text(report.other, kernel))
    if report.is_allowed:
        return None
    return report.finding(op, kernel.name, kernel.language, kernel.place, size)


def _in_text(site: Site | None, kernel: UserKernel) -> Site | None:
    """A line as noyau has it, where the kernel is a text that is in no file: nvcc takes its name for one of this
    folder."""
    if site is None or Path(kernel.place).is_file() or Path(site.file).name != kernel.place:
        return site
    lines = kernel.text.splitlines()
    return Site(kernel.place, site.line, lines[site.line - 1].strip() if site.line <= len(lines) else "")
