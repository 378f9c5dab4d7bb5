"""Modules of a model that compute what an op of the catalogue does are made to call that op, and are put back.

A module becomes an instance of a subclass of its class, so that its parameters, its state_dict and what hangs on it
stay as they are. Names only say where to look: what is swapped is proved by running it on small numbers beside what the
op computes. Where an op cannot take what comes (another device, mixed dtypes, autocast), the original runs."""

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
    """The replacement of a module: an op, and what is to be known of the module for that."""

    op: str
    told: tuple[str, ...] = ()


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
    """A module that looked like one to swap, and why it was not."""

    module: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.module or 'the model'} ({self.kind}) is left: {self.reason}"


@dataclass(frozen=True, slots=True)
class PatchRecord:
    """The record of what `patch` did. As a context manager it puts everything back at the end of the block."""

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
    """Make the modules of a model call ops of `noyau.nn` where they compute the same: norms, gated MLPs, activations,
    rotary embedding, the cross-entropy of a loss. Forward and backward; `unpatch(model)`, or the end of a
    `with noyau.patch(model):`, puts them back.

    The record says what was swapped, and what was not and why. InputError for what is no torch.nn.Module."""
    _require_module(model, "patch")
    swapped: list[PatchedModule] = []
    left: list[UnpatchedModule] = []
    inside: set[Module] = set()  # what a swapped module no longer calls
    for name, module in model.named_modules():
        original = type(module)
        if module in inside:
            continue
        before: Replacement | None = getattr(original, "noyau_swap", None)
        found = before or _recognised(module)
        if isinstance(found, Replacement):
            inside |= {getattr(module, child) for child in found.told if found.op in GATES and child in ACTS}
        if isinstance(found, Replacement) and before is None:
            module.__class__ = patched_class(cast(Any, original), found)
            swapped.append(PatchedModule(name, original.__name__, found.op))
        elif isinstance(found, str):
            left.append(UnpatchedModule(name, original.__name__, found))
    return PatchRecord(tuple(swapped), tuple(left), model)


def unpatch(model: Module) -> None:
    """Put back every module of a model that `patch` has changed. InputError for what is no torch.nn.Module."""
    _require_module(model, "unpatch")
    for module in model.modules():
        if hasattr(type(module), "noyau_swap"):
            module.__class__ = type(module).__mro__[1]


def _require_module(model: Any, label: str) -> None:
    if not isinstance(model, Module):
        raise InputError(f"noyau.{label} takes a torch.nn.Module, not a {type(model).__name__}")


@cache
def patched_class(original: Any, swap: Replacement) -> type[Module]:
    """The subclass of a module's class that calls an op, named as its parent is."""
    own: dict[str, Any] = {"noyau_swap": swap, "__reduce_ex__": _reduced, "__module__": original.__module__}
    own["__qualname__"], own["__doc__"] = original.__qualname__, original.__doc__
    own |= MADE[swap.op](original, *swap.told)
    return type(original.__name__, (original,), own)


def _reduced(module: Any, protocol: Any) -> tuple[Any, ...]:
    """Copies and pickles are patched too."""
    return _fresh, (type(module).__mro__[1], type(module).noyau_swap), module.__dict__


def _fresh(original: Any, swap: Replacement) -> Module:
    made: Any = patched_class(original, swap)
    return cast(Module, made.__new__(made))


def _recognised(module: Module) -> Replacement | str | None:
    """The replacement of a module, why it stays as it is, or None where nothing of it is like an op."""
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


def _is_gated(module: Module, kind: str) -> bool:
    return all(isinstance(getattr(module, name, None), Module) for name in ("gate_proj", "up_proj", "down_proj"))


def _calls(function: Any, name: str) -> bool:
    """Whether a plain function calls another one by its name in a module."""
    return isinstance(function, types.FunctionType) and name in function.__code__.co_names


def _rotates(module: Module, kind: str) -> bool:
    return _calls(type(module).forward, ROTATE)


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
    tried = copy.deepcopy(module).to(device="cpu", dtype=torch.float64)
    tried.weight.copy_(weight)
    setattr(tried, eps, 0.25)  # which shows
    found, normed = tried.forward(x), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.25)
    for shift in ("0", "1"):
        if _alike(found, normed * (weight + float(shift))):
            return Replacement("rms_norm", (eps, shift))
    return "it does not compute an RMSNorm"


def _activation(module: Module) -> Replacement | str:
    if getattr(module, "inplace", False):
        return "it writes into its input"
    found = _act(module)
    return Replacement(*found) if found else "it is neither silu nor gelu"


