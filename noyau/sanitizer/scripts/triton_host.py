"""Stand-ins, without a GPU, for the calls of a Triton script beside its launches: CPU tensors whose device reads as
"cuda", the device and its properties, benchmarks, compiled kernels."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import copy
from functools import partial, partialmethod
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _device as defaults
from triton import testing
from triton._C import libtriton
from triton.backends.compiler import GPUTarget
from triton.runtime import autotuner

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.streams import DEFAULT, FakeEvent, FakeStream
from noyau.text import sizes_text

EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
CONFIGS = 3  # configurations that are run and watched per autotuner
Note = Callable[[str], None]
GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_MARK = "_noyau_on_a_gpu"  # an attribute of tensors that the script has moved to a GPU
_THERE: dict[int, StorageWeakRef] = {}  # the storages of these: what autograd saves comes back as another object
_SAME: dict[str, Callable[..., Any]] = {
    "pin_memory": lambda tensor, *_: tensor,
    "is_pinned": lambda tensor, *_: storage_of(tensor) in FakeStream.order.pinned,
    "record_stream": lambda *_: None,
}
_COPYING = "as_tensor", "asarray"  # copies for another device alone
_SHAPING = "expand_as", "reshape_as", "view_as"  # views of their first tensor, where that lies
_HALVES = torch.float16, torch.bfloat16
_SUMMING = ("layer_norm", "group_norm")  # a CPU sums their gradients in half precision, a GPU in float32
PROPERTIES = SimpleNamespace(
    name="no GPU: watched by noyau", major=9, minor=0, multi_processor_count=2, total_memory=80 << 30, warp_size=32,
    L2_cache_size=50 << 20, max_threads_per_multi_processor=2048, shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10, regs_per_multiprocessor=65536, gcnArchName="",
)  # fmt: skip
# Called after a torch call with the function, its arguments, its keyword arguments and the result.
Look = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]


def is_marked(each: Any) -> bool:
    """Whether the script has put a tensor on a GPU."""
    if not isinstance(each, torch.Tensor) or _MARK in each.__dict__:
        return isinstance(each, torch.Tensor)
    with suppress(RuntimeError):  # of tensors without memory of their own, sparse or batched ones
        return (storage := _THERE.get(storage_of(each))) is not None and not storage.expired()
    return False


def mark_tensors(each: Any) -> Any:
    """Mark each tensor in a value as one on a GPU, and return the value."""
    if isinstance(each, torch.Tensor):
        each.__dict__[_MARK] = True
        with suppress(RuntimeError), torch._C.DisableTorchFunction():
            if (storage := each.untyped_storage()).nbytes():
                _THERE[storage.data_ptr()] = StorageWeakRef(storage)
    elif isinstance(each, tuple | list):
        for part in each:
            mark_tensors(part)
    return each


def storage_of(tensor: Any) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage().data_ptr())


class Devices(TorchFunctionMode):  # type: ignore[misc]
    """A torch function mode in which "cuda" is the CPU. `look` is called after each torch call; `is_there`: the current
    one is of a GPU."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look, self.is_there = look, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name == "__get__":
            return _attribute(func, args)
        if name == "__set__" and getattr(func.__self__, "__name__", "") == "data":
            func(*args)
            _as(args[0], args[1])
            return None
        is_pinned = named.pop("pin_memory", False) or name == "pin_memory"
        result = self.call(func, name, args, named)
        if is_pinned and isinstance(result, torch.Tensor):
            FakeStream.order.pinned.add(storage_of(result))
        self.look(func, args, named, result)
        return result

    def call(self, func: Any, name: str, args: Any, named: dict[str, Any]) -> Any:
        if func is torch.device:
            return func(*args, **named)
        first: Any = args[0] if args else None
        if isinstance(first, torch.Tensor) and name in _SAME:
            return _SAME[name](first)
        match name:
            case "cuda" if isinstance(first, torch.Tensor):
                return mark_tensors(first if is_marked(first) else first.clone())
            case "cpu" if is_marked(first):
                return _bare(first.clone())
            case "get_device" if is_marked(first):
                return 0
            case "to" if isinstance(first, torch.Tensor):
                return _to(func, first, args, named)
        if name in _SUMMING and is_marked(first) and first.dtype in _HALVES:
            wide = func(*map(_widen, args), **{key: _widen(each) for key, each in named.items()})
            return mark_tensors(wide.to(first.dtype))
        wished = [named.get("device"), *(each for each in args if isinstance(each, torch.device))]
        if func in defaults._device_constructors() and all(each is None for each in wished):
            wished = [getattr(defaults, "CURRENT_DEVICE", None)]
            named |= {"device": wished[0]} if wished[0] is not None else {}
        is_for_gpu, sources = any(map(_is_gpu, wished)), args[:1] if name in _SHAPING else args
        self.is_there = is_there = is_for_gpu or (wished == [None] and any(map(is_marked, parts(sources))))
        result = func(*map(_here, args), **{key: _here(each, key == "device") for key, each in named.items()})
        result = result.clone() if is_for_gpu and name in _COPYING and not is_marked(result) else result
        return mark_tensors(result) if is_there and result is not first else result  # in place, the device stays


