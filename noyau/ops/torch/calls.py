"""Calls of an op on tensors of torch: by a fast call if no feature of torch intervenes, else as an operator of torch.

Without a signature each kind of call gets one, as on arrays."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch

from noyau.compiler.autodiff.adjoints import DerivedGradient, derive
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.frontends.numpy.trace import holds
from noyau.hosts.numpy.dlpack import lies_on_gpu
from noyau.hosts.numpy.fast_calls import MISS
from noyau.hosts.torch import require_torch
from noyau.hosts.torch import tensors as torch_tensors
from noyau.hosts.torch.fast_calls import library
from noyau.hosts.torch.operator_registry import TorchOperator, bind_sizes, register, results_of
from noyau.hosts.torch.tensors import (
    array_like,
    arrays_of,
    device_of,
    in_memory,
    is_negated,
    is_recorded,
    is_unwatched,
    stand_in,
)
from noyau.ir.graph import Graph
from noyau.kernels.programs import generate
from noyau.kernels.reference import graph_of, runs_as_written
from noyau.kernels.trust import fingerprint
from noyau.ops.dispatch.calls import Calls, KeptCalls, UnsignedCalls
from noyau.ops.dispatch.choice import Explanation, Selection, explain_choice
from noyau.ops.dispatch.fast_entries import run
from noyau.ops.torch import graph_kernels
from noyau.ops.torch.fast_entries import Entry, call_or_refuse, entry, refusal
from noyau.ops.torch.graph_kernels import AutogradPlan, draw_op, record_directly, requires_of, with_derivatives
from noyau.ops.user_gradients import derive_by
from noyau.signatures.instances import Bound, bind, sizing_integers
from noyau.signatures.types import Family, Term

_SCHEMA = {bool: "bool", int: "SymInt", float: "float", str: "str", type(None): "int?"}  # of constants, by type
RECENT = 64  # plans that are looked up by the shapes alone
Asked = tuple[bool, ...]
Arguments = tuple[Any, ...]
Given = Sequence[Any]
Constants = Mapping[str, Any]
Kinds = Sequence[tuple[str, str]]  # names of constants, and their types in a schema


@dataclass(frozen=True, slots=True)
class Variant:
    """The trace of a kind of call, and the plans by the arguments that require a gradient."""

    wanted: generate.Specialization
    graph: Graph
    specialised: Mapping[str, int]
    plans: dict[Asked, AutogradPlan] = field(default_factory=dict)

    def holds(self, specialization: generate.Specialization) -> bool:
        """Whether the trace holds for other sizes too."""
        alike = specialization.integers == self.wanted.integers
        return alike and holds(self.specialised, self.graph.demands, specialization.sizes)


class TensorCalls(KeptCalls[Entry]):
    """The calls of a signed op on tensors. `calls`: those on arrays, which share its selections."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.operators: dict[Any, Any] = {}
        self.follow(calls)

    def follow(self, calls: Calls) -> None:
        """Switch to the calls of another description of the op: a kernel was attached."""
        self.calls, self.signature = calls, calls.signature
        self.called, self.names = calls.description.name, calls.description.reference.parameters
        self.forget()

    def forget(self) -> None:
        """Discard all choices, so that the next call decides again."""
        self.drop()
        self.recent: dict[Any, AutogradPlan] = {}
        self.plans: dict[Any, list[Variant]] = {}

    def __call__(self, arguments: Arguments, constants: Constants, sizes: Mapping[str, int], out: Any = None) -> Any:
        """The results for tensors, and numbers where the signature has scalars. `constants`: those of the call.
        SignatureError where an argument does not fit, UnsupportedError where no kernel takes one or a required gradient
        does not exist, InputError where an index is out of bounds."""
        if out is not None:
            return self.into(arguments, constants, sizes, out)
        if not is_unwatched(arguments):
            return self.as_operator(arguments, constants)
        return self.record(arguments, constants) if is_recorded(arguments) else self.run(arguments, constants)

    def into(self, arguments: Arguments, constants: Constants, sizes: Mapping[str, int], out: Any) -> Any:
        """The results, copied to `out`."""
        targets = out if isinstance(out, tuple) else (out,)
        if is_recorded((*arguments, *targets)):
            message = "out= leaves nothing to record a gradient by; leave it out, or call it under torch.no_grad()"
            raise UnsupportedError(f"{self.called}: {message}")
        whole = self(arguments, constants, sizes)
        results = whole if isinstance(whole, tuple) else (whole,)
        if len(targets) != len(results):
            raise InputError(f"{self.called} has {len(results)} results, and out= has {len(targets)}")
        for at, (result, target) in enumerate(zip(results, targets, strict=True)):
            fault = _misfit(result, target)
            if fault:
                raise InputError(f"{self.called}: {'out' if len(results) == 1 else f'out[{at}]'} {fault}")
        for result, target in zip(results, targets, strict=True):
            target.copy_(result)
        return out

    def run(self, arguments: Arguments, constants: Constants) -> Any:
        """The results on plain tensors, without recording: by the fast call of an earlier call, else by `anew`."""
        if is_negated(arguments):
            arguments = tuple(map(in_memory, arguments))
        if not runs_as_written():
            for fast_call in self.fast_calls(constants) if constants else self.plain:
                results = fast_call(arguments)
                if results is not MISS:
                    return results
        arguments = self.promote(self.admit(arguments))
        if any(each.device.type == "meta" for each in arguments if isinstance(each, torch.Tensor)):
            return self.fake(arguments, constants)
        return self.anew(arguments, constants)

    def anew(self, arguments: Arguments, constants: Constants) -> Any:
        """Full dispatch, by the signature."""
        calls, known, device = self.calls, self.calls.all(constants), device_of(arguments)
        if runs_as_written():
            return _pack(calls.run_as_written(self.bound(arrays_of(arguments), constants), known), device)
        if device != generate.CPU:
            return self.on_device(arguments, constants, device)
        bound = self.bound(arrays_of(arguments), constants)
        wanted = generate.specialization_of(self.signature, bound, known)
        chosen = calls.choosing.choose(wanted)
        fast_call = self.fast_call(chosen, constants)
        results = MISS if fast_call is None else fast_call(arguments)
        if results is not MISS:
            return results
        choice = chosen.at(bound.largest)
        if choice.runner is None:
            calls.warn(chosen)
            return _pack(calls.run_as_written(bound, known))
        return _pack(run(choice, wanted, generate.fit_layouts(bound.arrays, wanted.layouts)))

    def on_device(self, arguments: Arguments, constants: Constants, device: str) -> Any:
        """Full dispatch on a GPU, without the reference: UnsupportedError without a kernel, or in a capture."""
        from noyau.hosts.torch.cuda.device import device_errors, require_free

        with device_errors(self.called, device):
            require_free(self.called)
            chosen, cells = self.choose(arguments, constants, device)
            fast_call, choice = self.fast_call(chosen, constants), chosen.at(cells)
            if fast_call is None or choice.runner is None:
                raise UnsupportedError(refusal(self.called, device, chosen))
            results = fast_call(arguments)
            return call_or_refuse(fast_call, arguments) if results is MISS else results

    def choose(self, arguments: Given, constants: Constants, device: str) -> tuple[Selection, int]:
        """The selection for tensors on a device, and the number of cells of the largest of them."""
        sizing = sizing_integers(self.signature)
        shapes = [
            arrays_of([each])[0] if term.name in sizing or not isinstance(each, torch.Tensor) else array_like(each)
            for term, each in zip(self.signature.inputs, arguments, strict=True)
        ]
        bound = self.bound(shapes, constants)
        wanted = generate.specialization_of(self.signature, bound, self.calls.all(constants), device)
        wanted = replace(wanted, is_deterministic=torch.are_deterministic_algorithms_enabled())
        return self.calls.choosing.choose(wanted), bound.largest

    def explain(self, arguments: Given, constants: Constants) -> Explanation:
        """Explain what a call with these tensors would run."""
        torch_tensors.require_taken(self.called, self.names, arguments)
        chosen, cells = self.choose(arguments, constants, device_of(arguments))
        return explain_choice(self.calls.choosing, chosen, cells)

    def fast_call(self, chosen: Selection, constants: Constants) -> Entry | None:
        """The fast call of a selection, kept for later calls; None where the reference runs."""
        fast_call = entry(self.called, self.signature, chosen)
        if chosen.until < inf or library.awaits_room() or not self.calls.choosing.is_kept(chosen):
            return fast_call
        if fast_call is not None:
            with self.lock:
                self.keep(fast_call, constants)
        return fast_call

    def bound(self, arrays: Given, constants: Constants) -> Bound:
        """Bind tensors in the form of arrays to the signature."""
        return bind(self.signature, arrays, self.sizes(constants), self.called)

    def sizes(self, constants: Constants) -> dict[str, int]:
        """The sizes that no shape binds."""
        named = {name: value for name, value in self.calls.all(constants).items() if name in self.signature.sizes}
        return {**self.calls.description.sizes, **named}

    def admit(self, arguments: Arguments) -> tuple[Any, ...]:
        """The arguments, with foreign arrays on a GPU as tensors. UnsupportedError where no kernel takes one."""
        if any(map(lies_on_gpu, arguments)):
            arguments = tuple(require_torch(self.called).tensors_of(self.names, arguments))
        torch_tensors.require_taken(self.called, self.names, arguments)
        return tuple(map(in_memory, arguments))

    def promote(self, arguments: Given) -> tuple[Any, ...]:
        """The arguments, under autocast in the widest of their float dtypes."""
        if torch.is_autocast_enabled("cuda" if device_of(arguments).startswith("cuda") else "cpu"):
            return tuple(torch_tensors.promote(self.signature, arguments))
        return tuple(arguments)

    # ---- gradients

    def record(self, arguments: Arguments, constants: Constants) -> Any:
        """The results where autograd is the only feature of torch that intervenes."""
        key = (tuple(map(_plan_key, arguments)), generate.constants_key(constants) if constants else ())
        plan = self.recent.get(key)
        if plan is None:
            alike = self.promote(self.admit(arguments))
            plan = self.plan(alike, constants, requires_of(alike))
            if all(one is other for one, other in zip(arguments, alike, strict=True)):
                self.recent = {**(self.recent if len(self.recent) < RECENT else {}), key: plan}
            arguments = alike
        return record_directly(plan, arguments)

    def plan(self, arguments: Given, constants: Constants, requires: Asked) -> AutogradPlan:
        """The plan for these arguments, made once for their dtypes, ranks, constants and required gradients."""
        key = (tuple(map(_kind, arguments)), generate.constants_key(constants))
        with self.lock:
            bound = bind_sizes(self.signature, arguments, self.sizes(constants), self.called)
            wanted = replace(generate.specialization_of(self.signature, bound, self.calls.all(constants)), layouts=())
            variants = self.plans.setdefault(key, [])
            variant = next((each for each in variants if each.holds(wanted)), None)
            if variant is None:
                variant = Variant(wanted, *self.trace(wanted))
                variants.append(variant)
            return self.plan_for(variant, requires, constants)

    def trace(self, specialization: generate.Specialization) -> tuple[Graph, Mapping[str, int]]:
        """The graph of the reference; one opaque value if it cannot be traced and has a user's gradient.

        UnsupportedError where it has no gradient."""
        description = self.calls.description
        try:
            return generate.trace_with_sizes(description.reference, specialization)
        except UnsupportedError as error:
            if description.gradient is not None:
                return graph_of(description.reference, specialization.instance, specialization.constants), {}
            message = f"give one by @{self.called}.gradient, or call it under torch.no_grad()"
            raise UnsupportedError(f"{self.called} has no gradient, for {error}; {message}") from error

    def plan_for(self, variant: Variant, requires: Asked, constants: Constants) -> AutogradPlan:
        """The plan for the arguments that require a gradient, made once."""
        if requires not in variant.plans:
            names = [node.output for node, asks in zip(variant.graph.inputs, requires, strict=True) if asks]
            draw = partial(draw_op, self.calls.description, variant.wanted, variant.graph)
            runs = (lambda arguments: self.run(tuple(arguments), constants)), partial(self.forward, constants)
            how = self.how(variant.wanted)
            variant.plans[requires] = graph_kernels.plan_of(variant.graph, names, self.called, draw, *runs, how)
        return variant.plans[requires]

    def how(self, specialization: generate.Specialization) -> Callable[[Graph, Sequence[str]], DerivedGradient]:
        """The function that derives gradients: the user's, else automatic differentiation."""
        gradient = self.calls.description.gradient
        if gradient is None:
            return derive
        return lambda graph, _: derive_by(gradient, graph, specialization.constants, specialization.sizes)

    def forward(self, constants: Constants, arguments: Given) -> Any:
        with graph_kernels.below_autograd():
            return self.as_operator(arguments, constants)

    # ---- as an operator of torch

    def as_operator(self, arguments: Given, constants: Constants) -> Any:
        """The results through torch's dispatcher."""
        if any(each.is_nested for each in arguments if isinstance(each, torch.Tensor)):
            torch_tensors.require_taken(self.called, self.names, arguments)  # torch would name the operator
        simple, baked = _part_constants(self.calls.all(constants))
        overload = self.operator(tuple(isinstance(each, torch.Tensor) for each in arguments), simple, baked)
        return overload(*arguments, **{f"c{at}": value for at, value in enumerate(simple.values())})

    def operator(self, tensors: Asked, simple: Constants, baked: Constants) -> Any:
        """The overload for these kinds of arguments, tensors or numbers, and constants of these types."""
        for term, is_tensor in zip(self.signature.inputs, tensors, strict=True):
            if term.dims is not None and not is_tensor:
                raise SignatureError(f"{self.called}: {term.name}: what is no tensor does not fit {term}")
        kinds = tuple((name, _SCHEMA[type(value)]) for name, value in simple.items())
        key = (tensors, kinds, generate.constants_key(baked))
        with self.lock:
            if key not in self.operators:
                self.operators[key] = register(self.registration(tensors, kinds, baked, str(key)))
            return self.operators[key]

    def operator_name(self, tensors: Asked, constants: Constants) -> tuple[str, tuple[tuple[str, str, Any], ...]]:
        """The name of that operator; and for each constant that it takes, its key, its name and its value."""
        simple, baked = _part_constants(constants)
        name = self.operator(tensors, simple, baked)._opname
        return name, tuple((f"c{at}", name, value) for at, (name, value) in enumerate(simple.items()))

    def registration(self, tensors: Asked, kinds: Kinds, baked: Constants, key: str) -> TorchOperator:
        names = [name for name, _ in kinds]

        def known(constants: Constants) -> Constants:
            return {**{name: constants[f"c{at}"] for at, name in enumerate(names)}, **baked}

        def run(*arguments: Any, **constants: Any) -> Any:
            return self.run(arguments, known(constants))

        def record(arguments: Given, constants: Constants) -> Any:
            every, again = known(constants), partial(call, **constants)
            return with_derivatives(arguments, again, lambda each, asks: self.plan(each, every, asks))

        def call(*arguments: Any, **constants: Any) -> Any:
            return self(arguments, known(constants), {})

        def fake(*arguments: Any, **constants: Any) -> Any:
            return self.fake(arguments, known(constants))

        identity = f"{self.signature}|{fingerprint(self.calls.description.reference.function)}|{key}"
        types = tuple(map(_type_of, self.signature.inputs, tensors)), tuple(kind for _, kind in kinds)
        batch, promote = partial(graph_kernels.call_batch, call), partial(torch_tensors.promote, self.signature)
        count = len(self.signature.outputs)
        return TorchOperator(self.called, identity, *types, count, run, fake, record, batch, promote)

    def fake(self, arguments: Given, constants: Constants) -> Any:
        """Tensors without values, of the dtypes and shapes of the results."""
        torch_tensors.require_taken(self.called, self.names, arguments)
        tensors = results_of(bind_sizes(self.signature, arguments, self.sizes(constants), self.called), arguments)
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _part_constants(constants: Constants) -> tuple[dict[str, Any], dict[str, Any]]:
    """Constants whose types a schema has, and the others."""
    simple = {name: value for name, value in constants.items() if type(value) in _SCHEMA}
    return simple, {name: value for name, value in constants.items() if name not in simple}


