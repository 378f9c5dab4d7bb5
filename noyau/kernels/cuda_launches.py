"""Hand-written kernels in CUDA C++ and for Numba-CUDA, on tensors of a GPU: compiled once for its architecture, and
launched on the current stream; a launch beyond a limit of the device is refused with the limit and the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from noyau.errors import SignatureError, UnsupportedError, dependency
from noyau.kernels import user_kernel
from noyau.kernels.c.parameters import prototype, roles_of
from noyau.kernels.c.syntax import Parameter, plain_name, syntax
from noyau.kernels.c.text import constant_macros
from noyau.kernels.call import FunctionKernel
from noyau.kernels.cuda_grids import ArrayArgument, GridKernel, LaunchPlan
from noyau.kernels.user_kernel import config_of, require_limits
from noyau.signatures.types import Instance
from noyau.toolchain.cuda import compiler

with dependency("torch", "torch"):
    import torch

OPTIONS = ("flags", "shared_bytes", "cluster")


class CudaTextKernel(GridKernel):
    """A `__global__` function of a text in CUDA C++.

    SignatureError where its parameters do not fit the op; UnsupportedError for a function of the host."""

    def __init__(self, kernel: user_kernel.UserKernel, instance: Instance, constants: Mapping[str, Any]) -> None:
        super().__init__(kernel, instance, constants)
        _require_kernel(kernel)
        self.prototype = prototype(kernel)
        usage = replace(kernel.usage, launch=None)  # which a function in C has another use for
        self.roles = roles_of(self.prototype, usage, kernel.target, kernel.title)
        place = kernel.place.replace("\\", "/").replace('"', "")  # in which the tools of CUDA name its lines
        self.text = f'{constant_macros(kernel, constants)}#line {kernel.line} "{place}"\n{kernel.text}'

    def ready(self) -> None:
        """Build it for the current device. BuildError as the compiler says."""
        self.compile(torch.cuda.get_device_capability())

    def compile(self, capability: tuple[int, int]) -> Any:
        """The kernel for a compute capability, from the cache or built. BuildError as the compiler says."""
        flags = tuple(self.kernel.usage.options.get("flags", ()))
        code = compiler.load(self.text, f"sm_{capability[0]}{capability[1]}", flags)
        return code.get_kernel(compiler.symbol_of(code.code, plain_name(self.kernel.entry)))

    def launching(self, offers: Mapping[str, Any], device: Any) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
        """As every kernel of a grid has it; the grid is None where it has no blocks."""
        properties, options, label = offers["device"], self.kernel.usage.options, self.kernel.title
        config = config_of(self.launch_of(offers), f"launch= of {label}", int(options.get("shared_bytes", 0)))
        config = replace(config, cluster=int(options.get("cluster", 1)))
        kernel = self.compile(properties.capability)
        require_limits(config, properties, label, kernel.attributes.max_threads_per_block)
        grid = None
        if 0 not in config.grid:
            clusters = (config.grid[0] // config.cluster, *config.grid[1:])
            grid = compiler.Launch(kernel, clusters, config.block, config.shared_bytes, config.cluster)
        return self.arguments_of(offers), {}, grid

    def arguments_of(self, offers: Mapping[str, Any]) -> tuple[tuple[Any, Any], ...]:
        """The arguments in the order of the parameters, each with the type of its number, None for a pointer.
        SignatureError for one that does not fit."""
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
    """Require a function of a grid, and options that there are."""
    unknown = next((name for name in kernel.usage.options if name not in OPTIONS), None)
    if unknown is not None:
        raise SignatureError(f"options= of {kernel.title} has {unknown!r}; in CUDA C++ there are {', '.join(OPTIONS)}")
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
    """A kernel of `numba.cuda.jit`, which takes arrays as they lie."""

    takes_strides = True

    def ready(self) -> None:
        """Nothing: Numba compiles for the arguments that come."""
        return

    def launching(self, offers: Mapping[str, Any], device: Any) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
        """As every kernel of a grid has it."""
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
        """BuildError where Numba does not compile it for such arguments."""
        from noyau.hosts.torch.cuda.numba_cuda_kernel import launch

        pairs = zip(self.instance.ends, arrays, strict=True)
        typed = [a if hasattr(a, "data_ptr") else v.dtype.numpy.type(a) for v, a in pairs]
        arguments = [typed[each.number] if isinstance(each, ArrayArgument) else each for each in plan.arguments]
        config = plan.grid
        if 0 not in config.grid:
            device = next(each.device for each in typed if hasattr(each, "data_ptr"))
            brackets = (config.grid, config.block, config.shared_bytes)
            launch(self.kernel.title, self.kernel.function, brackets, arguments, device)
