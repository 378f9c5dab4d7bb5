"""The options of `noyau optimize MODEL.onnx` and of `noyau.optimize("model.onnx")`."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from noyau.codegen.plan import Plan, kernel_named, without
from noyau.compiler.partition.cut import Group
from noyau.errors import InputError
from noyau.hosts.onnxruntime.inputs import Dims
from noyau.hosts.onnxruntime.path_ends import Between, closest
from noyau.hosts.onnxruntime.sessions import load_onnxruntime, missing_provider
from noyau.jobs.command_line import require_amounts
from noyau.jobs.optimize.pipeline import KEEPS
from noyau.jobs.optimize.weight_choice import require_wishes
from noyau.ops.op import Op
from noyau.text import printable


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """The options of one optimization. `keep`: "faster", "not-slower" or "all"; `dims` are sizes to time with, one
    number each or several, `fix_dims` sizes that are constants in the written model; `inputs` instead an .npz file of
    arrays, or a .py file that yields samples of them; `only` and `drop` name kernels, or values that a kernel writes,
    for that place alone; `between` are the ends of the path to work on, (["A", "B"], ["C"]) or "A,B:C"; `ops` have user
    kernels, which go where their files say: "path.py::op", or the ops themselves; `budget_s` is for the clock, per
    kernel and binding, `within_s` for everything; `fresh`: use no timing of an earlier run; `tune`: whether to try
    options of the schedules, None for the best found before; `weights`: "auto", "int8" or "int4" for products with
    weights in few bits, if these are faster within a `budget`: "same-tokens" (None), or the largest error of the
    outputs; on the real inputs of a file `calibration`, or on those that it is timed with. `device`: "cuda" for kernels
    of onnxruntime's CUDA provider, whose `target` may name architectures."""

    device: str = "cpu"
    keep: str = "faster"
    dims: Dims = field(default_factory=dict)
    fix_dims: Mapping[str, int] = field(default_factory=dict)
    inputs: str | Path | None = None
    target: str = "native"
    threads: int = 1
    budget_s: float = 0.6
    within_s: float = math.inf
    fresh: bool = False
    tune: bool | None = None
    seed: int = 0
    only: Sequence[str] = ()
    drop: Sequence[str] = ()
    between: Between | None = None
    ops: Sequence[str | Op[Any, Any]] = ()
    weights: str = "none"
    budget: str | float | None = None
    calibration: str | Path | None = None


class ModelKeywords(TypedDict, total=False):
    """The fields of `OptimizeOptions` except `inputs`, as keyword arguments of `noyau.optimize`, each optional."""

    keep: str
    dims: Dims
    fix_dims: Mapping[str, int]
    target: str
    threads: int
    budget_s: float
    within_s: float
    fresh: bool
    tune: bool | None
    seed: int
    only: Sequence[str]
    drop: Sequence[str]
    between: Between | None
    ops: Sequence[str | Op[Any, Any]]
    weights: str
    budget: str | float | None
    calibration: str | Path | None


DEFAULTS = OptimizeOptions()
DEVICES = ("cpu", "cuda")


def check_options(wishes: OptimizeOptions) -> None:
    """InputError for an invalid option; MissingExtraError without onnxruntime."""
    if wishes.keep not in KEEPS:
        raise InputError(f"keep={wishes.keep!r} is none of {', '.join(KEEPS)}")
    require_amounts(wishes, "threads", "seed", "budget_s", "within_s")
    require_wishes(wishes.weights, wishes.budget, wishes.calibration, "--weights auto")
    load_onnxruntime()
    if wishes.device not in DEVICES:
        raise InputError(f"device={printable(wishes.device)} is none of onnxruntime's: {', '.join(DEVICES)}")
    if wishes.device != DEVICES[0] and (wishes.ops or wishes.tune or wishes.weights != "none"):
        raise InputError("ops=, tune= and weights= are for kernels of the CPU: leave them, or the device, out")
    if wishes.keep != "all" and (lacks := missing_provider(wishes.device)):
        raise InputError(f"{lacks}, or keep all kernels that are right (--keep all), which are then not timed")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which all work has to end: `within_s` seconds after its creation."""

    within_s: float
    start_s: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> bool:
        return time.monotonic() - self.start_s > self.within_s

    @property
    def fault(self) -> str:
        """The message that work ends, once the time has passed, or an empty text."""
        return f"the {self.within_s:g} s that were given are over" if self.passed else ""


def choose_places(plan: Plan, only: Sequence[str], drop: Sequence[str]) -> Plan:
    """The plan with the chosen places: those that `only` names, or all, except those that `drop` names. A name is that
    of a kernel, for all of its places, or of a value that a kernel writes, for that place alone. The other places are
    among the refused. InputError for a name that is neither."""
    places = [group for kernel in plan.kernels for group in kernel.groups]
    names = {group.positions for name in only for group in places_by_name(plan, name)}
    names = names if only else {group.positions for group in places}
    names -= {group.positions for name in drop for group in places_by_name(plan, name)}
    return without(plan, [(group, "left out as asked") for group in places if group.positions not in names])


def places_by_name(plan: Plan, name: str) -> list[Group]:
    """The places of a kernel, by its name or a prefix, or of a value that it writes. InputError if there is none."""
    writers = [group for kernel in plan.kernels for group in kernel.groups if name in group.outputs]
    if writers and all(kernel.operator != name for kernel in plan.kernels):
        return writers
    values = [output for kernel in plan.kernels for group in kernel.groups for output in group.outputs]
    return list(kernel_named(name, plan.kernels, closest(name, values)).groups)
