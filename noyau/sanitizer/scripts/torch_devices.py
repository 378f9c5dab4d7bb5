"""Tensors of the CPU in the place of those of a GPU, while a script runs: what it asks of "cuda" it gets, and a tensor
that lies there says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device as defaults

from noyau.sanitizer.scripts.fakes import FakeEvent, patch

GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_MARK = "_noyau_on_a_gpu"  # an attribute of tensors that a script has put there
_SAME = {"pin_memory": lambda tensor, *_: tensor, "is_pinned": lambda *_: False, "record_stream": lambda *_: None}
PROPERTIES = SimpleNamespace(
    name="no GPU: watched by noyau",
    major=9,
    minor=0,
    multi_processor_count=2,
    total_memory=80 << 30,
    warp_size=32,
    L2_cache_size=50 << 20,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    regs_per_multiprocessor=65536,
    gcnArchName="",
)
Look = Callable[[Any, tuple[Any, ...], Any], None]  # at a call of torch: the function, its arguments, the result


def is_marked(each: Any) -> bool:
    """Whether a script has put a tensor on a GPU."""
    return isinstance(each, torch.Tensor) and _MARK in each.__dict__


def marked(each: Any) -> Any:
    """The same, with each tensor in it as one of a GPU."""
    if isinstance(each, torch.Tensor):
        each.__dict__[_MARK] = True
    elif isinstance(each, tuple | list):
        for part in each:
            marked(part)
    return each


class Devices(TorchFunctionMode):  # type: ignore[misc]
    """Calls of torch in which "cuda" is the CPU. `look` sees each of them once it is done."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name == "__get__":
            return _attribute(func, args)
        if name == "__set__" and getattr(func.__self__, "__name__", "") == "data":
            func(*args)
            _as(args[0], args[1])
            return None
        result = self.called(func, name, args, named)
        self.look(func, args, result)
        return result

    def called(self, func: Any, name: str, args: Any, named: dict[str, Any]) -> Any:
        if func is torch.device:
            return func(*args, **named)
        first: Any = args[0] if args else None
        if isinstance(first, torch.Tensor) and name in _SAME:
            return _SAME[name](first)
        match name:
            case "cuda" if isinstance(first, torch.Tensor):
                return marked(first if is_marked(first) else first.clone())
            case "cpu" if is_marked(first):
                return _bare(first.clone())
            case "get_device" if is_marked(first):
                return 0
            case "to" if isinstance(first, torch.Tensor):
                return _to(func, first, args, named)
        wished = [named.get("device"), *(each for each in args if isinstance(each, torch.device))]
        if func in defaults._device_constructors() and all(each is None for each in wished):
            wished = [getattr(defaults, "CURRENT_DEVICE", None)]
            named |= {"device": wished[0]} if wished[0] is not None else {}
        is_for_gpu = any(map(_is_gpu, wished))
        result = func(*map(_here, args), **{key: _here(each, key == "device") for key, each in named.items()})
        is_there = is_for_gpu or (wished == [None] and any(map(is_marked, _parts(args))))
        return marked(result) if is_there else result


def _attribute(func: Any, args: Any) -> Any:
    owner = getattr(func.__self__, "__name__", "")
    if owner in ("device", "is_cuda") and is_marked(args[0]):
        return GPU if owner == "device" else True
    value = func(*args)
    return marked(value) if isinstance(value, torch.Tensor) and is_marked(args[0]) else value


def _to(func: Any, tensor: torch.Tensor, args: Any, named: dict[str, Any]) -> Any:
    """`tensor.to(...)`, which copies from a device to another."""
    wished = [each for each in (*args[1:2], named.get("device")) if isinstance(each, torch.device | str | int)]
    wished = [each for each in wished if not isinstance(each, bool)]
    target = is_marked(args[1]) if len(args) > 1 and isinstance(args[1], torch.Tensor) else is_marked(tensor)
    there = any(map(_is_gpu, wished)) if wished else target
    passed = (tensor, *(_here(each, is_device=True) for each in args[1:]))
    result = func(*passed, **{key: _here(each, key == "device") for key, each in named.items()})
    if result is tensor and there != is_marked(tensor):
        result = tensor.clone()
    return marked(result) if there else _bare(result) if result is not tensor else result


def _as(tensor: Any, other: Any) -> Any:
    """A tensor, which lies where another one does."""
    return marked(tensor) if is_marked(other) else _bare(tensor)


def _bare(tensor: Any) -> Any:
    tensor.__dict__.pop(_MARK, None)
    return tensor


def _parts(args: Any) -> Iterator[Any]:
    for each in args:
        if isinstance(each, tuple | list):
            yield from each
        else:
            yield each


def _is_gpu(each: Any) -> bool:
    if isinstance(each, int) and not isinstance(each, bool):
        return True
    return each is not None and torch.device(each).type == "cuda"


def _here(each: Any, is_device: bool = False) -> Any:
    """An argument in which a GPU is the CPU."""
    if isinstance(each, torch.device) or (is_device and isinstance(each, str | int) and not isinstance(each, bool)):
        return _CPU if _is_gpu(each) else each
    return each


# What is said to torch.cuda.


class FakeStream:
    """A queue of launches, each of which is done at once."""

    cuda_stream, device, device_index = 0, GPU, 0

    def __init__(self, *wishes: Any, **named: Any) -> None: ...

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *fault: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        recorded_event = event or FakeEvent()
        recorded_event.record()
        return recorded_event


def _nothing(*wishes: Any, **named: Any) -> None: ...


def _none(*wishes: Any, **named: Any) -> int:
    return 0


WORDS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda *_, **__: True,
    "device_count": lambda: 1,
    "current_device": _none,
    "get_device_name": lambda *_: PROPERTIES.name,
    "get_device_properties": lambda *_: PROPERTIES,
    "get_device_capability": lambda *_: (PROPERTIES.major, PROPERTIES.minor),
    "mem_get_info": lambda *_: (PROPERTIES.total_memory, PROPERTIES.total_memory),
    "current_stream": FakeStream,
    "default_stream": FakeStream,
    "stream": lambda stream: stream or nullcontext(),
    "device": lambda *_: nullcontext(),
    "Stream": FakeStream,
    "Event": FakeEvent,
}
WORDS |= dict.fromkeys(("init", "synchronize", "set_device", "empty_cache", "manual_seed", "manual_seed_all"), _nothing)
WORDS |= dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect"), _nothing)
WORDS |= dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), _none)


@contextmanager
def stood_in(look: Look) -> Iterator[None]:
    """Within, torch has a GPU as far as a script sees."""
    generator, subclass = torch.Generator, torch.Tensor._make_subclass

    def parameter(kind: Any, data: Any, *wishes: Any, **named: Any) -> Any:
        """The constructor of nn.Parameter, of which no mode is told."""
        return _as(subclass(kind, data, *wishes, **named), data)

    with ExitStack() as undone:
        for name, word in WORDS.items():
            patch(undone, torch.cuda, name, word)
        patch(undone, torch, "Generator", lambda device="cpu": generator(_here(device, is_device=True)))
        patch(undone, torch.Tensor, "_make_subclass", staticmethod(parameter))
        undone.enter_context(Devices(look))
        yield
