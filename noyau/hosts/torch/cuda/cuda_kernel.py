"""A kernel of language `cuda` as a function of tensors, on the current stream of their device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from noyau.codegen.cuda.printer import block_of
from noyau.errors import BuildError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.cuda.device import device_of
from noyau.hosts.torch.cuda.launch_records import TAPE
from noyau.hosts.torch.tensors import layout_array
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Kernel, Role, runs
from noyau.ir.walk import extent_of
from noyau.toolchain.cuda import compiler

MOST_BLOCKS = 2**31 - 1  # of a grid


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The plan of a call for inputs that lie so: shapes of outputs and scratch, sizes, launches with their grids."""

    outputs: tuple[tuple[int, ...], ...]
    scratch: tuple[tuple[int, ...], ...]
    sizes: tuple[np.int64, ...]
    launches: tuple[compiler.Launch, ...]


class CudaKernel:
    """The launches of a kernel of a text. A call gives new tensors; InputError where tensors do not fit, BuildError
    where the text does not compile."""

    def __init__(self, text: str, kernel: Kernel) -> None:
        self.text, self.kernel = text, kernel
        self.plans: dict[Any, LaunchPlan] = {}
        self.dtypes = {role: [TO_TORCH[buffer.dtype] for buffer in kernel.of(role)] for role in Role}

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        device = device_of(tensors)
        key = (device, *((each.dtype, each.shape, each.stride()) for each in tensors))
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = self.plan(tensors, device)
        outputs = self.empty(Role.OUTPUT, plan.outputs, device)
        scratch = self.empty(Role.SCRATCH, plan.scratch, device)
        pointers = [each.data_ptr() for each in (*tensors, *outputs, *scratch)]
        stream = torch.cuda.current_stream(device).cuda_stream
        for launch in plan.launches:
            launch(stream, (*pointers, *plan.sizes))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def plan(self, tensors: Sequence[torch.Tensor], device: torch.device) -> LaunchPlan:
        """The plan for such tensors, the kernels compiled for their device."""
        sizes = bind_sizes(self.kernel, [layout_array(each) for each in tensors], {})
        outputs, scratch = (
            tuple(tuple(int(dim.evaluate(sizes)) for dim in buffer.shape) for buffer in self.kernel.of(role))
            for role in (Role.OUTPUT, Role.SCRATCH)
        )
        major, minor = torch.cuda.get_device_capability(device)
        code = compiler.load(self.text, f"sm_{major}{minor}")
        launches = []
        for at, launch in enumerate(self.kernel.launches):
            items = int(extent_of(launch).evaluate(sizes))
            if items > 0 and (launch.when is None or runs(launch.when, sizes)):
                block, name = block_of(launch), f"{self.kernel.name}_{at}"
                if block.blocks > 1 and major < 9:
                    raise BuildError(
                        f"{name} runs on clusters of blocks, which sm_{major}{minor} has not; sm_90 has them"
                    )
                blocks = min(-(-items // block.rows), MOST_BLOCKS // block.blocks) * block.blocks
                launches.append(compiler.Launch(code, name, blocks, (block.threads, block.rows)))
        numbers = tuple(np.int64(sizes[binding.size]) for binding in self.kernel.binding)
        return LaunchPlan(outputs, scratch, numbers, tuple(launches))

    def empty(self, role: Role, shapes: Sequence[tuple[int, ...]], device: torch.device) -> list[torch.Tensor]:
        """New tensors for buffers."""
        pairs = zip(shapes, self.dtypes[role], strict=True)
        return [TAPE.empty(shape, dtype=dtype, device=device) for shape, dtype in pairs]