def _attribute(func: Any, args: Any) -> Any:
    owner = getattr(func.__self__, "__name__", "")
    if owner in ("device", "is_cuda") and is_marked(args[0]):
        return GPU if owner == "device" else True
    value = func(*args)
    return mark_tensors(value) if isinstance(value, torch.Tensor) and is_marked(args[0]) else value


def _to(func: Any, tensor: torch.Tensor, args: Any, named: dict[str, Any]) -> Any:
    """Stand in for `tensor.to(...)`, which copies between devices."""
    wished = [each for each in (*args[1:2], named.get("device")) if isinstance(each, torch.device | str | int)]
    wished = [each for each in wished if not isinstance(each, bool)]
    target = is_marked(args[1]) if len(args) > 1 and isinstance(args[1], torch.Tensor) else is_marked(tensor)
    there = any(map(_is_gpu, wished)) if wished else target
    passed = (tensor, *(_here(each, is_device=True) for each in args[1:]))
    result = func(*passed, **{key: _here(each, key == "device") for key, each in named.items()})
    if result is tensor and there != is_marked(tensor):
        result = tensor.clone()
    return mark_tensors(result) if there else _bare(result) if result is not tensor else result


def _as(tensor: Any, other: Any) -> Any:
    """Put a tensor on the same device as another one."""
    return mark_tensors(tensor) if is_marked(other) else _bare(tensor)


def _bare(tensor: Any) -> Any:
    tensor.__dict__.pop(_MARK, None)
    return tensor


def parts(args: Any) -> Iterator[Any]:
    for each in args:
        if isinstance(each, tuple | list):
            yield from each
        else:
            yield each


def _widen(each: Any) -> Any:
    return each.float() if isinstance(each, torch.Tensor) and each.dtype in _HALVES else each


def _is_gpu(each: Any) -> bool:
    if isinstance(each, int) and not isinstance(each, bool):
        return True
    return each is not None and torch.device(each).type == "cuda"


def _here(each: Any, is_device: bool = False) -> Any:
    """Replace a GPU by the CPU in an argument."""
    if isinstance(each, torch.device) or (is_device and isinstance(each, str | int) and not isinstance(each, bool)):
        return _CPU if _is_gpu(each) else each
    return each


# Stand-ins for torch.cuda.


class TorchStream(FakeStream):
    """A stream of torch, which does not synchronize with the default stream."""

    device = GPU
    is_capturing = staticmethod(lambda: False)


def _answer(value: Any = None) -> Callable[..., Any]:
    """Return a function with a constant result, one object per name: torch takes equal objects for one function."""
    return lambda *wishes, **named: value


class _GeneratorKind(type):
    """The metaclass that keeps torch.Generator a class, for annotations, while its instances lie on the CPU."""

    plain = torch.Generator

    def __call__(cls, device: Any = "cpu") -> Any:
        return cls.plain(_here(device, is_device=True))

    def __instancecheck__(cls, each: Any) -> bool:
        return isinstance(each, cls.plain)


class Generator(metaclass=_GeneratorKind):
    """Stand-in for torch.Generator."""


