"""The check of an op's gradient: as a formula, in float64; as kernels, by the certificate, packed and strided."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noyau.compiler.autodiff.adjoints import DerivedGradient, derive, gradient_name
from noyau.compiler.lowering.input_layouts import Layout, Order
from noyau.dtypes import DType
from noyau.errors import BuildError, FindingKind, InputError, NoyauError, SignatureError, UnsupportedError
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.kernels.programs.generate import Specialization, build, generate_from_graph, trace_with_sizes
from noyau.kernels.reference import graph_of
from noyau.ops.op import Op
from noyau.ops.user_gradients import derive_by
from noyau.signatures.instances import bind, draw_inputs, in_dtypes, integers_of, make, usual_instance, usual_sizes
from noyau.signatures.types import Family, Instance
from noyau.text import several
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.checks import KernelCheck
from noyau.verify.failures import Case, inputs_text
from noyau.verify.findings import Finding
from noyau.verify.trial import certify_native

Array = np.ndarray
LANGUAGE = "c"
NAME = f"gradient in {LANGUAGE}"
LAYOUTS = (Order.PACKED, Order.STRIDED)
Arrays = Mapping[str, Array]
Sizes = Mapping[str, int]
USUAL = {Family.INT: DType.I64}
STEP = 1e-5  # the step of differences
DIRECTIONS = 4  # directions along which a gradient at a kink is tried
NEAR = 1e-6  # times 1 + |want|: the allowance between two formulas in float64
ROUGH = 1e-4  # times 1 + the largest |want|: the allowance for differences


def check_gradient_kernels(op: Op[..., Any], sizes: Sizes, seed: int, end_s: float, place: str) -> KernelCheck:
    """Check the kernels of an op's gradient, in float32 and float64 if its signature allows both."""
    outcomes, shapes = list[Outcome](), dict[str, None]()
    try:
        for certificate in _certificates(op, sizes, seed, end_s, shapes):
            outcomes += certificate.outcomes
            if not certificate.ok:
                return _wrong(op, certificate, place)
    except UnsupportedError as error:
        return KernelCheck(NAME, LANGUAGE, None, (), skipped=str(error))
    except (SignatureError, BuildError) as error:  # SignatureError: a gradient by hand is right in float64 alone
        kind = FindingKind.GRADIENT if isinstance(error, SignatureError) else FindingKind.LAUNCH
        return KernelCheck(NAME, LANGUAGE, None, (Finding(op.name, NAME, LANGUAGE, kind, place, "", str(error)),))
    certificate_of_all = Certificate(f"gradient of {op.name}[{LANGUAGE}]", tuple(outcomes), order_independent=True)
    return KernelCheck(NAME, LANGUAGE, certificate_of_all, (), tuple(shapes), ("on packed and strided arrays",))


def _wrong(op: Op[..., Any], certificate: Certificate, place: str) -> KernelCheck:
    if certificate.failures:
        failure = certificate.failures[0]
        kind = FindingKind.GRADIENT if failure.kind is FindingKind.WRONG_VALUE else failure.kind
        parts = kind, place, failure.inputs, str(failure), failure.cell
    else:
        parts = FindingKind.ORDER_DEPENDENT, place, "", certificate.summary(), None
    return KernelCheck(NAME, LANGUAGE, certificate, (Finding(op.name, NAME, LANGUAGE, *parts),))


def _certificates(
    op: Op[..., Any], sizes: Sizes, seed: int, end_s: float, shapes: dict[str, None]
) -> Iterator[Certificate]:
    """A certificate for each dtype and layout."""
    instances: set[Instance] = set()
    for floats in (DType.F32, DType.F64):
        subjects = list(cases_of(op, sizes, floats, seed))
        if not subjects or subjects[0][0].instance in instances:
            continue
        subject = subjects[0][0]
        instances.add(subject.instance)
        derived = subject.derived
        alike = [case for each, case in subjects if each.instance == subject.instance]
        cases = [(case.label, _in_order(derived.backward, values_of(subject, derived, case))) for case in alike]
        for order in LAYOUTS:
            if shapes and time.monotonic() > end_s:
                return
            layouts = tuple(Layout(order) if node.shape else Layout() for node in derived.backward.inputs)
            kernels = build(generate_from_graph(derived.backward, f"{op.name}_backward", layouts, LANGUAGE))
            layout_cases = [Case(f"{label}, {order.value}", arrays) for label, arrays in cases]
            shapes[inputs_text(derived.backward, layout_cases[0].inputs)] = None
            name = f"gradient of {op.name}[{LANGUAGE}]"
            yield certify_native(derived.backward, kernels, layout_cases, name=name)


