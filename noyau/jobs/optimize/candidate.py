"""A kernel on its way through the pipeline, with the evidence so far: library, certificate, timings, verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from noyau.codegen.plan import Planned
from noyau.errors import NoyauError
from noyau.jobs.optimize.binding_timing import BindingTiming, decisive, overall
from noyau.timing.verdict import Comparison, Verdict
from noyau.verify.certificate import Certificate

KEEPS = {
    "faster": frozenset({Verdict.FASTER}),
    "not-slower": frozenset({Verdict.FASTER, Verdict.SAME, Verdict.AMBIGUOUS}),
    "all": frozenset(Verdict),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with its evidence: its certificate, a timing at each binding of the sizes where it came to that, and
    whether it is kept. `library` is where it was built, on hosts that open each kernel by itself.

    `reason` says why it is not kept, or not timed; `note` what the certificate leaves out."""

    planned: Planned
    library: Path | None = None
    certificate: Certificate | None = None
    timings: tuple[BindingTiming, ...] = ()
    kept: bool = False
    reason: str = ""
    note: str = ""

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that its verdict rests on, or None where it was not timed."""
        decider = decisive(self.timings)
        return None if decider is None else decider.comparison

    @property
    def speedup(self) -> float | None:
        """The speed-up that its verdict rests on, or None where it was not timed."""
        return None if self.comparison is None else self.comparison.speedup

    @property
    def evidence(self) -> str:
        """The certificate in words, or why there is none."""
        return "; ".join(filter(None, [self.certificate.summary() if self.certificate else self.reason, self.note]))


def right(candidates: Iterable[Candidate]) -> list[Planned]:
    """The kernels that nothing speaks against so far."""
    return [each.planned for each in candidates if not each.reason]


def certify(candidate: Candidate, make: Callable[[], tuple[Certificate, str]]) -> Candidate:
    """The candidate with its certificate and a note on what that leaves out; with the reason where it is wrong, or
    cannot be checked."""

    def step() -> Candidate:
        certificate, note = make()
        reason = "" if certificate.ok else certificate.summary()
        return replace(candidate, certificate=certificate, note=note, reason=reason)

    return candidate if candidate.reason else attempt(step, candidate, "cannot be checked")


def attempt(step: Callable[[], Candidate], before: Candidate, fault: str) -> Candidate:
    """The candidate after a step; where that raises an error of noyau, the candidate before it, with the reason."""
    try:
        return step()
    except NoyauError as error:
        return replace(before, reason=f"{fault}: {error}")


def decide(candidate: Candidate, keep: str) -> Candidate:
    """The candidate kept or not, by one of KEEPS and all its timings; the reason names the binding where it does not
    win."""
    if candidate.reason:
        return candidate
    decider = decisive(candidate.timings)
    if decider is None:
        return replace(candidate, kept=keep == "all", reason="not timed")
    verdict = overall(timing.verdict for timing in candidate.timings)
    if verdict in KEEPS[keep]:
        return replace(candidate, kept=True, reason="")
    advice = decider.comparison.advice if verdict is Verdict.AMBIGUOUS else ""
    return replace(candidate, kept=False, reason="; ".join(filter(None, [str(decider), advice])))
