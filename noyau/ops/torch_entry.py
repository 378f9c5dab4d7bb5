"""The entry of calls of ops on tensors of torch, which is imported at the first tensor."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from noyau.errors import UnsupportedError
from noyau.hosts.numpy.dlpack import lies_on_gpu
from noyau.hosts.torch import require_torch

if TYPE_CHECKING:
    from noyau.ops.dispatch.calls import Calls, UnsignedCalls
    from noyau.ops.op import Op


def tensor_calls(calls: Calls | UnsignedCalls) -> Any:
    """The calls of an op on tensors, created at first use."""
    if calls.tensors is None:
        from noyau.ops.torch import calls as torch_calls

        return torch_calls.tensor_calls(calls)
    return calls.tensors


def call_operator(op: Op[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results by an operator of torch, in code that Dynamo can trace: lookups on the op are constants to it, and
    the call is a node of its graph."""
    import torch

    token = op.calls.token
    if not op.is_signed(token):
        from noyau.ops.torch.dynamo_skip import call_outside_graph

        return call_outside_graph(op, args, kwargs)
    names, defaults = op.parameters_of(token)
    every = {**dict(defaults), **kwargs}
    inputs = list(args) + [every[name] for name in names[len(args) :] if name in every]
    keywords = {name: value for name, value in kwargs.items() if name not in names and name != "out"}
    tensors = tuple(isinstance(each, torch.Tensor) for each in inputs)
    simple = {name: value for name, value in keywords.items() if type(value) in (bool, int, float, str)}
    baked = tuple((name, value) for name, value in keywords.items() if name not in simple)
    kinds = tuple((name, type(value)) for name, value in simple.items())
    name, constants = op.register(token, tensors, kinds, baked)
    values = {key: simple.get(name, default) for key, name, default in constants}
    results = getattr(torch.ops.noyau, name)(*inputs, **values)
    return results if kwargs.get("out") is None else _copy_results(results, kwargs["out"])


class OnTensors:
    """The methods of an op for torch."""

    calls: Calls | UnsignedCalls

    def on_tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The results for tensors of torch. SignatureError as for arrays."""
        op = cast("Op[Any, Any]", self)
        calls, reference = tensor_calls(self.calls), self.calls.description.reference
        if sys.modules["torch"].fx._symbolic_trace._is_fx_tracing_flag:
            for each in (*args, *kwargs.values()):
                if hasattr(each, "tracer"):  # a Proxy of torch.fx: the call is a node of the graph that it traces
                    return each.tracer.create_proxy("call_function", self, args, dict(kwargs))
        if not kwargs and len(args) == len(reference.parameters):
            return calls(args, kwargs, op.sizes)
        kwargs = dict(kwargs)
        if "stream" in kwargs and "stream" not in {*reference.parameters, *reference.constants}:
            return self.on_stream(kwargs.pop("stream"), args, kwargs)
        out = None if "out" in reference.parameters else kwargs.pop("out", None)
        arguments, constants = op.arguments(args, kwargs)
        return calls(tuple(arguments), constants, op.known_sizes(constants), out)

    def on_stream(self, stream: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The results of a call on a stream: one of torch, CuPy or Numba, or its handle. SignatureError for others."""
        from noyau.hosts.torch.cuda.device import on_stream

        tensors = [each for each in (*args, *kwargs.values()) if hasattr(each, "record_stream")]
        with on_stream(self.calls.description.name, stream, tensors):
            return self.on_tensors(args, kwargs)

    def on_gpu_arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The results for GPU arrays of other libraries, in the kind of the first. MissingExtraError without torch."""
        arrays = require_torch(self.calls.description.name)
        tensors = arrays.tensors_of([f"argument {at}" for at in range(len(args))], args)
        named = dict(zip(kwargs, arrays.tensors_of(list(kwargs), list(kwargs.values())), strict=True))
        results = self.on_tensors(tuple(tensors), named)
        if kwargs.get("out") is not None:
            return kwargs["out"]
        return arrays.gpu_result_like(results, next(each for each in (*args, *kwargs.values()) if lies_on_gpu(each)))

    # Dynamo calls these as it traces, and takes their results as constants (torch.compiler.assume_constant_result). It
    # then does not guard the op itself; but it does guard the token, a text, since that is an argument.

    def register(
        self, token: str, tensors: tuple[bool, ...], kinds: Sequence[tuple[str, type]], baked: Sequence[tuple[str, Any]]
    ) -> tuple[str, tuple[tuple[str, str, Any], ...]]:
        """The name of the op among torch's operators, for these kinds of arguments, tensors or numbers, and constants
        of these types; and for each constant that it takes, its key, its name and its default value.

        SignatureError where their number or their names do not fit."""
        del token
        values = {**{name: kind() for name, kind in kinds}, **dict(baked)}
        cast("Op[Any, Any]", self).arguments([None] * len(tensors), values)
        calls = tensor_calls(self.calls)
        name_and_constants: tuple[str, tuple[tuple[str, str, Any], ...]] = calls.operator_name(
            tensors, calls.calls.all(values)
        )
        return name_and_constants

    def parameters_of(self, token: str) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
        """The names of the inputs, and the defaults of the optional ones."""
        del token
        reference = self.calls.description.reference
        return reference.parameters, tuple(reference.defaults.items())

    def is_signed(self, token: str) -> bool:
        del token
        return self.calls.description.signature is not None

    for _looked_up in (register, parameters_of, is_signed):
        setattr(_looked_up, "_dynamo_marked_constant", True)  # noqa: B010  functions declare no attributes


def _copy_results(whole: Any, out: Any) -> Any:
    results, targets = (each if isinstance(each, tuple) else (each,) for each in (whole, out))
    if len(results) != len(targets):
        raise UnsupportedError(f"out= has {len(targets)} results, and the op {len(results)}")
    for result, target in zip(results, targets, strict=True):
        target.copy_(result)
    return out
