"""A model as it was read: its message, its folder, its graph. Trials of a fused model before it is written: it opens
with its library and without, and onnx's checker accepts it."""

from __future__ import annotations

import math
import platform
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.codegen.plan import PlannedKernel
from noyau.compiler.partition.cut import Partition, partition
from noyau.compiler.partition.traffic import Sizes
from noyau.dtypes import DType, from_onnx
from noyau.errors import InputError, ModelError
from noyau.frontends import onnx as frontend
from noyau.frontends.onnx_messages import core, every_node, reads, subgraphs, tensors_of
from noyau.hosts.onnxruntime.bodies import Body, laid_flat, loosen_loops, rename_values
from noyau.hosts.onnxruntime.function_bodies import is_own, value_names
from noyau.hosts.onnxruntime.model_files import Provenance, library_path, library_state, provenance_of, take_apart
from noyau.hosts.onnxruntime.runs import run_node
from noyau.hosts.onnxruntime.sessions import OPTIMIZED as OPTIMIZED_FILE
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.write_back import FUNCTIONS_SINCE
from noyau.text import free_name, printable

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto
    from onnxruntime import InferenceSession

# The domains of onnxruntime; operators of other domains come in libraries that noyau does not have.
DOMAINS = ("ai.onnx", "com.microsoft", "com.ms", "noyau")
OUTSIDE = "it is not on the path that is asked for"
OPTIMIZED = ("com.microsoft", "com.microsoft.nchwc")  # the domains of operators that its optimizer emits
IN_DEFAULT_DOMAIN = ("SimplifiedLayerNormalization",)  # its optimizer emits them there, where their kernels are
_WITHOUT_HALVES = ("x86_64", "AMD64")  # processors on which no kernel of onnxruntime computes in float16
_MOVING = frozenset("Concat Expand Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())
_SLOW = [("", "Mish"), ("", "Softplus")]  # inlined by onnxruntime in float16, which beats its float32 kernels
_TAKING_HALVES = ("Cast", "IsInf", "IsNaN")  # operators for which onnxruntime keeps a Cast to float16 before them
_COLUMNS = {"Imputer": ["imputed_value_floats"], "OneHotEncoder": ["cats_int64s"], "Scaler": ["offset", "scale"]}
LARGE = 1 << 30  # from so many bytes of external data on, weights are not copied into the layout a runtime likes best


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A model to be optimised. `folder`: where its external data lies; `raw`: the model in its file, if that is of an
    old IR or opset; `written`: its origin, if noyau has written it: its fused nodes were then replaced by bodies. If
    its `bodies` lie flat behind its main graph, `nested` is the model that runs. `as_run`: sessions copy weights, as a
    user's do, however large they are. `wide`: float16 values of the file are computed in float32."""

    name: str
    folder: Path
    model: ModelProto
    imported: frontend.ImportedModel
    written: Provenance | None = None
    raw: ModelProto | None = None
    bodies: tuple[Body, ...] = ()
    nested: ModelProto | None = None
    as_run: bool = False
    wide: bool = False

    @property
    def runnable(self) -> ModelProto:
        """The model with its bodies in their nodes."""
        return self.nested or self.model

    @property
    def before(self) -> ModelProto:
        """The model that a fused one has to beat, and that is returned where none does."""
        return self.raw or self.runnable

    @property
    def feed_model(self) -> frontend.ImportedModel:
        """The model for which synthetic inputs are made: without its bodies, which put no demands on them."""
        if not self.bodies:
            return self.imported
        first, imported = self.bodies[0].entries.start, self.imported
        nodes = tuple(node for node in imported.graph.nodes if imported.places.get(node.output, -1) < first)
        graph = replace(imported.graph, nodes=nodes, outputs=tuple(end.name for end in self.runnable.graph.output))
        return replace(imported, graph=graph, demands={at: each for at, each in imported.demands.items() if at < first})

    @property
    def conversion(self) -> str:
        """A line about the conversion of the model's opset and of its float16, or an empty text."""
        wide = "its float16 is computed in float32, as onnxruntime does on this processor" if self.wide else ""
        return "; ".join(filter(None, (frontend.conversion(self.before), wide)))

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def operators(self) -> tuple[str, ...]:
        """The type of each node, by position."""
        return tuple(node.op_type for node in self.model.graph.node)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the nodes in texts: type and position, in its body; empty for those that enter a body."""
        labels = [f"{operator}#{position}" for position, operator in enumerate(self.operators)]
        for body in self.bodies:
            labels[body.entries.start : body.entries.stop] = [""] * len(body.entries)
            for number, position in enumerate(body.operators):
                labels[position] = f"{body.prefix}{self.operators[position]}#{number}"
        return tuple(labels)

    @property
    def origin(self) -> str:
        """The origin of a model that noyau has written, and whether its library is beside it; else ""."""
        provenance, path = self.written, self.path
        if provenance is None:
            return ""
        library = f"its library {library_path(path).name}: {library_state(path, provenance)}"
        facts = [
            f"written by noyau {provenance.version} for {provenance.target}",
            f"from a model of SHA-256 {provenance.source_sha256}",
            library * bool(provenance.library_sha256),
            "its kernels are taken apart here",
        ]
        return printable("; ".join(filter(None, facts)))

    def locate(self, kernel: PlannedKernel) -> PlannedKernel:
        """The kernel, with the body of its first place named before the operators that it replaces."""
        positions, operators = kernel.groups[0].positions, self.operators
        body = next((body for body in self.bodies if positions[0] in body.operators), None)
        names = [operators[position] for position in positions]
        return kernel if body is None else replace(kernel, replaces=(f"{body.name}: {names[0]}", *names[1:]))

    @property
    def prepacked(self) -> bool:
        """Whether sessions may copy the weights: not where they are large."""
        return self.as_run or external_bytes(self.model) < LARGE

    def cut(self, within: Collection[int] | None = None) -> Partition:
        """The groups of the model, and the reasons of its cuts; `within`: positions of the only operators to fuse."""
        scopes = {position: body.name for body in self.bodies for position in body.operators}
        wired = replace(frontend.partition_model(self.model, self.imported), scopes=scopes)
        if within is not None:
            others = {place.position for place in wired.places} - set(within) - wired.arithmetic
            wired = replace(wired, opaque={**wired.opaque, **dict.fromkeys(sorted(others), OUTSIDE)})
        result, entries = partition(wired), {position for body in self.bodies for position in body.entries}
        cuts = (cut for cut in result.cuts if cut.consumer is not None or cut.producer not in entries)
        return replace(result, cuts=tuple(cuts))

    def session(self, model: ModelProto, library: Path | None = None, *, threads: int = 0) -> InferenceSession:
        """A session of the model itself, of a part or of a fused twin. ModelError where onnxruntime refuses it."""
        content = model.SerializeToString()
        return open_session(content, library, threads=threads, folder=self.folder, prepacked=self.prepacked)


def open_model(path: Path, *, flat: bool = False, sizes: Sizes | None = None, wide: bool = False) -> SourceModel:
    """Read and import the model of a file, its bodies `flat` or left alone, with numbers for the `sizes`; `wide`: its
    float16 in float32, if onnxruntime computes it so and weights may be copied. ModelError where it is not usable,
    InputError for a size that it lacks."""
    raw = with_fixed_sizes(frontend.parse(path), sizes) if sizes else frontend.parse(path)
    model = frontend.verify(frontend.upgrade(raw))
    plain = take_apart(model)
    if plain is not model:
        frontend.verify(plain)
    older, provenance, whole = raw if plain is model is not raw else None, provenance_of(model), plain
    with frontend.Inference() as inference:
        wide &= platform.machine() in _WITHOUT_HALVES and external_bytes(plain) < LARGE
        plain = in_float32(plain) if wide else plain
        wide, seen = plain is not whole, set[tuple[str, str]]()
        plain = with_columns(plain)
        while True:
            laid, bodies, imported = _import(plain, path.parent, inference, flat=flat)
            nodes = [laid.graph.node[position] for position in imported.opaque]
            calls = {(node.domain, node.op_type) for node in nodes if not is_own(node.domain)} - seen
            if (inner := frontend.inline_functions(plain, sorted(calls))) is plain:
                break
            plain, seen = inner, seen | calls  # a callee of an inlined body may be opaque too
    ends = provenance, older or (None if plain is whole else whole), bodies, plain if bodies else None
    return SourceModel(path.name, path.parent, laid, imported, *ends, wide=wide)


def _import(
    plain: ModelProto, folder: Path, inference: frontend.Inference, *, flat: bool
) -> tuple[ModelProto, tuple[Body, ...], frontend.ImportedModel]:
    """Import a model: with its bodies laid flat, if `flat` and they are well formed; these bodies; and its graph."""
    laid, bodies = plain, tuple[Body, ...]()
    if flat and any(any(subgraphs(node)) for node in plain.graph.node):
        with suppress(ModelError):
            pair = laid_flat(plain, inference.graph(plain).node)
            frontend.verify(pair[0])
            laid, bodies = pair
    imported = frontend.import_model(laid, folder, run=run_node, inference=inference)
    while loosen_loops(laid, bodies, imported.graph):
        imported = frontend.import_model(laid, folder, run=run_node, inference=inference)
    return laid, bodies, imported


def with_columns(model: ModelProto) -> ModelProto:
    """The model with functions in place of operators of tables: kernels read the numbers of their columns, which are
    attributes, from tensors of the model, and bodies do not. The model itself, not copied, without any."""
    of_tables = ((at, node) for at, node in enumerate(model.graph.node) if node.domain == "ai.onnx.ml")
    places = [at for at, node in of_tables if {*_COLUMNS.get(node.op_type, [""])} <= {a.name for a in node.attribute}]
    if not places:
        return model
    helper, result, taken = frontend.onnx.helper, deepcopy(model), value_names(model.graph)
    functions: dict[str, FunctionProto] = {}
    for node in (result.graph.node[at] for at in places):
        own, names = {each.name: each for each in node.attribute}, _COLUMNS[node.op_type]
        inner = helper.make_node(node.op_type, ["x"], ["y"], domain=node.domain)
        opsets = [each for each in model.opset_import if each.domain == node.domain]
        new = helper.make_function(frontend.COLUMNS, node.op_type, ["x", *names], ["y"], [inner], opsets)
        function = functions.setdefault(node.op_type, new)
        for name in sorted(own.keys() - {*function.attribute}):
            function.attribute.append(name)
            function.node[0].attribute.add(name=name, ref_attr_name=name, type=own[name].type)
        for name in names:
            cells = np.array(own[name].floats, np.float32) if own[name].floats else np.array(own[name].ints, np.int64)
            node.input.append(free_name(f"{node.output[0]}_{name}", taken))
            taken.add(node.input[-1])
            result.graph.initializer.append(frontend.onnx.numpy_helper.from_array(cells, node.input[-1]))
        node.domain = frontend.COLUMNS
    result.functions.extend(functions.values())
    result.opset_import.add(domain=frontend.COLUMNS, version=1)
    result.ir_version = max(result.ir_version, FUNCTIONS_SINCE)
    return result


def in_float32(model: ModelProto) -> ModelProto:
    """The model with its float16 in float32, with casts at its inputs and outputs; itself where it has no float16, or
    some that cannot be widened. Large weights stay float16: onnxruntime widens them once, when it opens the model."""
    graph, half, parts = model.graph, DType.F16.onnx, (model.graph, *model.functions)
    nodes = [node for part in parts for node in every_node(part.node)]
    dtypes = [each for node in nodes for each in node.attribute if each.name in frontend.DTYPES]
    held = [each for part in parts for each in tensors_of(type(graph)(node=part.node))]  # in attributes of nodes
    ends = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}  # 0: no tensor
    present = ends.union((each.i for each in dtypes), (each.data_type for each in (*graph.initializer, *held)))
    is_set_by_caller = any(each.ref_attr_name for each in dtypes)  # of a function
    if is_set_by_caller or half not in present or 0 in ends or graph.sparse_initializer or foreign_operators(model):
        return model
    if any(node.op_type == "BitCast" for node in nodes) or any(each.data_location == each.EXTERNAL for each in held):
        return model
    result = deepcopy(model)
    with suppress(TypeError):  # releases of onnx that cannot inline them
        result = frontend.onnx.inliner.inline_selected_functions(result, _SLOW, inline_schema_functions=True)
    inner = type(graph)(node=result.graph.node, output=graph.output, value_info=result.graph.value_info)
    rounded = [(part, _roundings(part)) for part in (inner, *result.functions)]
    try:
        for part, exempt in rounded:
            frontend.widen_types(part, [half], DType.F32.onnx, exempt)
    except ValueError:  # a tensor has not as many cells as its shape says
        return model
    _write_wide(result.graph, inner, rounded[0][1])
    return result


def _roundings(part: GraphProto | FunctionProto) -> set[str]:
    """The values that a Cast rounds to float16 and that no operator computes with: onnxruntime rounds them too."""
    nodes = [*every_node(part.node)]
    graphs = (part, *(graph for node in nodes for graph in subgraphs(node)))
    others = {getattr(each, "name", each) for graph in graphs for each in graph.output}  # a function has names
    others.update(name for node in nodes if node.op_type not in _TAKING_HALVES for name in node.input)
    casts = (node for node in nodes if node.op_type == "Cast" and DType.F16.onnx in [each.i for each in node.attribute])
    return {name for node in casts for name in node.output} - others


def _write_wide(graph: GraphProto, inner: GraphProto, rounded: Collection[str]) -> None:
    """Replace the nodes of a graph by those of `inner`, in float32, with casts of float16 values but the `rounded`."""
    results, names, wide = _halves(graph.output), value_names(graph), dict[str, str]()
    stored = {each.name for each in graph.initializer if each.data_type == DType.F16.onnx}
    narrow = _halves(graph.input).union(rounded, stored)

    def new_name(stem: str) -> str:
        names.add(name := free_name(stem, names))
        return name

    def widen(name: str) -> str:
        return wide.setdefault(name, new_name(f"{name}_f32"))

    def cast(name: str, result: str, dtype: DType) -> NodeProto:
        return frontend.onnx.helper.make_node("Cast", [name], [result], to=dtype.onnx)

    del graph.node[:]
    for node in inner.node:
        operator = "" if core(node.domain) else node.op_type  # a function may have the name of an operator
        moved = {*(node.input if operator == "Concat" else node.input[:1])}
        if operator == "Concat" and moved & narrow and results.intersection(node.output):  # a cache that grows
            parts = {name: new_name(f"{name}_f16") for name in sorted(moved - narrow)}
            graph.node.extend(cast(wide.get(name, name), part, DType.F16) for name, part in parts.items())
            node, moved = rename_values(node, parts), moved & narrow
        if operator in _MOVING and moved and moved <= narrow:
            narrow.update(node.output)
            graph.node.append(node)
            continue
        halves_read = reads(node) & narrow - wide.keys() if operator not in _TAKING_HALVES else ()
        graph.node.extend(cast(name, widen(name), DType.F32) for name in sorted(halves_read))
        for name in results.intersection(node.output):
            widen(name)
        graph.node.append(rename_values(node, wide))
    graph.node.extend(cast(wide[name], name, DType.F16) for name in sorted(results - narrow))
    narrow |= results
    for value, wider in zip(graph.value_info, inner.value_info, strict=True):
        value.CopyFrom(value if value.name in narrow else wider)


def _halves(values: Iterable[ValueInfoProto]) -> set[str]:
    return {each.name for each in values if each.type.tensor_type.elem_type == DType.F16.onnx}


def with_fixed_sizes(model: ModelProto, sizes: Sizes) -> ModelProto:
    """The model with numbers in place of some of its sizes, in the shapes of all its values. InputError for a size that
    no input has, or for a number below 1."""
    from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

    dims = (dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim)
    known = dict.fromkeys(filter(None, dims))
    for name, size in sizes.items():
        if name not in known or size < 1:
            what = "is no extent, from 1 on" if name in known else "is the size of no input"
            there = ", ".join(map(printable, known)) or "none: all are numbers already"
            raise InputError(f"--fix-dim {printable(name)}={size}: {printable(name)} {what}; the sizes are: {there}")
        make_dim_param_fixed(model.graph, name, size)
    return model


def external_bytes(model: ModelProto) -> int:
    """Bytes of the tensors, also of bodies, that lie in other files."""
    outside = (tensor for tensor in tensors_of(model.graph) if tensor.data_location == tensor.EXTERNAL)
    sizes = ((math.prod(tensor.dims), from_onnx(tensor.data_type)) for tensor in outside)
    return sum(count * dtype.bytes for count, dtype in sizes if dtype is not None)


def foreign_operators(model: ModelProto) -> dict[int, str]:
    """The operators that only a library of the user's own can run, by the positions of their nodes."""
    own = {(function.domain, function.name) for function in model.functions}
    by_name: dict[int, str] = {}
    for position, node in enumerate(model.graph.node):
        for each in every_node([node]):
            brought = not each.domain or f"{each.domain}.".startswith(tuple(f"{domain}." for domain in DOMAINS))
            if not brought and (each.domain, each.op_type) not in own:
                by_name.setdefault(position, f"{each.domain}::{each.op_type}")
    return by_name


def fused_operators(model: ModelProto) -> dict[str, int]:
    """Count the nodes of each operator that onnxruntime's optimizer made."""
    names = [node.op_type for node in model.graph.node if node.domain in OPTIMIZED or node.op_type in IN_DEFAULT_DOMAIN]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def optimized_operators(original: SourceModel, model: ModelProto) -> Counter[str]:
    """Count the nodes of each operator in a model, or a fused twin without library, as onnxruntime optimises it."""
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        place, folder = Path(name), original.folder.absolute()
        session = open_session(model.SerializeToString(), threads=1, folder=folder, prepacked=False, trace=place)
        session.end_profiling()
        nodes = every_node(type(model).FromString((place / OPTIMIZED_FILE).read_bytes()).graph.node)
        return Counter(node.op_type for node in nodes)


def fault_alone(original: SourceModel, fused: ModelProto) -> str:
    """Why a fused twin of a model does not open without its library, or an empty text."""
    if foreign_operators(original.runnable):
        return ""  # nor does the original
    try:
        open_session(fused.SerializeToString(), folder=original.folder, optimized=False, prepacked=False)
    except ModelError as error:
        return str(error)
    return ""


def require_opening(path: Path, library: Path | None, before: Path | None = None) -> None:
    """Raise ModelError where a written model does not open, with its library, if there is one, or without, as a user
    opens it, or where onnx's checker refuses it but not the file `before`."""
    model = frontend.parse(path)
    text = "the fused model is not fit to be used, and nothing is written: {}; leave out a group of it and report this"
    if (fault := frontend.checker_fault(path)) and not (before and frontend.checker_fault(before)):
        raise ModelError(text.format(f"onnx's checker says {fault}"))
    if foreign_operators(model):
        return
    for kernels in dict.fromkeys((library, None)):
        try:
            open_session(path, kernels, threads=1, prepacked=external_bytes(model) < LARGE)
        except ModelError as error:
            raise ModelError(text.format(f"{'with' if kernels else 'without'} its library, {error}")) from error
