"""Pairs of equal nodes of two models, by their computation and their neighbours, independent of names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from noyau.jobs.diff.onnx_sides import COMMUTATIVE, ComparedNode, ModelSide

Keys: TypeAlias = Sequence[Hashable]
Meanings: TypeAlias = tuple[dict[str, Hashable], dict[str, Hashable]]


def match(one: ModelSide, other: ModelSide) -> dict[int, int]:
    """Pairs of nodes, by their places in `nodes`: first those that compute the same from the inputs, then those of
    which the outputs compute the same, then neighbours of pairs, then nodes of equal operator, parameters, weights."""
    forward = _source_keys(one), _source_keys(other)
    backward = _use_keys(one), _use_keys(other)
    local = _local(one), _local(other)
    both = list(zip(forward[0], backward[0], strict=True)), list(zip(forward[1], backward[1], strict=True))
    pairs: dict[int, int] = {}
    for keys in (both, forward, backward):
        _zip(keys, pairs)
    certain = frozenset(pairs)
    graphs = _Neighbours(one), _Neighbours(other)
    operators = [node.operator for node in one.nodes], [node.operator for node in other.nodes]
    _spread(local, pairs, graphs)
    _spread(operators, pairs, graphs)
    _zip(local, pairs)
    _spread(operators, pairs, graphs)
    _drop_doubtful(one, other, pairs, certain)
    return pairs


def _zip(keys: tuple[Keys, Keys], pairs: dict[int, int]) -> None:
    """Pair the nodes with equal keys that have no partners yet, in order."""
    taken, free = set(pairs.values()), defaultdict[Hashable, list[int]](list)
    for place in reversed(range(len(keys[1]))):
        if place not in taken:
            free[keys[1][place]].append(place)
    for place, key in enumerate(keys[0]):
        if place not in pairs and free[key]:
            pairs[place] = free[key].pop()


def _spread(keys: tuple[Keys, Keys], pairs: dict[int, int], graphs: tuple[_Neighbours, _Neighbours]) -> None:
    """Pair the neighbours of pairs at the same operand, if their keys are equal."""
    taken, waiting = set(pairs.values()), list(pairs.items())
    while waiting:
        ends = waiting.pop()
        for near in ("before", "after"):
            ours, theirs = (getattr(graph, near)[end] for graph, end in zip(graphs, ends, strict=True))
            for slot, place in ours:
                for at, partner in theirs:
                    fits = slot == at and keys[0][place] == keys[1][partner]
                    if fits and place not in pairs and partner not in taken:
                        pairs[place] = partner
                        taken.add(partner)
                        waiting.append((place, partner))


class _Neighbours:
    """The nodes before and after each node, each with the operand that connects the two."""

    def __init__(self, side: ModelSide) -> None:
        makers = {name: place for place, node in enumerate(side.nodes) for name in node.outputs}
        self.before: list[list[tuple[int, int]]] = [[] for _ in side.nodes]
        self.after: list[list[tuple[int, int]]] = [[] for _ in side.nodes]
        for place, node in enumerate(side.nodes):
            for slot, name in enumerate(node.operands):
                if name in makers:
                    slot = 0 if node.operator in COMMUTATIVE else slot
                    self.before[place].append((slot, makers[name]))
                    self.after[makers[name]].append((slot, place))


def _local(side: ModelSide) -> Keys:
    weights = side.constants
    return [(*_plain(node), *(weights[e].digest for e in node.operands if e in weights)) for node in side.nodes]


def _plain(node: ComparedNode) -> tuple[Hashable, ...]:
    return node.operator, tuple(sorted(node.parameters.items()))


def _source_keys(side: ModelSide) -> Keys:
    """A key for each node by the whole computation of its outputs from inputs and constants."""
    values: dict[str, int] = {name: hash(each.digest) for name, each in side.constants.items()}
    values |= {name: hash(("input", place)) for place, name in enumerate(side.inputs)}
    keys = []
    for node in side.nodes:
        operands: Iterable[int] = [values.get(name, 0) for name in node.operands]
        key = hash((_plain(node), *(sorted(operands) if node.operator in COMMUTATIVE else operands)))
        values |= {name: hash((key, place)) for place, name in enumerate(node.outputs)}
        keys.append(key)
    return keys


def _use_keys(side: ModelSide) -> Keys:
    """A key for each node by all further uses of its outputs, without weights, which may have changed."""
    uses, keys = defaultdict[str, list[int]](list), [0] * len(side.nodes)
    for place, name in enumerate(side.outputs):
        uses[name].append(hash(("output", place)))
    for place, node in reversed(list(enumerate(side.nodes))):
        keys[place] = hash((_plain(node), *(tuple(sorted(uses[name])) for name in node.outputs)))
        for slot, name in enumerate(node.operands):
            uses[name].append(hash((keys[place], 0 if node.operator in COMMUTATIVE else slot)))
    return keys


def _drop_doubtful(one: ModelSide, other: ModelSide, pairs: dict[int, int], certain: frozenset[int]) -> None:
    """Drop the uncertain pairs whose nodes read different values: they are different nodes."""
    meanings = meanings_of(one, other, pairs)
    for place, partner in sorted(pairs.items()):
        node, twin = one.nodes[place], other.nodes[partner]
        apart = unlike(node, twin, meanings)
        if place not in certain and any(a not in one.constants or b not in other.constants for a, b in apart):
            del pairs[place]
            for known, names in zip(meanings, (node.outputs, twin.outputs), strict=True):
                known.update(dict.fromkeys(names))


def meanings_of(one: ModelSide, other: ModelSide, pairs: Mapping[int, int]) -> Meanings:
    """The meaning of each value, equal on both sides if they agree; None for a value of a node without a partner."""
    result: Meanings = {}, {}
    numbers = {place: place for place in pairs}, {partner: place for place, partner in pairs.items()}
    for side, number, meanings in zip((one, other), numbers, result, strict=True):
        meanings |= {name: ("constant", each.digest) for name, each in side.constants.items()}
        meanings |= {name: ("input", place) for place, name in enumerate(side.inputs)}
        for place, node in enumerate(side.nodes):
            for slot, name in enumerate(node.outputs):
                meanings[name] = (number[place], slot) if place in number else None
    return result


def unlike(node: ComparedNode, twin: ComparedNode, meanings: Meanings) -> list[tuple[str, str]]:
    """The pairs of operands of two nodes with different meanings; of commutative operators, in the better order."""

    def apart(theirs: Sequence[str]) -> list[tuple[str, str]]:
        every = [(a, b, meanings[0].get(a), meanings[1].get(b)) for a, b in zip(node.operands, theirs, strict=False)]
        return [(a, b) for a, b, first, second in every if None not in (first, second) and first != second]

    orders = [twin.operands, twin.operands[::-1]] if node.operator in COMMUTATIVE else [twin.operands]
    return min(map(apart, orders), key=len)
