"""Options of `torch.compile(module, backend="noyau", options=...)` and of `noyau.optimize(module, inputs)`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from noyau.errors import InputError
from noyau.jobs.optimize.pipeline import KEEPS
from noyau.jobs.optimize.weight_choice import require_wishes
from noyau.text import printable
from noyau.verify.adversarial import FULL, SMOKE, Effort

log = logging.getLogger("noyau")
RESTS = ("eager", "inductor")
CERTIFICATES: Mapping[str, Effort] = {"smoke": SMOKE, "full": FULL}
# The modes of torch.compile: kernels are always timed, and on a GPU graphs recorded, unless that is refused.
MODES: Mapping[str, Mapping[str, Any]] = {
    **{mode: {} for mode in ("default", "reduce-overhead", "max-autotune")},
    "max-autotune-no-cudagraphs": {"graphs": False},
}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`rest`: who runs what no kernel of noyau's covers, "eager" (torch's own kernels, nothing is built) or "inductor";
    `against`: what kernels are timed against; as `rest` where it is None. `budget_s`: seconds for the clock, of all
    kernels of one graph. `keep`: "faster", "not-slower" or "all" of the kernels that are right. `certificate`: "smoke"
    tries a kernel on the sizes that torch saw and a few awkward inputs, "full" on all that noyau has.
    `graphs`: on a GPU, a graph of many small launches is recorded after a few calls, and launched as one CUDA graph.
    `prompt`: on a GPU, torch's own kernels run in the first call of a graph, and noyau's are made in the second; not
    where a report is asked for, as noyau.optimize does. `limit_s`: seconds for a graph's cut, and for its kernels, or
    torch runs it; none for noyau.optimize. `verdicts`: a list to which torch.compile adds who runs a graph, and why.
    `weights`: "auto", "int8" or "int4" for products of few rows on a GPU with weights in few bits, where that is faster
    and keeps a `budget`: "same-tokens", or how far the outputs may move, over the largest; `calibration`: inputs as the
    module takes them, of the same shapes, for errors and tokens (noyau.optimize alone)."""

    rest: str = "eager"
    against: str | None = None
    budget_s: float = 60.0
    keep: str = "faster"
    certificate: str = "smoke"
    graphs: bool = True
    prompt: bool = True
    limit_s: float = 60.0
    verdicts: list[str] | None = None
    weights: str = "none"
    budget: str | float | None = None
    calibration: Sequence[Any] | None = None

    @property
    def rival(self) -> str:
        """Executor that kernels are timed against."""
        return self.against or self.rest

    def tell(self, words: str) -> None:
        """Say what became of a graph."""
        log.info("%s", words)
        if self.verdicts is not None:
            self.verdicts.append(words)


class CompileKeywords(TypedDict, total=False):
    """The fields of `CompileOptions`, as keyword arguments, each optional."""

    rest: str
    against: str | None
    budget_s: float
    keep: str
    certificate: str
    graphs: bool
    prompt: bool
    limit_s: float
    verdicts: list[str] | None
    weights: str
    budget: str | float | None
    calibration: Sequence[Any] | None


class ModuleKeywords(CompileKeywords, total=False):
    """For a module of torch: `dynamic` as torch.compile has it."""

    dynamic: bool | None


class HostedKeywords(ModuleKeywords, total=False):
    """For an ONNX model that torch hosts, beside the device."""

    dims: Mapping[str, int]
    seed: int


def options_from(options: Mapping[str, Any]) -> CompileOptions:
    """The wishes that options of `torch.compile` spell. InputError for an option or a value that there is not."""
    known, mode = [field.name for field in fields(CompileOptions)], options.get("mode") or "default"
    if mode not in MODES:
        raise InputError(f"mode={mode!r} is none of {', '.join(MODES)}")
    options = {**MODES[mode], **{name: value for name, value in options.items() if name != "mode"}}
    for name in options:
        if name not in known:
            raise InputError(f"noyau has no option {printable(str(name))}; its options are: {', '.join(known)}")
    wishes = CompileOptions(**options)
    words = {"rest": RESTS, "against": (None, "", *RESTS), "keep": tuple(KEEPS), "certificate": tuple(CERTIFICATES)}
    for name, allowed in words.items():
        if (value := getattr(wishes, name)) not in allowed:
            raise InputError(f"{name}={value!r} is none of {', '.join(filter(None, allowed))}")
    for name, choice in (("graphs", wishes.graphs), ("prompt", wishes.prompt)):
        if not isinstance(choice, bool):
            raise InputError(f"{name}={choice!r} is neither True nor False")
    for name, seconds in (("budget_s", wishes.budget_s), ("limit_s", wishes.limit_s)):
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise InputError(f"{name}={seconds!r} is no number of seconds from 0 on")
    require_wishes(wishes.weights, wishes.budget, wishes.calibration, 'weights="auto"')
    if not isinstance(wishes.verdicts, list | None):
        raise InputError(f"verdicts={wishes.verdicts!r} is no list to which lines are added")
    return wishes
