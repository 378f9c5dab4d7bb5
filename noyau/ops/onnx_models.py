"""Ops as ONNX models: with the library plain onnxruntime runs their kernels, else the operators of their bodies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.codegen.c import printer as c_printer
from noyau.codegen.language import GENERATIONS, LANGUAGES
from noyau.codegen.onnx.emitter import NodeWriter
from noyau.codegen.onnx.printer import spell
from noyau.codegen.plan import digest
from noyau.compiler.lowering.names import identifier
from noyau.dtypes import DType
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.frontends.onnx import onnx
from noyau.hosts.onnxruntime.function_bodies import FusedNode, domain_of, is_own
from noyau.hosts.onnxruntime.model_files import save, sign
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import require_opening
from noyau.hosts.onnxruntime.write_back import cached_library, value_info, value_type, write_back
from noyau.ir.graph import Constant, Graph
from noyau.kernels.c.text import c_source, require_plain_build
from noyau.kernels.certificates import CertificateTask, judge
from noyau.kernels.programs.generate import Specialization, trace_reference
from noyau.kernels.programs.program import KernelStep, program
from noyau.kernels.reference import Description
from noyau.kernels.trust import ineligible
from noyau.kernels.user_kernel import UserKernel
from noyau.signatures.instances import USUAL_DTYPES, instance_of, sizing_integers
from noyau.signatures.types import ELEMENTS, Family, Instance, Signature
from noyau.text import TextRecord, path_of
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.certificate import Certificate

if TYPE_CHECKING:
    from noyau.ops.op import Op

OLDEST, USUAL = 18, 18  # opsets: reductions take their axes as inputs from 18 on
Numbers = Mapping[str, int]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, repr=False)
class OnnxOp(TextRecord):
    """An op as a model. `texts`: the source of each of its kernels, by the operator's name; `certificates`: of the
    values of its generated kernels; `library`: None if it has no kernels."""

    name: str
    model: onnx.ModelProto
    library: Path | None = None
    texts: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    certificates: tuple[Certificate, ...] = ()

    def __str__(self) -> str:
        ways = [f"  with the kernel {name} for onnxruntime" for name in self.texts]
        opset = next(each.version for each in self.model.opset_import if not each.domain)
        known = [f"    {each.summary()}" for each in self.certificates]
        return "\n".join([f"{self.name}: a model of opset {opset}", *ways, *known])

    def save(self, path: str | Path) -> None:
        """Write OUT.onnx, and OUT.so beside it if there are kernels; OutputError where that is impossible."""
        save(self.model, self.library, path_of(path, "save() takes"), trial=require_opening)

    def session(self, *, threads: int = 0, kernels: bool = True) -> Any:
        """An onnxruntime session of the model; without `kernels`, one that runs the operators of its body."""
        return open_session(self.model.SerializeToString(), self.library if kernels else None, threads=threads)


@dataclass(frozen=True, slots=True)
class ModelKernel:
    """A kernel for some nodes of the model under construction; and the graphs for its certificate, if generated."""

    fused: FusedNode
    text: str
    original: Graph | None = None
    graph: Graph | None = None


def to_onnx(
    op: Op[Any, Any],
    path: str | Path | None = None,
    *,
    dtypes: Mapping[str, str] = _NOTHING,
    dims: Numbers = _NOTHING,
    axes: Numbers = _NOTHING,
    constants: Mapping[str, Any] = _NOTHING,
    opset: int = USUAL,
    kernel: str | None = "c",
    target: str = "native",
) -> OnnxOp:
    """An op as a model of an opset, with the op's inputs and results; written to `path` if given.

    `dtypes`: of families, {"float": "f16"} (else f32 and i64); `dims`: sizes that are numbers in the model, the others
    stay symbolic; `axes`: the number of axes of each `*batch` (else 1); `constants`: the keyword-only parameters;
    `kernel`: "c" for generated kernels, or the name of an attached kernel in C that was checked or is trusted, or None
    for plain operators; `target`: the CPU level of the library.

    UnsupportedError where the reference cannot be traced, or names an operation without an ONNX operator;
    SignatureError for options that do not fit the op; InputError for a kernel that may not run; CheckError for a
    generated one that is wrong; BuildError without a compiler; MissingExtraError without onnx or onnxruntime."""
    description = op.description
    wanted = _specialize(op, dtypes, dims, axes, constants)
    if not OLDEST <= opset <= onnx.defs.onnx_opset_version():
        message = f"opsets {OLDEST} to {onnx.defs.onnx_opset_version()} are written"
        raise UnsupportedError(f"{op.name} does not become a model of opset {opset}: {message}")
    traced = trace_reference(description.reference, wanted)
    graph = replace(traced, nodes=tuple(node for node in traced.nodes if node.output not in wanted.integers))
    options = c_compiler.CompilerOptions(target=c_compiler.resolve_target(target), export=True)
    maker = _Maker(description, wanted, graph, options.target)
    kernels = maker.kernels(kernel)
    result = _finish_model(description, maker.model(opset), kernels, options)
    if path is not None:
        result.save(path)
    return result


def _specialize(
    op: Op[Any, Any], dtypes: Mapping[str, str], dims: Numbers, axes: Numbers, constants: Mapping[str, Any]
) -> Specialization:
    """The op's signature with dtypes, ranks and sizes settled. SignatureError for names that it does not have."""
    signature, description, name = op.require_signature(), op.description, op.name
    for what, names in {"dtypes": dtypes, "dims": dims, "axes": axes, "constants": constants}.items():
        if not isinstance(names, Mapping):
            raise SignatureError(f"{name}: {what}={names!r} names nothing; give a dict of names and values")
    own = dict(description.reference.constants)
    _require_known(constants, own, f"{name} has no constant")
    values = {**own, **constants}
    known = {**description.sizes, **{key: v for key, v in values.items() if key in signature.sizes}}
    rests = {term.rest.name for term in (*signature.inputs, *signature.outputs) if term.rest}
    sizes = [size for size in dict.fromkeys((*signature.sizes, *signature.integers)) if size not in rests]
    _require_known(dims, sizes, f"{name} has no size")
    for key, number in {**dims, **axes}.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise SignatureError(f"{name}: {key} is {number!r}, and it is a number from 0 on")
    # The integer parameters that determine a dim: numbers in the model, not inputs of it
    wanted = sizing_integers(signature)
    missing = next((each for each in wanted if each not in dims), None)
    if missing is not None:
        raise SignatureError(f"{name}: {missing} gives a size of a result; fix it: dims={{{missing!r}: 10}}")
    integers = {each: dims[each] for each in wanted}
    known |= {key: size for key, size in {**dims, **integers}.items() if key in signature.sizes}
    return Specialization(_instance(signature, dtypes, axes, known, name), values, integers)


