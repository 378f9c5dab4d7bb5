"""A kernel at sizes that nothing is run at: its launch, and what each of its parameters is, without any memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES, Grid
from noyau.errors import NoyauError
from noyau.kernels.buffers import GPU, Buffer, ask
from noyau.kernels.c.functions import prototype
from noyau.kernels.c.parameters import roles_of
from noyau.kernels.call import FunctionKernel
from noyau.kernels.user_kernel import UserKernel, python_function
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance

Array = np.ndarray
Three = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Situation:
    """A kernel at `sizes`: the arrays that it is given have shapes and no cells. `arguments`: by parameter; `grid`,
    `block`: where it is launched, in threads; a program of Triton is a block of one."""

    kernel: UserKernel
    sizes: Mapping[str, int]
    arguments: Mapping[str, Any]
    grid: Three = (1, 1, 1)
    block: Three = (1, 1, 1)

    @property
    def cells(self) -> int:
        """The cells of the largest array."""
        return max((each.size for each in self.arguments.values() if isinstance(each, Array)), default=0)

    @property
    def told(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.sizes.items())


def situation(kernel: UserKernel, instance: Instance, sizes: Mapping[str, int], inputs: Sequence[Any]) -> Situation:
    """A kernel of an op at sizes by the names of its signature; `given`: arrays at other sizes, of which only the
    scalars are looked at. NoyauError where it has no such call; whatever functions of the author raise."""
    scalars = {v.name: np.asarray(a) for v, a in zip(instance.inputs, inputs, strict=True) if v.scalar}
    scalars |= {n: np.asarray(sizes[n], scalars[n].dtype) for n in scalars.keys() & sizes.keys()}
    arrays = [
        scalars[v.name] if v.scalar else phantom([int(d.evaluate(sizes)) for d in v.shape], v.dtype.numpy)
        for v in instance.inputs
    ]
    shapes = shapes_of(instance.outputs, sizes)
    outputs = [phantom(shape, v.dtype.numpy) for shape, v in zip(shapes, instance.outputs, strict=True)]
    run = FunctionKernel(kernel, instance, {})
    offers = {**run.offers(arrays, outputs), **{name: each.item() for name, each in scalars.items()}}
    offers["device"] = GPU if LANGUAGES[kernel.language].on_gpu else offers["device"]
    values = (*instance.inputs, *instance.outputs)
    known = {**offers, **{v.name: a for v, a in zip(values, (*arrays, *outputs), strict=True) if not v.scalar}}
    grid, block = _launch(kernel, offers)
    return Situation(kernel, dict(sizes), _arguments(kernel, offers, known), grid, block)


def phantom(shape: Sequence[int], dtype: np.dtype) -> Array:
    """A packed array of a shape, of any size, whose cells nobody may touch: there are none."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), tuple(shape), tuple(reversed(strides)))


def _arguments(kernel: UserKernel, offers: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each parameter of the kernel, as far as it is known."""
    parameters = parameters_of(kernel)
    if kernel.usage.args is not None:
        answer = ask(kernel.usage.args, offers, f"args= of {kernel.called}")
        arguments = [values[each.name] if isinstance(each, Buffer) else each for each in answer]
    elif kernel.function is None:
        usage = replace(kernel.usage, launch=None) if LANGUAGES[kernel.language].on_gpu else kernel.usage
        roles = roles_of(prototype(kernel), usage, kernel.target, kernel.called)
        arguments = [values.get(name) for name in roles.names or ()]
    else:
        ends = [term.name for term in (*kernel.target.inputs, *kernel.target.outputs)]
        arguments = [values.get(name) for name in ends]
    by_name = dict(zip(parameters, arguments, strict=False))
    if LANGUAGES[kernel.language].grid is Grid.PROGRAMS:
        return {name: by_name.get(name, values.get(name)) for name in parameters}
    return by_name


def parameters_of(kernel: UserKernel) -> list[str]:
    """The names of the parameters of a kernel."""
    if kernel.function is None:
        return [each.name for each in prototype(kernel).parameters]
    return list(inspect.signature(python_function(kernel.function)).parameters)


def _launch(kernel: UserKernel, offers: Mapping[str, Any]) -> tuple[Three, Three]:
    launch = kernel.usage.launch
    if not LANGUAGES[kernel.language].on_gpu or launch is None or isinstance(launch, str):
        return (1, 1, 1), (1, 1, 1)
    answer = ask(launch, offers, f"launch= of {kernel.called}") if callable(launch) else launch
    if LANGUAGES[kernel.language].grid is Grid.PROGRAMS:
        return _three(answer), (1, 1, 1)
    return _three(answer[0]), _three(answer[1])


def _three(extents: Any) -> Three:
    parts = tuple(extents) if isinstance(extents, tuple | list) else (extents,)
    x, y, z = (*(int(each) for each in parts), 1, 1)[:3]
    return x, y, z


def count(extents: Three) -> int:
    """Blocks of a grid, threads of a block."""
    return math.prod(extents)


def situation_or_none(
    kernel: UserKernel, instance: Instance, sizes: Mapping[str, int], inputs: Sequence[Any]
) -> Situation | None:
    """`situation`, or None where there is none: what does not fit is found where the kernel is run."""
    try:
        return situation(kernel, instance, sizes, inputs)
    except (NoyauError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return None
