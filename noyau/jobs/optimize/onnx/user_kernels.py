"""User kernels in a model: the op of a file, its kernel in C, and the places that it takes.

A user kernel goes into every place that computes the same as its path; each place is matched backwards from its result.
It is first tried in a process of its own: it may crash, hang, or write out of bounds."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import onnx

from noyau.codegen.language import LANGUAGES
from noyau.codegen.plan import PlannedKernel
from noyau.compiler.lowering.names import identifier
from noyau.compiler.partition.cut import Group
from noyau.compiler.partition.def_use import DefUse
from noyau.compiler.passes.rewrite import nameless
from noyau.dtypes import DType
from noyau.errors import BuildError, InputError, NoyauError, UnsupportedError
from noyau.hosts.onnxruntime.activations import Activations
from noyau.hosts.onnxruntime.path_ends import Ends
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.hosts.onnxruntime.subgraph import Path, path_between
from noyau.ir.graph import Graph
from noyau.ir.loops import Buffer, Kernel, Launch, Role
from noyau.ir.sizes import plan
from noyau.jobs.extract.run import path_graph, wires_of
from noyau.jobs.optimize.onnx.candidates import activation_cases
from noyau.jobs.optimize.pipeline import Candidate
from noyau.kernels.c.syntax import functions_of
from noyau.kernels.c.text import c_source, require_plain_build
from noyau.kernels.certificates import call_guarded, pack
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.higher_order.scalar_trace import reorder_inputs
from noyau.ops.op import Op
from noyau.ops.op_files import load_op
from noyau.signatures.types import Instance
from noyau.text import collect, printable
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import cases
from noyau.workers.worker import Worker

WHERE = "BETWEEN"  # the name of the ends of a path in an op's file


def ends_of_op(op: Op[Any, Any]) -> tuple[Sequence[str], Sequence[str]]:
    """The ends of the path that an op was extracted from. InputError if its file does not name them."""
    match op.reference.__globals__.get(WHERE):
        case ((tuple() | list()) as sources, (tuple() | list()) as results):
            if all(isinstance(name, str) for name in (*sources, *results)):
                return sources, results
        case _:
            pass
    raise InputError(f'{op.name} does not say where it lies in the model: its file needs {WHERE} = (["A"], ["C"])')


def kernel_of(op: Op[Any, Any]) -> UserKernel:
    """The last attached kernel in C. InputError if there is none, or if a model cannot have it."""
    if not (kernels := [kernel for kernel in op.kernels.values() if LANGUAGES[kernel.language].is_native]):
        names = ", ".join(f"{kernel.name}[{kernel.language}]" for kernel in op.kernels.values()) or "none"
        remedy = f'{op.name}.kernel("{op.name}.c") attaches one'
        raise InputError(f"{op.name} has no kernel in C (its kernels: {names}): {remedy}")
    require_plain_build(kernels[-1])
    return kernels[-1]


def instance_of(op: Op[Any, Any], graph: Graph) -> Instance:
    """The op at the dtypes and ranks of its path. InputError if its inputs or outputs differ from the path's."""
    try:
        instance = op.instance([node.dtype for node in graph.inputs], [len(node.shape) for node in graph.inputs])
    except NoyauError as error:
        reads = ", ".join(f"{printable(node.output)}: {_spell(node.dtype, len(node.shape))}" for node in graph.inputs)
        raise InputError(f"{op.name} does not fit its path, which reads {reads}: {error}") from error
    ends = instance.outputs, [graph[name] for name in graph.outputs]
    gives, makes = (", ".join(_spell(each.dtype, len(each.shape)) for each in values) for values in ends)
    if gives != makes:
        raise InputError(f"{op.name} does not fit its path: it gives {gives}, and the path makes {makes}")
    return instance


def _spell(dtype: DType, rank: int) -> str:
    return f"{dtype.value} of rank {rank}"


PATIENCE_S = 20.0  # the timeout of one call
Occurrence = tuple[Path, Graph]  # a path and its graph, whose inputs are in the order of an op's arguments


