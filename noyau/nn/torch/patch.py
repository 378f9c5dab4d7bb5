"""Patching of modules that compute the same as an op of the catalogue, so that they call that op, and unpatching.

A module becomes an instance of a subclass of its class, so that its parameters, its state_dict, its hooks and its
attributes stay. Names only suggest candidates: a patch requires that the module's results on small inputs agree with
the op's. If an op cannot take the arguments (another device, mixed dtypes, autocast), the original runs."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, cast

import torch
from torch.nn import Module
from torch.nn import functional as plain

from noyau import nn
from noyau.errors import InputError

Tensor: TypeAlias = torch.Tensor
Forward = Callable[..., Any]
EPS = ("variance_epsilon", "eps", "epsilon")
ROTATE, LOSS = "apply_rotary_pos_emb", "fixed_cross_entropy"
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a module: an op, and the facts about the module that it needs."""

    op: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchedModule:
    """A module by its name in the model, its class, and the op that it calls."""

    module: str
    kind: str
    op: str

    def __str__(self) -> str:
        return f"{self.module or 'the model'} ({self.kind}): {self.op}"


@dataclass(frozen=True, slots=True)
class UnpatchedModule:
    """A module that resembles an op but was not patched, and why."""

    module: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.module or 'the model'} ({self.kind}) is left: {self.reason}"


@dataclass(frozen=True, slots=True)
class PatchRecord:
    """The record of what `patch` did. As a context manager it restores everything at the end of the block."""

    swapped: tuple[PatchedModule, ...]
    left: tuple[UnpatchedModule, ...]
    model: Module = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return "\n".join([f"{len(self.swapped)} modules call ops of noyau", *map(str, (*self.swapped, *self.left))])

    def __enter__(self) -> PatchRecord:
        return self

    def __exit__(self, *fault: object) -> None:
        unpatch(self.model)


def patch(model: Module) -> PatchRecord:
    """Patch the modules of a model to call ops of `noyau.nn` where these compute the same: norms, gated MLPs,
    activations, rotary embedding, the cross-entropy of a loss. Forward and backward; `unpatch(model)`, or the end of a
    `with noyau.patch(model):`, restores them.

    The record lists what was swapped, and what was not and why. InputError for a model that is no torch.nn.Module."""
    _require_module(model, "patch")
    swapped, left = list[PatchedModule](), list[UnpatchedModule]()
    inside: set[Module] = set()  # modules that a patched one no longer calls
    for name, module in model.named_modules():
        original = type(module)
        if module in inside:
            continue
        before: Replacement | None = getattr(original, "noyau_swap", None)
        match before or _recognise(module):
            case Replacement(op, arguments) as swap:
                inside |= {getattr(module, child) for child in arguments if op in GATES and child in ACTS}
                if before is None:
                    module.__class__ = patched_class(cast(Any, original), swap)
                    swapped.append(PatchedModule(name, original.__name__, op))
            case str(reason):
                left.append(UnpatchedModule(name, original.__name__, reason))
    return PatchRecord(tuple(swapped), tuple(left), model)


def unpatch(model: Module) -> None:
    """Restore every module of a model that `patch` has changed. InputError for a model that is no torch.nn.Module."""
    _require_module(model, "unpatch")
    for module in model.modules():
        if hasattr(type(module), "noyau_swap"):
            module.__class__ = type(module).__mro__[1]


def _require_module(model: Any, label: str) -> None:
    if not isinstance(model, Module):
        raise InputError(f"noyau.{label} takes a torch.nn.Module, not a {type(model).__name__}")


@cache
def patched_class(original: Any, swap: Replacement) -> type[Module]:
    """The subclass of a module's class that calls an op, with the name of its parent."""
    own = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
    own |= {"noyau_swap": swap, "__reduce_ex__": _reduce, **MEMBERS[swap.op](original, *swap.arguments)}
    return type(original.__name__, (original,), own)


def _reduce(module: Any, protocol: Any) -> tuple[Any, ...]:
    """Reduce a module so that copies and pickles are patched too."""
    return _fresh, (type(module).__mro__[1], type(module).noyau_swap), module.__dict__


def _fresh(original: Any, swap: Replacement) -> Module:
    kind: Any = patched_class(original, swap)
    return cast(Module, kind.__new__(kind))


def _recognise(module: Module) -> Replacement | str | None:
    """The replacement of a module, the reason why there is none, or None if it resembles no op."""
    kind = type(module).__name__.lower()
    look = next((look for look, looks_like in LOOKS.items() if looks_like(module, kind)), None)
    if look is None:
        return None
    if "forward" in module.__dict__:
        return "its forward was replaced already"
    try:
        with torch.no_grad():
            return look(module)
    except Exception as fault:  # noqa: BLE001, a module of anybody may fail in any way
        return f"it could not be tried: {type(fault).__name__}: {fault}".splitlines()[0]


def _is_norm(module: Module, kind: str) -> bool:
    return "norm" in kind and not list(module.children()) and isinstance(getattr(module, "weight", None), torch.Tensor)


