"""A kernel of language `cuda` as a function of tensors, on the current stream of their device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from noyau.codegen.cuda.printer import block_of
from noyau.errors import BuildError
from noyau.hosts.torch.cuda.device import device_of
from noyau.hosts.torch.cuda.launch import MOST_PLANS
from noyau.hosts.torch.cuda.launch_records import Allocation, allocate, allocations_of
from noyau.hosts.torch.tensors import layout_array
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Kernel, Role, runs
from noyau.ir.walk import extent_of
from noyau.toolchain.cuda import compiler

MOST_BLOCKS = 2**31 - 1  # of a grid


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The plan of a call for inputs of one layout: outputs and scratch, sizes, launches with their grids."""

    memory: Sequence[Allocation]
    sizes: tuple[np.int64, ...]
    launches: tuple[compiler.Launch, ...]


class CudaKernel:
    """The launches of a kernel of a text. A call returns new tensors; InputError where tensors do not fit, BuildError
    where the text does not compile."""

    def __init__(self, text: str, kernel: Kernel) -> None:
        self.text, self.kernel = text, kernel
        self.plans: dict[Any, LaunchPlan] = {}
        self.outputs, self.scratch = kernel.of(Role.OUTPUT), kernel.of(Role.SCRATCH)

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        device = device_of(tensors)
        key = (device, *((each.dtype, each.shape, each.stride()) for each in tensors))
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plan(tensors, device)
            self.plans = {**(self.plans if len(self.plans) < MOST_PLANS else {}), key: plan}
        memory = allocate(plan.memory, device)
        pointers = [each.data_ptr() for each in (*tensors, *memory)]
        stream = torch.cuda.current_stream(device).cuda_stream
        for launch in plan.launches:
            launch(stream, (*pointers, *plan.sizes))
        return memory[0] if len(self.outputs) == 1 else tuple(memory[: len(self.outputs)])

    def plan(self, tensors: Sequence[torch.Tensor], device: torch.device) -> LaunchPlan:
        """The plan for such tensors, the kernels compiled for their device."""
        sizes = bind_sizes(self.kernel, [layout_array(each) for each in tensors], {})
        major, minor = torch.cuda.get_device_capability(device)
        code = compiler.load(self.text, f"sm_{major}{minor}")
        launches = []
        for at, launch in enumerate(self.kernel.launches):
            items = int(extent_of(launch).evaluate(sizes))
            if items > 0 and (launch.when is None or runs(launch.when, sizes)):
                block, name = block_of(launch), f"{self.kernel.name}_{at}"
                if block.blocks > 1 and major < 9:
                    lacks = f"which sm_{major}{minor} has not; sm_90 has them"
                    raise BuildError(f"{name} runs on clusters of blocks, {lacks}")
                blocks = min(-(-items // block.rows), MOST_BLOCKS // block.blocks) * block.blocks
                launches.append(compiler.Launch(code.get_kernel(name), blocks, (block.threads, block.rows)))
        numbers = tuple(np.int64(sizes[binding.size]) for binding in self.kernel.binding)
        return LaunchPlan(allocations_of((*self.outputs, *self.scratch), sizes), numbers, tuple(launches))
