"""Records of calls of a text of language `triton`: its launches, with their grids and arguments."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.cuda.device import require_grid
from noyau.ir.loops import Buffer, Kernel
from noyau.toolchain.triton.module import load

Allocation: TypeAlias = tuple[tuple[int, ...], torch.dtype]
Launching: TypeAlias = tuple[Any, Sequence[Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A launch of a compiled kernel. `arguments`: None in the place of each tensor; `places`: pairs of such a place and
    the tensor's index among inputs and allocations."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class CallRecord:
    """Record of one call. `allocations`: shape and dtype of each; `results`: their indices among inputs and
    allocations; `again`: whether a replay would be the same call."""

    inputs: Sequence[Tensor]
    called: str
    allocations: list[Allocation] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    launched: list[LaunchRecord] = field(default_factory=list)
    results: tuple[int, ...] = ()
    again: bool = True

    def place(self, tensor: object) -> int:
        """Index of a tensor among inputs and allocations; -1 where it is none of them."""
        return next((at for at, each in enumerate((*self.inputs, *self.tensors)) if each is tensor), -1)

    def note(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Record a launch."""
        places = [(at, self.place(each)) for at, each in enumerate(arguments) if isinstance(each, Tensor)]
        self.again &= hasattr(kernel, "run") and all(place >= 0 for _, place in places)
        whole = tuple(None if isinstance(each, Tensor) else each for each in arguments)
        self.launched.append(LaunchRecord(kernel, (*grid, 1, 1)[:3], whole, tuple(places)))


class _Tape(threading.local):
    """State of a thread: the record to write, launches to collect instead of running, and the allocator of results."""

    record: CallRecord | None = None
    later: list[Launching] | None = None
    empty: Callable[..., Tensor] = torch.empty

    @contextmanager
    def holding(self, **state: Any) -> Iterator[None]:
        """Set some of these to other values, in a `with`."""
        before = {name: getattr(self, name) for name in state}
        vars(self).update(state)
        try:
            yield
        finally:
            vars(self).update(before)


TAPE = _Tape()


def allocations_of(buffers: Iterable[Buffer], sizes: Mapping[str, int]) -> list[Allocation]:
    """Shapes and dtypes of buffers for some sizes."""
    return [(tuple(int(dim.evaluate(sizes)) for dim in each.shape), TO_TORCH[each.dtype]) for each in buffers]


def allocate(allocations: Iterable[Allocation], device: torch.device) -> list[Tensor]:
    """New tensors, by the allocator of this thread."""
    return [TAPE.empty(shape, dtype=dtype, device=device) for shape, dtype in allocations]


class TextTorch:
    """Proxy of `torch` in a text: its allocations are recorded, and made by the thread's allocator."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(shape: int | tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        shape = (shape,) if isinstance(shape, int) else shape
        if (record := TAPE.record) is not None:  # before it: an error for lack of memory names this result too
            record.allocations.append((shape, dtype))
        tensor = TAPE.empty(shape, dtype=dtype, device=device)
        if record is not None:
            record.tensors.append(tensor)
        return tensor


class TextLaunch:
    """Proxy of a Triton function in a text, whose launches are recorded."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(*arguments: Any, **options: Any) -> Any:
            if TAPE.later is not None:
                TAPE.later.append((self.function, arguments, options))
                return None
            if TAPE.record is None:
                return self.function[grid](*arguments, **options)
            require_grid(TAPE.record.called, grid)
            kernel = self.function[grid](*arguments, **options)
            TAPE.record.note(kernel, grid, arguments)
            return kernel

        return launch


@cache
def namespace(text: str) -> dict[str, Any]:
    """The names of a text, whose allocations are recorded."""
    names = load(text)
    names["torch"] = TextTorch()
    return names


def function_of(text: str, kernel: Kernel) -> Callable[..., Any]:
    """The function of a kernel in a text, whose launches are recorded."""
    names = namespace(text)
    for name in (f"{kernel.name}_{at}" for at in range(len(kernel.launches))):
        if not isinstance(names.get(name), TextLaunch | None):
            names[name] = TextLaunch(names[name])
    return cast("Callable[..., Any]", names[kernel.name])


def foretell(function: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Launching]:
    """Launches that a function of a text would make for tensors: functions of Triton's, their arguments and options."""
    launches: list[Launching] = []
    with TAPE.holding(later=launches):
        function(*tensors)
    return launches
