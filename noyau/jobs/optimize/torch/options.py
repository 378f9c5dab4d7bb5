"""Options of `torch.compile(module, backend="noyau", options=...)` and of `noyau.optimize(module, inputs)`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from noyau.errors import InputError
from noyau.jobs.command_line import require_amounts
from noyau.jobs.optimize.pipeline import KEEPS
from noyau.jobs.optimize.weight_choice import require_wishes
from noyau.text import printable
from noyau.verify.adversarial import FULL, SMOKE, Effort

log = logging.getLogger("noyau")
RESTS = ("eager", "inductor")
CERTIFICATES: Mapping[str, Effort] = {"smoke": SMOKE, "full": FULL}
# The modes of torch.compile. Kernels are always timed, and graphs on a GPU recorded except with the last mode.
MODES: Mapping[str, Mapping[str, Any]] = {
    **{mode: {} for mode in ("default", "reduce-overhead", "max-autotune")},
    "max-autotune-no-cudagraphs": {"graphs": False},
}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`rest`: the executor of the nodes that no kernel covers, "eager" (torch's own kernels, nothing is built) or
    "inductor"; `against`: the executor that kernels are timed against; None: as `rest`. `budget_s`: seconds for the
    clock, of all kernels of one graph. `keep`: "faster", "not-slower" or "all" of the kernels that are right.
    `certificate`: "smoke" tries a kernel on the sizes that torch saw and a few awkward inputs, "full" on all of noyau's
    inputs. `graphs`: on a GPU, a graph of many small launches is recorded after a few calls, and launched as one CUDA
    graph. `prompt`: on a GPU, torch's own kernels run in the first call of a graph, and noyau's are made in the second;
    not if a report is asked for, as by noyau.optimize. `limit_s`: seconds for a graph's cut, and for its kernels, or
    torch runs it; none for noyau.optimize. `verdicts`: a list to which torch.compile appends who runs a graph, and why.
    `weights`: "auto", "int8" or "int4" for products of few rows on a GPU with weights in few bits, if that is faster
    and within a `budget`: "same-tokens", or the largest error of the outputs, over the largest; `calibration`: inputs
    as the module takes them, of the same shapes, for errors and tokens (noyau.optimize alone)."""

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
        return self.against or self.rest

    def tell(self, words: str) -> None:
        """Log the outcome of a graph, and append it to `verdicts`."""
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
    """Keyword arguments for a module of torch: `dynamic` as in torch.compile."""

    dynamic: bool | None


class HostedKeywords(ModuleKeywords, total=False):
    """Keyword arguments for an ONNX model that torch hosts, except the device."""

    dims: Mapping[str, int]
    seed: int


def options_from(options: Mapping[str, Any]) -> CompileOptions:
    """The CompileOptions of `torch.compile`'s options. InputError for an unknown option or an invalid value."""
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
    require_amounts(wishes, "budget_s", "limit_s")
    require_wishes(wishes.weights, wishes.budget, wishes.calibration, 'weights="auto"')
    if not isinstance(wishes.verdicts, list | None):
        raise InputError(f"verdicts={wishes.verdicts!r} is no list to which lines are added")
    return wishes