def _instance(signature: Signature, dtypes: Mapping[str, str], axes: Numbers, known: Numbers, name: str) -> Instance:
    families = {term.element.value: term.element for term in signature.inputs if isinstance(term.element, Family)}
    rests = {term.rest.name: term.rest for term in signature.inputs if term.rest}
    _require_known(dtypes, families, f"{name} has no family")
    _require_known(axes, rests, f"{name} has no axes")
    chosen = {**USUAL_DTYPES, **{families[key]: _dtype(text, families[key]) for key, text in dtypes.items()}}
    elements = (term.element for term in signature.inputs)
    settled = tuple(chosen[each] if isinstance(each, Family) else each for each in elements)
    ranks = [len(term.fixed) + (axes.get(term.rest.name, 1) if term.rest else 0) for term in signature.inputs]
    return instance_of(signature, settled, tuple(ranks), tuple(sorted(known.items())))


def _dtype(text: str, family: Family) -> DType:
    dtype = ELEMENTS.get(text)
    if not isinstance(dtype, DType) or dtype not in family.members:
        names = ", ".join(member.value for member in family.members)
        raise SignatureError(f"dtypes= has {text!r} for {family.value}, which is one of {names}")
    return dtype


def _require_known(names: Mapping[str, Any], known: Mapping[str, Any] | Sequence[str], message: str) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise SignatureError(f"{message} {unknown!r}; there are: {', '.join(known) or 'none'}")


