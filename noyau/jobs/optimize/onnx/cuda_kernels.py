"""Kernels of a model for onnxruntime's CUDA provider: the architectures to build for, and certificates."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from noyau.codegen.plan import GridTwin
from noyau.errors import InputError, MissingExtraError, UnsupportedError
from noyau.ir import loop_interpreter
from noyau.ir.graph import Constant, Input
from noyau.ir.loops import Kernel
from noyau.kernels.certificates import CertificateTask, OriginalInputs, certificate_key, recall_certificate
from noyau.text import printable
from noyau.toolchain.guard_zones import Order
from noyau.verify.adversarial import Effort, cases
from noyau.verify.awkward_sizes import cells
from noyau.verify.certificate import Certificate
from noyau.verify.failures import Case
from noyau.verify.trial import GuardedKernel, certify_native

USUAL = "sm_90"  # without a GPU here or an architecture in `--target`
INTERPRETED = Effort(2, most=6, total=1 << 11)  # each cell is a step of Python
FEW, MOST_CELLS = 5, 1 << 16  # for the interpreter: the largest size of a case, and the most cells of a computed value
NOTE = "checked without a GPU: its launches by noyau's interpreter, on small inputs"


def split_target(target: str) -> tuple[str, tuple[str, ...]]:
    """The level of the CPU and the architectures of GPUs in `--target x86-64-v3,sm_80,sm_90`: "native" and () if
    absent. InputError for a word that is neither."""
    words = target.split(",")
    named = sorted({word for word in words if word.startswith("sm_")}, key=lambda word: (len(word), word))
    levels = [word for word in words if word not in named] or ["native"]
    if wrong := [word for word in named if not re.fullmatch(r"sm_[1-9]\d{1,2}", word)] + levels[1:]:
        raise InputError(f"--target has {printable(wrong[0])}: it takes a level of a CPU, and architectures like sm_90")
    return levels[0], tuple(named)


def with_ptx(named: Sequence[str]) -> tuple[str, ...]:
    """The architectures to build for: `named`, or that of the GPU here; and PTX of the newest, for newer GPUs."""
    names = tuple(named) or (USUAL if missing_gpu() else _own_architecture(),)
    return (*names, names[-1].replace("sm_", "compute_"))


def missing_gpu() -> str:
    """Why no kernel can be launched here, or an empty text."""
    try:
        from noyau.hosts.torch.cuda.device import absence

        return absence()
    except MissingExtraError as error:
        return str(error)


def _own_architecture() -> str:
    import torch

    return "sm_{}{}".format(*torch.cuda.get_device_capability())


@dataclass(frozen=True, slots=True)
class InterpretedKernel:
    """A scheduled kernel, run by the interpreter of the loop IR, its threads shuffled; `pieces` is the seed."""

    kernel: Kernel

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        """The outputs. GraphError if threads race, or a cell stays unwritten."""
        return loop_interpreter.run(self.kernel, arrays, seed=pieces)


def twin_certificate(task: CertificateTask, twin: GridTwin) -> tuple[Certificate, str]:
    """The certificate of a kernel's twin on the cases of its `task`: on the GPU here, or without a GPU by the
    interpreter on fewer cases; and a note in the latter case."""
    lacks, name = missing_gpu(), f"{task.operator}[cuda]"
    where, captured = ("interpreted", ()) if lacks else (_own_architecture(), task.captured)
    key = certificate_key(f"{twin.text} {where} {task.key}", task.original, captured, task.made_up, task.seed)

    def judged() -> Certificate:
        draws = np.random.default_rng(task.seed)
        tried = _small_cases(task, draws, lacks) if lacks else cases(task.original, task.sizes, draws)
        kernel = InterpretedKernel(twin.kernel) if lacks else _device_kernel(twin)
        own = OriginalInputs(kernel, task.original, task.graph)
        tried = [*captured, *tried]
        return certify_native(task.original, own, tried, name=name, made_up=task.made_up, refuses=bool(lacks))

    return recall_certificate(key, name, judged), NOTE if lacks else ""


def _small_cases(task: CertificateTask, draws: np.random.Generator, lacks: str) -> list[Case]:
    """Cases for the interpreter. UnsupportedError if none is small enough."""
    graph, sizes = task.original, {name: min(size, FEW) for name, size in task.sizes.items()}
    computed = replace(graph, nodes=tuple(node for node in graph.nodes if not isinstance(node.kind, Input | Constant)))

    def is_small(case: Case) -> bool:
        return cells(computed, graph.bind([array.shape for array in case.inputs])) <= MOST_CELLS

    if not (small := list(filter(is_small, cases(graph, sizes, draws, INTERPRETED)))):
        raise UnsupportedError(f"its rows are too long for noyau's interpreter, and {lacks}")
    return small


def _device_kernel(twin: GridTwin) -> GuardedKernel:
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel
    from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel

    return DeviceKernel(twin.text, twin.kernel, "cuda", function=CudaKernel(twin.text, twin.kernel))