def fake_generator() -> SimpleNamespace:
    """Return the generator of a GPU: a seed and an offset, from which a library's own kernels draw."""
    state = torch.zeros(2, dtype=torch.int64)
    return SimpleNamespace(
        get_state=lambda: state.clone().view(torch.uint8),
        set_state=lambda other: state.copy_(other.view(torch.int64)),
        manual_seed=lambda seed: state.copy_(torch.tensor([seed, 0])),
        initial_seed=lambda: int(state[0]),
    )


def _no_graphs(*wishes: Any, **named: Any) -> None:
    raise UnsupportedError("a CUDA graph is not recorded without a GPU; run the script without it")


WORDS: dict[str, Any] = {
    **{name: _answer(True) for name in ("is_available", "is_initialized", "is_bf16_supported")},
    "device_count": _answer(1),
    "get_device_name": _answer(PROPERTIES.name),
    "get_device_properties": _answer(PROPERTIES),
    "get_device_capability": _answer((PROPERTIES.major, PROPERTIES.minor)),
    "is_current_stream_capturing": _answer(False),  # an optimizer asks at each step
    "can_device_access_peer": _answer(False),
    "get_arch_list": _answer([f"sm_{PROPERTIES.major}{PROPERTIES.minor}"]),
    "get_rng_state": lambda *_, **__: torch.get_rng_state(),  # numbers of a GPU also come from the CPU generator
    "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
    "memory_stats": lambda *_: defaultdict(int),
    "memory_summary": _answer(""),
    "mem_get_info": _answer((PROPERTIES.total_memory, PROPERTIES.total_memory)),
    "current_stream": lambda *_: TorchStream(number=FakeStream.order.current),
    "default_stream": lambda *_: TorchStream(number=DEFAULT),
    "synchronize": lambda *_: FakeStream.order.synchronize(),
    "stream": lambda stream: stream or nullcontext(),
    "set_stream": FakeStream.enter,
    "device": lambda *_: nullcontext(),
    "_DeviceGuard": lambda *_: nullcontext(),
    "default_generators": (fake_generator(),),
    "Stream": TorchStream,
    "Event": FakeEvent,
    "CUDAGraph": _no_graphs,
}
_SILENT = """init _lazy_init set_device empty_cache ipc_collect manual_seed manual_seed_all seed seed_all
    reset_peak_memory_stats reset_max_memory_allocated reset_accumulated_memory_stats set_per_process_memory_fraction
    set_sync_debug_mode""".split()
_ZERO = """current_device memory_allocated max_memory_allocated memory_reserved max_memory_reserved utilization
    initial_seed get_sync_debug_mode""".split()
_MARKS = "range_push range_pop range_start range_end mark".split()  # of torch.cuda.nvtx
WORDS |= {name: _answer() for name in _SILENT} | {name: _answer(0) for name in _ZERO}
_ALIKE = "is_available device_count synchronize current_stream memory_allocated empty_cache".split()
_ACCELERATOR = {name: WORDS[name] for name in _ALIKE} | {
    "current_accelerator": _answer(torch.device("cuda")), "current_device_index": _answer(0)}  # fmt: skip


