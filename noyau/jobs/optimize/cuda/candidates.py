"""Kernels in Triton for the groups of torch's graphs on a GPU, specialised to the memory layout of their inputs.

Scalars of a group (eps, scales) are literals in the text, for on a GPU each would be read from memory. Launches are
compiled beside this process, before a kernel is first called."""

import contextlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import Any, TypeAlias

import torch

from noyau.codegen.plan import Plan, PlannedKernel, plan_by, title
from noyau.codegen.triton import printer as triton_printer
from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order, laid_out, strided_names
from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.cut import Group, scalars_of
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.errors import GraphError, UnsupportedError
from noyau.frontends.torch.tensors import size_hint
from noyau.hosts.torch.cuda.device import guard
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.groups import order_of
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.ir.graph import Constant, Graph
from noyau.ir.loops import Kernel
from noyau.jobs.optimize.torch.candidates import input_names
from noyau.toolchain.cache import digest
from noyau.toolchain.triton.parallel_compile import COMPILER

Tensor: TypeAlias = torch.Tensor
_LETTERS = 12  # letters of the digest in a kernel's name
CALLS: dict[str, DeviceCall] = {}
BEGUN: dict[str, list[Event]] = {}  # by the name of a kernel: events that are set when its launches are compiled
_TAKING = Lock()  # while one thread takes the events of a kernel to wait for them


@dataclass(slots=True)
class DeviceShelf:
    """The kernels of this process, by their graphs and the layouts of their inputs: each is generated once."""

    kernels: dict[tuple[Graph, tuple[Layout, ...]], tuple[Kernel, str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def kernel(self, group: Group, layouts: tuple[Layout, ...]) -> tuple[Kernel, str]:
        """The kernel of a group and its text. UnsupportedError if the language cannot spell it."""
        graph = with_numbers(group)
        key = nameless(graph), layouts
        with self.lock:
            if key not in self.kernels:
                blank = f"{title(graph)}_{'0' * _LETTERS}"  # of the name's length, so that no line of the text moves
                kernel = replace(device_kernel(graph, layouts), name=blank)
                text = triton_printer.together([kernel])
                name = f"{title(graph)}_{digest(text)[:_LETTERS]}"
                self.kernels[key] = replace(kernel, name=name), text.replace(blank, name)
            return self.kernels[key]


SHELF = DeviceShelf()


def device_kernel(graph: Graph, layouts: Sequence[Layout]) -> Kernel:
    """The kernel of a graph in normal form for inputs in some layouts; each launch waits itself for the one before."""
    memory = laid_out(graph, layouts)
    kernel = on_gpu(lower(memory, "kernel", strided_names(memory, layouts)))
    launches = (replace(each, hints=replace(each.hints, waits=True)) for each in kernel.launches)
    return replace(kernel, launches=tuple(launches))


def with_numbers(group: Group) -> Graph:
    """The graph in normal form, with the scalars that were lifted out of it as constants again."""
    known = {name: Constant(number) for name, number in scalars_of(group).items()}
    nodes = tuple(replace(node, kind=known.get(node.output, node.kind)) for node in group.graph.nodes)
    return replace(group.graph, nodes=nodes)


def plan(groups: Iterable[Group], source: TracedGraph) -> Plan:
    """One kernel for each set of equal groups with equal layouts of inputs, and the groups that cannot be spelt."""

    def spell(group: Group) -> tuple[Kernel, str]:
        try:
            return SHELF.kernel(group, layouts_of(group, source))
        except GraphError as error:
            raise UnsupportedError(str(error)) from error

    return plan_by(groups, source.operators, spell, "triton", with_numbers)


def layouts_of(group: Group, source: TracedGraph) -> tuple[Layout, ...]:
    return tuple(layout_of(source.givers[name].meta["val"]) for name in input_names(group))


def layout_of(fake: Tensor) -> Layout:
    """The layout of a tensor, as kernels distinguish layouts."""
    if fake.is_contiguous():
        return PACKED
    try:
        order = order_of(fake)
    except UnsupportedError:
        return INNER if fake.stride(-1) == 1 else STRIDED
    return PACKED if order is None else Layout(Order.PERMUTED, tuple(order))


def call_of(kernel: PlannedKernel, source: TracedGraph) -> DeviceCall:
    """A kernel as a function of the tensors that its group reads, one per process."""
    if kernel.operator in CALLS:
        return CALLS[kernel.operator]
    call = DeviceCall(kernel.text, kernel.kernel, layouts_of(kernel.groups[0], source), waits=True)
    return CALLS.setdefault(kernel.operator, call)


def first_launches(kernel: PlannedKernel, source: TracedGraph, device: torch.device) -> list[Any]:
    """The launches of a kernel for tensors of the shapes and strides of its first place; no cell is read."""
    from noyau.hosts.torch.cuda.launch_records import foretell

    fakes = [source.givers[name].meta["val"] for name in input_names(kernel.groups[0])]
    forms = [(tuple(map(size_hint, fake.shape)), tuple(map(size_hint, fake.stride())), fake.dtype) for fake in fakes]
    tensors = [torch.empty_strided(*lies, dtype=dtype, device=device) for *lies, dtype in forms]
    call = call_of(kernel, source)
    return foretell(call.launcher.function, call.in_memory(tensors))


def begin(kernels: Sequence[PlannedKernel], source: TracedGraph, device: torch.device) -> None:
    """Begin to compile the launches of kernels that were not begun before."""
    for kernel in kernels if device.type == "cuda" else ():
        events = list[Event]()
        if BEGUN.setdefault(kernel.operator, events) is events:
            with contextlib.suppress(Exception), guard(device):  # the call compiles again and reports an error
                events += filter(None, [COMPILER.begin(*each) for each in first_launches(kernel, source, device)])


def wait(kernel: PlannedKernel) -> None:
    """Wait, once, until a kernel's launches are compiled or given up."""
    with _TAKING:
        events = BEGUN.get(kernel.operator, [])
        taken, events[:] = events[:], []
    COMPILER.wait(taken)
