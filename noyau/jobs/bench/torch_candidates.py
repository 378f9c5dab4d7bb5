"""The candidates on a GPU: an op's generated and attached kernels, and functions of tensors, for the clock to call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from noyau.errors import InputError, NoyauError, SignatureError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.jobs.bench.inputs import InputMaker, InputView
from noyau.jobs.bench.tasks import BenchTask
from noyau.jobs.bench.tile_sizes import tilings
from noyau.kernels.callers import caller_of
from noyau.kernels.programs.generate import Specialization, key_of
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import Choice, Selection, Selector
from noyau.ops.op import Op
from noyau.ops.torch.fast_entries import entry

Array = np.ndarray
Function = Callable[..., object]
REFERENCE_STAYS = "it is NumPy's: the others are judged by it, and nothing runs it on a GPU"


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """A participant of a race on a device. `skipped`: why it cannot run here; `fault`: why it cannot be built;
    `is_peer`: it is timed where its values are wrong, too, and not ranked; `is_judge`: its values are what the others
    are judged by; `note`: why it is tried."""

    name: str
    language: str = ""
    run: Function | None = None
    skipped: str = ""
    fault: str = ""
    is_peer: bool = False
    is_judge: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeviceCandidate:
    """The way from draws of arrays to arguments on a device: arrays without axes stay numbers, and rotate not."""

    drawn: InputMaker
    device: torch.device

    def draws(self) -> list[tuple[torch.Tensor, ...]]:
        """The draws as tensors there, packed as they lie in memory."""
        return [tuple(tensor_of(array).to(self.device) for array in draw if array.ndim) for draw in self.drawn.draws]

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """All arguments, in order, for the tensors of one set."""
        given, held = iter(tensors), iter(self.drawn.draws[0])
        found: list[Any] = []
        for view, fixed in zip(self.drawn.views.views, self.drawn.views.fixed, strict=True):
            if view is None:
                found.append(fixed.item() if isinstance(fixed, np.generic) else fixed)
                continue
            memory = next(held)
            found.append(viewed(view, next(given)) if memory.ndim else memory.item())
        return tuple(found)

    def arrays(self, tensors: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays of a draw in memory, of those of one set: what is judged."""
        given = iter(tensors)
        return tuple(next(given) if memory.ndim else memory for memory in self.drawn.draws[0])


def viewed(view: InputView, memory: torch.Tensor) -> torch.Tensor:
    """An argument of packed memory, as `View.argument` gives it of an array."""
    turned = memory.permute(*map(int, np.argsort(view.order))) if view.order else memory
    return turned if tuple(turned.shape) == view.shape else turned.expand(view.shape)


def on_host(given: Any) -> Any:
    """A tensor as an array of the same strides, as far as it is dense; all else as it is."""
    return array_of(given.detach().resolve_neg().cpu()) if isinstance(given, torch.Tensor) else given


def device_name(args: Any) -> str:
    """The CUDA device that some arguments lie on, or nothing. InputError where they lie on several."""
    found = {str(each.device) for each in args if isinstance(each, torch.Tensor) and each.is_cuda}
    if len(found) > 1:
        raise InputError(f"the inputs lie on {', '.join(sorted(found))}; put them on one device")
    return found.pop() if found else ""


def of_op(op: Op[..., Any], task: BenchTask, device: str, *, searches: bool) -> Iterator[DeviceEntry]:
    """An op's reference, which is not run, then each generated kernel, then each attached one. `searches`: the
    generated one with other sizes of tiles, too."""
    assert op.signature is not None and task.wanted is not None
    yield DeviceEntry("reference", skipped=REFERENCE_STAYS)
    sm_count = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = replace(task.wanted, device=device)
    choosing = Selector(op.description)
    for language in wanted.languages:
        made = choosing.program(wanted, key_of(wanted), language)
        if isinstance(made, str):
            yield DeviceEntry(f"generated {language}", language, skipped=made)
            continue
        others = tilings(made.generated, task.cells, sm_count) if searches else []
        for tiles, reason in (({}, ""), *others):
            choice = Choice(language, language, "", made, tiles=tiles)
            named = f"generated {language}{tile_text(tiles)}"
            note = f"{tile_text(tiles).strip(' ()')}: {reason}" if tiles else ""
            yield replace(_by_door(op, named, choice, wanted), note=note)
    for kernel in op.kernels.values():
        yield _attached_entry(op, kernel, wanted)


def tile_text(tiles: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name}={size}' for name, size in tiles.items())})" if tiles else ""


def _attached_entry(op: Op[..., Any], kernel: UserKernel, wanted: Specialization) -> DeviceEntry:
    if caller_of(kernel, gpu=True) is None:
        told = f"it is in {kernel.language}, and the tensors lie on {wanted.device}"
        return DeviceEntry(kernel.name, kernel.language, skipped=told)
    try:
        return _by_door(op, kernel.name, Choice(kernel.name, kernel.language, "", kernel), wanted)
    except SignatureError as error:
        return DeviceEntry(kernel.name, kernel.language, skipped=f"it does not take these inputs: {error}")
    except NoyauError as error:
        return DeviceEntry(kernel.name, kernel.language, fault=str(error))


def _by_door(op: Op[..., Any], name: str, choice: Choice, wanted: Specialization) -> DeviceEntry:
    """A kernel as a call of the op runs it."""
    assert op.signature is not None
    door = entry(op.name, op.signature, Selection(wanted, ((choice, math.inf),), ()))
    assert door is not None

    def run(*arguments: Any) -> object:
        made = door(arguments)
        return door.insist(arguments) if made is MISS and hasattr(door, "insist") else made

    return DeviceEntry(name, choice.language, run)
