"""Hand-written kernels called on NumPy arrays, directly and between guard zones; and a caller for each language that
runs here, which builds its kernels and knows the layouts that they take.

A language without a caller, such as C++, runs only under the sanitizer; so do CUDA C++ and Numba-CUDA without a GPU.
Python's stand-ins for a GPU raise errors of their own: `error_of` decides whether an error is the kernel's.
"""

import linecache
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import CheckError, NoyauError, RaisedError, UnsupportedError
from noyau.kernels import user_kernel
from noyau.kernels.c.text import c_flags, c_source
from noyau.kernels.reference import bind_sizes, empty_outputs
from noyau.kernels.triton.parameters import bind_kernel
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance, Value
from noyau.timing.machine import compiler_version
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import LAYOUTS, End, Guards, Order, how_to_run
from noyau.workers.nvml import has_driver

_OWN = (AssertionError, NameError, ZeroDivisionError)  # errors of the kernel, whichever frame raises them
_STAND_INS = ("noyau", "triton", "numba", "numba.cuda", "numpy", "torch")  # packages that run kernels without a GPU
_COMPILER = "triton/language/"  # an error that is raised in it is raised on a GPU as well


INTERPRETED = "in Triton's interpreter"  # the place where kernels run, as words of a report


def first_cause(fault: BaseException) -> BaseException:
    """The first error of a chain of causes; Triton's interpreter wraps it in an error of its own."""
    while fault.__cause__ is not None and fault.__cause__.__traceback__ is not None:
        fault = fault.__cause__
    return fault


def error_of(called: str, fault: BaseException) -> NoyauError:
    """Translate an error of a kernel that Python runs in place of a GPU.

    RaisedError if the kernel itself raises it (`raise`, `assert`, an unknown name) or its compiler would raise it too.
    UnsupportedError otherwise: the stand-in for the GPU is at fault, which says nothing about the kernel."""
    root = first_cause(fault)
    frames = traceback.extract_tb(root.__traceback__)
    last = frames[-1]
    files = [sys.modules[name].__file__ for name in _STAND_INS if name in sys.modules]
    folders = [Path(file).parent for file in files if file is not None]
    own = next((each for each in reversed(frames) if not any(map(Path(each.filename).is_relative_to, folders))), None)
    text = "" if own is None else (own.line or linecache.getline(own.filename, own.lineno or 0)).strip()
    is_raised = own is last and text.startswith(("raise ", "assert "))
    summary = f"raised {type(root).__name__}: {' '.join(str(root).split())}".rstrip(": ")
    is_lacking = isinstance(root, AttributeError)  # the stand-in lacks a function, or does not take these arguments
    if is_raised or isinstance(root, _OWN) or (_COMPILER in last.filename and not is_lacking):
        return RaisedError(f"{called} {summary}")
    place = "" if own is None else f" at {Path(own.filename).name}:{own.lineno}, {text!r}"
    words = [f"tl.{each.name}" for each in frames if _COMPILER in each.filename and each.name != "wrapper"]
    remedy = "check it where there is a GPU, with --sanitizer, or write the line otherwise"
    return UnsupportedError(f"without a GPU {(words or ['it'])[0]} {summary}{place}; {remedy}")


Array = np.ndarray
_LINES = 4  # of a kernel's error that a message quotes
Constants = tuple[tuple[str, Any], ...]
Launch = Callable[[user_kernel.UserKernel, Instance, Mapping[str, Any], Sequence[Array], Sequence[Array]], None]
Prepare = Callable[[user_kernel.UserKernel, Instance, Mapping[str, Any]], Any]
SYMBOL = "noyau_hand"  # prefix of the symbols of a library's only kernel


_native = lru_cache(maxsize=256)(Native)


