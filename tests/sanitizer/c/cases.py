"""Kernels of a file with what they are called with: built together, each watched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noyau.kernels.attach import KernelText, attach_text
from noyau.kernels.user_kernel import Target, Usage
from noyau.sanitizer.c.kernel import watch_together
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase
from noyau.signatures.instances import bind
from noyau.signatures.types import parse

_LANGUAGES = {".c": "c", ".cpp": "cpp", ".cu": "cuda"}


@dataclass(frozen=True, eq=False)
class Wanted:
    """A function of a file: its signature with the names of its parameters, and its arguments."""

    entry: str
    signature: str
    parameters: str
    arguments: tuple[Any, ...]
    usage: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


def case_of(text: str, language: str, place: str, wanted: Wanted) -> KernelCase:
    signature = parse(wanted.signature, wanted.parameters.split())
    name = re.sub(r"\W", "_", wanted.entry)
    target = Target(name, signature, {})
    usage = {**wanted.usage}
    options = {"flags": usage.pop("flags", [])}
    kernel = attach_text(
        KernelText(text, language, place, wanted.entry), Usage(options=options, **usage), target, name, ()
    )
    bound = bind(signature, wanted.arguments, dict(wanted.sizes), name)
    return KernelCase(kernel, bound.instance, bound.arrays, {})


def watched(path: Path, wanted: Sequence[Wanted]) -> dict[str, WatchedRun]:
    """What each of the functions of a file does wrong, by its name."""
    text = path.read_text("ascii")
    cases = [case_of(text, _LANGUAGES[path.suffix], str(path), each) for each in wanted]
    return {each.entry: seen for each, seen in zip(wanted, watch_together(cases), strict=True)}


def told(seen: WatchedRun) -> list[str]:
    return [f"{each.kind} {each.place.rpartition(':')[2]}: {each.message}" for each in seen.findings]


def floats(*shape: int, seed: int = 0, dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(seed).random(shape).astype(dtype)
