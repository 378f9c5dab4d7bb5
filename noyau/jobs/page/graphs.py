"""Drawings of operator graphs; large ones are collapsed by the scopes in the names of their nodes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Cut
from noyau.frontends.onnx_messages import reads
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.jobs.page.document import MOST, Node, Section
from noyau.text import collect, printable, several

if TYPE_CHECKING:
    import onnx

FEWEST = 24  # least number of scopes that describe a large graph
_SCOPES = "pkg.torch.onnx.name_scopes"  # key of torch.export's scopes in the metadata of a node

Key = tuple[str | int, ...]


def plan_drawing(title: str, model: SourceModel, cuts: Iterable[Cut], plan: Plan, extra: Mapping[int, Node]) -> Section:
    """The drawing of a source model, its nodes in the colours of their kernels. `extra`: further facts by position."""
    kernels = {position: each.operator for each in plan.kernels for g in each.groups for position in g.positions}
    whole = {cut.producer: cut.reason for cut in cuts if cut.consumer is None}
    whole |= {position: reason for group, reason in plan.refused for position in group.positions}
    values, labels = model.imported.graph.nodes, model.labels
    types = {each.output: f"{each.dtype.value}[{', '.join(map(str, each.shape))}]" for each in values}

    def show(position: int, node: Node) -> Node | None:
        kernel, more = kernels.get(position, ""), extra.get(position, {})
        facts = {"node": labels[position], **node["facts"], "kernel": kernel}
        facts |= {} if kernel else {"not fused": whole.get(position, "")}
        lines = [*node["lines"], *more.get("lines", ())]
        shown = {**node, "lines": lines, "group": kernel, "source": kernel, "facts": facts | more.get("facts", {})}
        return shown if labels[position] else None

    apart = {(cut.producer, cut.consumer): cut.reason for cut in cuts if cut.consumer is not None}
    return draw(title, model.model.graph, show, types, apart)


def model_drawing(title: str, model: onnx.ModelProto, show: Callable[[int, Node], Node]) -> Section:
    """The drawing of a model file; nodes by noyau have the colours of their kernels."""

    def shown(position: int, node: Node) -> Node:
        own = is_own(model.graph.node[position].domain)
        return show(position, {**node, "group": node["lines"][0]} if own else node)

    return draw(title, model.graph, shown)


def draw(
    title: str,
    graph: onnx.GraphProto,
    show: Callable[[int, Node], Node | None],
    types: Mapping[str, str] | None = None,
    reasons: Mapping[tuple[int, int], str] | None = None,
) -> Section:
    """The drawing of a graph, collapsed if it has more nodes than a browser lays out. `show`: maps a node to its drawn
    form, or None to hide it; `types`: of values; `reasons`: why two neighbours are cut apart, by their positions."""
    shown = {}
    for position, each in enumerate(graph.node):
        name = printable(each.name)
        plain = {"lines": [printable(each.op_type)], "name": name, "facts": {"name": name}}
        if each.op_type != "Constant" and (node := show(position, plain)) is not None:
            shown[position] = node
    keys, note = clusters({position: scope_of(graph.node[position]) for position in shown})
    members = collect((key, position) for position, key in keys.items())
    nodes = [_join(key, [shown[each] for each in positions]) for key, positions in members.items()]
    place = {position: number for number, positions in enumerate(members.values()) for position in positions}
    apart = {(place[a], place[b]): why for (a, b), why in (reasons or {}).items() if a in place and b in place}
    listed = [[*ends, value, apart.get(ends, "")] for ends, value in _edges(graph, place, nodes, types or {}).items()]
    return {"title": title, "nodes": nodes, "edges": listed, "note": note}


def _edges(
    graph: onnx.GraphProto, place: Mapping[int, int], nodes: list[Node], types: Mapping[str, str]
) -> dict[tuple[int, int], str]:
    """The edges between nodes, each with its first value; inputs and outputs of the graph are appended as nodes."""
    makers = {name: number for position, number in place.items() for name in graph.node[position].output if name}
    stored = {each.name for each in graph.initializer}
    for name in (each.name for each in graph.input if each.name not in stored):
        makers[name] = len(nodes)
        nodes.append({"lines": [printable(name), types.get(name, "input")], "tone": "end"})
    ends = [(number, name) for position, number in place.items() for name in sorted(reads(graph.node[position]))]
    for name in (each.name for each in graph.output if each.name in makers):
        ends.append((len(nodes), name))
        nodes.append({"lines": [printable(name), "output"], "tone": "end"})
    edges: dict[tuple[int, int], str] = {}
    for end, name in ends:
        if makers.get(name, end) != end:
            edges.setdefault((makers[name], end), ": ".join(filter(None, [printable(name), types.get(name, "")])))
    return edges


def clusters(scopes: Mapping[int, tuple[str, ...]]) -> tuple[dict[int, Key], str]:
    """The key of the drawn node for each position, and a line on what was collapsed.

    Scopes are cut at the greatest depth at which there are at most MOST; if too few remain, runs of successive nodes
    are collapsed too."""
    if len(scopes) <= MOST:
        return {position: (position,) for position in scopes}, ""
    keys: dict[int, Key] = dict.fromkeys(scopes, ())
    how = "by the scopes in the names of their nodes"
    for depth in range(1, max(map(len, scopes.values())) + 1):
        finer: dict[int, Key] = {position: scope[:depth] for position, scope in scopes.items()}
        if len(set(finer.values())) > MOST:
            break
        keys = finer
    if len(set(keys.values())) < FEWEST:
        run = -(-len(scopes) // (MOST // 2))
        keys = {position: (*keys[position], number // run) for number, position in enumerate(scopes)}
        how = f"in runs of {run}, for the names of their nodes have too few scopes or too many"
    return keys, f"{several(len(scopes), 'node')} are collapsed into {len(set(keys.values()))}, {how}."


def _join(key: Key, nodes: Sequence[Node]) -> Node:
    """The node itself, or a node that represents several."""
    if len(nodes) == 1:
        return nodes[0]
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(each["lines"][0] for each in nodes).most_common(5))
    groups, tones = ([*dict.fromkeys(filter(None, (each.get(at) for each in nodes)))] for at in ("group", "tone"))
    name = "/".join(printable(part) for part in key if isinstance(part, str))
    lines = [name.rpartition("/")[2] or f"{nodes[0]['lines'][0]} ...", several(len(nodes), "node")]
    facts = {"name": name, "operators": kinds, "kernels": ", ".join(groups)}
    group, tone = ("" if not each else each[0] for each in (groups, tones))
    return {"lines": lines, "name": name, "facts": facts, "group": group, "tone": tone, "holds": len(nodes)}


def scope_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """The modules that contain a node, outermost first, from torch.export's metadata or from its name."""
    for each in node.metadata_props:
        if each.key == _SCOPES:
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                if isinstance(parts := ast.literal_eval(each.value), list):
                    return tuple(str(part) for part in parts[1:])
    return tuple(part for part in re.split(r"[/:]+", node.name) if part)
