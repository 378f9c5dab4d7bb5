"""The parameters of a kernel in Triton, read from its function; triton need not be installed.

The wrappers of `triton.autotune` and `triton.heuristics` are recognised by their attributes: a tuner has `configs`,
heuristics have `values`, and both hold the wrapped function as `fn`."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noyau.errors import SignatureError
from noyau.kernels.user_kernel import Target, Usage, UserKernel, parameters_of, python_function

# Keywords of a launch beside the kernel's own parameters.
_NUMBERS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
OPTIONS = (*_NUMBERS, "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl")


@dataclass(frozen=True, slots=True)
class ParameterBinding:
    """The parameters of a kernel, in order. `sources`: pairs of a parameter and the name of its input, output or size;
    `named`: parameters that get a constant of the same name."""

    sources: tuple[tuple[str, str], ...]
    named: tuple[str, ...]


def is_interpreted(function: Any) -> bool:
    """Whether Triton interprets a kernel: TRITON_INTERPRET=1 was set when it was decorated."""
    return any(type(layer).__module__ == "triton.runtime.interpreter" for layer in layers(function))


def bind_kernel(kernel: UserKernel, constants: Mapping[str, Any]) -> ParameterBinding:
    """The parameters of an op's kernel. SignatureError where they do not fit the op, or where the kernel does not take
    a constant of the op that has another value than its default."""
    assert kernel.function is not None
    usage, called = kernel.usage, kernel.title
    binding = bind_parameters(kernel.function, usage, kernel.target, called)
    names = usage.args.__code__.co_varnames if usage.args is not None and hasattr(usage.args, "__code__") else ()
    for name, value in kernel.target.constants.items():
        if constants.get(name, value) != value and name not in binding.named and name not in names:
            raise SignatureError(f"{called} does not take the constant {name}, which is not its default")
    return binding


def layers(function: Any) -> Iterator[Any]:
    """The wrappers by Triton's decorators, from the outermost to the kernel's own function."""
    while function is not None:
        yield function
        inner = getattr(function, "fn", None)
        function = inner if inner is not function else None


def meta_names(function: Any) -> tuple[str, ...]:
    """The parameters that a tuner's configurations or heuristics set."""
    names: dict[str, None] = {}
    for layer in layers(function):
        for config in getattr(layer, "configs", None) or ():
            names |= dict.fromkeys(getattr(config, "kwargs", {}))
        values = getattr(layer, "values", None)
        names |= dict.fromkeys(values if isinstance(values, dict) else ())
    return tuple(names)


def configs_of(function: Any) -> Sequence[Any]:
    """The configurations of a tuner, none where there is no tuner."""
    return list(next((layer.configs for layer in layers(function) if getattr(layer, "configs", None)), ()))


def without_tuner(function: Any) -> Any:
    """The function without its tuner; its heuristics stay."""
    if getattr(function, "configs", None):
        return function.fn
    inner = getattr(function, "fn", None)
    if inner is None or not configs_of(inner):
        return function
    bare = copy.copy(function)
    bare.fn = without_tuner(inner)
    return bare


def bind_parameters(function: Callable[..., Any], usage: Usage, target: Target, label: str) -> ParameterBinding:
    """Bind the parameters by name if all names are known; else the first ones are the inputs, then the outputs.

    SignatureError for an unknown parameter, an output without one, or a `usage` that Triton's kernels do not have."""
    _check_usage(usage, label)
    names = list(parameters_of(python_function(function), label))
    meta, own = meta_names(function), usage.constants
    for name in usage.constants:
        if name in meta:
            raise SignatureError(f"constants= of {label} gives {name}, which its tuner or its heuristics give")
        if name not in names and name not in OPTIONS:
            takes = f"it takes {', '.join(names)}, and a launch {', '.join(OPTIONS)}"
            raise SignatureError(f"constants= of {label} gives {name}; {takes}")
    named = [name for name in names if name in own or name in target.constants]
    arrays = [name for name in names if name not in named and name not in meta]
    if usage.args is not None:
        return ParameterBinding((), tuple(named))
    outputs = () if usage.updates else target.outputs
    ends = [term.name for term in (*target.inputs, *outputs)]
    known = {*ends, *target.sizes}
    if all(name in known for name in arrays):
        missed = next((term.name for term in outputs if term.name not in arrays), None)
        if missed is not None:
            raise SignatureError(f"{label} does not take the output {missed}; say with args= what it is called with")
        return ParameterBinding(tuple((name, name) for name in arrays), tuple(named))
    by_place = list(zip(arrays, ends, strict=False))
    rest = arrays[len(ends) :]
    strange = next((name for name in rest if name not in known), None)
    if len(arrays) < len(ends) or strange is not None:
        what = f"takes {strange}" if strange else f"takes {', '.join(arrays) or 'nothing'}"
        message = f"by position {', '.join(ends)}, by name sizes and constants"
        raise SignatureError(f"{label} {what}, and there are {message}; say with args= what it is called with")
    return ParameterBinding((*by_place, *((name, name) for name in rest)), tuple(named))


def options_of(usage: Usage) -> dict[str, Any]:
    """The options of a launch: the usage's `options`, and its constants with the name of an option."""
    own = {name: value[0] if isinstance(value, list) else value for name, value in usage.constants.items()}
    return {**usage.options, **{name: value for name, value in own.items() if name in OPTIONS}}


def _check_usage(usage: Usage, label: str) -> None:
    if usage.launch is None:
        raise SignatureError(f"{label} is in triton, and nothing says how many programs it has: give launch=")
    if usage.returns:
        raise SignatureError(f"{label} has returns=True, and a kernel in triton returns nothing: it fills its outputs")
    unknown = next((name for name in usage.options if name not in OPTIONS), None)
    if unknown is not None:
        raise SignatureError(f"options= of {label} has {unknown!r}; of triton there are {', '.join(OPTIONS)}")
