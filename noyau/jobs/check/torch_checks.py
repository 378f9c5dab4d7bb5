"""Checks with tensors in several memory layouts: an op's gradients by torch's autograd, and a user's torch function,
its values and its gradients.

`noyau.check(function, args, reference=f)` takes an autograd.Function's apply, or an operator of torch.library."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from noyau.compiler.autodiff.adjoints import derive, gradient_name
from noyau.dtypes import DType, from_numpy, of_array
from noyau.errors import CheckError, FindingKind, InputError, NoyauError, SignatureError, UnsupportedError
from noyau.frontends.numpy.scopes import is_op
from noyau.frontends.numpy.trace import follow
from noyau.hosts.torch.tensors import array_of, dtype_of, from_torch, tensor_of
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node
from noyau.ir.sizes import extents_at
from noyau.jobs.check import gradients
from noyau.jobs.check.gradients import GradientCase, GradientSubject, cases_of, central_difference, finding_of
from noyau.kernels.reference import opaque_graph
from noyau.ops.op import Op
from noyau.signatures.types import Value
from noyau.text import several
from noyau.verify.certificate import Certificate
from noyau.verify.checks import KernelCheck, OpCheck, require_tolerance
from noyau.verify.failures import Case, Failure, inputs_text
from noyau.verify.findings import Finding
from noyau.verify.trial import KernelFunction, KernelTrial

Array = np.ndarray
Run = Callable[[Sequence[Array]], list[Array]]  # arrays of any float width to results of that width


@dataclass(frozen=True, slots=True)
class TorchReference:
    """A reference for arguments of some dtypes and shapes. `graph` computes its results; `gradient`, from the same
    inputs and the gradients of the float results, the gradients of the float inputs; None, with the reason, if there is
    none. `places`: the indices of the tensors among the arguments."""

    inputs: tuple[Node, ...]
    graph: Graph
    gradient: Graph | None
    reason: str
    places: tuple[int, ...]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The inputs that have gradients."""
        return tuple(node.output for node in self.inputs if node.dtype.is_float)

    @property
    def wanted_places(self) -> list[int]:
        """The indices of float tensors among the arguments."""
        return [at for at, node in zip(self.places, self.inputs, strict=True) if node.dtype.is_float]

    @property
    def graded_places(self) -> list[int]:
        """The indices of floats among the results."""
        return [at for at, name in enumerate(self.graph.outputs) if self.graph[name].dtype.is_float]

    def arrays(self, args: Sequence[Any]) -> tuple[Array, ...]:
        """The tensors among the arguments, as packed arrays."""
        return tuple(np.array(array_of(args[at])) for at in self.places)

    def above(self, rng: np.random.Generator) -> dict[str, Array]:
        """Random gradients of the float results."""
        ends = [self.graph[self.graph.outputs[at]] for at in self.graded_places]
        shapes = [extents_at({}, node.shape) for node in ends]
        numbers = [np.asarray(rng.standard_normal(shape)) for shape in shapes]
        return {gradient_name(n.output): each.astype(n.dtype.numpy) for n, each in zip(ends, numbers, strict=True)}


def reference_graphs(reference: Callable[..., Any], args: Sequence[Any], function_name: str) -> TorchReference:
    """The graphs of a reference, called with arrays, or else with tensors. An op stands for its own reference.
    InputError if it takes neither, or does not return arrays."""
    reference = reference.reference if is_op(reference) else reference
    places = tuple(at for at, each in enumerate(args) if isinstance(each, torch.Tensor))
    named = [(name, args[at]) for name, at in zip(_names(reference, args, places), places, strict=True)]
    inputs = tuple(Node(name, Input(), (), dtype_of(each), shape_of(each.shape)) for name, each in named)
    arrays = [np.array(array_of(args[at])) for at in places]
    of_tensors = _of_tensors(reference, args, places)
    with np.errstate(all="ignore"):
        run, is_torch = _runner(of_tensors, arrays, function_name)
        results = run(arrays)
    names = [node.output for node in inputs]
    ends = [_end(f"out{at}" if len(results) > 1 else "out", array, names) for at, array in enumerate(results)]
    graph = opaque_graph(inputs, ends, function_name, lambda *arrays_of_call: tuple(run(arrays_of_call)))
    if is_torch:
        return TorchReference(inputs, graph, _torch_gradient(of_tensors, inputs, graph, function_name), "", places)
    try:
        traced = _with_inputs(follow(of_tensors, inputs, None, {}).graph, inputs)
        derived = derive(traced, [node.output for node in inputs if node.dtype.is_float]).gradient
    except UnsupportedError as error:
        return TorchReference(inputs, graph, None, f"the reference has no derivative: {error}", places)
    return TorchReference(inputs, traced, _with_inputs(derived, (*inputs, *_above(traced))), "", places)


