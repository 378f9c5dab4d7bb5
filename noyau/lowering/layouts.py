"""Where an output lies in the loops of another: axes merged, as a reshape does, or in another order."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.ir.dims import Dim, Shape, equal, product

ONE = Dim.of(1)
Axis = tuple[Dim, Dim]  # of the nest: its index, and its extent


def merged(shape: Shape, axes: Sequence[Axis]) -> Shape | None:
    """The index of a value in a nest of these axes, where each axis of it is one of them or several neighbours as one;
    None where that is not so, or where the nest's innermost axis is not the value's: its cells would be stored one far
    from the other."""
    left, index, innermost = list(axes), list[Dim](), False
    for extent in shape:
        run = [] if extent == ONE else _run(extent, left)
        if run is None:
            return None
        if run:
            innermost = run[-1] == axes[-1]
            left = [axis for axis in left if axis not in run]
        index.append(_flat(run))
    return tuple(index) if not left and innermost else None


def _run(extent: Dim, axes: Sequence[Axis]) -> list[Axis] | None:
    """The first neighbours that have as many cells together as an extent."""
    for start in range(len(axes)):
        for end in range(start + 1, len(axes) + 1):
            if equal(product(own for _, own in axes[start:end]), extent):
                return list(axes[start:end])
    return None


def _flat(run: Sequence[Axis]) -> Dim:
    """The index in the axis that several make, in C order."""
    flat = Dim.of(0)
    for index, extent in run:
        flat = flat * extent + index
    return flat
