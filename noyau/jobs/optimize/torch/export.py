"""A module as one graph for inference, by torch.export, and such a graph as something to call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from noyau.errors import InputError, UnsupportedError
from noyau.hosts.torch.modules.executor import Boxed, copy_graph, eager

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class CallLayout:
    """Layout of a graph's call. `inputs`: for each placeholder, the name of a tensor of the module, or None for the
    next argument; `outputs`: for each result, the name of the tensor of the module that it is the new value of, or None
    for one that is returned; `extents`: of each argument, None for what is no tensor or for a size that may differ;
    `takes` and `gives`: how arguments and results nest, as torch spells it; `forms`: dtype and kind of device of each
    argument, None for what is no tensor, and none at all in files of before."""

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    extents: tuple[tuple[int | None, ...] | None, ...]
    takes: str
    gives: str
    forms: tuple[tuple[str, str] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedModule:
    """A module's graph, with its own tensors."""

    program: fx.Graph
    layout: CallLayout
    tensors: Tensors


def export(module: torch.nn.Module, args: Sequence[Any], dynamic: bool) -> ExportedModule:
    """The graph of a module for inference, operators as torch's kernels are. UnsupportedError where torch cannot export
    it, with torch's first line: data-dependent control flow, say."""
    shapes = pytree.tree_map(_free if dynamic else _fixed, tuple(args))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*LeafSpec.*deprecated", FutureWarning)  # of torch's copies of its own
            found = torch.export.export(module, tuple(args), dynamic_shapes=shapes if dynamic else None)
            found = found.run_decompositions({})
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UnsupportedError(
            f"torch cannot export {type(module).__name__}, so it cannot be saved: {first}"
        ) from error
    return ExportedModule(found.graph_module.graph, _layout(found), _tensors(found))


def _free(value: Any) -> Any:
    return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO) if isinstance(value, torch.Tensor) else None


def _fixed(value: Any) -> Any:
    del value


def _layout(found: Any) -> CallLayout:
    signature, names = found.graph_signature, [spec.target for spec in found.graph_signature.input_specs]
    kinds = [spec.kind.name for spec in signature.input_specs]
    if any(kind in ("CUSTOM_OBJ", "TOKEN") for kind in kinds):
        raise UnsupportedError("a module with objects that are no tensors cannot be saved")
    inputs = tuple(None if kind == "USER_INPUT" else str(name) for kind, name in zip(kinds, names, strict=True))
    outputs = tuple(None if spec.kind.name == "USER_OUTPUT" else str(spec.target) for spec in signature.output_specs)
    arguments = [node for node in found.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta.get("val") for node, name in zip(arguments, inputs, strict=True) if name is None]
    takes, gives = (pytree.treespec_dumps(spec) for spec in (found.call_spec.in_spec, found.call_spec.out_spec))
    return CallLayout(inputs, outputs, tuple(map(_extents, fakes)), takes, gives, tuple(map(_form, fakes)))


def _extents(fake: Any) -> tuple[int | None, ...] | None:
    if not isinstance(fake, torch.Tensor):
        return None
    return tuple(int(each) if isinstance(each, int) else each.node.maybe_as_int() for each in fake.shape)


def _form(fake: Any) -> tuple[str, str] | None:
    if not isinstance(fake, torch.Tensor):
        return None
    return str(fake.dtype).removeprefix("torch."), fake.device.type


def _tensors(found: Any) -> dict[str, torch.Tensor]:
    names = {spec.target for spec in found.graph_signature.input_specs if spec.kind.name != "USER_INPUT"}
    every = {**found.state_dict, **found.constants}
    return {str(name): every[name].detach() for name in names}


def runnable(program: fx.Graph, layout: CallLayout, tensors: Tensors) -> Callable[..., Any]:
    """The graph as a function that takes what the module took. It raises InputError for arguments of another form,
    shape or dtype, or on another kind of device; tensors of the module that it changes are changed."""
    forms = layout.forms or (None,) * len(layout.extents)
    slowly, known = eager(fx.GraphModule(torch.nn.Module(), copy_graph(program)), []), dict[torch.device, Boxed]()
    repeats = all(each is not None and None not in each for each in layout.extents)
    places = [at for at, name in enumerate(layout.inputs) if name is None]

    def run(arguments: list[Any]) -> Any:
        """By the launches that were noted, where all is on a GPU and of one size."""
        devices = {each.device for each in arguments if isinstance(each, torch.Tensor)}
        device = devices.pop() if len(devices) == 1 else None
        if device is None or device.type != "cuda" or not repeats:
            return slowly(arguments)
        if device not in known:
            from noyau.jobs.optimize.cuda.saved_kernels import flatten_later  # many modules, of a GPU alone

            known.setdefault(device, flatten_later(copy_graph(program), places, slowly))
        return known[device](arguments)

    takes, gives = pytree.treespec_loads(layout.takes), pytree.treespec_loads(layout.gives)

    def call(*args: Any, **kwargs: Any) -> Any:
        flat, form = pytree.tree_flatten((args, kwargs))
        if form != takes or len(flat) != len(layout.extents):
            raise InputError(f"it was saved for arguments of the form {takes}, and is given {form}")
        for at, (value, extents, wanted) in enumerate(zip(flat, layout.extents, forms, strict=True)):
            _require(at, value, extents)
            _require_form(at, value, wanted)
        given = map(_written, flat)
        with torch.no_grad():
            results = run([next(given) if name is None else tensors[name] for name in layout.inputs])
            for name, result in zip(layout.outputs, results, strict=True):
                if name is not None:
                    tensors[name].copy_(result)
        returned = [each for name, each in zip(layout.outputs, results, strict=True) if name is None]
        return pytree.tree_unflatten(returned, gives)

    return call


def _written(value: Any) -> Any:
    """A tensor whose numbers are in memory as they are: kernels do not see that a view negates."""
    return value.resolve_neg().resolve_conj() if isinstance(value, torch.Tensor) else value


def _require(at: int, value: Any, extents: tuple[int | None, ...] | None) -> None:
    """InputError where an argument is not of the shape that it was saved for."""
    if extents is None:
        return
    shape = tuple(value.shape) if isinstance(value, torch.Tensor) else None
    fits = shape is not None and len(shape) == len(extents)
    if not fits or any(want not in (None, got) for want, got in zip(extents, shape or (), strict=True)):
        wanted = ", ".join("any" if each is None else str(each) for each in extents)
        raise InputError(f"argument {at} has the shape {shape}, and the module was saved for [{wanted}]")


def _require_form(at: int, value: Any, wanted: tuple[str, str] | None) -> None:
    """InputError where an argument is not of the dtype, or not on the kind of device, that it was saved for."""
    found = _form(value)
    if wanted is None or found is None:
        return
    for got, want, on, turn in zip(found, wanted, ("", "on "), (".to(torch.{})", '.to("{}")'), strict=True):
        if got != want and (value.dim() or not on):  # a number may lie anywhere
            message = f"argument {at} is {on}{got}, and the module was saved for {on and 'one '}{on}{want}"
            raise InputError(f"{message}; give it {turn.format(want)}")
