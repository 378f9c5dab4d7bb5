"""The candidates on a GPU: an op's generated and attached kernels, and functions of tensors, for the clock to call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from noyau.errors import InputError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.jobs.bench.inputs import InputMaker, InputView
from noyau.jobs.bench.tasks import BenchTask, Entry, build_entry
from noyau.jobs.bench.winners import tilings
from noyau.kernels.call import caller_of
from noyau.kernels.programs.generate import Specialization, key_of
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import REFERENCE, Choice, Selection, Selector
from noyau.ops.op import Op
from noyau.ops.torch.fast_entries import entry
from noyau.timing.sides import Contender


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
        arguments = self.drawn.views.arguments(self.arrays(tensors), view_of)
        return tuple(each.item() if isinstance(each, np.generic) else each for each in arguments)

    def arrays(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The arrays of a draw in memory, of those of one set: what is judged."""
        tensors_left = iter(tensors)
        return tuple(next(tensors_left) if memory.ndim else memory for memory in self.drawn.draws[0])


def view_of(view: InputView, memory: Any) -> Any:
    """An argument of packed memory, as `InputView.argument` gives it of an array; a number of an array without axes."""
    if not memory.ndim:
        return memory.item()
    turned = memory.permute(*map(int, np.argsort(view.order))) if view.order else memory
    return turned if tuple(turned.shape) == view.shape else turned.expand(view.shape)


def on_host(argument: Any) -> Any:
    """A tensor as an array of the same strides, as far as it is dense; all else as it is."""
    return array_of(argument.detach().resolve_neg().cpu()) if isinstance(argument, torch.Tensor) else argument


def device_name(args: Any) -> str:
    """The CUDA device that some arguments lie on, or nothing. InputError where they lie on several."""
    devices = {str(each.device) for each in args if isinstance(each, torch.Tensor) and each.is_cuda}
    if len(devices) > 1:
        raise InputError(f"the inputs lie on {', '.join(sorted(devices))}; put them on one device")
    return devices.pop() if devices else ""


def of_op(op: Op[..., Any], task: BenchTask, *, searches: bool) -> Iterator[Entry]:
    """An op's reference, which is not run, its generated kernels, with other tiles if it `searches`, attached ones."""
    request = task.request
    assert request is not None
    yield Entry(REFERENCE, skipped="it is NumPy's: the others are judged by it, and nothing runs it on a GPU")
    sm_count = torch.cuda.get_device_properties(request.device).multi_processor_count
    choosing = Selector(op.description)
    for language in request.languages:
        program = choosing.program(request, key_of(request), language)
        if isinstance(program, str):
            yield Entry(f"generated {language}", language, skipped=program)
            continue
        others = tilings(program.generated, task.cells, sm_count) if searches else []
        for tiles, reason in (({}, ""), *others):
            choice, text = Choice(language, language, "", program, tiles=tiles), tile_text(tiles)
            note = f"{text.strip(' ()')}: {reason}" if tiles else ""
            yield replace(_by_fast_call(op, f"generated {language}{text}", choice, request), note=note)
    yield from (_attached_entry(op, kernel, request) for kernel in op.kernels.values())


def tile_text(tiles: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name}={size}' for name, size in tiles.items())})" if tiles else ""


def _attached_entry(op: Op[..., Any], kernel: UserKernel, request: Specialization) -> Entry:
    called = kernel.name, kernel.language
    if caller_of(kernel, gpu=True) is None:
        return Entry(*called, skipped=f"it is in {kernel.language}, and the tensors lie on {request.device}")
    return build_entry(*called, lambda: _by_fast_call(op, kernel.name, Choice(*called, "", kernel), request))


def _by_fast_call(op: Op[..., Any], name: str, choice: Choice, request: Specialization) -> Entry:
    fast_call = entry(op.name, op.require_signature(), Selection(request, ((choice, math.inf),), ()))
    assert fast_call is not None

    def run(*arguments: Any) -> object:
        result = fast_call(arguments)
        return fast_call.insist(arguments) if result is MISS and hasattr(fast_call, "insist") else result

    return Entry(name, choice.language, Contender(name, run))
