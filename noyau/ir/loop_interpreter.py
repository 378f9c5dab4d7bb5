"""The interpreter of the loop IR: its executable definition, in plain Python, one cell at a time.

It runs scheduled kernels too: loops bound to THREADS and LANES in shuffled order, memory unset at first. Two threads or
lanes that meet in a cell, a cell that is read too early, or an index outside its buffer is an error here."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from random import Random
from typing import Any

import numpy as np

from noyau.dtypes import DType, extents_and_strides, from_numpy
from noyau.errors import GraphError, InputError, OutsideError
from noyau.ir.checked_memory import Array, CheckedArray, RaceDetector
from noyau.ir.dims import Shape
from noyau.ir.loop_verifier import Translator
from noyau.ir.loops import LINE_BYTES, Alloc, Kernel, Role
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import listing_of

Arrays = Sequence[Array]


def run(kernel: Kernel, inputs: Arrays, *, seed: int = 0, sizes: Mapping[str, int] | None = None) -> list[Array]:
    """The outputs of a kernel, in the order of its OUTPUT buffers.

    `inputs` are in the order of its INPUT buffers; `seed` orders the loops without an order; `sizes` are sizes that no
    input binds. InputError where the inputs do not fit, or a looked-up index is out of bounds; GraphError where the
    kernel reads an unset cell, leaves a buffer's bounds, or leaves a cell of an output unwritten."""
    bound = bind_sizes(kernel, inputs, sizes or {})
    running = KernelRun(kernel, inputs, bound, seed)
    text, objects = translate_kernel(kernel)
    scope: dict[str, Any] = {"R": running, "K": objects}
    with np.errstate(all="ignore"):
        try:
            exec(text, scope)  # noqa: S102  made by Translator, which spells every name itself
            for launch in scope["launches"]:
                launch()
        except ZeroDivisionError:
            raise GraphError(f"{kernel.name} divides by a size that is 0, where {listing_of(bound)}") from None
    return [running.memories[at].result() for at, b in enumerate(kernel.buffers) if b.role is Role.OUTPUT]


@lru_cache(maxsize=64)
def translate_kernel(kernel: Kernel) -> tuple[Any, tuple[Any, ...]]:
    """The code of a kernel, and the objects that it refers to."""
    translator = Translator(kernel)
    return compile(translator.text(), f"<{kernel.name}>", "exec"), tuple(translator.objects)


def bind_sizes(kernel: Kernel, inputs: Sequence[Array], numbers: Mapping[str, int]) -> dict[str, int]:
    """The sizes, by the kernel's own binding; InputError where an input's dtype or shape or a guard does not fit."""
    buffers, sizes = kernel.of(Role.INPUT), dict(numbers)
    if len(buffers) != len(inputs):
        raise InputError(f"{kernel.name} takes {len(buffers)} inputs, not {len(inputs)}")
    for buffer, array in zip(buffers, inputs, strict=True):
        if from_numpy(array.dtype) is not buffer.dtype or array.ndim != len(buffer.shape):
            wanted = f"{buffer.dtype.value} of rank {len(buffer.shape)}"
            raise InputError(f"{buffer.name} is {wanted}, not {array.dtype} of {array.shape}")
    for binding in kernel.binding:
        array = inputs[binding.input]
        extent = array.shape[binding.axis] if binding.axis < array.ndim else extents_and_strides(array)[binding.axis]
        sizes[binding.size] = (extent - int(binding.offset.evaluate(sizes))) // binding.factor
    for buffer, array in zip(buffers, inputs, strict=True):
        for dim, extent in zip(buffer.shape, array.shape, strict=True):
            natural = all(sizes.get(size, 0) >= 0 for size in dim.names)
            if not natural or (dim.names <= sizes.keys() and dim.evaluate(sizes) != extent):
                raise InputError(f"{buffer.name} has shape {array.shape}, which does not fit where {listing_of(sizes)}")
    for guard in kernel.guards:
        if not guard.holds(sizes):
            raise InputError(f"{kernel.name} needs {guard.left} <= {guard.right}, but {listing_of(sizes)}")
    return sizes


class KernelRun:
    """One run: the sizes, the memories of the buffers, the order of parallel loops; also the algebra of scalars."""

    int64, race_detector = np.int64, RaceDetector

    def __init__(self, kernel: Kernel, inputs: Sequence[Array], sizes: Mapping[str, int], seed: int) -> None:
        self.kernel, self.sizes, self.random = kernel, sizes, Random(seed)  # noqa: S311
        self.shift = self.random.randrange(2)  # cells from the start of a cache line to the start of each buffer
        arrays = iter(inputs)
        self.memories = [
            CheckedArray(b.name, b.dtype, self.extents(b.shape), next(arrays) if b.role is Role.INPUT else None)
            for b in kernel.buffers
        ]

    def extents(self, shape: Shape) -> list[int]:
        for name in sorted(name for dim in shape for name in dim.names):
            self.size(name)
        return [max(0, int(dim.evaluate(self.sizes))) for dim in shape]

    def size(self, name: str) -> int:
        if name not in self.sizes:
            raise InputError(f"{self.kernel.name}: the size {name} does not follow from the inputs; give it in `sizes`")
        return self.sizes[name]

    def memory(self, alloc: Alloc, extents: Sequence[int]) -> CheckedArray:
        return CheckedArray(alloc.name, alloc.dtype, extents)

    def shuffle(self, count: int) -> list[int]:
        return self.random.sample(range(count), max(0, count))

    def in_whole_lines(self, *places: tuple[CheckedArray, int]) -> np.bool_:
        """Whether each place starts at a cache line, if every buffer starts at one, or one cell after one."""
        begins = ((memory, memory.offset(tuple(index)) + self.shift) for memory, *index in places)
        return np.bool_(all(at * memory.dtype.bytes % LINE_BYTES == 0 for memory, at in begins))

    def until_aligned(self, cells: int, length: int, memory: CheckedArray, *index: int) -> np.int64:
        """Cells to the next vector boundary, if buffer k starts at one, or k cells after one."""
        shape = memory.shape if len(index) == len(memory.shape) else (memory.size,)
        at = sum(each * prod(shape[axis + 1 :]) for axis, each in enumerate(index))
        return np.int64(min(-(at + self.shift * self.memories.index(memory)) % cells, length))

    def require(self, index: int, extent: int) -> None:
        if not 0 <= index < extent:
            raise OutsideError(f"{self.kernel.name}: index out of bounds: {index} is not in [0, {extent})")

    def cast(self, value: Any, dtype: DType) -> Any:
        return value != 0 if dtype is DType.BOOL else value.astype(dtype.numpy)

    def call(self, name: str, *operands: Any) -> Any:
        return np.asarray(OPERATORS[name].evaluate(*operands))[()]

    def like(self, value: float, other: Any) -> Any:
        return other.dtype.type(value)
