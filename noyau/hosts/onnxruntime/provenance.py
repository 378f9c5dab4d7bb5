"""Metadata of a model that noyau has written, and such a model with its fused nodes taken apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.hosts.onnxruntime.function_bodies import CORE_DOMAINS, DOMAIN, ModelValues, is_foreign, subgraphs, unfuse
from noyau.hosts.onnxruntime.model_files import library_path
from noyau.version import __version__

if TYPE_CHECKING:
    import onnx

_PREFIX = "noyau."
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a written model: noyau's version, the CPU level that its kernels need, and digests (SHA-256, in
    hexadecimal) of the file that was optimised and of the library; "" where it was not said."""

    version: str
    target: str
    source_sha256: str
    library_sha256: str = ""


def sign(
    model: onnx.ModelProto, source: Path | None, target: str, texts: Mapping[str, str], library: Path | None
) -> None:
    """Write into a model where it comes from: this version of noyau, the CPU level `target`, the file `source` (None:
    no file) and the library; into each fused function the level and the SHA-256 of its kernel's text, which `texts` has
    by the function's name. A model without a library is left as it is."""
    if library is None:
        return
    result = Provenance(__version__, target, sha256_of(source) if source else "", sha256_of(library))
    _write(model, {name: getattr(result, name) for name in Provenance.__slots__})
    for function in model.functions:
        if function.domain == DOMAIN and function.name in texts:
            digest = hashlib.sha256(texts[function.name].encode()).hexdigest()
            _write(function, {"target": target, "text_sha256": digest})


def provenance_of(model: onnx.ModelProto) -> Provenance | None:
    """Origin that a model states; None where noyau has not written it."""
    facts = _read(model)
    if "version" not in facts:
        return None
    return Provenance(**{name: facts.get(name, "") for name in Provenance.__slots__})


def sha256_of(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            total.update(piece)
    return total.hexdigest()


def library_state(path: Path, provenance: Provenance) -> str:
    """State of the library of a written model: "as written", "another one" or "missing"."""
    try:
        return "as written" if sha256_of(library_path(path)) == provenance.library_sha256 else "another one"
    except OSError:
        return "missing"


def take_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the body of each fused node in its place, so that it can be optimised as if it never was; itself
    where no node is fused. What it said of where it comes from goes."""
    values = ModelValues.of(model)
    fused = [node.domain == DOMAIN and _is_plain(node, model, values) for node in model.graph.node]
    if not any(fused):
        return model
    occupied = {name for node in model.graph.node for name in (*node.input, *node.output)}
    occupied |= {each.name for each in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    result = type(model)()
    result.CopyFrom(model)
    del result.graph.node[:]
    shared: dict[bytes, str] = {}
    for node, apart in zip(model.graph.node, fused, strict=True):
        body = _with_shared(unfuse(node, values, occupied), node, result.graph, shared) if apart else [node]
        result.graph.node.extend(body)
    _drop_functions(result)
    _write(result, {})
    return result


def _with_shared(
    body: Iterable[onnx.NodeProto], node: onnx.NodeProto, graph: onnx.GraphProto, shared: dict[bytes, str]
) -> Iterator[onnx.NodeProto]:
    """The nodes of a body; a constant becomes an initializer, and only one with all that are equal: each body has its
    own. `shared` has those that there are, by content."""
    names: dict[str, str] = {}
    for each in body:
        tensor = each.attribute[0].t if each.op_type == "Constant" and len(each.attribute) == 1 else None
        if tensor is not None and tensor.data_type and each.output[0] not in node.output:
            tensor.ClearField("name")
            content = tensor.SerializeToString(deterministic=True)
            if content not in shared:
                shared[content] = each.output[0]
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = each.output[0]
            names[each.output[0]] = shared[content]
        else:
            for number, name in enumerate(each.input):
                each.input[number] = names.get(name, name)
            yield each


def _is_plain(node: onnx.NodeProto, model: onnx.ModelProto, values: ModelValues) -> bool:
    """Whether a fused node has a body that noyau could have written, in the operator sets of the model."""
    if is_foreign(node, values):
        return False
    own = {_domain(entry.domain): entry.version for entry in model.opset_import}
    imported = values.fused[node.op_type].opset_import
    return all(own.get(_domain(entry.domain)) == entry.version for entry in imported)


def _domain(name: str) -> str:
    return "" if name in CORE_DOMAINS else name


def _drop_functions(model: onnx.ModelProto) -> None:
    """Remove the fused functions that no node calls any more, and the domain with the last of them."""
    names = {node.op_type for node in _nodes(model) if node.domain == DOMAIN}
    for number in reversed(range(len(model.functions))):
        if model.functions[number].domain == DOMAIN and model.functions[number].name not in names:
            del model.functions[number]
    if not names:
        for number in reversed(range(len(model.opset_import))):
            if model.opset_import[number].domain == DOMAIN:
                del model.opset_import[number]


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: of the graph, its subgraphs, and the functions."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for graph in subgraphs(node) for each in graph.node]


def _read(message: onnx.ModelProto | onnx.FunctionProto) -> dict[str, str]:
    entries = {entry.key: entry.value for entry in message.metadata_props}
    return {key.removeprefix(_PREFIX): entry for key, entry in entries.items() if key.startswith(_PREFIX)}


def _write(message: onnx.ModelProto | onnx.FunctionProto, facts: Mapping[str, str]) -> None:
    """Put these facts in place of those that were there; a function of an old release of onnx has no place for them."""
    if not hasattr(message, "metadata_props"):
        return
    for number in reversed(range(len(message.metadata_props))):
        if message.metadata_props[number].key.startswith(_PREFIX):
            del message.metadata_props[number]
    for key, fact in facts.items():
        message.metadata_props.add(key=_PREFIX + key, value=fact)
