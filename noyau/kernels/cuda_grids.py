"""Hand-written kernels over a grid, launched on tensors, on the current stream of their device. A subclass for each
language binds, compiles and launches; the rest is common. CUDA C++ and Numba-CUDA are compiled once for the
architecture; a launch beyond a limit of the device is refused with the limit and the value.

NumPy arrays between guard zones are copied to the device with their zones before a launch, and back after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.compiler.lowering.input_layouts import packed_strides
from noyau.errors import SignatureError, UnsupportedError
from noyau.hosts.torch.cuda.device import guard, require_free
from noyau.kernels import user_kernel
from noyau.kernels.c.parameters import prototype, roles_of
from noyau.kernels.c.syntax import Parameter, plain_name, syntax
from noyau.kernels.c.text import constant_macros
from noyau.kernels.call import INTERPRETED, FunctionKernel
from noyau.kernels.reference import bind_sizes
from noyau.kernels.user_kernel import config_of, require_limits
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance, Value
from noyau.toolchain.cuda import compiler
from noyau.workers.import_path import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # where torch is missing, the import of device above has raised already

MOST_PLANS = 256
Array = np.ndarray


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """Placeholder in the arguments of a launch for the input or output with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The plan of a call with known shapes. `init`: initial values by number of the output; `arguments`: with an
    ArrayArgument for each array; `grid`: in the language's form; `offers`: values for functions of the author."""

    shapes: tuple[tuple[int, ...], ...]
    init: Mapping[int, Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    grid: Any
    offers: Mapping[str, Any]


class GridKernel(ABC):
    """A kernel over a grid for one instance, on the tensors and numbers of a call."""

    takes_strides = False  # False: it takes packed tensors only

    def __init__(self, kernel: user_kernel.UserKernel, instance: Instance, constants: Mapping[str, Any]) -> None:
        self.kernel, self.instance, self.constants = kernel, instance, constants
        self.numbers = kernel.numbers(constants)  # the constants of the op and of the kernel
        self.plans: dict[Any, LaunchPlan] = {}
        functions = filter(callable, (kernel.usage.launch, kernel.usage.args, kernel.usage.init))
        self.parameter_names = {name for each in functions for name in user_kernel.parameters_of(each, kernel.title)}

    @abstractmethod
    def launching(self, offers: Mapping[str, Any], device: Any) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
        """The arguments by position and by name, and the grid, of calls with these `offers`. SignatureError where an
        argument does not fit, DeviceError for a launch beyond a limit of the device."""

    @abstractmethod
    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch on inputs and outputs, on the current stream."""

    def __call__(self, *arguments: Any) -> list[torch.Tensor]:
        """Run it with new tensors for results and copies of updated inputs. UnsupportedError on an unfit device."""
        from noyau.frontends.torch.tensors import TO_TORCH

        device = self.device_of(arguments)
        pairs = zip(self.instance.inputs, arguments, strict=True)
        inputs = [number_of(v, e) if v.scalar else e if self.takes_strides else e.contiguous() for v, e in pairs]
        plan = self.plan(inputs, device)
        with guard(device):
            place = "cpu" if device.type == "cpu" else device
            dtypes = [TO_TORCH[value.dtype] for value in self.instance.outputs]
            empty = [torch.empty(s, dtype=t, device=place) for s, t in zip(plan.shapes, dtypes, strict=True)]
            return self.fill(plan, inputs, empty)

    def into(self, arguments: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Launch once on prepared arrays: updated inputs are copies already, and outputs hold their initial values."""
        device = self.device_of(arguments)
        plan = self.plan(arguments, device)
        with guard(device) if device.type == "cuda" else nullcontext():
            self.launch(plan, (*arguments, *outputs))

    def fill(self, plan: LaunchPlan, inputs: list[Any], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copy updated inputs, set the initial values of outputs, launch, and return the results."""
        names = [value.name for value in self.instance.inputs]
        updated = [names.index(name) for name in self.kernel.usage.updates]
        for at in updated:
            inputs[at] = inputs[at].clone()
        for number, value in plan.init.items():
            if isinstance(value, str):
                outputs[number].copy_(inputs[names.index(value)])
            else:
                outputs[number].fill_(value)
        self.launch(plan, (*inputs, *outputs))
        return [inputs[at] for at in updated] or outputs

    def plan(self, arguments: Sequence[Any], device: Any) -> LaunchPlan:
        """The plan of a call with these shapes, memoised."""
        key = (device, *map(_key, arguments), *self.run_time_scalars(arguments).items())
        plan = self.plans.get(key)
        if plan is None:
            require_free(self.kernel.title)
            plan = self.launch_plan(arguments, device)
            self.plans = {**(self.plans if len(self.plans) < MOST_PLANS else {}), key: plan}
        return plan

    def launch_plan(self, arguments: Sequence[Any], device: Any) -> LaunchPlan:
        sizes = bind_sizes(self.instance, arguments)
        shapes = shapes_of(self.instance.outputs, sizes)
        numbers = {name: int(dim.evaluate(sizes)) for name, dim in self.instance.sizes}
        pairs = [(v.name, each) for v, each in zip(self.instance.inputs, arguments, strict=True) if v.scalar]
        numbers |= {name: each for name, each in pairs if isinstance(each, int) and not isinstance(each, bool)}
        numbers |= self.run_time_scalars(arguments)
        properties = device_properties(device)
        offers = {**self.buffers(arguments, shapes, properties), **numbers, **self.numbers, "device": properties}
        init = user_kernel.initial_values(self.kernel, lambda: offers)
        by_number = {at: init[v.name] for at, v in enumerate(self.instance.outputs) if v.name in init}
        return LaunchPlan(tuple(shapes), by_number, *self.launching(offers, device), offers)

    def run_time_scalars(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The run-time scalars that the author's functions ask for, by name."""
        pairs = zip(self.instance.inputs, arguments, strict=True)
        return {v.name: number_of(v, each) for v, each in pairs if v.scalar and v.name in self.parameter_names}

    def buffers(
        self, arguments: Sequence[Any], shapes: Sequence[tuple[int, ...]], device: user_kernel.DeviceProperties
    ) -> dict[str, user_kernel.Buffer]:
        """The Buffers that the author's functions get for inputs and outputs."""
        lies = [(tuple(e.shape), tuple(e.stride())) if is_tensor(e) else ((), ()) for e in arguments]
        lies += [(shape, packed_strides(shape)) for shape in shapes]
        pairs = zip(self.instance.ends, lies, strict=True)
        return {v.name: user_kernel.Buffer(v.name, *each, v.dtype.numpy, device) for v, each in pairs}

    def place(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with each Buffer replaced by an ArrayArgument."""
        names = [value.name for value in self.instance.ends]
        buffers = user_kernel.Buffer
        return tuple(ArrayArgument(names.index(each.name)) if isinstance(each, buffers) else each for each in values)

    def launch_of(self, offers: Mapping[str, Any]) -> Any:
        """The author's launch configuration for calls with these `offers`. SignatureError where there is none."""
        launch, label = self.kernel.usage.launch, self.kernel.title
        if launch is None or isinstance(launch, str):
            raise SignatureError(f"{label} runs over a grid; say with launch=(grid, block) over which one")
        return user_kernel.ask(launch, offers, f"launch= of {label}") if callable(launch) else launch

    def device_of(self, arguments: Sequence[Any]) -> Any:
        """The device of the tensors. UnsupportedError where the kernel cannot run there."""
        device = next((each.device for each in arguments if is_tensor(each)), None)
        if device is None or device.type == "cpu":
            label, language = self.kernel.title, self.kernel.language
            raise UnsupportedError(f"{label} is in {language}, and its tensors lie on the CPU; move them to a GPU")
        return device


@cache
def device_properties(device: Any) -> user_kernel.DeviceProperties:
    """The properties of a device for `launch=`; on the CPU, those of an assumed GPU, for Triton's interpreter."""
    if device.type != "cuda":
        return user_kernel.GPU
    properties = torch.cuda.get_device_properties(device)
    l2_bytes = int(getattr(properties, "L2_cache_size", 0))
    shared_bytes = int(getattr(properties, "shared_memory_per_block_optin", 0))
    facts = str(device), properties.multi_processor_count, properties.name
    sizes, capability = (l2_bytes, shared_bytes, properties.total_memory), (properties.major, properties.minor)
    return user_kernel.DeviceProperties(*facts, *sizes, capability)


def where() -> str:
    """The machine of a check, as part of its key: the GPU, its driver and Triton; empty where torch has no GPU."""
    if not torch.cuda.is_available():
        return ""
    from noyau.hosts.torch.cuda.clock import device_text

    return device_text(torch.cuda.current_device())


def variables() -> dict[str, str]:
    """The environment variables that a process needs to run kernels here."""
    return {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}


def note() -> str:
    """The place where kernels run, as words of a report."""
    return f"on {torch.cuda.get_device_name()}" if torch.cuda.is_available() else INTERPRETED


def is_tensor(each: Any) -> bool:
    """Whether an argument is a tensor or a stand-in; numbers and NumPy arrays have no method `stride`."""
    return hasattr(each, "stride")


def _key(each: Any) -> Any:
    """The key of an argument: of a tensor shape, strides and dtype, of an integer its value, else the type."""
    if is_tensor(each):
        return each.shape, each.stride(), each.dtype
    return each if isinstance(each, int) else type(each)


def number_of(value: Value, each: Any) -> Any:
    """A run-time scalar as a Python number."""
    number = each.item() if hasattr(each, "item") else each
    return float(number) if value.dtype.is_float else bool(number) if value.dtype.value == "bool" else int(number)


def launch_on_copies(launcher: GridKernel, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Launch once on the GPU, on copies of prepared arrays and of the memory around them, and copy that back."""
    scalars = [value.scalar for value in launcher.instance.inputs]
    copies = [None if s else DeviceCopy(a) for a, s in zip(arrays, scalars, strict=True)]
    results = [DeviceCopy(each) for each in outputs]
    arguments = [a.item() if c is None else c.tensor for a, c in zip(arrays, copies, strict=True)]
    launcher.into(arguments, [each.tensor for each in results])
    torch.cuda.synchronize()
    for each in (*copies, *results):
        if each is not None:
            each.back()


class DeviceCopy:
    """A copy on the GPU of an array, together with the whole memory that the array is a view of."""

    def __init__(self, array: Array) -> None:
        from noyau.hosts.torch.tensors import tensor_of

        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        self.host = owner.reshape(-1).view(np.uint8)
        self.memory = torch.from_numpy(self.host.copy()).cuda()
        start = array.__array_interface__["data"][0] - self.host.__array_interface__["data"][0]
        like = tensor_of(np.empty(1, array.dtype))
        size = like.element_size()
        first = start % size  # cells are aligned where the memory may not be
        cells = self.memory[first : first + (len(self.host) - first) // size * size].view(like.dtype)
        strides = [step // size for step in array.strides]
        self.tensor = cells.as_strided(array.shape, strides, start // size)

    def back(self) -> None:
        """Copy the memory back to the host, unless that is read-only."""
        if self.host.flags.writeable:
            self.host[...] = self.memory.cpu().numpy()


class CudaTextKernel(GridKernel):
    """A `__global__` function of a text in CUDA C++.

    SignatureError where its parameters do not fit the op; UnsupportedError for a host function or a template."""

    def __init__(self, kernel: user_kernel.UserKernel, instance: Instance, constants: Mapping[str, Any]) -> None:
        super().__init__(kernel, instance, constants)
        _require_kernel(kernel)
        self.prototype = prototype(kernel)
        usage = replace(kernel.usage, launch=None)  # roles_of would read it as the range of begin and end
        self.roles = roles_of(self.prototype, usage, kernel.target, kernel.title)
        place = kernel.place.replace("\\", "/").replace('"', "")  # the file of its lines for CUDA's tools
        self.text = f'{constant_macros(kernel, constants)}#line {kernel.line} "{place}"\n{kernel.text}'

    def ready(self) -> None:
        """Build it for the current device. BuildError with the compiler's message."""
        self.compile(torch.cuda.get_device_capability())

    def compile(self, capability: tuple[int, int]) -> Any:
        """The kernel for a compute capability, built or from the cache. BuildError with the compiler's message."""
        flags = tuple(self.kernel.usage.options.get("flags", ()))
        code = compiler.load(self.text, f"sm_{capability[0]}{capability[1]}", flags)
        return code.get_kernel(compiler.symbol_of(code.code, plain_name(self.kernel.entry)))

    def launching(self, offers: Mapping[str, Any], device: Any) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
        """See GridKernel; the grid is None if it is empty."""
        properties, options, label = offers["device"], self.kernel.usage.options, self.kernel.title
        config = config_of(self.launch_of(offers), f"launch= of {label}", options.get("shared_bytes", 0))
        config = replace(config, cluster=options.get("cluster", 1))
        kernel = self.compile(properties.capability)
        require_limits(config, properties, label, kernel.attributes.max_threads_per_block)
        grid = None
        if 0 not in config.grid:
            clusters = (config.grid[0] // config.cluster, *config.grid[1:])
            grid = compiler.Launch(kernel, clusters, config.block, config.shared_bytes, config.cluster)
        return self.arguments_of(offers), {}, grid

    def arguments_of(self, offers: Mapping[str, Any]) -> tuple[tuple[Any, Any], ...]:
        """The arguments in the order of the parameters, each with its number type, or None for a pointer.
        SignatureError where their count or a number does not fit."""
        parameters, label = self.prototype.parameters, self.kernel.title
        if self.roles.names is None:
            values = user_kernel.arguments_by_author(self.kernel, offers)
        else:
            values = tuple(offers[name] for name in self.roles.names)
        if len(values) != len(parameters):
            count = f"{len(values)} arguments, and {self.kernel.entry} takes {len(parameters)}"
            raise SignatureError(f"args= of {label} gives {count}")
        pairs = zip(parameters, self.place(values), strict=True)
        return tuple((value, None if each.is_pointer else _number(each, label)) for each, value in pairs)

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        if plan.grid is not None:
            values = ((arrays[v.number] if isinstance(v, ArrayArgument) else v, kind) for v, kind in plan.arguments)
            arguments = [value.data_ptr() if kind is None else kind(value) for value, kind in values]
            plan.grid(torch.cuda.current_stream().cuda_stream, arguments)


def _require_kernel(kernel: user_kernel.UserKernel) -> None:
    """Require a `__global__` function that is no template."""
    name = plain_name(kernel.entry)
    marks = next((each.marks for each in syntax(kernel.text, "cuda").functions if each.name == name), ())
    if "__global__" not in marks or name != kernel.entry:
        what = "a template" if name != kernel.entry else "a function of the host"
        remedy = "on tensors of a GPU a __global__ function runs: name it with entry=, and say launch=(grid, block)"
        lacks = f"{kernel.entry} is {what}, which is watched without a GPU alone"
        raise UnsupportedError(f"{kernel.title}: {lacks}; {remedy}")


def _number(parameter: Parameter, label: str) -> Callable[[Any], Any]:
    if not parameter.dtypes:
        known = "int, long long, float, double"
        raise SignatureError(f"{label}: the parameter {str(parameter)!r} is no number that is known; take {known}")
    return parameter.dtypes[0].numpy.type


class NumbaGridKernel(GridKernel):
    """A kernel of `numba.cuda.jit`, which takes arrays of any strides."""

    takes_strides = True

    def ready(self) -> None:
        """Do nothing: Numba compiles at the first call."""
        return

    def launching(self, offers: Mapping[str, Any], device: Any) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
        """See GridKernel."""
        kernel, usage = self.kernel, self.kernel.usage
        config = config_of(self.launch_of(offers), f"launch= of {kernel.title}")
        require_limits(config, offers["device"], kernel.title)
        call = FunctionKernel(kernel, self.instance, self.constants)
        if usage.args is None:
            ends = self.instance.inputs if usage.updates else self.instance.ends
            named, values = call.constants_by_name(), tuple(offers[value.name] for value in ends)
        else:
            values = user_kernel.arguments_by_author(kernel, offers)
            named = call.beside(len(values))
        return (*self.place(values), *named.values()), {}, config

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch the kernel. BuildError where Numba does not compile it for these arguments."""
        from noyau.hosts.torch.cuda.numba_cuda_kernel import launch

        pairs = zip(self.instance.ends, arrays, strict=True)
        typed = [a if hasattr(a, "data_ptr") else v.dtype.numpy.type(a) for v, a in pairs]
        arguments = [typed[each.number] if isinstance(each, ArrayArgument) else each for each in plan.arguments]
        config = plan.grid
        if 0 not in config.grid:
            device = next(each.device for each in typed if hasattr(each, "data_ptr"))
            brackets = (config.grid, config.block, config.shared_bytes)
            launch(self.kernel.title, self.kernel.function, brackets, arguments, device)
