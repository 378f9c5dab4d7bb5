"""Kernels of language triton as functions of tensors that lie on a GPU."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from noyau.compiler.lowering.input_layouts import Layout
from noyau.ir.loops import Kernel


class DeviceCall:
    """A kernel as a function of GPU tensors in its layouts, which returns a new tensor, or a tuple of several. `waits`:
    whether it waits for the launch before it by itself; `loads`: whether it loads operands, as weights, before that.

    Errors are those of noyau.hosts.torch.cuda.launch.Launcher."""

    def __init__(self, text: str, kernel: Kernel, layouts: Sequence[Layout], waits: bool = False) -> None:
        from noyau.hosts.torch.cuda.launch import Launcher

        self.waits, self.loads = waits, False
        self.__name__ = self.__qualname__ = self.name = kernel.name
        self.launcher = Launcher(text, kernel, kernel.name, {})
        self.axes = tuple(layout.axes for layout in layouts)
        self.turns = any(self.axes)

    def __call__(self, *tensors: Tensor) -> Any:
        result = self.launcher(self.in_memory(tensors))
        return result if len(result) > 1 else result[0]

    def in_memory(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The tensors in the form that the kernel takes: their axes in the order of memory."""
        if not self.turns:
            return tensors
        return [tensor.permute(axes) if axes else tensor for tensor, axes in zip(tensors, self.axes, strict=True)]