def _stand_in_autograd(undone: ExitStack, devices: Devices) -> None:
    """Have gradients, and a script's hooks for what operations save, run in the mode, which torch has left as it calls
    them; tensors that it makes for them lie where the results do."""
    node, saving = torch.autograd.function.BackwardCFunction, torch.autograd.graph.saved_tensors_hooks
    differentiate, call_node, keep = torch.autograd._engine_run_backward, node.apply, saving.__init__
    roots = [False]

    def in_mode(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        with nullcontext() if torch._C._len_torch_function_stack() else devices:
            return function(*args, **named)

    def keep_hooks(self: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        pack = partial(in_mode, pack_hook)
        keep(self, lambda x: pack(mark_tensors(x) if devices.is_there else x), partial(in_mode, unpack_hook))

    def run_backward(tensors: Any, *args: Any, **named: Any) -> Any:
        roots.append(any(map(is_marked, tensors)))
        try:
            return in_mode(differentiate, tensors, *args, **named)
        finally:
            roots.pop()

    def call_backward(self: Any, *gradients: Any) -> Any:
        return call_node(self, *(mark_tensors(gradients) if roots[-1] else gradients))

    patch(undone, torch.autograd, "_engine_run_backward", run_backward)
    patch(undone, node, "apply", call_backward)
    patch(undone, saving, "__init__", keep_hooks)


@contextmanager
def torch_stood_in(look: Look, note: Note = lambda _: None) -> Iterator[None]:
    """Within, torch has a GPU as far as a script sees. `note` takes lines for its report."""
    subclass = torch.Tensor._make_subclass

    def parameter(cls: Any, data: Any, requires_grad: bool = False, **kwargs: Any) -> Any:
        """Stand in for the constructor of nn.Parameter, which bypasses modes; torch's compiler knows these names."""
        return _as(subclass(cls, data, requires_grad, **kwargs), data)

    def empty_strided(size: Any, stride: Any, dtype: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    def compile_nothing(model: Any = None, *wishes: Any, **named: Any) -> Any:
        """Stand in for torch.compile: return the model unchanged, since compiled code is not watched."""
        note("torch.compile: it ran as it is written")
        return model if model is not None else lambda each: each

    with ExitStack() as undone:
        for name, word in WORDS.items():
            patch(undone, torch.cuda, name, word)
        for name in _MARKS:
            patch(undone, torch.cuda.nvtx, name, _answer(0))
        for name, word in _ACCELERATOR.items() if hasattr(torch, "accelerator") else ():
            patch(undone, torch.accelerator, name, word)
        patch(undone, torch, "Generator", Generator)
        patch(undone, torch, "compile", compile_nothing)
        # A single thread is deterministic, and torch would load its compilers for the answer.
        patch(undone, torch, "use_deterministic_algorithms", _answer())
        patch(undone, torch._C, "_cuda_getCurrentRawStream", _answer(0))
        patch(undone, torch._C._dynamo.guards, "_empty_strided_cuda", empty_strided)  # in code that inductor generates
        patch(undone, torch.Tensor, "_make_subclass", staticmethod(parameter))
        _stand_in_autograd(undone, undone.enter_context(Devices(look)))
        yield


# The interface of a GPU driver that Triton calls, by its own names.
_PROPERTIES = {
    "max_shared_mem": PROPERTIES.shared_memory_per_block_optin, "max_num_regs": PROPERTIES.regs_per_multiprocessor,
    "multiprocessor_count": PROPERTIES.multi_processor_count, "warpSize": PROPERTIES.warp_size,
    "sm_clock_rate": 1_000_000, "mem_clock_rate": 1_000_000, "mem_bus_width": 5120,
}  # fmt: skip
_DRIVER: dict[str, Any] = {
    "utils": SimpleNamespace(get_device_properties=lambda *_: dict(_PROPERTIES)),
    "get_current_target": lambda: GPUTarget("cuda", 10 * PROPERTIES.major, PROPERTIES.warp_size),
    "get_active_torch_device": lambda: GPU, "get_current_device": _answer(0), "set_current_device": _answer(),
    "get_current_stream": _answer(0), "get_device_capability": lambda *_: (PROPERTIES.major, PROPERTIES.minor),
    "get_device_interface": lambda: torch.cuda, "get_benchmarker": lambda: bench_once,
    "get_empty_cache_for_benchmark": lambda: torch.empty(0, dtype=torch.int32), "clear_cache": _answer(),
}  # fmt: skip


class FakeBlas:
    """Stand-in for Triton's wrapper of cuBLAS, on a workspace."""

    def __init__(self, workspace: Any) -> None: ...

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        c.copy_(a @ b.T)


class FakeCompiledKernel:
    """The result of a launch or a warm-up: a kernel without GPU resources, which can be launched."""

    n_regs, n_spills, shared = 32, 0, 1 << 10  # scripts divide by values that every kernel has

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self.asm: dict[str, str] = {}
        self.metadata = SimpleNamespace(shared=self.shared, num_warps=4, num_stages=1)

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **named: self.run(*args, grid=grid, warmup=False, **named)


def bench_once(
    function: Callable[[], Any], *wishes: Any, quantiles: Any = None, return_mode: str = "mean", **named: Any
) -> Any:
    """Stand in for triton.testing.do_bench: call a function once and return the milliseconds of the watched run."""
    began_s = time.perf_counter()
    function()
    took_ms = 1e3 * (time.perf_counter() - began_s)
    if quantiles is not None:
        return took_ms if len(quantiles) == 1 else [took_ms] * len(quantiles)
    return [took_ms] if return_mode == "all" else took_ms


def _run_mark(
    mark: Any,
    note: Note,
    plain: Callable[..., Any],
    show_plots: bool = False,
    print_data: bool = False,
    save_path: str = "",
    return_df: bool = False,
    **named: Any,
) -> Any:
    """Stand in for the run of a triton.testing.perf_report: only the first size of each benchmark, without a plot or a
    file. If a data frame is requested, `plain`, Triton's own run, makes it.

    MissingExtraError if it cannot."""
    is_one = not isinstance(mark.benchmarks, list | tuple)
    frames = []
    for each in [mark.benchmarks] if is_one else mark.benchmarks:
        first = next(iter(each.x_vals))
        values = first if isinstance(first, list | tuple) else [first] * len(each.x_names)
        sizes = dict(zip(each.x_names, values, strict=True))
        note(f"of benchmark {each.plot_name or mark.fn.__name__} only its first size was run ({sizes_text(sizes)})")
        if return_df:
            _require_frames()
            short = copy(each)
            short.x_vals, short.plot_name = [first], ""
            frames.append(plain(type(mark)(mark.fn, short), return_df=True, **named))
            continue
        own = {name: value for name, value in named.items() if name not in ("diff_col", "save_precision")}
        for line in each.line_vals:
            mark.fn(**sizes, **{each.line_arg: line}, **each.args, **own)
    return None if not return_df else frames[0] if is_one else frames


def _require_frames() -> None:
    """Raise MissingExtraError if Triton cannot make a data frame."""
    missing = [name for name in ("pandas", "matplotlib") if find_spec(name) is None]
    if missing:
        message = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        install = f"run: pip install {' '.join(missing)}"
        raise MissingExtraError(f"perf_report(...).run(return_df=True) gives a data frame, and {message}; {install}")


def _prune(tuner: Any, plain: Callable[..., Any], kwargs: Any) -> list[Any]:
    """Keep the first few configurations, of an autotuner's own choice by `plain`, with distinct constants."""
    by_constants = {str(sorted(config.kwargs.items())): config for config in reversed(plain(tuner, kwargs))}
    return list(reversed(by_constants.values()))[:CONFIGS]


# Functions of Triton before 3.0, by module, which autotuners of matrix products call before they run.
_GONE: Mapping[str, Mapping[str, Any]] = {
    "triton.ops": {"__path__": []},
    "triton.ops.matmul_perf_model": {
        "early_config_prune": lambda configs, *rest, **named: configs,
        "estimate_matmul_time": _answer(1.0),
    },
}


@contextmanager
def triton_stood_in(note: Note) -> Iterator[None]:
    """Make Triton behave as with a GPU, for the script. `note` receives lines for the report."""
    with ExitStack() as undone:
        active = "_active" if isinstance(vars(type(triton.runtime.driver)).get("active"), property) else "active"
        patch(undone, triton.runtime.driver, active, SimpleNamespace(**_DRIVER))
        for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
            if hasattr(testing, name):
                patch(undone, testing, name, bench_once)
        patch(undone, testing.Mark, "run", partialmethod(_run_mark, note, testing.Mark.run))
        patch(undone, autotuner.Autotuner, "prune_configs", partialmethod(_prune, autotuner.Autotuner.prune_configs))
        if (products := getattr(getattr(libtriton, "nvidia", None), "cublas", None)) is not None:
            patch(undone, products, "CublasLt", FakeBlas)
        for name, words in _GONE.items() if find_spec("triton.ops") is None else ():
            module = sys.modules[name] = ModuleType(name)
            vars(module).update(words)
            undone.callback(sys.modules.pop, name)
        yield