def _act(module: Module) -> tuple[str, tuple[str, ...]] | None:
    """The op of an activation, and what it is told."""
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    found = module.forward(x.clone())
    if _alike(found, plain.silu(x), 1e-9):
        return "silu", ()
    forms = (form for form in ("none", "tanh") if _alike(found, plain.gelu(x, approximate=form), 1e-9))
    return next((("gelu", (form,)) for form in forms), None)


def _gated(module: Module) -> Replacement | str:
    act = next((name for name in ACTS if isinstance(getattr(module, name, None), Module)), None)
    if act is None:
        return "it has no activation of its own"
    found = _act(getattr(module, act))
    if found is None:
        return "its activation is neither silu nor gelu"
    if any(child._forward_hooks or child._forward_pre_hooks for child in module.modules() if child is not module):
        return "a hook hangs on a part of it"
    first = next(module.gate_proj.parameters())
    x = _numbers(2, module.gate_proj.in_features).to(first)
    gate = getattr(module, act)(module.gate_proj(x))
    want, found_now = module.down_proj(gate * module.up_proj(x)), type(module).forward(module, x)
    if not want.any() or not _alike(found_now, want, 1e-4 if first.dtype in FLOATS[:2] else 0.05):
        return "it does not compute down(act(gate(x)) * up(x))"
    return Replacement("swiglu" if found[0] == "silu" else "geglu", (act, *found[1]))


def _attention(module: Module) -> Replacement | str:
    rotate = type(module).forward.__globals__[ROTATE]
    q, k, cos, sin = (_numbers(*shape) for shape in ((2, 3, 5, 8), (2, 1, 5, 8), (2, 5, 8), (2, 5, 8)))
    for form in ("", "interleaved"):
        wanted = [nn.rope(each, cos.unsqueeze(1), sin.unsqueeze(1), interleaved=bool(form)) for each in (q, k)]
        if all(_alike(one, other) for one, other in zip(rotate(q, k, cos, sin), wanted, strict=True)):
            return Replacement("rope", (form,))
    return f"its {ROTATE} turns other pairs"


def _loss(module: Module) -> Replacement | str | None:
    function: Any = getattr(module, "loss_function", None)
    if not _calls(function, LOSS):
        return None
    given = function.__globals__[LOSS]
    logits, labels = _numbers(4, 7), torch.tensor([0, 6, -100, 3])
    wanted = plain.cross_entropy(logits, labels), plain.cross_entropy(logits, labels, reduction="sum") / 3
    same = _alike(given(logits, labels), wanted[0]) and _alike(given(logits, labels, 3), wanted[1])
    if not same:
        return f"its {LOSS} computes something else"
    CROSSED.setdefault(function, _crossed(function))
    return Replacement("cross_entropy")


