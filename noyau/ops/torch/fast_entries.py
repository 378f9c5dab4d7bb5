"""Doors for tensors of what was chosen for a key: in C where one kernel is the whole program, else in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch

from noyau.codegen.language import LANGUAGES
from noyau.errors import InputError, UnsupportedError
from noyau.hosts.numpy.fast_calls import MISS, Argument, read_argument
from noyau.hosts.torch.fast_calls import TensorDoor, is_plain, through_arrays
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.kernels.call import caller_of, library_of
from noyau.kernels.programs.generate import CPU, BuiltProgram
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch import fast_entries
from noyau.ops.dispatch.choice import USUAL, Choice, Selection
from noyau.ops.dispatch.fast_entries import arguments_of
from noyau.ops.torch.cuda_fast_calls import DeviceDoor
from noyau.ops.torch.program_runner import host
from noyau.signatures.types import Signature

Entry: TypeAlias = Callable[[tuple[Any, ...]], Any]


def entry(label: str, signature: Signature, chosen: Selection) -> Entry | None:
    """The entry that takes the tensors and numbers of a call as they are, and gives new tensors; MISS where they are of
    another key. None where the reference runs."""
    doors = [(_door(label, signature, choice, chosen), most) for choice, most in chosen.choices]
    if any(door is None for door, _ in doors):
        return None
    only = doors[0][0] if chosen.only else None
    return only or partial(_by_size, [(door, most) for door, most in doors if door is not None])


def _door(label: str, signature: Signature, choice: Choice, chosen: Selection) -> Entry | None:
    specialization = chosen.wanted
    match choice.made:
        case None:
            return None
        case UserKernel(language=language) if LANGUAGES[language].is_native:
            made = library_of(choice.made, specialization.instance, specialization.constants)
            return TensorDoor(*made, arguments_of(signature, specialization, packed=True), label).call
        case UserKernel() if caller_of(choice.made, gpu=True) is not None:
            from noyau.ops.torch.triton_fast_calls import HandDoor

            return HandDoor(choice.made, specialization, arguments_of(signature, specialization), label)
        case BuiltProgram() if choice.made.library is not None or specialization.device != CPU:
            return through_program(choice.made, arguments_of(signature, specialization), label, choice.tiles)
        case _:
            alone = fast_entries.entry(label, signature, replace(chosen, choices=((choice, float("inf")),)))
            return None if alone is None else partial(through_arrays, alone)


def refusal(label: str, device: str, chosen: Selection) -> str:
    """The message where no kernel may run on a GPU."""
    message = "; ".join(f"{kernel}: {reason}" for kernel, reason in chosen.rejected) or "nothing is generated"
    return f"{label}: no kernel may run on {device} ({message}); copy the tensors to the CPU, or use noyau.reference()"


def call_or_refuse(door: Entry, arguments: tuple[Any, ...]) -> Any:
    """Call an entry with what it has missed, and say why where it gives nothing. UnsupportedError where it has
    none."""
    if isinstance(door, DeviceDoor):
        return door.insist(arguments)
    raise UnsupportedError("no kernel takes these tensors as they lie; give packed ones: x.contiguous()")


def through_program(
    program: BuiltProgram, ends: Sequence[Argument], label: str, tiles: Mapping[str, int] = USUAL
) -> Entry:
    """The door of a built program, in C or on a GPU."""
    if LANGUAGES[program.generated.language].on_gpu:
        return DeviceDoor(program, ends, label, tiles)
    kernel = program.generated.program.single
    if kernel is not None and program.library is not None:
        return TensorDoor(program.library, f"{kernel.name}_kernel", ends, label).call
    return partial(_hosted, ends, host(program))


def _hosted(ends: Sequence[Argument], run: Callable[..., list[torch.Tensor]], arguments: tuple[Any, ...]) -> Any:
    """A door in Python, to a program of several steps. What it refuses, it misses: the whole way tells why."""
    if len(arguments) != len(ends):
        return MISS
    given = [_read(end, each) for end, each in zip(ends, arguments, strict=True)]
    if any(each is None for each in given):
        return MISS
    try:
        results = run(*given)
    except InputError:
        return MISS
    return results[0] if len(results) == 1 else tuple(results)


def _read(end: Argument, each: Any) -> torch.Tensor | None:
    """An argument as a program takes it, or None where it is of another key."""
    if not isinstance(each, torch.Tensor):
        array = read_argument(end, each)
        return None if array is None else tensor_of(array)
    return each.detach() if is_plain(each) and read_argument(end, array_of(each)) is not None else None


def _by_size(doors: Sequence[tuple[Entry, float]], arguments: tuple[Any, ...]) -> Any:
    """The door for the size of the largest tensor."""
    cells = max((each.numel() for each in arguments if isinstance(each, torch.Tensor)), default=0)
    return next(door for door, most in doors if cells <= most)(arguments)