def user_kernels_of(original: SourceModel, ops: Sequence[str | Op[Any, Any]], target: str) -> list[PlannedKernel]:
    """A kernel for each op, in the place that its file names and in every other that computes the same.

    An op is given as "path.py::op" or as an object; of several kernels in C, the last attached is taken. InputError for
    an op without a kernel in C or without a place, an op that does not fit its path, and two ops that want one
    operator."""
    kernels, taken = list[PlannedKernel](), dict[int, str]()
    for op_or_path in ops:
        op = load_op(op_or_path) if isinstance(op_or_path, str) else op_or_path
        kernel = _plan(original, op, target)
        for group in kernel.groups:
            for position in group.positions:
                if position in taken:
                    message = f"{original.operators[position]}#{position}"
                    raise InputError(f"{op.name} and {taken[position]} both want to replace {message}: leave one out")
                taken[position] = op.name
        kernels.append(kernel)
    _require_linked(kernels, target)
    return kernels


def _require_linked(kernels: Sequence[PlannedKernel], target: str) -> None:
    """InputError if kernels that build alone do not link into one library: two define a function of one name."""
    options, together = c_compiler.CompilerOptions(target=target, export=True), list[PlannedKernel]()
    for kernel in kernels if len(kernels) > 1 else ():
        try:
            c_compiler.compile_library([kernel.text], options)
        except BuildError:  # reported later with the kernel's other faults
            continue
        try:
            c_compiler.compile_library([each.text for each in (*together, kernel)], options)
        except BuildError as error:
            others = {name for each in together for name in functions_of(each.text)}
            shared = [name for name in functions_of(kernel.text) if name in others and not name.startswith("noyau")]
            message = f"another op defines {', '.join(shared)} too" if shared else str(error)
            fault = f"{kernel.operator} does not go into one library with the others: {message}"
            raise InputError(f"{fault}; make its functions static, or call them otherwise") from error
        together.append(kernel)


def _plan(original: SourceModel, op: Op[Any, Any], target: str) -> PlannedKernel:
    places, kernel = places_of(original, path_between(original, ends_of_op(op))), kernel_of(op)
    graph = places[0][1]
    instance = instance_of(op, graph)
    digest = hashlib.sha256(f"{target}\n{c_source(kernel, instance, 'kernel')}".encode()).hexdigest()[:8]
    operator = f"{identifier(op.name)}_{digest}"
    text = c_source(kernel, instance, operator)
    wires = wires_of(original)
    groups = tuple(_group(wires, place, operator) for place in places)
    replaces = tuple(original.operators[position] for position in groups[0].positions)
    return PlannedKernel(operator, groups[0].kernel, graph, groups, replaces, text, by_hand=True)


def _group(wires: DefUse, place: Occurrence, operator: str) -> Group:
    """A place as a group: runtimes see the buffers of its kernel, in the model's sizes."""
    path, graph = place
    inputs = tuple(node.output for node in graph.inputs)
    roles = {**dict.fromkeys(inputs, Role.INPUT), **dict.fromkeys(graph.outputs, Role.OUTPUT)}
    ends = [(graph[name], role) for name, role in roles.items()]
    buffers = tuple(Buffer(identifier(n.output), n.dtype, n.shape, role, n.output) for n, role in ends)
    kernel = Kernel(operator, buffers, plan([graph[name].shape for name in inputs]), (Launch(()),))
    stand_ins: Mapping[str, str] = {}  # for values of which other operators read the shape alone: results of that shape
    with contextlib.suppress(UnsupportedError):
        stand_ins = wires.ends(path.positions)[1]
    stand_ins = {name: other for name, other in stand_ins.items() if other in path.ends.results}
    return Group(tuple(sorted(path.positions)), graph, graph, stand_ins, by_hand=kernel)


def try_isolated(candidate: Candidate, flow: Activations, options: c_compiler.CompilerOptions, seed: int) -> Candidate:
    """The candidate; with the reason if its kernel crashes, hangs, or touches memory out of bounds on one of the inputs
    of its certificate. Generated kernels are not tried."""
    if candidate.reason or not candidate.planned.by_hand:
        return candidate
    planned = candidate.planned
    library = c_compiler.compile_library([planned.text], options)
    with Worker(planned.operator, PATIENCE_S) as worker:
        graph = planned.groups[0].original
        made_up = cases(graph, flow.sizes_of(graph), np.random.default_rng(seed))
        for case in chain(activation_cases(planned, flow)[0], made_up):
            try:
                worker.ask(call_guarded, library, f"{planned.operator}_kernel", pack(case.inputs))
            except InputError:  # the certificate decides whether it must refuse these inputs
                continue
            except NoyauError as fault:
                return replace(candidate, reason=f"{fault} ({case.label})")
    return candidate


