"""Calls of a script to a GPU beside its kernels and arrays, where Numba's own simulator of the API has no answer: which
device there is, events that take the time, streams that are the default one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.cuda.simulator.api import stream
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, managed_array, pinned_array_like

from noyau.sanitizer.scripts.fakes import FakeEvent


class SimulatedGpu(SimpleNamespace):
    """A device, which is there to be entered and asked."""

    def __enter__(self) -> SimulatedGpu:
        return self

    def __exit__(self, *fault: Any) -> None: ...


def _ignored(*wishes: Any, **named: Any) -> None: ...


DEVICE = SimulatedGpu(
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
    TOTAL_MEMORY=80 << 30,
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    reset=_ignored,
)
CONTEXT = SimulatedGpu(
    id=0,
    device=DEVICE,
    reset=_ignored,
    synchronize=_ignored,
    push=_ignored,
    pop=_ignored,
    trashing=SimpleNamespace(clear=_ignored),
    deallocations=SimpleNamespace(clear=_ignored),
    get_memory_info=lambda: (DEVICE.TOTAL_MEMORY, DEVICE.TOTAL_MEMORY),
    get_compute_capability=lambda: DEVICE.compute_capability,
)


def _as_array(value: Any, sync: bool = True) -> Any:
    """An array of a device, of what has the memory of one."""
    return value if isinstance(value, FakeCUDAArray) else FakeCUDAArray(np.asarray(value))


def _detected() -> bool:
    sys.stdout.write(f"Found 1 CUDA devices\nid 0  {DEVICE.name.decode()}\n")
    return True


@contextmanager
def _mapped(*arrays: Any, **options: Any) -> Iterator[Any]:
    yield arrays[0] if len(arrays) == 1 else arrays


def _stream(*number: Any) -> Any:
    return stream()


WORDS: dict[str, Any] = {
    "gpus": [DEVICE],
    "list_devices": lambda: [DEVICE],
    "select_device": lambda *_: CONTEXT,
    "current_context": lambda *_: CONTEXT,
    "detect": _detected,
    "close": _ignored,
    "as_cuda_array": _as_array,
    "is_cuda_array": lambda given: isinstance(given, FakeCUDAArray),
    "is_supported_version": lambda: True,
    "get_current_device": lambda: DEVICE,
    "event": FakeEvent,
    "event_elapsed_time": FakeEvent.elapsed_time,
    "managed_array": managed_array,
    "pinned_array_like": pinned_array_like,
    "mapped": _mapped,
    "default_stream": _stream,
    "legacy_default_stream": _stream,
    "per_thread_default_stream": _stream,
    "external_stream": _stream,
    "profile_start": _ignored,
    "profile_stop": _ignored,
    "profiling": nullcontext,
}