def _numbers(*shape: int) -> Tensor:
    """Normal numbers, which leave torch's generator alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _alike(found: Any, wanted: Tensor, close: float = 1e-5) -> bool:
    fits = isinstance(found, torch.Tensor) and found.shape == wanted.shape
    return fits and bool((found.double() - wanted.double()).abs().max() <= close * wanted.double().abs().max())


CROSSED: dict[Forward, Forward] = {}  # losses, and the same by noyau's cross-entropy
ACTS = ("act_fn", "act", "activation_fn", "activation")
GATES = ("swiglu", "geglu")
LOOKS: dict[Callable[[Any], Replacement | str | None], Callable[[Module, str], bool]] = {
    _norm: _is_norm,
    _activation: _is_activation,
    _gated: _is_gated,
    _attention: _rotates,
    _loss: _has_loss,
}


def _takes(*tensors: Any) -> bool:
    """Whether an op takes these tensors: on the CPU, of one float dtype, and autocast does not change them."""
    first = tensors[0]
    if not isinstance(first, torch.Tensor) or first.dtype not in FLOATS or torch.is_autocast_enabled("cpu"):
        return False
    return all(each.device.type == "cpu" and each.dtype == first.dtype for each in tensors)


def _with_rms_norm(original: type[Any], eps: str, shift: str) -> dict[str, Any]:
    added = float(shift)

    def forward(self: Any, *given: Any, **said: Any) -> Any:
        half = added and self.weight.dtype not in FLOATS[:2]  # 1 + weight would be rounded
        if len(given) != 1 or said or half or not _takes(given[0], self.weight):
            return original.forward(self, *given, **said)
        weight = self.weight + added if added else self.weight
        said_eps = getattr(self, eps)
        return nn.rms_norm(given[0], weight, eps=torch.finfo(weight.dtype).eps if said_eps is None else said_eps)

    return {"forward": forward}


def _with_layer_norm(original: type[Any]) -> dict[str, Any]:
    def forward(self: Any, *given: Any, **said: Any) -> Any:
        if len(given) != 1 or said or not _takes(given[0], self.weight, self.bias):
            return original.forward(self, *given, **said)
        return nn.layer_norm(given[0], self.weight, self.bias, eps=self.eps)

    return {"forward": forward}


def _with_silu(original: type[Any]) -> dict[str, Any]:
    def forward(self: Any, *given: Any, **said: Any) -> Any:
        plain_call = len(given) == 1 and not said and _takes(given[0])
        return nn.silu(given[0]) if plain_call else original.forward(self, *given, **said)

    return {"forward": forward}


def _with_gelu(original: type[Any], approximate: str) -> dict[str, Any]:
    def forward(self: Any, *given: Any, **said: Any) -> Any:
        plain_call = len(given) == 1 and not said and _takes(given[0])
        return nn.gelu(given[0], approximate=approximate) if plain_call else original.forward(self, *given, **said)

    return {"forward": forward}


def _with_swiglu(original: type[Any], act: str) -> dict[str, Any]:
    def forward(self: Any, x: Any) -> Any:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(nn.swiglu(gate, up) if _takes(gate, up) else getattr(self, act)(gate) * up)

    return {"forward": forward}


def _with_geglu(original: type[Any], act: str, approximate: str) -> dict[str, Any]:
    def forward(self: Any, x: Any) -> Any:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if not _takes(gate, up):
            return self.down_proj(getattr(self, act)(gate) * up)
        return self.down_proj(nn.geglu(gate, up, approximate=approximate))

    return {"forward": forward}


def _with_rope(original: type[Any], form: str) -> dict[str, Any]:
    function: Any = original.forward
    rotate, interleaved = function.__globals__[ROTATE], bool(form)

    def turned(q: Any, k: Any, cos: Any, sin: Any, *rest: Any, **said: Any) -> Any:
        axis = said.get("unsqueeze_dim", 1)
        if rest or said.keys() - {"unsqueeze_dim"} or axis != 1 or not _takes(q, k, cos, sin):
            return rotate(q, k, cos, sin, *rest, **said)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        if cos.shape[-1] != q.shape[-1] or cos.shape[-1] != k.shape[-1]:
            return rotate(q, k, cos[:, 0], sin[:, 0])
        return nn.rope(q, cos, sin, interleaved=interleaved), nn.rope(k, cos, sin, interleaved=interleaved)

    return {"forward": _seeing(function, ROTATE, turned)}


def _with_cross_entropy(original: type[Any]) -> dict[str, Any]:
    known: property = original.loss_function

    def loss_function(self: Any) -> Any:
        given = cast(Forward, known.fget)(self)
        return CROSSED.get(given, given)

    return {"loss_function": property(loss_function, known.fset)}


def _crossed(function: Any) -> Any:
    """A loss whose cross-entropy is noyau's."""
    fixed = function.__globals__[LOSS]

    def crossed(source: Any, target: Any, items: Any = None, ignore_index: int = -100, **said: Any) -> Any:
        items = said.get("num_items_in_batch", items)
        if source.dim() != 2 or not _takes(source) or target.dtype != torch.int64:
            return fixed(source, target, items, ignore_index)
        if items is None:
            return nn.cross_entropy_mean(source, target, ignore_index=ignore_index)
        return nn.cross_entropy_sum(source, target, ignore_index=ignore_index) / items

    return _seeing(function, LOSS, crossed)


def _seeing(function: Any, name: str, other: Forward) -> Any:
    """The same function, for which a name of its module is another function: nobody else sees that."""
    seen = {**function.__globals__, name: other}
    del seen["__name__"]  # torch.compile would look into the module of that name instead
    made = types.FunctionType(function.__code__, seen, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__, made.__doc__, made.__dict__ = function.__kwdefaults__, function.__doc__, function.__dict__
    return made


OPS = (_with_rms_norm, _with_layer_norm, _with_silu, _with_gelu, _with_swiglu, _with_geglu, _with_rope)
MADE: dict[str, Callable[..., dict[str, Any]]] = {
    each.__name__.removeprefix("_with_"): each for each in (*OPS, _with_cross_entropy)
}