def places_of(original: SourceModel, path: Path) -> list[Occurrence]:
    """The path itself, then every other place of the model that computes the same, in the model's order.

    Places do not overlap: of two that would, the earlier is taken."""
    wires = wires_of(original)
    first = reorder_inputs(path_graph(wires, path), path.ends.sources)
    places, taken = [(path, first)], set(path.positions)
    for ends in _candidates(original, path):
        try:
            other = path_between(original, ends)
            graph = reorder_inputs(path_graph(wires, other), ends.sources)
        except NoyauError:
            continue
        if taken.isdisjoint(other.positions) and nameless(graph) == nameless(first):
            places.append((other, graph))
            taken |= other.positions
    return places


def _candidates(original: SourceModel, path: Path) -> Iterator[Ends]:
    """Yield the ends of each place whose operators are connected as those of the path."""
    walk = _PathWalk(original, path)
    result = max(path.ends.results, key=lambda name: walk.makers[name])
    last = walk.nodes[walk.makers[result]]
    at = list(last.output).index(result)
    for position, node in enumerate(walk.nodes):
        is_like = position != walk.makers[result] and node.op_type == last.op_type and len(node.output) > at
        if is_like and (ends := walk.ends(result, node.output[at])) is not None:
            yield ends


class _PathWalk:
    """A path matched against another place: a mapping from the values of the path to those of the place."""

    def __init__(self, original: SourceModel, path: Path) -> None:
        self.path, self.nodes = path, original.model.graph.node
        self.makers = {name: at for at, node in enumerate(self.nodes) for name in node.output if name}
        self.readers = collect((name, node) for node in self.nodes for name in node.input)

    def ends(self, result: str, other: str) -> Ends | None:
        """The ends of the place in which `other` corresponds to `result`; None if its operators differ."""
        if (known := self.backwards({result: other})) is None:
            return None
        for position in sorted(self.path.positions):
            self.forwards(self.nodes[position], known)
        names = (self.path.ends.sources, self.path.ends.results)
        if not all(known.get(name) for each in names for name in each):
            return None
        sources, results = (tuple(known[name] for name in each) for each in names)
        return Ends(sources, results)

    def backwards(self, mapping: dict[str, str]) -> dict[str, str] | None:
        """Extend a mapping by the operands of its values' operators, up to the sources; None if operators differ."""
        waiting, done = list(mapping), set[str]()
        while waiting:
            name = waiting.pop()
            if name in done or name in self.path.ends.sources or self.makers.get(name) not in self.path.positions:
                continue
            done.add(name)
            if mapping[name] not in self.makers:
                return None
            one, other = self.nodes[self.makers[name]], self.nodes[self.makers[mapping[name]]]
            if not _alike(one, other):
                return None
            pairs = chain(zip(one.input, other.input, strict=True), zip(one.output, other.output, strict=False))
            for left, right in pairs:
                mapping.setdefault(left, right)
            waiting += [left for left in one.input if left]
        return mapping

    def forwards(self, one: onnx.NodeProto, mapping: dict[str, str]) -> None:
        """Map the outputs of an operator of the path that `backwards` did not reach, by its operands."""
        if all(name in mapping for name in one.output if name):
            return
        read = [mapping[name] for name in one.input if name in mapping]
        for other in self.readers.get(read[0], ()) if read else ():
            pairs = [*zip(one.input, other.input, strict=False), *zip(one.output, other.output, strict=False)]
            if _alike(one, other) and all(mapping.get(a, b) == b for a, b in pairs[: len(one.input)]):
                mapping.update(pairs)
                return


def _alike(one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    return (one.op_type, one.domain, len(one.input)) == (other.op_type, other.domain, len(other.input))
