"""The check of an op's gradient: as a formula, in float64; as kernels, by the certificate; as torch runs it.

The kernels of a gradient, on arrays: by the certificate, packed and strided.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.codegen.language import GENERATIONS
from noyau.compiler.autodiff.reverse import Derived, gradient_name
from noyau.compiler.lowering.input_layouts import Layout, Order, laid_out, lie, strided_names
from noyau.compiler.lowering.names import identifier
from noyau.dtypes import DType
from noyau.errors import BuildError, FindingKind, InputError, SignatureError, UnsupportedError
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.check.gradient_cases import (
    GradientCase,
    GradientSubject,
    cases_of,
    describe_case,
    finding_of,
    first_wrong,
)
from noyau.kernels.programs.generate import GeneratedProgram, Specialization, print_program
from noyau.kernels.programs.program import program
from noyau.kernels.programs.run import BuiltProgram, build
from noyau.ops.op import Op
from noyau.signatures.types import Instance, Value
from noyau.text import several
from noyau.toolchain.guard_zones import Order as Turns
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.findings import Finding, KernelCheck
from noyau.verify.values import Case, certify_native

Array = np.ndarray
LANGUAGE = "c"
NAME = f"gradient in {LANGUAGE}"
LAYOUTS = (Order.PACKED, Order.STRIDED)


@dataclass(frozen=True, slots=True)
class LayoutProgram:
    """A built program on arrays that lie as its layouts say."""

    built: BuiltProgram
    layouts: tuple[Layout, ...]

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Turns = range) -> list[Array]:
        arrays_in_layout = [lie(array, layout) for array, layout in zip(arrays, self.layouts, strict=True)]
        return self.built.call_guarded(*arrays_in_layout, pieces=pieces, order=order)


def check_gradient_kernels(
    op: Op[..., Any], sizes: Mapping[str, int], seed: int, end_s: float, place: str
) -> KernelCheck:
    """The kernels that calculate an op's gradient, in float32 and float64, as far as its signature leaves that open."""
    outcomes: list[Outcome] = []
    shapes: dict[str, None] = {}
    try:
        for certificate in _certificates(op, sizes, seed, end_s, shapes):
            outcomes += certificate.outcomes
            if not certificate.ok:
                return _wrong(op, certificate, place)
    except UnsupportedError as error:
        return KernelCheck(NAME, LANGUAGE, None, (), skipped=str(error))
    except SignatureError as error:  # of a gradient that is written: it is right in float64 alone
        finding = Finding(op.name, NAME, LANGUAGE, FindingKind.GRADIENT, place, "", str(error))
        return KernelCheck(NAME, LANGUAGE, None, (finding,))
    except BuildError as error:
        finding = Finding(op.name, NAME, LANGUAGE, FindingKind.LAUNCH, place, "", str(error))
        return KernelCheck(NAME, LANGUAGE, None, (finding,))
    certificate_of_all = Certificate(f"gradient of {op.name}[{LANGUAGE}]", tuple(outcomes), order_independent=True)
    return KernelCheck(NAME, LANGUAGE, certificate_of_all, (), tuple(shapes), ("on packed and strided arrays",))


def _wrong(op: Op[..., Any], certificate: Certificate, place: str) -> KernelCheck:
    if not certificate.failures:
        finding = Finding(op.name, NAME, LANGUAGE, FindingKind.ORDER_DEPENDENT, place, "", certificate.summary())
        return KernelCheck(NAME, LANGUAGE, certificate, (finding,))
    failure = certificate.failures[0]
    kind = FindingKind.GRADIENT if failure.kind is FindingKind.WRONG_VALUE else failure.kind
    finding = Finding(op.name, NAME, LANGUAGE, kind, place, failure.given, str(failure), failure.cell)
    return KernelCheck(NAME, LANGUAGE, certificate, (finding,))


def _certificates(
    op: Op[..., Any], sizes: Mapping[str, int], seed: int, end_s: float, shapes: dict[str, None]
) -> Iterator[Certificate]:
    """A certificate for each dtype and layout."""
    instances: set[Instance] = set()
    for floats in (DType.F32, DType.F64):
        subjects = list(cases_of(op, sizes, floats, seed))
        if not subjects or subjects[0][0].instance in instances:
            continue
        subject = subjects[0][0]
        instances.add(subject.instance)
        derived = derivative_of(subject)
        alike = [case for each, case in subjects if each.instance == subject.instance]
        cases = [(case.label, values_of(subject, derived, case.inputs, case.above)) for case in alike]
        for order in LAYOUTS:
            if instances and time.monotonic() > end_s and shapes:
                return
            layouts = tuple(Layout(order) if node.shape else Layout() for node in derived.backward.inputs)
            laid = LayoutProgram(build(generate_kernels(derived.backward, f"{op.name}_backward", layouts)), layouts)
            layout_cases = [
                Case(f"{label}, {order.value}", _in_order(derived.backward, values)) for label, values in cases
            ]
            shapes[_told(derived.backward, layout_cases[0].inputs)] = None
            yield certify_native(derived.backward, laid, layout_cases, name=f"gradient of {op.name}[{LANGUAGE}]")