def _type_of(term: Term, is_tensor: bool) -> str:
    """The type of an input in the schema."""
    if is_tensor:
        return "Tensor"
    if isinstance(term.element, Family):
        return {"float": "float", "int": "SymInt", "any": "Scalar"}[term.element.value]
    return {"float": "float", "bool": "bool"}.get(term.element.kind, "SymInt")


def _plan_key(each: Any) -> Any:
    """The key of an argument: everything about it that a plan depends on."""
    if isinstance(each, torch.Tensor):
        return each.dtype, each.shape, each.requires_grad, each.device
    return each if type(each) is int else type(each)


def _kind(each: Any) -> Any:
    return (each.dtype, each.dim()) if isinstance(each, torch.Tensor) else type(each)


def _misfit(result: torch.Tensor, target: object) -> str:
    """The reason why a result cannot be written to a target, or an empty text."""
    if not isinstance(target, torch.Tensor):
        return f"is {type(target).__name__}, and results on tensors are written to tensors"
    if target.dtype is not result.dtype or target.shape != result.shape:
        return f"is {target.dtype}{list(target.shape)}, and the result is {result.dtype}{list(result.shape)}"
    return ""


def _pack(results: Sequence[np.ndarray], device: str = generate.CPU) -> Any:
    tensors = tuple(torch_tensors.tensor_of(np.asarray(result)).to(device) for result in results)
    return tensors[0] if len(tensors) == 1 else tensors


