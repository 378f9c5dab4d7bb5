"""`op.explain(x)`: which kernel runs for these inputs, why, since when, what else may run, and what was rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from noyau.kernels.programs.generate import Specialization, key_of
from noyau.kernels.reference import Description
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import REFERENCE, Selection, Selector
from noyau.text import Printed
from noyau.toolchain.cache import today


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Printed):
    """The kernel of one call, and why. `key`: what is alike in calls that run the same kernel; `eligible` and
    `rejected`: other kernels, each with the reason."""

    op: str
    key: str
    kernel: str
    language: str
    why: str
    since: str
    eligible: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = [f"{self.op}({self.key})", f"  runs {self.kernel}, in {self.language}, since {self.since}: {self.why}"]
        lines += [f"  {kernel} may run too: {why}" for kernel, why in self.eligible]
        lines += [f"  {kernel} may not: {why}" for kernel, why in self.rejected]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The record, for `json.dumps`."""
        return {"schema_version": 1, **asdict(self)}


def explained(choosing: Selector, chosen: Selection, cells: int) -> Explanation:
    """The explanation of a choice, where the largest array has so many cells."""
    wanted, choice, rejected = chosen.wanted, chosen.at(cells), dict(chosen.rejected)
    others = list(choosing.candidates(wanted, key_of(wanted), rejected, tried=True))
    eligible = [(each.kernel, each.reason) for each in others if each.kernel != choice.kernel]
    for name in (choice.kernel, *dict(eligible)):  # what may run by now, as it has been checked since
        rejected.pop(name, None)
    return Explanation(
        choosing.description.name,
        _told(chosen),
        choice.kernel,
        choice.language,
        choice.reason,
        choice.since,
        tuple(eligible),
        tuple(rejected.items()),
    )


def as_written(found: Explanation) -> Explanation:
    """The explanation of the same call within `noyau.reference()`."""
    why = "everything runs as it is written here: within noyau.reference()"
    others = [found.kernel, *(name for name, _ in found.eligible)]
    rejected = [*((name, why) for name in others if name != REFERENCE), *found.rejected]
    runs = {"kernel": REFERENCE, "language": "numpy", "why": why, "since": today()}
    return replace(found, **runs, eligible=(), rejected=tuple(rejected))


def explained_without_signature(description: Description, trusted: UserKernel | None, reason: str) -> Explanation:
    """The explanation of a call that no signature was found for: a trusted kernel runs, else the reference."""
    runs = (REFERENCE, "numpy", "it is the op as it is written")
    if trusted is not None:
        runs = (trusted.name, trusted.language, "it is trusted")
    return Explanation(description.name, "without a signature", *runs, today(), (), (("generated", reason),))


def _told(chosen: Selection) -> str:
    """The key in words: `x: f32[rows, n], packed; eps=1e-05`."""
    specialization = chosen.wanted
    values = [f"{v.name}: {v}{_lies(specialization, at)}" for at, v in enumerate(specialization.instance.inputs)]
    return "; ".join([", ".join(values), *_constants(specialization.constants, specialization.integers)])


def _lies(specialization: Specialization, at: int) -> str:
    return f" {specialization.layout(at)}" if specialization.instance.inputs[at].shape else ""


def _constants(*known: Mapping[str, Any]) -> Sequence[str]:
    return [f"{name}={value!r}" for each in known for name, value in each.items()]
