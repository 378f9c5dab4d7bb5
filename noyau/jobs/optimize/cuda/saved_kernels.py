"""Kernels for a GPU in saved modules: their texts, and how they are called."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from noyau.compiler.lowering.input_layouts import Layout, Order
from noyau.errors import ModelError, NoyauError
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.executor import Boxed, with_device_errors
from noyau.hosts.torch.modules.flat_codegen import flat
from noyau.ir.loops import Kernel, Launch
from noyau.jobs.optimize.cuda.certificate import require_device
from noyau.text import printable

_MOST_LAUNCHES = 1000
Form: TypeAlias = tuple[torch.dtype, tuple[int, ...]]  # of a tensor: what a flat function relies on


@dataclass(frozen=True, slots=True)
class CallForm:
    """Form of a kernel's call: its number of launches, and the axes of each input in memory order, () for C order."""

    launches: int
    axes: tuple[tuple[int, ...], ...]


def flatten_later(program: fx.Graph, places: Sequence[int], slowly: Boxed) -> Boxed:
    """A graph of a file, whose sizes are numbers, as a function of a list of tensors, which it empties. The first call
    runs node by node and records the result of each; later calls run one flat function (flat_codegen). `places`: which
    arguments are the caller's. If one of these has other strides or another dtype than in the first call, `slowly`
    runs, for the recorded facts are numbers and nothing else checks them. It also runs while another thread makes the
    first call."""
    module, lock = fx.GraphModule(torch.nn.Module(), program), Lock()
    slowly = with_device_errors(slowly)
    known: list[tuple[list[Form], Boxed]] = []

    def run(arguments: list[Any]) -> Any:
        forms = [(arguments[at].dtype, arguments[at].stride()) for at in places]
        if known:
            first_forms, flat_run = known[0]
            return (flat_run if forms == first_forms else slowly)(arguments)
        if not lock.acquire(blocking=False):
            return slowly(arguments)
        try:
            if not known:
                values = list(arguments)
                arguments.clear()
                results = ShapeRecorder(module).run(*values)
                known.append((forms, flat(module, ())))
                return results
        finally:
            lock.release()
        return run(arguments)

    return run


class ShapeRecorder(fx.Interpreter):  # type: ignore[misc]  # torch's class has no types
    """Interpreter of a graph that records each node's result as a fake tensor, without cells, as tracing would."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.fakes = FakeTensorMode()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["val"] = pytree.tree_map_only(torch.Tensor, self.fakes.from_tensor, result)
        return result


def reopen(fields: Mapping[str, Any], text: str) -> Callable[..., Any]:
    """A kernel of a file as a function of tensors. BuildError without a GPU, ModelError if its entry cannot be read.
    The text is executed."""
    try:
        name, count = str(fields["name"]), int(fields["launches"])
        axes = [tuple(int(axis) for axis in each) for each in fields["axes"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"a kernel of the file cannot be read: {printable(repr(error))}") from error
    if not name.isidentifier():
        raise ModelError(f"a kernel of the file cannot be read: {printable(name)} is no name of one")
    if not 1 <= count <= _MOST_LAUNCHES:
        raise ModelError(f"a kernel of the file cannot be read: it has {count} launches")
    require_device(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    layouts = [Layout(Order.PERMUTED, each) if each else Layout() for each in axes]
    try:
        return DeviceCall(text, Kernel(name, (), (), (Launch(()),) * count), layouts)
    except NoyauError:
        raise
    except Exception as error:  # the text comes from a file: it may raise anything
        raise ModelError(f"{name} has a text that Triton does not read: {printable(repr(error))}") from error
