"""A graph on a GPU as one flat Python function, made as it first runs: launches, allocations and views by numbers that
are known, so that little is done by Python between two of them.

A graph whose sizes are numbers does the same in every call but for addresses. So the first call runs node by node and
is noted: what a kernel launches (triton_launching), what torch's own functions are called with, and how views lie. The
text that is made of the notes does that again. Views are made where a function of torch asks for them; kernels get
addresses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx

from noyau.torch_modules.device_inplace import changed, update_in_place
from noyau.torch_modules.device_kernels import DeviceCall
from noyau.torch_modules.device_replaying import Replaying, is_repeatable, is_small
from noyau.torch_modules.device_simplifying import join_updates
from noyau.torch_modules.device_text import Text
from noyau.torch_modules.running import Boxed, copied, eager, is_static, told_as


def flat(module: fx.GraphModule, inputs: Sequence[Any], replays: bool = True) -> Boxed:
    """A graph as a function of a list of tensors, which it empties. Where sizes are names, node by node. `replays`:
    whether its launches are recorded once they are known, and given to the GPU again as one. The function raises
    torch.OutOfMemoryError, and DeviceError where the device's context is lost."""
    update_in_place(module.graph)
    join_updates(module.graph)
    made = Flat(module, replays) if is_static(module.graph) else eager(module, inputs)

    run = told_as("a compiled graph", made)
    run.flat = made  # type: ignore[attr-defined]
    return run


class Flat:
    """A graph whose sizes are numbers. `known` is the function that the first call on a GPU made; `slowly` does the
    same node by node, for arguments that lie otherwise than those did."""

    def __init__(self, module: fx.GraphModule, replays: bool = True) -> None:
        self.module: fx.GraphModule | None = module  # until it is known
        self.replays = replays and is_repeatable(module.graph)
        self.slowly = eager(fx.GraphModule(module, copied(module.graph)), [])
        self.known: Callable[[list[Any]], Any] | None = None
        self.text = ""

    def __call__(self, arguments: list[Any]) -> Any:
        return self.first(arguments) if self.known is None else self.known(arguments)

    def first(self, arguments: list[Any]) -> Any:
        """A call that is noted."""
        module = self.module
        if module is None:  # another thread was first
            return self.slowly(arguments)
        given = list(arguments)
        arguments.clear()
        noting = Noting(module, given)
        results = noting.run(*given)
        self.text = noting.text.finished()
        known = noting.text.function(self.slowly)
        self.known = Replaying(known, given, changed(module.graph)) if self.replays and is_small(results) else known
        self.module = None
        return results


class Noting(fx.Interpreter):  # type: ignore[misc]  # torch's class has no types
    """The nodes of a graph one by one, each noted in a text."""

    def __init__(self, module: fx.GraphModule, given: Sequence[Any]) -> None:
        super().__init__(module)
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        self.text = Text(names, given)
        self.now: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """A node, noted by how it is run."""
        self.now = n
        made = super().run_node(n)
        match n.op:
            case "get_attr":
                self.text.constant(n, made)
            case "call_function":
                self.note(n, made)
            case "output":
                self.text.returned(n.args[0])
            case _:
                pass
        return made

    def note(self, node: fx.Node, made: Any) -> None:
        """A call of a function."""
        target, text = node.target, self.text
        if isinstance(target, DeviceCall):
            tensors = target.in_memory([self.env_of(each) for each in node.args])
            plan = target.launcher.known(tensors)
            if plan is not None and text.launched(node, plan, made):
                return
        elif target is operator.getitem:
            text.picked(node, made)
            return
        elif self.is_view(node, made):
            text.view(node, self.env_of(node.args[0]), made)
            return
        text.called(node, made)

    def is_view(self, node: fx.Node, made: Any) -> bool:
        """Whether a node shows the memory of its first argument, in the same dtype."""
        base = self.env_of(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        if not isinstance(made, Tensor) or not isinstance(base, Tensor) or base.dtype is not made.dtype:
            return False
        changes = getattr(getattr(node.target, "_schema", None), "is_mutable", True)
        if base.is_neg() is not made.is_neg():
            return False
        same = base.numel() and base.untyped_storage().data_ptr() == made.untyped_storage().data_ptr()
        return bool(same) and not changes

    def env_of(self, node: Any) -> Any:
        return self.env[node] if isinstance(node, fx.Node) else node