def _is_activation(module: Module, kind: str) -> bool:
    bare = not list(module.children()) and not list(module.parameters()) and not list(module.buffers())
    return bare and any(word in kind for word in ("gelu", "silu", "swish"))


def _calls(function: Any, name: str) -> bool:
    """Whether a plain function calls another one by its name in a module."""
    return isinstance(function, types.FunctionType) and name in function.__code__.co_names


def _has_loss(module: Module, kind: str) -> bool:
    known = isinstance(getattr(type(module), "loss_function", None), property)
    return known and "labels" in inspect.signature(type(module).forward).parameters


def _norm(module: Module) -> Replacement | str:
    if not isinstance(module.weight, torch.Tensor) or module.weight.dim() != 1:
        return "its weight has not one axis"
    if type(module).forward is torch.nn.LayerNorm.forward:
        return Replacement("layer_norm") if module.bias is not None else "it has no bias"
    eps = next((name for name in EPS if hasattr(module, name)), None)
    if eps is None or [name for name, _ in module.named_parameters()] != ["weight"]:
        return "it is no norm of one weight and an eps"
    x, weight = _numbers(3, len(module.weight)), _numbers(len(module.weight))
    double = copy.deepcopy(module).to(device="cpu", dtype=torch.float64)
    double.weight.copy_(weight)
    setattr(double, eps, 0.25)  # a value that shows in the result
    result, normed = double.forward(x), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.25)
    for shift in ("0", "1"):
        if _alike(result, normed * (weight + float(shift))):
            return Replacement("rms_norm", (eps, shift))
    return "it does not compute an RMSNorm"


def _activation(module: Module) -> Replacement | str:
    if getattr(module, "inplace", False):
        return "it writes into its input"
    return _act(module) or "it is neither silu nor gelu"


def _act(module: Module) -> Replacement | None:
    """The op that an activation computes, or None."""
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    result = module.forward(x.clone())
    if _alike(result, plain.silu(x), 1e-9):
        return Replacement("silu")
    forms = (form for form in ("none", "tanh") if _alike(result, plain.gelu(x, approximate=form), 1e-9))
    return next((Replacement("gelu", (form,)) for form in forms), None)


def _gate(module: Module) -> Replacement | str:
    act = next((name for name in ACTS if isinstance(getattr(module, name, None), Module)), None)
    if act is None:
        return "it has no activation of its own"
    activation = _act(getattr(module, act))
    if activation is None:
        return "its activation is neither silu nor gelu"
    if any(child._forward_hooks or child._forward_pre_hooks for child in module.modules() if child is not module):
        return "a hook hangs on a part of it"
    first = next(module.gate_proj.parameters())
    x = _numbers(2, module.gate_proj.in_features).to(first)
    gate = getattr(module, act)(module.gate_proj(x))
    product, result = module.down_proj(gate * module.up_proj(x)), type(module).forward(module, x)
    if not product.any() or not _alike(result, product, 1e-4 if first.dtype in FLOATS[:2] else 0.05):
        return "it does not compute down(act(gate(x)) * up(x))"
    return Replacement("swiglu" if activation.op == "silu" else "geglu", (act, *activation.arguments))


def _attention(module: Module) -> Replacement | str:
    rotate = type(module).forward.__globals__[ROTATE]
    q, k, cos, sin = (_numbers(*shape) for shape in ((2, 3, 5, 8), (2, 1, 5, 8), (2, 5, 8), (2, 5, 8)))
    for form in ("", "interleaved"):
        turned = [nn.rope(each, cos.unsqueeze(1), sin.unsqueeze(1), interleaved=bool(form)) for each in (q, k)]
        if all(_alike(one, other) for one, other in zip(rotate(q, k, cos, sin), turned, strict=True)):
            return Replacement("rope", (form,))
    return f"its {ROTATE} turns other pairs"


def _loss(module: Module) -> Replacement | str | None:
    function: Any = getattr(module, "loss_function", None)
    if not _calls(function, LOSS):
        return None
    loss, logits, labels = function.__globals__[LOSS], _numbers(4, 7), torch.tensor([0, 6, -100, 3])
    is_mean = _alike(loss(logits, labels), plain.cross_entropy(logits, labels))
    if not is_mean or not _alike(loss(logits, labels, 3), plain.cross_entropy(logits, labels, reduction="sum") / 3):
        return f"its {LOSS} computes something else"
    CROSSED.setdefault(function, _replace_cross_entropy(function))
    return Replacement("cross_entropy")


