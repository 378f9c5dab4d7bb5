"""What a script says to a GPU beside its kernels and arrays, where Numba's own simulator of the API has no answer:
which device there is, events that take the time, streams that are the default one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from numba.cuda.simulator.api import stream
from numba.cuda.simulator.cudadrv.devicearray import managed_array, pinned_array_like

from noyau.scripts.events import Event

DEVICE = SimpleNamespace(
    id=0,
    name=b"no GPU: watched by noyau",
    compute_capability=(9, 0),
    COMPUTE_CAPABILITY=(9, 0),
    WARP_SIZE=32,
    MULTIPROCESSOR_COUNT=2,
    MAX_THREADS_PER_BLOCK=1024,
    MAX_BLOCK_DIM_X=1024,
    MAX_BLOCK_DIM_Y=1024,
    MAX_BLOCK_DIM_Z=64,
    MAX_GRID_DIM_X=2**31 - 1,
    MAX_GRID_DIM_Y=65535,
    MAX_GRID_DIM_Z=65535,
    MAX_SHARED_MEMORY_PER_BLOCK=48 << 10,
    reset=lambda: None,
)


@contextmanager
def _mapped(*arrays: Any, **options: Any) -> Iterator[Any]:
    yield arrays[0] if len(arrays) == 1 else arrays


def _stream(*number: Any) -> Any:
    return stream()


def _nothing() -> None: ...


WORDS: dict[str, Callable[..., Any]] = {
    "get_current_device": lambda: DEVICE,
    "event": Event,
    "event_elapsed_time": Event.elapsed_time,
    "managed_array": managed_array,
    "pinned_array_like": pinned_array_like,
    "mapped": _mapped,
    "default_stream": _stream,
    "legacy_default_stream": _stream,
    "per_thread_default_stream": _stream,
    "external_stream": _stream,
    "profile_start": _nothing,
    "profile_stop": _nothing,
    "profiling": nullcontext,
}
