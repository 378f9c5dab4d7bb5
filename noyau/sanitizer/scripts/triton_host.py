"""Calls of a Triton script beside its launches, where there is no GPU: which one there is, how fast a kernel is, what
it was compiled to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton import testing
from triton.backends.compiler import GPUTarget
from triton.runtime import autotuner

from noyau.errors import MissingExtraError
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.torch_devices import GPU, PROPERTIES

CONFIGS = 3  # of a tuner, of which each is watched
Note = Callable[[str], None]


def _nothing(*wishes: Any) -> None: ...


def _zero(*wishes: Any) -> int:
    return 0


# What Triton asks of a GPU's driver, by its own names.
_PROPERTIES = {
    "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
    "max_num_regs": PROPERTIES.regs_per_multiprocessor,
    "multiprocessor_count": PROPERTIES.multi_processor_count,
    "warpSize": PROPERTIES.warp_size,
    "sm_clock_rate": 1_000_000,
    "mem_clock_rate": 1_000_000,
    "mem_bus_width": 5120,
}
_DRIVER: dict[str, Any] = {
    "utils": SimpleNamespace(get_device_properties=lambda *_: dict(_PROPERTIES)),
    "get_current_target": lambda: GPUTarget("cuda", 10 * PROPERTIES.major, PROPERTIES.warp_size),
    "get_active_torch_device": lambda: GPU,
    "get_current_device": _zero,
    "set_current_device": _nothing,
    "get_current_stream": _zero,
    "get_device_capability": lambda *_: (PROPERTIES.major, PROPERTIES.minor),
    "get_device_interface": lambda: torch.cuda,
    "get_benchmarker": lambda: bench_once,
    "get_empty_cache_for_benchmark": lambda: torch.empty(0, dtype=torch.int32),
    "clear_cache": _nothing,
}


class FakeCompiledKernel:
    """The result of a launch, or of a warm-up: a kernel that takes nothing of a GPU, and can be launched as it is."""

    n_regs, n_spills, shared = 32, 0, 0

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self.asm: dict[str, str] = {}
        self.metadata = SimpleNamespace(shared=0, num_warps=4, num_stages=1)

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **named: self.run(*args, grid=grid, warmup=False, **named)


def bench_once(
    function: Callable[[], Any],
    *wishes: Any,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **named: Any,
) -> Any:
    """triton.testing.do_bench, which calls a function once; milliseconds of the watched run."""
    began_s = time.perf_counter()
    function()
    took_ms = 1e3 * (time.perf_counter() - began_s)
    if quantiles is not None:
        return took_ms if len(quantiles) == 1 else [took_ms] * len(quantiles)
    return [took_ms] if return_mode == "all" else took_ms


def _marks(note: Note, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The run of a triton.testing.perf_report: of the sizes of each benchmark the first, of which nothing is drawn or
    kept. Where a data frame is asked for, `plain`, Triton's own run, makes it.

    MissingExtraError where it cannot be made."""

    def run(
        mark: Any,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **named: Any,
    ) -> Any:
        is_one = not isinstance(mark.benchmarks, list | tuple)
        frames = []
        for each in [mark.benchmarks] if is_one else mark.benchmarks:
            first = next(iter(each.x_vals))
            values = first if isinstance(first, list | tuple) else [first] * len(each.x_names)
            sizes = dict(zip(each.x_names, values, strict=True))
            title = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            note(f"of benchmark {each.plot_name or mark.fn.__name__} only its first size was run ({title})")
            if return_df:
                _require_frames()
                short = copy(each)
                short.x_vals, short.plot_name = [first], ""
                frames.append(plain(type(mark)(mark.fn, short), return_df=True, **named))
                continue
            own = {name: value for name, value in named.items() if name not in ("diff_col", "save_precision")}
            for line in each.line_vals:
                mark.fn(**sizes, **{each.line_arg: line}, **each.args, **own)
        if not return_df:
            return None
        return frames[0] if is_one else frames

    return run


def _require_frames() -> None:
    """MissingExtraError where Triton cannot make a data frame."""
    missing = [name for name in ("pandas", "matplotlib") if find_spec(name) is None]
    if missing:
        message = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        install = f"run: pip install {' '.join(missing)}"
        raise MissingExtraError(f"perf_report(...).run(return_df=True) gives a data frame, and {message}; {install}")


def _pruned(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The first few of a tuner's configurations that differ in what the kernel sees."""

    def prune(tuner: Any, kwargs: Any) -> list[Any]:
        by_constants = {str(sorted(config.kwargs.items())): config for config in reversed(plain(tuner, kwargs))}
        return list(reversed(by_constants.values()))[:CONFIGS]

    return prune


@contextmanager
def stood_in(note: Note) -> Iterator[None]:
    """Within, Triton has a GPU as far as a script sees. `note` takes lines for its report."""
    with ExitStack() as undone:
        patch(undone, triton.runtime.driver, "_active", SimpleNamespace(**_DRIVER))
        for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
            if hasattr(testing, name):
                patch(undone, testing, name, bench_once)
        patch(undone, testing.Mark, "run", _marks(note, testing.Mark.run))
        patch(undone, autotuner.Autotuner, "prune_configs", _pruned(autotuner.Autotuner.prune_configs))
        yield