def _numbers(*shape: int) -> Tensor:
    """Normal numbers, drawn without torch's global generator."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _alike(result: Any, truth: Tensor, close: float = 1e-5) -> bool:
    fits = isinstance(result, torch.Tensor) and result.shape == truth.shape
    return fits and bool((result.double() - truth.double()).abs().max() <= close * truth.double().abs().max())


CROSSED: dict[Forward, Forward] = {}  # losses, and their copies with noyau's cross-entropy
ACTS = ("act_fn", "act", "activation_fn", "activation")
GATES = ("swiglu", "geglu")
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
LOOKS: dict[Callable[[Any], Replacement | str | None], Callable[[Module, str], bool]] = {
    _norm: _is_norm,
    _activation: _is_activation,
    _gate: lambda module, kind: all(isinstance(getattr(module, name, None), Module) for name in PROJECTIONS),
    _attention: lambda module, kind: _calls(type(module).forward, ROTATE),
    _loss: _has_loss,
}


def _takes(*tensors: Any) -> bool:
    """Whether an op takes these tensors: on the CPU, of one float dtype, and without autocast."""
    first = tensors[0]
    if not isinstance(first, torch.Tensor) or first.dtype not in FLOATS or torch.is_autocast_enabled("cpu"):
        return False
    return all(each.device.type == "cpu" and each.dtype == first.dtype for each in tensors)


def _of_input(
    original: type[Any], call: Callable[[Any, Any], Any], *names: str, dtypes: tuple[torch.dtype, ...] = FLOATS
) -> dict[str, Any]:
    """A forward that calls an op of the module and its one input, if the op takes that and the module's `names`."""

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        tensors = [*args, *(getattr(self, name) for name in names)]
        if len(args) != 1 or options or not _takes(*tensors) or args[0].dtype not in dtypes:
            return original.forward(self, *args, **options)
        return call(self, args[0])

    return {"forward": forward}


def _with_rms_norm(original: type[Any], eps_name: str, shift: str) -> dict[str, Any]:
    added = float(shift)

    def norm(self: Any, x: Any) -> Any:
        weight = self.weight + added if added else self.weight
        eps = getattr(self, eps_name)
        return nn.rms_norm(x, weight, eps=torch.finfo(weight.dtype).eps if eps is None else eps)

    return _of_input(original, norm, "weight", dtypes=FLOATS[:2] if added else FLOATS)  # half's 1 + weight is rounded


def _with_gate(original: type[Any], op: str, act: str, **options: str) -> dict[str, Any]:
    def forward(self: Any, x: Any) -> Any:
        gate, up = self.gate_proj(x), self.up_proj(x)
        gated = getattr(nn, op)(gate, up, **options) if _takes(gate, up) else getattr(self, act)(gate) * up
        return self.down_proj(gated)

    return {"forward": forward}


def _with_rope(original: type[Any], form: str) -> dict[str, Any]:
    function: Any = original.forward
    rotate, interleaved = function.__globals__[ROTATE], bool(form)

    def turned(q: Any, k: Any, cos: Any, sin: Any, *rest: Any, **options: Any) -> Any:
        axis = options.get("unsqueeze_dim", 1)
        if rest or options.keys() - {"unsqueeze_dim"} or axis != 1 or not _takes(q, k, cos, sin):
            return rotate(q, k, cos, sin, *rest, **options)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        if cos.shape[-1] != q.shape[-1] or cos.shape[-1] != k.shape[-1]:
            return rotate(q, k, cos[:, 0], sin[:, 0])
        return nn.rope(q, cos, sin, interleaved=interleaved), nn.rope(k, cos, sin, interleaved=interleaved)

    return {"forward": _seeing(function, ROTATE, turned)}


def _with_cross_entropy(original: type[Any]) -> dict[str, Any]:
    own: property = original.loss_function

    def loss_function(self: Any) -> Any:
        loss = cast(Forward, own.fget)(self)
        return CROSSED.get(loss, loss)

    return {"loss_function": property(loss_function, own.fset)}


def _replace_cross_entropy(function: Any) -> Any:
    """A copy of a loss with noyau's cross-entropy."""
    fixed = function.__globals__[LOSS]

    def crossed(source: Any, target: Any, items: Any = None, ignore_index: int = -100, **options: Any) -> Any:
        items = options.get("num_items_in_batch", items)
        if source.dim() != 2 or not _takes(source) or target.dtype != torch.int64:
            return fixed(source, target, items, ignore_index)
        if items is None:
            return nn.cross_entropy_mean(source, target, ignore_index=ignore_index)
        return nn.cross_entropy_sum(source, target, ignore_index=ignore_index) / items

    return _seeing(function, LOSS, crossed)


def _seeing(function: Any, name: str, other: Forward) -> Any:
    """A copy of a function in which a global name refers to another function; other functions are not affected."""
    scope = {**function.__globals__, name: other}
    del scope["__name__"]  # torch.compile would look into the module of that name instead
    twin = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__, twin.__doc__, twin.__dict__ = function.__kwdefaults__, function.__doc__, function.__dict__
    return twin


MEMBERS: dict[str, Callable[..., dict[str, Any]]] = {  # by the op, the members of a module's class that call it
    "rms_norm": _with_rms_norm,
    "layer_norm": lambda original: _of_input(
        original, lambda self, x: nn.layer_norm(x, self.weight, self.bias, eps=self.eps), "weight", "bias"
    ),
    "silu": lambda original: _of_input(original, lambda self, x: nn.silu(x)),
    "gelu": lambda original, form: _of_input(original, lambda self, x: nn.gelu(x, approximate=form)),
    "swiglu": lambda original, act: _with_gate(original, "swiglu", act),
    "geglu": lambda original, act, form: _with_gate(original, "geglu", act, approximate=form),
    "rope": _with_rope,
    "cross_entropy": _with_cross_entropy,
}