def _names(reference: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> list[str]:
    """The names of the tensors: the parameters of the reference."""
    try:
        parameters = [p for p in inspect.signature(reference).parameters.values() if p.kind in (0, 1)]
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters] if len(parameters) >= len(args) else [f"x{at}" for at in range(len(args))]
    return [names[at] for at in places]


def _of_tensors(reference: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> Callable[..., Any]:
    """The reference as a function of the tensors alone, which are at `places` among the arguments."""

    def bound(*values: Any) -> Any:
        arguments = list(args)
        for at, each in zip(places, values, strict=True):
            arguments[at] = each
        return reference(*arguments)

    bound.__name__ = getattr(reference, "__name__", "reference")
    return bound


def _runner(reference: Callable[..., Any], arrays: Sequence[Array], name: str) -> tuple[Run, bool]:
    """A function that runs a reference of tensors alone on arrays, and whether the reference is written in torch."""

    def on_arrays(values: Sequence[Array]) -> list[Array]:
        return _arrays(reference(*values))

    def on_tensors(values: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            return _arrays(reference(*(tensor_of(np.array(each)) for each in values)))

    try:
        on_arrays(arrays)
    except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as fault:
        try:
            on_tensors(arrays)
        except Exception as other:
            problem = f"with arrays it ends with {short(fault)}; with tensors with {short(other)}"
            raise InputError(f"{name}: its reference does not take these arguments: {problem}") from other
        return on_tensors, True
    return on_arrays, False


def short(fault: Exception) -> str:
    """An error in one line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}"


def _arrays(result: Any) -> list[Array]:
    parts = list(result) if isinstance(result, tuple | list) else [result]
    if any(isinstance(part, torch.Tensor) for part in parts):
        return [array_of(part) for part in parts]
    arrays = [np.asarray(part) for part in parts]
    if any(from_numpy(each.dtype) in (None, DType.OTHER) for each in arrays):
        raise InputError(f"its reference gives {[type(part).__name__ for part in parts]}, and no arrays")
    return arrays


def _end(name: str, array: Array, names: Sequence[str]) -> Value:
    while name in names:
        name += "_"
    return Value(name, of_array(array), shape_of(array.shape))


def _above(graph: Graph) -> list[Node]:
    ends = [graph[name] for name in graph.outputs]
    return [Node(gradient_name(n.output), Input(), (), n.dtype, n.shape) for n in ends if n.dtype.is_float]


def _torch_gradient(reference: Callable[..., Any], inputs: Sequence[Node], graph: Graph, function_name: str) -> Graph:
    """The gradient by torch's autograd through the reference, at the width of its inputs."""
    floats = [at for at, node in enumerate(inputs) if node.dtype.is_float]
    graded = [at for at, name in enumerate(graph.outputs) if graph[name].dtype.is_float]

    def evaluate(*values: Array) -> tuple[Array, ...]:
        tensors = [tensor_of(np.array(each)) for each in values[: len(inputs)]]
        for at in floats:
            tensors[at].requires_grad_()
        returned = reference(*tensors)
        results = list(returned) if isinstance(returned, tuple | list) else [returned]
        weights = [tensor_of(np.array(each)) for each in values[len(inputs) :]]
        leaves = [tensors[at] for at in floats]
        gradients = torch.autograd.grad([results[at] for at in graded], leaves, weights, materialize_grads=True)
        return tuple(map(array_of, gradients))

    ends = [Value(gradient_name(node.output), node.dtype, node.shape) for node in inputs if node.dtype.is_float]
    return opaque_graph((*inputs, *_above(graph)), ends, function_name, evaluate)


def _with_inputs(graph: Graph, inputs: Sequence[Node]) -> Graph:
    """The graph with these inputs, used or not, in order."""
    names = {node.output for node in inputs}
    rest = tuple(node for node in graph.nodes if node.output not in names)
    return Graph((*inputs, *rest), graph.outputs, graph.demands)


def difference(right: TorchReference, arrays: Sequence[Array], at: int, cell: tuple[int, ...]) -> float:
    """The derivative by a cell of the float input `at`, by central differences. `arrays`: inputs, then gradients."""
    count = len(right.inputs)
    inputs = dict(zip((node.output for node in right.inputs), arrays[:count], strict=True))
    above = dict(zip((right.graph.outputs[place] for place in right.graded_places), arrays[count:], strict=True))
    return central_difference(right.graph, inputs, above, right.wanted[at], cell)


HALF_OF_32 = 1e-3  # in place of gradients.NEAR for ops with float32 in their signature
NAME = "gradient in torch"
Lay = Callable[[torch.Tensor], torch.Tensor]
LANGUAGE = "torch"


def transpose(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with the last axis outermost in memory."""
    return tensor.T.contiguous().T if tensor.ndim == 2 else tensor.movedim(-1, 0).contiguous().movedim(0, -1)


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with a gap behind each."""
    room = torch.empty(*tensor.shape, 2, dtype=tensor.dtype)
    room[..., 0] = tensor
    return room[..., 0]


GRADIENT_LAYOUTS: dict[str, Lay] = {"packed": torch.Tensor.contiguous, "transposed": transpose, "strided": spread}


def check_tensors(op: Op[..., Any], sizes: Mapping[str, int], seed: int, place: str) -> KernelCheck:
    """Compare autograd's gradients of an op with the derived ones."""
    findings, shapes = dict[str, Finding](), dict[str, None]()
    try:
        for subject, case in cases_of(op, sizes, DType.F64, seed):
            for finding in _of_case(subject, case, place):
                findings.setdefault(finding.kind, finding)
            shapes[subject.describe(case)] = None
    except UnsupportedError as error:
        return KernelCheck(NAME, "torch", None, (), skipped=str(error))
    layouts = ", ".join(GRADIENT_LAYOUTS)
    note = f"autograd is right on {several(len(shapes), 'case')}, on {layouts} tensors, and by gradcheck"
    return KernelCheck(NAME, "torch", None, tuple(findings.values()), tuple(shapes), (note,))


def _of_case(subject: GradientSubject, case: GradientCase, place: str) -> Iterator[Finding]:
    op, size = subject.op, subject.describe(case)
    want = subject.gradients(subject.derived, case)
    narrow = any(value.dtype.compute is DType.F32 for value in subject.instance.inputs)
    for layout, lay in GRADIENT_LAYOUTS.items():
        laid = replace(case, label=f"{case.label}, {layout} tensors")
        try:
            got = gradients_by_torch(op, subject, laid, lay)
        except UnsupportedError:
            raise
        except (NoyauError, RuntimeError, ValueError, TypeError) as error:
            size = subject.describe(laid)
            message = f"autograd ends with {type(error).__name__}: {error}; for {size}"
            yield Finding(op.name, NAME, "torch", FindingKind.GRADIENT, place, size, message)
            return
        wrong = gradients.first_wrong(subject, laid, got, want, HALF_OF_32 if narrow else gradients.NEAR)
        if wrong is not None:
            yield finding_of(NAME, "torch", place, subject, laid, wrong)
            return
    if narrow or case.on_kinks or not all(np.all(np.isfinite(each)) for each in want.values()):
        return
    try:
        torch.autograd.gradcheck(op, tuple(_tensors(subject, case, transpose).values()), fast_mode=True)
    except (RuntimeError, NoyauError) as error:
        reason = " ".join(str(error).split())[:300]
        message = f"torch.autograd.gradcheck fails for {size}: {reason}"
        yield Finding(op.name, NAME, "torch", FindingKind.GRADIENT, place, size, message)


def gradients_by_torch(op: Op[..., Any], subject: GradientSubject, case: GradientCase, lay: Lay) -> dict[str, Array]:
    """The gradients of the inputs, by autograd."""
    arguments = _tensors(subject, case, lay)
    returned = op(*arguments.values())
    pairs = zip(subject.graph.outputs, returned if isinstance(returned, tuple) else (returned,), strict=True)
    graded = [(result, case.above[name]) for name, result in pairs if name in case.above]
    weights = [lay(torch.from_numpy(np.array(above))).to(result.dtype) for result, above in graded]
    floats = {name: each for name, each in arguments.items() if isinstance(each, torch.Tensor) and each.requires_grad}
    ends = [result for result, _ in graded], list(floats.values()), weights
    gradients = torch.autograd.grad(*ends, materialize_grads=True)
    return {name: each.double().numpy() for name, each in zip(floats, gradients, strict=True)}


def _tensors(subject: GradientSubject, case: GradientCase, lay: Lay) -> dict[str, Any]:
    """The arguments of a call: tensors, and numbers for scalars of the signature; floats require a gradient."""
    arguments: dict[str, Any] = {}
    for value in subject.instance.inputs:
        array = case.inputs[value.name]
        if value.scalar and not value.dtype.is_float:
            arguments[value.name] = array.item()
            continue
        tensor = torch.from_numpy(np.array(array))
        tensor = lay(tensor) if tensor.ndim else tensor
        arguments[value.name] = tensor.detach().requires_grad_(value.dtype.is_float)
    return arguments


def expand_first(tensor: torch.Tensor) -> torch.Tensor:
    """The first cells along the first axis, expanded along it."""
    return tensor[:1].expand(tensor.shape) if tensor.ndim and len(tensor) else tensor


LAYOUTS: dict[str, Lay] = {**GRADIENT_LAYOUTS, "expanded": expand_first}


def check_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    reference: Callable[..., Any] | None,
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> OpCheck:
    """Compare a function of tensors, and its gradients by autograd, with a reference in NumPy or torch.

    `args` are tensors on the CPU in the dtypes to try, and numbers. The certificate judges values, against the
    reference in float64, and gradients, against the derivative of its traced graph (for a reference in torch: autograd
    in float64). SignatureError without a reference, or if `function` is none; InputError for arguments that are not
    supported, or that the reference refuses."""
    require_tolerance(tolerance)
    name = name_of(function)
    if not callable(function) or reference is None or not callable(reference):
        usage = "an op, or a function of torch with its reference: noyau.check(f, args, reference=g)"
        raise SignatureError(f"{name}: noyau.check takes {usage}")
    subject = _Function(function, name, place_of(function), tuple(args), tolerance, seed)
    subject.require_args()
    right = reference_graphs(reference, subject.args, name)
    return OpCheck(name, subject.place, (subject.values(right), *subject.gradients(right)), tolerance)


def name_of(function: Any) -> str:
    """The name in a report: the class of an autograd.Function, or the function's own name."""
    owner = getattr(function, "__self__", None)
    return owner.__name__ if isinstance(owner, type) else str(getattr(function, "__name__", None) or function)


def place_of(function: Any) -> str:
    """Its file and line, if Python knows them."""
    owner = getattr(function, "__self__", None)
    try:
        inner = inspect.unwrap(owner if isinstance(owner, type) else function)
        return f"{inspect.getsourcefile(inner)}:{inspect.getsourcelines(inner)[1]}"
    except (OSError, TypeError, AttributeError):
        return str(function)


@dataclass(frozen=True, slots=True)
class _Function:
    """A function under check, with its arguments."""

    function: Callable[..., Any]
    called: str
    place: str
    args: tuple[Any, ...]
    tolerance: float | None
    seed: int

    def require_args(self) -> None:
        """InputError for arguments that are not supported."""
        tensors = [each for each in self.args if isinstance(each, torch.Tensor)]
        if not tensors:
            remedy = "give them as noyau.check(f, (x, y), ...)"
            raise InputError(f"{self.called}: there is no tensor among the args; {remedy}")
        for each in tensors:
            if each.device.type != "cpu" or each.layout is not torch.strided or from_torch(each.dtype) is None:
                message = f"a {each.dtype} tensor on {each.device} ({each.layout})"
                raise InputError(f"{self.called}: {message} is not checked; give dense tensors of the CPU")

    def values(self, right: TorchReference) -> KernelCheck:
        """Check its values, on tensors of each layout."""
        arrays = right.arrays(self.args)
        return self.judge("values", right.graph, arrays, {each: functools.partial(self.run, each) for each in LAYOUTS})

    def gradients(self, right: TorchReference) -> list[KernelCheck]:
        """Check its gradients by autograd; nothing if no argument or no result is a float."""
        if not right.wanted or not right.above(np.random.default_rng(0)):
            return []
        if right.gradient is None:
            return [KernelCheck("gradient", LANGUAGE, None, (), skipped=right.reason)]
        arrays = (*right.arrays(self.args), *right.above(np.random.default_rng(self.seed)).values())
        backs = {layout: functools.partial(self.back, layout, right) for layout in LAYOUTS}
        return [self.judge("gradient", right.gradient, arrays, backs, functools.partial(difference, right))]

    def judge(
        self,
        name: str,
        graph: Graph,
        arrays: Sequence[Array],
        runs: Mapping[str, KernelFunction],
        beside: Callable[[Sequence[Array], int, tuple[int, ...]], float] | None = None,
    ) -> KernelCheck:
        """The certificate over the layouts, and the findings; `beside`: a second opinion on a cell of an output."""
        outcomes, findings, shapes = [], dict[str, Finding](), dict[str, None]()
        for number, (layout, run) in enumerate(runs.items()):
            case = Case(f"{layout} tensors", tuple(_equal(a) if layout == "expanded" else a for a in arrays))
            with np.errstate(all="ignore"):
                outcome = KernelTrial(graph, run, is_check=True, tolerance=self.tolerance).outcome(case, number)
            outcomes.append(outcome)
            shapes[inputs_text(graph, case.inputs)] = None
            if outcome.broken:
                failure = outcome.failures[0]
                finding = self.finding(name, failure)
                if beside is not None and failure.cell is not None:
                    other = beside(case.inputs, graph.outputs.index(failure.output), failure.cell)
                    finding = replace(finding, message=f"{finding.message}; {other:.9g} by central differences")
                if number and not findings:
                    blind = f"it is right on packed tensors, and not on {layout} ones"
                    finding = replace(finding, message=f"{finding.message}; {blind}")
                findings.setdefault(finding.kind, finding)
        certificate = Certificate(f"{self.called}[{name}]", tuple(outcomes))
        notes = (f"on {', '.join(runs)} tensors",)
        return KernelCheck(name, LANGUAGE, certificate, tuple(findings.values()), tuple(shapes), notes)

    def finding(self, name: str, failure: Failure) -> Finding:
        """A failure as a finding."""
        kind = failure.kind
        if name == "gradient" and kind in (FindingKind.WRONG_VALUE, FindingKind.CRASH):
            kind = FindingKind.GRADIENT
        return Finding(self.called, name, LANGUAGE, kind, self.place, failure.inputs, str(failure), failure.cell)

    def run(self, layout: str, arrays: Sequence[Array]) -> list[Array]:
        """The results for arrays, as tensors in a layout."""
        with torch.no_grad():
            return [array_of(each).copy() for each in self.results(self.tensors(layout, arrays))]

    def back(self, layout: str, right: TorchReference, arrays: Sequence[Array]) -> list[Array]:
        """The gradients of the float arguments; the last arrays are the gradients of the results."""
        count = len(right.inputs)
        arguments = self.tensors(layout, arrays[:count])
        for at in right.wanted_places:
            arguments[at] = arguments[at].detach().requires_grad_()
        leaves = [arguments[at] for at in right.wanted_places]
        graded = list(map(self.results(arguments).__getitem__, right.graded_places))
        for at, each in zip(right.graded_places, graded, strict=True):
            if not each.requires_grad:
                raise CheckError(f"gave result {at} without a gradient, though its inputs require one")
        weights = [LAYOUTS[layout](tensor_of(array)) for array in arrays[count:]]
        try:
            gradients = torch.autograd.grad(graded, leaves, weights, materialize_grads=True)
        except (RuntimeError, TypeError, ValueError, IndexError) as fault:
            message = f"raised {type(fault).__name__} in its backward: {short(fault).partition(': ')[2]}"
            raise CheckError(message, FindingKind.CRASH) from fault
        return [array_of(each).copy() for each in gradients]

    def tensors(self, layout: str, arrays: Sequence[Array]) -> list[Any]:
        """The arguments of a call: the arrays as tensors in a layout, and the numbers at their places."""
        laid = (LAYOUTS[layout](each) if each.ndim else each for each in map(tensor_of, map(np.array, arrays)))
        return [next(laid) if isinstance(each, torch.Tensor) else each for each in self.args]

    def results(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """The results of a call. CheckError if it raises, returns anything but tensors, or changes an argument."""
        before = [each.detach().clone() if isinstance(each, torch.Tensor) else None for each in arguments]
        try:
            result = self.function(*arguments)
        except Exception as fault:
            raise CheckError(f"raised {short(fault)}", FindingKind.CRASH) from fault
        results = list(result) if isinstance(result, tuple | list) else [result]
        if not all(isinstance(each, torch.Tensor) for each in results):
            raise CheckError(f"returned {[type(each).__name__ for each in results]}, and not tensors")
        for at, (each, old) in enumerate(zip(arguments, before, strict=True)):
            if old is not None and not torch.equal(each.detach().nan_to_num(), old.nan_to_num()):
                raise CheckError(f"changed its input {at}", FindingKind.MUTATED_INPUT)
        return results


def _equal(array: Array) -> Array:
    """The array as `expand_first` has it: its first cells along the first axis everywhere."""
    return np.broadcast_to(array[:1], array.shape).copy() if array.ndim and len(array) else array
