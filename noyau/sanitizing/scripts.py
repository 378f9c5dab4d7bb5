"""A script run as it is on the GPU, while compute-sanitizer looks."""

from __future__ import annotations

import json
import site
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from noyau.checking.findings import Finding
from noyau.errors import NoyauError
from noyau.sanitizing.driving import ENVIRONMENT, WISH
from noyau.sanitizing.merging import merged
from noyau.sanitizing.reading import Reported, in_files
from noyau.sanitizing.tool import TOOLS, missing, sanitized
from noyau.scripts.records import ScriptCheck


def second_opinion(
    checked: ScriptCheck, path: Path, arguments: Sequence[str] = (), tools: Sequence[str] = TOOLS
) -> ScriptCheck:
    """The check of a script with what compute-sanitizer reports of the same script run on the GPU; why it was not asked
    stands among the notes. Installed packages are not looked at; a failed call of the API, which may be one of theirs,
    is a warning."""
    why = "compute-sanitizer runs scripts, and no notebooks" if path.suffix == ".ipynb" else missing()
    if not why:
        wish = {"script": str(path), "arguments": list(arguments)}
        environment = {**ENVIRONMENT, WISH: json.dumps(wish)}
        try:
            told = sanitized([sys.executable, "-m", "noyau.sanitizing.driving"], environment, tools)
        except NoyauError as error:
            why = str(error)
        else:
            return _with(checked, in_files(told, _installed()), path, tools)
    return replace(checked, notes=(*checked.notes, why))


def _installed() -> list[Path]:
    paths = [*site.getsitepackages(), sysconfig.get_paths()["stdlib"]]
    return [Path(each) for each in paths]


def _with(checked: ScriptCheck, told: Sequence[Reported], path: Path, tools: Sequence[str]) -> ScriptCheck:
    """Each report goes to the kernel that it names, else beside the script; what names a kernel on no line, and none of
    the script, is of an installed package. Marks on its lines allow it."""
    kernels, rest = list(checked.kernels), list[Finding]()
    for each in told:
        if each.is_allowed:
            continue
        called = [k for k, kernel in enumerate(kernels) if kernel.name in each.function]
        at = max(called, key=lambda k: len(kernels[k].name), default=None)  # `add` is in `add_rows` too
        if at is None and each.site is None and each.kind != "launch":
            continue
        if at is None:
            one = replace(each, is_error=each.is_error and each.kind != "launch")
            rest.append(one.finding(checked.script, each.function or "script", "cuda", str(path), ""))
        else:
            known = kernels[at]
            made = each.finding(checked.script, known.name, known.language, known.place, "")
            kernels[at] = replace(known, findings=merged(known.findings, [made]))
    note = f"compute-sanitizer looked at it too: {', '.join(tools)}"
    return replace(checked, kernels=tuple(kernels), advice=(*checked.advice, *rest), notes=(*checked.notes, note))