@dataclass
class _Maker:
    """Writer of the model's nodes."""

    description: Description
    wanted: Specialization
    graph: Graph
    target: str
    writer: NodeWriter = field(default_factory=NodeWriter)

    def __post_init__(self) -> None:
        ends = [node.output for node in self.graph.inputs] + list(self.graph.outputs)
        self.called = {name: name for name in ends}
        self.writer.taken.update(ends)

    @property
    def stem(self) -> str:
        return identifier(self.description.name)

    def model(self, opset: int) -> onnx.ModelProto:
        """The nodes as a model of plain operators."""
        graph = onnx.GraphProto(name=self.description.name)
        inputs = [value_info(graph, node.output, value_type(node)) for node in self.graph.inputs]
        outputs = [value_info(graph, name, value_type(self.graph[name])) for name in self.graph.outputs]
        graph = onnx.helper.make_graph(self.writer.nodes, graph.name, inputs, outputs, self.writer.initializers)
        opsets = [onnx.helper.make_opsetid("", opset)]
        oldest = max(8, onnx.helper.find_min_ir_version_for(opsets))  # 8 is the first IR version with functions
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=oldest, producer_name="noyau")

    def kernels(self, kernel: str | None) -> list[ModelKernel]:
        """Write the nodes and return their kernels."""
        if kernel is None:
            spell(self.graph, self.writer, self.called)
            return []
        hand = next((each for each in self.description.kernels if each.name == kernel), None)
        if hand is not None:
            return [self.by_hand(hand)]
        native = [name for name in GENERATIONS if LANGUAGES[name].is_native]
        if kernel not in native:
            names = ", ".join([*native, *(each.name for each in self.description.kernels)])
            raise SignatureError(f"{self.description.name} has no kernel {kernel!r} for a model; there are: {names}")
        return self.generate()

    def by_hand(self, kernel: UserKernel) -> ModelKernel:
        """An attached kernel in C, for the whole op."""
        specialization = self.wanted
        if not LANGUAGES[kernel.language].is_native:
            raise InputError(f"{kernel.title} is in {kernel.language}; a model takes kernels in C alone")
        require_plain_build(kernel)
        reason = ineligible(kernel, self.description.reference, specialization.instance, specialization.constants)
        if reason:
            raise InputError(f"{kernel.title} does not go into a model: {reason}")
        plain = c_source(kernel, specialization.instance, "kernel", specialization.constants)
        text_digest = hashlib.sha256(f"{self.target}\n{plain}".encode()).hexdigest()
        operator = f"{self.stem}_{text_digest[:8]}"
        positions = spell(self.graph, self.writer, self.called)
        sizes = [specialization.integers.get(value.name) for value in specialization.instance.inputs]
        pairs = zip(specialization.instance.inputs, sizes, strict=True)
        inputs = [v.name if n is None else self.writer.constant(np.array(n, v.dtype.numpy)) for v, n in pairs]
        fused = self.fuse(operator, positions, inputs, self.graph)
        return ModelKernel(fused, c_source(kernel, specialization.instance, operator, specialization.constants))

    def generate(self) -> list[ModelKernel]:
        """The kernels of the reference: one kernel for the whole op, or kernels and library calls in turn."""
        whole, kernels = program(self.graph, self.stem), list[ModelKernel]()
        if whole.single is not None:
            step = whole.steps[0]
            positions = spell(self.graph, self.writer, self.called)
            return [self.kernel(step, positions, self.graph, "")] if isinstance(step, KernelStep) else []
        for node in whole.graph.nodes:
            if isinstance(node.kind, Constant):
                self.called[node.output] = self.writer.constant(node.kind.value)
        for number, step in enumerate(whole.steps):
            for name in step.graph.outputs:
                self.called.setdefault(name, self.writer.fresh(identifier(name)))
            measured = () if isinstance(step, KernelStep) else whole.graph.inputs
            positions = spell(step.graph, self.writer, self.called, measured)
            if isinstance(step, KernelStep):
                kernels.append(self.kernel(step, positions, step.graph, f"_{number}"))
        return kernels

    def kernel(self, step: KernelStep, positions: range, original: Graph, number: str) -> ModelKernel:
        operator = f"{self.stem}{number}_{digest(step.kernel, self.target)[:8]}"
        inputs = [self.called[node.output] for node in step.graph.inputs]
        comment = f"{operator}: {self.description.name}: {self.wanted.instance}"
        text = c_printer.source(replace(step.kernel, name=operator), comment)
        return ModelKernel(self.fuse(operator, positions, inputs, step.graph), text, original, step.graph)

    def fuse(self, operator: str, positions: range, inputs: Sequence[str], graph: Graph) -> FusedNode:
        types = tuple(value_type(graph[name]) for name in graph.outputs)
        outputs = tuple(self.called[name] for name in graph.outputs)
        return FusedNode(operator, tuple(positions), tuple(inputs), outputs, types)


def _finish_model(
    description: Description, bare: onnx.ModelProto, kernels: Sequence[ModelKernel], options: c_compiler.CompilerOptions
) -> OnnxOp:
    """The signed model with its kernels in place of their nodes; and its library."""
    if not kernels:
        onnx.checker.check_model(bare, full_check=True)
        return OnnxOp(description.name, bare)
    texts = {kernel.fused.operator: kernel.text for kernel in kernels}
    domain = domain_of(bare)
    library = cached_library(texts, options, domain)
    certificates = tuple(_certificate(kernel, options) for kernel in kernels if kernel.graph is not None)
    for certificate in certificates:
        certificate.raise_if_bad()
    model = write_back(bare, [kernel.fused for kernel in kernels], domain=domain)
    sign(model, description.file, options.target, texts, library)
    summaries = {certificate.name.partition("[")[0]: certificate.summary() for certificate in certificates}
    for function in model.functions:
        if is_own(function.domain):
            function.doc_string = f"certificate: {summaries.get(function.name, 'written by hand; see noyau.check')}"
    onnx.checker.check_model(model)
    return OnnxOp(description.name, model, library, MappingProxyType(texts), certificates)


def _certificate(kernel: ModelKernel, options: c_compiler.CompilerOptions) -> Certificate:
    """The certificate of a generated kernel, on awkward inputs of many sizes."""
    assert kernel.original is not None and kernel.graph is not None
    library = c_compiler.compile_library([kernel.text], options)
    return judge(CertificateTask(kernel.fused.operator, library, kernel.original, kernel.graph, (), {}, 0, False))
