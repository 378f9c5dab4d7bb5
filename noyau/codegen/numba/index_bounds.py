"""Proofs that an index is within its axis, also in loops over tiles."""

from collections.abc import Container, Mapping, Sequence

from noyau.ir.dims import Atom, Dim, DimOp, never_negative
from noyau.ir.ranges import Extents, at_least_one, highest, lowest


def is_inside(index: Dim, extent: Dim, extents: Extents) -> bool:
    """Whether 0 <= index < extent is certain within loops of these extents.

    Quotients and remainders of sizes, such as n // 64 and n % 64, count as sizes, with n // 64 * 64 + n % 64 == n."""
    values: dict[str, Dim] = {}
    plain = {name: _plain(of, values) for name, of in extents.items()}
    index, extent = _plain(index, values), _plain(extent, values)
    low, high = lowest(index, plain), highest(index, plain)
    if low is None or high is None:
        return False
    running = frozenset[str]().union(*(at_least_one(of) for of in extents.values()))
    left = _least((extent - 1 - high).replace(values))
    return never_negative(low.replace(values), running) and never_negative(left, running)


def tile_of(length: Dim, lengths: Mapping[str, tuple[Dim, Dim]]) -> tuple[Dim, Dim] | None:
    """The begin and the extent of a tile from its length, min(size, extent - begin); None for any other length.

    `lengths`: the same for tiles that may contain it."""
    match length.terms:
        case (((DimOp("max", left, right),), -1),):
            for left_over in (-left, -right):
                begin = Dim(tuple((atoms, -factor) for atoms, factor in left_over.terms if _moves(atoms, lengths)))
                if begin.terms and never_negative(begin):
                    before, extent = lengths.get(str(left_over + begin), (Dim.of(0), left_over + begin))
                    return before + begin, extent
        case _:
            pass
    return None


def _moves(atoms: Sequence[Atom], lengths: Container[str]) -> bool:
    return any(isinstance(atom, str) and atom.startswith("#") and atom not in lengths for atom in atoms)


def out_of_tiles(index: Dim, tiles: Mapping[str, tuple[Dim, Dim]], extents: Extents) -> tuple[Dim, Extents]:
    """An index with variables of tiles replaced by variables over whole axes, and the extents with these added."""
    for name, (begin, extent) in tiles.items():
        if name in index.names:
            whole = f"{name}_whole"
            changed = index.replace({name: Dim.of(whole) - begin})
            if not any(moving in changed.names for moving in begin.names if moving.startswith("#")):
                index, extents = changed, {**extents, whole: extent}
    return index, extents


def _plain(dim: Dim, values: dict[str, Dim]) -> Dim:
    """The Dim with a name for each nonnegative operation on sizes alone; `values` gets the meaning of each name."""
    total = Dim.of(0)
    for atoms, factor in dim.terms:
        part = Dim.of(factor)
        for atom in atoms:
            whole = Dim((((atom,), 1),))
            if isinstance(atom, DimOp) and never_negative(whole) and not any(n.startswith("#") for n in whole.names):
                name = f"natural {whole}"
                values[name], whole = whole, Dim.of(name)
            part = part * whole
        total = total + part
    return total


def _least(dim: Dim) -> Dim:
    """The least value of a Dim of sizes, with n % c as n - n // c * c, and n // c * c, where it is subtracted, as n."""
    total = Dim.of(0)
    for atoms, factor in dim.terms:
        match atoms:
            case (DimOp("mod", left, right),) if right.constant:
                total = total + (left - Dim((((DimOp("floordiv", left, right),), 1),)) * right) * factor
            case _:
                total = total + Dim(((atoms, factor),))
    if total != dim:
        return _least(total)
    for atoms, factor in sorted(dim.terms, key=lambda term: -len(str(term[0]))):  # outer operations first
        match atoms:
            case (DimOp("floordiv", left, right),) if factor < 0 and right.constant and factor % right.constant == 0:
                return _least(dim - Dim(((atoms, factor),)) + left * (factor // right.constant))
            case _:
                pass
    return dim