def values_of(subject: GradientSubject, derived: DerivedGradient, case: GradientCase) -> dict[str, Array]:
    """All values that a backward graph may read, in the dtypes of the graph. InputError if it refuses a value."""
    with np.errstate(all="ignore"):
        values = {**case.inputs, **evaluate(derived.forward, case.inputs)}
    dtypes = {name: subject.graph[name].dtype.numpy for name in case.above}
    return values | {gradient_name(name): weights.astype(dtypes[name]) for name, weights in case.above.items()}


def _in_order(graph: Graph, values: Mapping[str, Array]) -> tuple[Array, ...]:
    missing = next((node.output for node in graph.inputs if node.output not in values), None)
    if missing is not None:
        raise InputError(f"the gradient reads {missing}, and nothing provides it")
    return tuple(np.asarray(values[node.output]) for node in graph.inputs)


def place_of_gradient(op: Op[..., Any]) -> str:
    """The place of the gradient's function, or else of the op."""
    code = getattr(op.description.gradient, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else op.description.place


def check_formula(op: Op[..., Any], sizes: Mapping[str, int], seed: int) -> KernelCheck:
    """Check the gradient as a formula."""
    gradient = op.description.gradient
    language = "numpy" if gradient is not None else "derived"
    findings, shapes = dict[str, Finding](), dict[str, None]()
    try:
        for subject, case in cases_of(op, sizes, DType.F64, seed):
            shapes[subject.describe(case)] = None
            if (finding := _of_case(subject, case, language)) is not None:
                findings.setdefault(finding.severity, finding)
    except (SignatureError, UnsupportedError) as error:
        if gradient is None:
            return KernelCheck("gradient", language, None, (), skipped=f"it has none: {error}")
        finding = Finding(op.name, "gradient", language, FindingKind.GRADIENT, place_of_gradient(op), "", str(error))
        return KernelCheck("gradient", language, None, (finding,))
    if not shapes:
        raise InputError(f"{op.name}: no inputs could be made up for its gradient; give inputs=")
    beside = "the derivative of the reference and central differences" if gradient else "central differences"
    notes = (f"its formula is right on {several(len(shapes), 'case')}, beside {beside}",)
    return KernelCheck("gradient", language, None, tuple(findings.values()), tuple(shapes), notes)


def _of_case(subject: GradientSubject, case: GradientCase, language: str) -> Finding | None:
    """The finding on the formula in one case, None if it is right."""
    got = subject.gradients(subject.derived, case)
    wrong = first_wrong(subject, case, got, None if subject.right is None else subject.gradients(subject.right, case))
    if wrong is None:
        return None
    finding = finding_of("gradient", language, place_of_gradient(subject.op), subject, case, wrong)
    if case.on_kinks and subject.may_be(case, got):
        differs = f"upon ties it is another rule than torch's: {finding.message}"
        return replace(finding, severity="warning", message=differs)
    return finding


@dataclass(frozen=True, slots=True)
class GradientCase:
    """Inputs by name, and gradients of the results; `on_kinks`: with ties, where max and the like have kinks."""

    label: str
    inputs: Arrays
    above: Arrays
    on_kinks: bool = False


@dataclass(frozen=True)
class GradientSubject:
    """An op for dtypes and ranks, as a graph; `wanted` has the integers and sizes that no shape gives."""

    op: Op[..., Any]
    instance: Instance
    wanted: Specialization

    @cached_property
    def graph(self) -> Graph:
        """The traced reference, or one Opaque if only its gradient is known. UnsupportedError without both."""
        reference = self.op.description.reference
        try:
            return trace_with_sizes(reference, self.wanted)[0]
        except UnsupportedError:
            if self.op.description.gradient is None:
                raise
            return graph_of(reference, self.instance, self.wanted.constants)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The inputs that have gradients."""
        return tuple(node.output for node in self.graph.inputs if node.dtype.is_float)

    @cached_property
    def derived(self) -> DerivedGradient:
        """The op's gradient. UnsupportedError if none is derived, SignatureError if one by hand has other dtypes."""
        gradient = self.op.description.gradient
        if gradient is None:
            return derive(self.graph, self.names)
        try:
            return derive_by(gradient, self.graph, self.wanted.constants, self.wanted.sizes or None)
        except UnsupportedError as error:  # in a gradient by hand
            raise SignatureError(str(error)) from error

    @cached_property
    def right(self) -> DerivedGradient | None:
        """The derivative of the graph, to compare with a gradient by hand; None without one of the two."""
        with suppress(UnsupportedError):
            return derive(self.graph, self.names) if self.op.description.gradient is not None else None
        return None

    def gradients(self, derived: DerivedGradient, case: GradientCase) -> dict[str, Array]:
        """Evaluate a derived graph in float64; the gradients by the names of inputs."""
        values = {**case.inputs, **{gradient_name(name): each for name, each in case.above.items()}}
        inputs = {node.output: values[node.output] for node in derived.gradient.inputs}
        with np.errstate(all="ignore"):
            results = evaluate(derived.gradient, inputs, wide=True)
        return {name: results[output] for name, output in zip(derived.wanted, derived.gradient.outputs, strict=True)}

    def describe(self, case: GradientCase) -> str:
        """Describe the inputs of a case."""
        shapes = [f"{v.name}: {v.dtype.value}{list(np.shape(case.inputs[v.name]))}" for v in self.instance.inputs]
        return f"{', '.join(shapes)} ({case.label})"

    def may_be(self, case: GradientCase, gradients: Arrays) -> bool:
        """Whether, at a kink, these gradients lie between the slopes of both sides, in a few directions."""
        rng, start = np.random.default_rng(0), weighted_sum(self.graph, case.inputs, case.above)
        for number in range(DIRECTIONS):
            way = {n: np.ones_like(g) if number == 0 else rng.standard_normal(g.shape) for n, g in gradients.items()}
            slopes = []
            for step in (STEP, -STEP):
                moved = {n: np.asarray(case.inputs[n], np.float64) + step * w for n, w in way.items()}
                slopes.append((weighted_sum(self.graph, {**case.inputs, **moved}, case.above) - start) / step)
            slope = sum(np.sum(gradients[n] * way[n]) for n in gradients)
            room = 1e-3 * (1 + max(map(abs, slopes)))
            if not min(slopes) - room <= slope <= max(slopes) + room:
                return False
        return True


def weighted_sum(graph: Graph, inputs: Arrays, above: Arrays) -> float:
    """The weighted sum of the results in float64: the function that gradients differentiate."""
    with np.errstate(all="ignore"):
        results = evaluate(graph, inputs, wide=True)
    return float(sum(np.sum(results[name] * weights) for name, weights in above.items()))


def central_difference(graph: Graph, inputs: Arrays, above: Arrays, name: str, cell: tuple[int, ...]) -> float:
    """The derivative by one cell of an input, by central differences in float64."""
    ends = []
    for step in (STEP, -STEP):
        moved = np.array(inputs[name], np.float64)
        moved[cell] += step
        ends.append(weighted_sum(graph, {**inputs, name: moved}, above))
    return (ends[0] - ends[1]) / (2 * STEP)


def subject_of(op: Op[..., Any], sizes: Mapping[str, int], floats: DType, seed: int) -> tuple[GradientSubject, Arrays]:
    """An op with floats of one dtype, where its signature allows it, and inputs for it."""
    assert op.signature is not None
    signature, rng = op.signature, np.random.default_rng(seed)
    constants = op.description.reference.constants
    bindings = {**op.known_sizes(constants), **integers_of(signature, sizes)}
    instance = usual_instance(signature, bindings, {Family.FLOAT: floats, Family.ANY: floats, **USUAL})
    if op.inputs is None:
        numbers = usual_sizes(instance, sizes)
        arrays = make(instance, numbers, {**bindings, **numbers}, rng)
    else:
        arrays = draw_inputs(op.inputs, rng, sizes, op.description.reference.parameters, op.name)
        arrays = in_dtypes(arrays, signature, [value.dtype for value in instance.inputs])
    bound = bind(signature, arrays, op.known_sizes(constants), op.name)
    inputs = {value.name: array for value, array in zip(bound.instance.inputs, bound.arrays, strict=True)}
    integers = {name: int(array) for name, array in inputs.items() if name in bindings}
    request = Specialization(bound.instance, constants, integers, (), bound.sizes)
    return GradientSubject(op, bound.instance, request), inputs


def cases_of(op: Op[..., Any], sizes: Sizes, dtype: DType, seed: int) -> Iterator[tuple[GradientSubject, GradientCase]]:
    """The inputs that a gradient is tried on: normal numbers, positive ones, ones with ties; of several sizes."""
    plans: list[tuple[str, Callable[[Array], Array], Sizes]] = [("normal numbers", np.asarray, sizes)]
    if op.inputs is None:
        assert op.signature is not None
        known = {**op.known_sizes(op.description.reference.constants), **integers_of(op.signature, {})}
        names = [name for name in usual_sizes(usual_instance(op.signature, known), {}) if name not in sizes]
        plans += [
            ("numbers above 0", lambda x: np.abs(x) + 0.25, sizes),
            ("normal numbers", np.asarray, {**sizes, **dict.fromkeys(names, 1)}),
            ("many equal numbers", np.round, sizes),
        ]
    for number, (label, change, each) in enumerate(plans):
        subject, arrays = subject_of(op, each, dtype, seed + number)
        dtypes = {node.output: node.dtype for node in subject.graph.inputs}
        inputs = {n: change(a).astype(a.dtype) if dtypes[n].is_float else a for n, a in arrays.items()}
        if (case := case_of(subject, label, inputs, seed + number)) is not None:
            yield subject, case


def case_of(subject: GradientSubject, label: str, inputs: Arrays, seed: int) -> GradientCase | None:
    """The case of these inputs, with gradients of its results; None if the reference refuses them."""
    with suppress(NoyauError), np.errstate(all="ignore"):
        out, rng = evaluate(subject.graph, inputs, wide=True), np.random.default_rng([seed, 1])
        floats = [name for name in out if subject.graph[name].dtype.is_float]
        above = {name: rng.standard_normal(np.shape(out[name])) for name in floats}
        return GradientCase(label, inputs, above, on_kinks=label == "many equal numbers")
    return None


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong cell of a gradient."""

    name: str
    cell: tuple[int, ...]
    got: float
    want: float
    how: str


def first_wrong(
    subject: GradientSubject, case: GradientCase, got: Arrays, want: Arrays | None, near: float = NEAR
) -> Wrong | None:
    """The cell furthest from the derivative, or from central differences (not at kinks), where the truth is finite."""
    if want is None and case.on_kinks:
        return None
    missing = next((name for name in subject.names if name not in got and want and np.any(want[name] != 0)), None)
    if missing is not None and want is not None:
        cell = tuple(map(int, np.unravel_index(int(np.argmax(np.abs(want[missing]))), want[missing].shape)))
        return Wrong(missing, cell, 0.0, float(want[missing][cell]), "it gives None")
    for name, gradient in got.items():
        truth = _differences(subject, case, name) if want is None else np.asarray(want[name], np.float64)
        room = ROUGH * (1 + np.nanmax(np.abs(truth), initial=0)) if want is None else near * (1 + np.abs(truth))
        if np.shape(gradient) != truth.shape:
            shapes = f"its shape is {list(np.shape(gradient))}, not {list(truth.shape)}"
            return Wrong(name, (), math.nan, math.nan, shapes)
        with np.errstate(all="ignore"):
            away = np.where(np.isfinite(gradient), np.abs(gradient - truth), np.inf) - room
        away = np.where(np.isfinite(truth), away, -np.inf)
        if away.size and away.max() > 0:
            cell = tuple(map(int, np.unravel_index(int(np.argmax(away)), away.shape)))
            how = "by central differences" if want is None else "the derivative of the reference, in float64"
            return Wrong(name, cell, float(np.asarray(gradient)[cell]), float(truth[cell]), how)
    return None


def finding_of(
    kernel: str, language: str, place: str, subject: GradientSubject, case: GradientCase, wrong: Wrong
) -> Finding:
    """Describe a wrong gradient: the input, the cell, the actual and the right value."""
    where, size = f"{wrong.name}[{', '.join(map(str, wrong.cell))}]", subject.describe(case)
    message = f"wrong gradient of {wrong.name} at {where} for {size}: "
    if wrong.got != wrong.got and wrong.want != wrong.want:
        message += wrong.how
    else:
        message += f"got {wrong.got:.9g}, want {wrong.want:.9g} ({wrong.how})"
        if "differences" not in wrong.how:
            slope = central_difference(subject.graph, case.inputs, case.above, wrong.name, wrong.cell)
            message += f"; {slope:.9g} by central differences"
    return Finding(subject.op.name, kernel, language, FindingKind.GRADIENT, place, size, message, wrong.cell)


def _differences(subject: GradientSubject, case: GradientCase, name: str) -> np.ndarray:
    shape = np.shape(case.inputs[name])
    slopes = [central_difference(subject.graph, case.inputs, case.above, name, cell) for cell in np.ndindex(shape)]
    return np.reshape(slopes, shape)