def tensor_calls(calls: Calls | UnsignedCalls) -> Any:
    """The calls of an op on tensors, created at first use."""
    if calls.tensors is None:
        calls.tensors = TensorCalls(calls) if isinstance(calls, Calls) else UnsignedTensors(calls)
    return calls.tensors


class UnsignedTensors:
    """The calls of an op without a signature on tensors."""

    def __init__(self, calls: UnsignedCalls) -> None:
        self.follow(calls)

    def follow(self, calls: UnsignedCalls) -> None:
        """Switch to the calls of another description of the op."""
        self.calls = calls

    def forget(self) -> None:
        """Do nothing: it stores no choices."""

    def __call__(self, arguments: Arguments, constants: Constants, sizes: Mapping[str, int], out: Any = None) -> Any:
        """The results as of signed calls; a reference that cannot be traced runs as written, without a gradient."""
        description = self.calls.description
        arrays, constants = self.calls.split(arguments, constants)
        arguments = tuple(arrays)
        torch_tensors.require_taken(description.name, description.reference.parameters[: len(arguments)], arguments)
        try:
            calls = self.calls.of_signature([stand_in(each) for each in arguments], constants)
        except UnsupportedError as error:
            is_plain = is_unwatched(arguments) and not is_recorded(arguments) and out is None
            if not is_plain or device_of(arguments) != generate.CPU:
                message = "declare a signature or a gradient (@op.gradient), call it in torch.no_grad() or on the CPU"
                raise UnsupportedError(f"{description.name} runs as its reference here: {error}; {message}") from error
            return self.run_as_written(arguments, constants)
        return tensor_calls(calls)(arguments, constants, sizes, out)

    def explain(self, arguments: Sequence[Any], constants: Mapping[str, Any]) -> Explanation:
        """Explain what a call with these tensors would run. UnsupportedError where the reference cannot be traced."""
        arguments, constants = self.calls.split(arguments, constants)
        calls = self.calls.of_signature([stand_in(each) for each in arguments], constants)
        explanation: Explanation = tensor_calls(calls).explain(arguments, constants)
        return explanation

    def run_as_written(self, arguments: Sequence[Any], constants: Mapping[str, Any]) -> Any:
        """The results of the reference, or of a trusted kernel, on arrays that share the tensors' memory."""
        if runs_as_written():
            results = self.calls.description.reference.function(*arrays_of(arguments), **constants)
        else:
            results = self.calls.whole(arrays_of(arguments), constants, {}, None)
        return _pack(results if isinstance(results, tuple) else (results,))