def call_kernel(
    kernel: user_kernel.UserKernel, instance: Instance, arrays: Sequence[Array], constants: Mapping[str, Any]
) -> list[Array]:
    """Run a kernel in this process and return its results. UnsupportedError where nothing here runs its language."""
    if LANGUAGES[kernel.language].is_native:
        return _native(*library_of(kernel, instance, constants))(*arrays)
    return FunctionKernel(kernel, instance, constants)(*arrays)


@dataclass(frozen=True, slots=True)
class FunctionKernel:
    """A kernel that Python calls, for one instance. `layout`: of its inputs in a guarded call."""

    kernel: user_kernel.UserKernel
    instance: Instance
    constants: Mapping[str, Any]
    layout: str = "contiguous"

    def __call__(self, *arrays: Array) -> list[Array]:
        """Call it on these arrays, and copies of the inputs that it updates; returns its results."""
        return self.guards(arrays).fitting(self.run(arrays, empty_outputs(self.instance, arrays)))

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """Call it on copies between guard zones, with poisoned outputs; the call is never cut into pieces.

        `pieces` > 1: the poison of floats is a number instead of a NaN, as for Native. CheckError where a guard was
        overwritten, an input changed, or a cell of an output was not written."""
        return self.guards(arrays).run(arrays, replace(how_to_run(pieces), layout=self.layout))

    def guards(self, arrays: Sequence[Array]) -> Guards:
        """The guards for arrays of these shapes."""
        shapes = shapes_of(self.instance.outputs, bind_sizes(self.instance, arrays))
        inputs = [End(v.name, v.dtype, np.shape(a)) for v, a in zip(self.instance.inputs, arrays, strict=True)]
        outputs = [End(v.name, v.dtype, shape) for v, shape in zip(self.instance.outputs, shapes, strict=True)]
        fills = not self.kernel.usage.returns and not self.kernel.usage.updates
        return Guards(self.run, self.kernel.title, tuple(inputs), tuple(outputs), fills)

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
        """Call it once on prepared memory. RaisedError where it raises."""
        function, caller = self.kernel.function, CALLERS.get(self.kernel.language)
        if caller is None or not caller.runs_here() or (function is None and caller.launch is None):
            where = f"{self.kernel.title} is in {self.kernel.language}"
            raise UnsupportedError(f"{where}, which NumPy arrays cannot be given to")
        before = self.prepare(arrays, outputs)
        try:
            if caller.launch is None:
                assert function is not None
                returned = self.call(function, before, outputs)
            else:
                returned = caller.launch(self.kernel, self.instance, self.constants, before, outputs)
        except NoyauError:
            raise
        except (Exception, SystemExit) as fault:
            raise RaisedError(f"{self.kernel.title} raised {_describe(fault)}") from fault
        return self.parts(returned) if self.kernel.usage.returns else self.results(before, outputs)

    def call(self, function: Callable[..., Any], inputs: Sequence[Array], outputs: Sequence[Array]) -> Any:
        """Call the function. If a Numba function has explicit signatures without these strides, or Numba fails to
        compile it for them, it is called again with packed copies of the inputs, provided that it updates none."""
        positional, named = self.arguments(inputs, outputs)
        try:
            return function(*positional, **named)
        except (TypeError, AssertionError) as fault:
            is_jit = LANGUAGES[self.kernel.language].is_jit
            if not is_jit or self.kernel.usage.updates or not _wants_packed(fault, inputs):
                raise
        positional, named = self.arguments([np.array(each, order="C") for each in inputs], outputs)
        return function(*positional, **named)

    def parts(self, returned: Any) -> list[Array]:
        """The returned values as arrays. CheckError where one is None or their number is wrong."""
        values = self.instance.outputs
        parts = list(returned) if isinstance(returned, tuple | list) and len(values) > 1 else [returned]
        if len(parts) != len(values) or any(part is None for part in parts):
            kind, expected = type(returned).__name__, "an array is" if len(values) == 1 else f"{len(values)} arrays are"
            advice = "return it, or take the outputs as parameters behind the inputs"
            raise CheckError(f"{self.kernel.title} returned {kind}, and {expected} wanted: {advice}")
        return [_as_array(part, value) for part, value in zip(parts, values, strict=True)]

    def results(self, prepared: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
        """The results: the updated inputs if there are any, else the outputs."""
        names = [value.name for value in self.instance.inputs]
        return [prepared[names.index(name)] for name in self.kernel.usage.updates] or list(outputs)

    def prepare(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
        """Copy updated inputs, write the initial values into the outputs, and return the inputs."""
        updates, values = self.kernel.usage.updates, self.instance.inputs
        inputs = [np.array(a) if v.name in updates else a for v, a in zip(values, arrays, strict=True)]
        named = dict(zip((value.name for value in values), inputs, strict=True))
        init = self.init(inputs, outputs)
        for value, output in zip(self.instance.outputs, outputs, strict=True):
            if value.name in init:
                wished = init[value.name]
                output[...] = named[wished] if isinstance(wished, str) else wished
        return inputs

    def init(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> Mapping[str, Any]:
        """The initial values of outputs, by name."""
        return user_kernel.initial_values(self.kernel, lambda: self.offers(arrays, outputs))

    def unset(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> set[str]:
        """The outputs without initial values, which the kernel must fill."""
        if self.kernel.usage.updates:
            return set()
        return {value.name for value in self.instance.outputs} - set(self.init(arrays, outputs))

    def arguments(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> tuple[list[Any], dict[str, Any]]:
        """The positional arguments of a call (of `args=`, or inputs, then outputs) and the constants by name."""
        passed = [a[()] if v.scalar else a for a, v in zip(arrays, self.instance.inputs, strict=True)]
        if self.kernel.usage.args is None:
            filled = [] if self.kernel.usage.returns or self.kernel.usage.updates else outputs
            return [*passed, *filled], self.constants_by_name()
        positional = user_kernel.arguments_by_author(self.kernel, self.offers(arrays, outputs))
        known = dict(zip((value.name for value in self.instance.ends), (*passed, *outputs), strict=True))
        arguments = [known[each.name] if isinstance(each, user_kernel.Buffer) else each for each in positional]
        return arguments, self.beside(len(positional))

    def beside(self, count: int) -> dict[str, Any]:
        """The kernel's own constants to pass by name beside `count` positional arguments of `args=`."""
        own = self.kernel.usage.constants
        if not own or self.kernel.taken is None or self.kernel.function is None:
            return {}
        plain = user_kernel.python_function(self.kernel.function)
        parameters = user_kernel.parameters_of(plain, self.kernel.title).values()
        left = [p.name for at, p in enumerate(parameters) if at >= count or p.kind is p.KEYWORD_ONLY]
        numbers = self.kernel.numbers(self.constants)
        return {name: numbers[name] for name in own if name in left}

    def constants_by_name(self) -> dict[str, Any]:
        """The constants to pass by name: the kernel's own, those without a default in its function, and those of the op
        that differ from the op's defaults."""
        target, own = self.kernel.target, self.kernel.usage.constants
        numbers = self.kernel.numbers(self.constants)
        changed = [name for name, value in target.constants.items() if numbers[name] != value]
        return {name: numbers[name] for name in (*own, *self.kernel.required, *changed)}

    def offers(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> dict[str, Any]:
        """The values by name for functions of `launch=`, `args=` and `init=`."""
        pairs = zip(self.instance.ends, (*arrays, *outputs), strict=True)
        known = {value.name: user_view(value, array) for value, array in pairs}
        sizes = bind_sizes(self.instance, arrays)
        numbers = {name: int(dim.evaluate(sizes)) for name, dim in self.instance.sizes}
        return {**numbers, **known, **self.kernel.numbers(self.constants), "device": user_kernel.CPU}


def user_view(value: Value, array: Array) -> Any:
    """The value of an input or output for a function of the author: a Buffer, or the number of a run-time scalar, as a
    Python int if it is an integer, so that arithmetic does not wrap."""
    if not value.scalar:
        return user_kernel.buffer_of(value.name, array)
    number = np.asarray(array)[()]
    return number if value.dtype.is_float else number.item()


def _wants_packed(fault: TypeError | AssertionError, inputs: Sequence[Array]) -> bool:
    """Whether packed copies may help: Numba has no signature for these strides, or its compiler fails on them (a
    stencil of a transposed array), before the kernel has begun."""
    if isinstance(fault, TypeError):
        return str(fault).startswith("No matching definition")
    return _place(fault).startswith("numba.") and not all(each.flags.c_contiguous for each in inputs)


def _describe(fault: BaseException) -> str:
    """The error of a kernel on one line, with its place if it has no message. Numba's errors have dozens of lines, of
    which the first name the fault and its place."""
    lines = [" ".join(line.split()) for line in str(fault).splitlines() if line.strip()]
    message = " | ".join([*lines[:_LINES], "..."] if len(lines) > _LINES else lines)
    return f"{type(fault).__name__}: {message}" if message else f"{type(fault).__name__} in {_place(fault)}"


def _place(fault: BaseException) -> str:
    """The module and the line that raised; the file where the frame names no module, as frames of Numba do not."""
    frame, line = list(traceback.walk_tb(fault.__traceback__))[-1]
    return f"{frame.f_globals.get('__name__') or frame.f_code.co_filename}, line {line}"


def _as_array(part: Any, value: Value) -> Array:
    """A result as an array; a Python number, Numba's form of every scalar, in the result's dtype if of that kind."""
    if type(part) is float and value.dtype.is_float:
        with np.errstate(over="ignore"):
            return np.asarray(part).astype(value.dtype.numpy)
    if type(part) is int and value.dtype.kind in ("int", "uint"):
        limits = np.iinfo(value.dtype.numpy)
        return np.asarray(part, value.dtype.numpy if limits.min <= part <= limits.max else None)
    return np.asarray(part)


@dataclass(frozen=True, slots=True, eq=False)
class KernelCaller:
    """The calling convention of user kernels of a language.

    `prepare` builds one for an instance and the op's constants: BuildError where the compiler fails, SignatureError
    where it does not take the instance; `layouts`: those it takes beside packed arrays; `compiler`: the version of the
    toolchain, as part of a check's key; `launch` runs it on arrays, if it is not a Python call; `on_tensors` makes a
    function of tensors of it; `runs_here`: whether this machine can run it."""

    prepare: Prepare = lambda kernel, instance, constants: None
    layouts: Callable[[user_kernel.UserKernel], tuple[str, ...]] = lambda kernel: tuple(LAYOUTS)
    compiler: Callable[[], str] = lambda: ""
    launch: Launch | None = None
    on_tensors: Prepare = lambda kernel, instance, constants: None
    runs_here: Callable[[], bool] = lambda: True


def library_of(kernel: user_kernel.UserKernel, instance: Instance, constants: Mapping[str, Any]) -> tuple[Path, str]:
    """The library of a kernel in C, built or from the cache, and the symbol of its table. BuildError where the compiler
    fails, SignatureError where the kernel does not take the instance."""
    return cached_library(kernel, instance, tuple(sorted(constants.items())))


@lru_cache(maxsize=256)
def cached_library(kernel: user_kernel.UserKernel, instance: Instance, constants: Constants) -> tuple[Path, str]:
    """Memoised `library_of`, for sorted constants."""
    text = c_source(kernel, instance, SYMBOL, dict(constants))
    options = c_compiler.CompilerOptions(extra=c_flags(kernel), authored=True)
    return c_compiler.compile_library([text], options), f"{SYMBOL}_kernel"


_NOT_FLIPPED = tuple(name for name in LAYOUTS if name != "flipped")  # torch has no strides below 0


def _gpu_place() -> str:
    """The machine of a check of a GPU kernel, as part of its key; empty without a GPU, or a torch that has it. Without
    a driver torch is not imported for it."""
    return str(import_module("noyau.kernels.cuda_grids").where()) if has_driver() and find_spec("torch") else ""


def _triton() -> Any:
    """The module that calls kernels in Triton, imported late: triton and torch take seconds."""
    return import_module("noyau.kernels.triton.calls")


def _on_cuda(kind: str, layouts: tuple[str, ...]) -> KernelCaller:
    """The caller of kernels for which `kind` names a class of `cuda_grids`."""

    @lru_cache(maxsize=256)
    def cached(kernel: user_kernel.UserKernel, instance: Instance, constants: Constants) -> Any:
        return getattr(import_module("noyau.kernels.cuda_grids"), kind)(kernel, instance, dict(constants))

    def on_tensors(kernel: user_kernel.UserKernel, instance: Instance, constants: Mapping[str, Any]) -> Any:
        return cached(kernel, instance, tuple(sorted(constants.items())))

    def launch(kernel: user_kernel.UserKernel, instance: Instance, constants: Mapping[str, Any], *arrays: Any) -> None:
        import_module("noyau.kernels.cuda_grids").launch_on_copies(on_tensors(kernel, instance, constants), *arrays)

    def prepare(*call: Any) -> None:
        on_tensors(*call).ready()

    return KernelCaller(prepare, lambda kernel: layouts, _gpu_place, launch, on_tensors, lambda: bool(_gpu_place()))


CALLERS: Mapping[str, KernelCaller] = {
    "c": KernelCaller(prepare=library_of, layouts=lambda kernel: (), compiler=compiler_version),
    "numba": KernelCaller(),
    "python": KernelCaller(),
    "triton": KernelCaller(
        lambda kernel, instance, constants: bind_kernel(kernel, constants),
        lambda kernel: _NOT_FLIPPED if kernel.asks_strides else (),
        lambda: _gpu_place() or f"triton {import_module('triton').__version__}, interpreted",
        lambda *call: _triton().launch_on_arrays(*call),
        lambda *call: _triton().TritonKernel(*call),
    ),
    "cuda": _on_cuda("CudaTextKernel", ()),
    "numba_cuda": _on_cuda("NumbaGridKernel", _NOT_FLIPPED),
}


def is_launched_here(kernel: user_kernel.UserKernel) -> bool:
    """Whether this machine launches a kernel over a grid, by a GPU or Triton's interpreter."""
    caller = CALLERS.get(kernel.language)
    return caller is not None and caller.launch is not None and caller.runs_here()


def caller_of(kernel: user_kernel.UserKernel, *, gpu: bool = False) -> KernelCaller | None:
    """The caller of a kernel on NumPy arrays, or on tensors of a GPU; None if its language does not take them."""
    return CALLERS.get(kernel.language) if LANGUAGES[kernel.language].on_gpu is gpu else None


class Memory(NamedTuple):
    """The device of a NumPy array, with the attribute of `torch.device`."""

    type: str = "cpu"


class HostTensor:
    """A NumPy array as a tensor of the CPU that shares its memory; a read-only array is copied. Other attributes are
    those of a torch tensor on the same memory."""

    def __init__(self, array: Array) -> None:
        if not array.flags.writeable:  # copy each distinct cell once: axes of stride 0 stay broadcast
            once = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
            array = np.broadcast_to(np.array(once), array.shape)
        self.array, self.dtype, self.shape, self.device = array, array.dtype, array.shape, Memory()

    def data_ptr(self) -> int:
        return int(self.array.__array_interface__["data"][0])

    def stride(self, *axis: int) -> Any:
        steps = tuple(step // self.dtype.itemsize for step in self.array.strides)
        return steps[axis[0]] if axis else steps

    def __getattr__(self, name: str) -> Any:
        from noyau.hosts.torch.tensors import tensor_of

        return getattr(tensor_of(self.array), name)