def derivative_of(subject: GradientSubject) -> Derived:
    """The gradient for these dtypes. SignatureError for one that is written and does not take them."""
    try:
        return subject.derived
    except UnsupportedError as error:
        if subject.op.description.gradient is None:
            raise
        raise SignatureError(str(error)) from error


def _told(graph: Graph, arrays: Sequence[Array]) -> str:
    pairs = zip(graph.inputs, arrays, strict=True)
    return ", ".join(f"{node.output}: {node.dtype.value}{list(array.shape)}" for node, array in pairs)


def values_of(
    subject: GradientSubject, derived: Derived, inputs: Mapping[str, Array], above: Mapping[str, Array]
) -> dict[str, Array]:
    """Everything that a backward graph may read, in the dtypes of the graph. InputError where a value is refused."""
    with np.errstate(all="ignore"):
        values = {**inputs, **evaluate(derived.forward, inputs)}
    for name, weights in above.items():
        values[gradient_name(name)] = weights.astype(subject.graph[name].dtype.numpy)
    return values


def _in_order(graph: Graph, values: Mapping[str, Array]) -> tuple[Array, ...]:
    missing = next((node.output for node in graph.inputs if node.output not in values), None)
    if missing is not None:
        raise InputError(f"the gradient reads {missing}, which nothing gives")
    return tuple(np.asarray(values[node.output]) for node in graph.inputs)


def generate_kernels(graph: Graph, program_name: str, layouts: Sequence[Layout]) -> GeneratedProgram:
    """The kernels of a graph for inputs that lie so. UnsupportedError for what has none."""
    values = tuple(Value(node.output, node.dtype, node.shape) for node in graph.inputs)
    results = tuple(Value(name, graph[name].dtype, graph[name].shape) for name in graph.outputs)
    request = Specialization(Instance(values, results, ()), layouts=tuple(layouts))
    memory = laid_out(graph, layouts)
    kernels = program(memory, identifier(program_name), strided_names(memory, layouts), GENERATIONS[LANGUAGE].schedule)
    return GeneratedProgram(
        program_name,
        LANGUAGE,
        request,
        graph,
        {},
        kernels,
        print_program(kernels, LANGUAGE, f"{program_name}: {request.instance}"),
    )


def check_gradients(op: Op[..., Any], sizes: Mapping[str, int], seed: int, budget_s: float) -> list[KernelCheck]:
    """The gradient of an op with a signature, each way in which it is calculated.

    First what the op gives back (derived, or by its `gradient`), in float64, beside the derivative of the traced
    reference and central differences; then the kernels of it, on arrays that lie as they like; then, where torch can be
    imported, what autograd gives. SignatureError without a signature, InputError where no inputs can be made up."""
    if op.signature is None:
        raise SignatureError(f"{op.name} has no signature, so its gradient cannot be checked; give it one")
    checks, end_s = [_formula(op, sizes, seed)], time.monotonic() + budget_s
    if checks[0].skipped or not checks[0].ok:
        return checks
    checks.append(check_gradient_kernels(op, sizes, seed, end_s, _place(op)))
    if importlib.util.find_spec("torch") is not None:
        from noyau.jobs.check.torch_functions import check_tensors

        checks.append(check_tensors(op, sizes, seed, _place(op)))
    return checks


def _place(op: Op[..., Any]) -> str:
    """The place of the gradient: where it was written, else where the op is."""
    code = getattr(op.description.gradient, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else op.description.place


def _formula(op: Op[..., Any], sizes: Mapping[str, int], seed: int) -> KernelCheck:
    """The gradient as a formula."""
    gradient = op.description.gradient
    language = "numpy" if gradient is not None else "derived"
    findings: dict[str, Finding] = {}
    shapes: dict[str, None] = {}
    try:
        for subject, case in cases_of(op, sizes, DType.F64, seed):
            shapes[describe_case(subject, case)] = None
            for finding in _of_case(subject, case, op, language):
                findings.setdefault(finding.severity, finding)
    except (SignatureError, UnsupportedError) as error:
        if gradient is None:
            return KernelCheck("gradient", language, None, (), skipped=f"it has none: {error}")
        finding = Finding(op.name, "gradient", language, FindingKind.GRADIENT, _place(op), "", str(error))
        return KernelCheck("gradient", language, None, (finding,))
    if not shapes:
        raise InputError(f"{op.name}: no inputs could be made up for its gradient; give inputs=")
    beside = "the derivative of the reference and central differences" if gradient else "central differences"
    notes = (f"its formula is right on {several(len(shapes), 'case')}, beside {beside}",)
    return KernelCheck("gradient", language, None, tuple(findings.values()), tuple(shapes), notes)


def _of_case(subject: GradientSubject, case: GradientCase, op: Op[..., Any], language: str) -> Iterator[Finding]:
    """Findings on the formula in one case."""
    got = subject.gradients(subject.derived, case)
    want = None if subject.right is None else subject.gradients(subject.right, case)
    wrong = first_wrong(subject, case, got, want)
    if wrong is None:
        return
    finding = finding_of(op, "gradient", language, _place(op), subject, case, wrong)
    if case.on_kinks and subject.may_be(case, got):
        differs = f"upon ties it is another rule than torch's: {finding.message}"
        finding = replace(finding, severity="warning", message=differs)
    yield finding
