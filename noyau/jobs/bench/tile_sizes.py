"""Sizes of tiles that are worth a try on a GPU, and why: what tuning searches through, all of it.

The rules of thumb are CUDA's own (Best Practices Guide, "Execution configuration"): blocks of whole warps, 128 to 512
threads, two to four blocks and more for each multiprocessor; and 16 bytes a load with a few loads in flight a thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from noyau.ir.loops import Tile, TilePolicy
from noyau.kernels.programs.generate import GeneratedProgram

WARP = 32
SIZED = (TilePolicy.FIXED, TilePolicy.LIMITED)
WARPS = (4, 8, 16)  # 128 to 512 threads
CELLS_A_THREAD = (4, 64)
LEAST_BLOCKS = 2  # of a multiprocessor
MOST = 12
_FACTORS = (0.25, 0.5, 1, 2, 4)


def tilings(generated: GeneratedProgram, cells: int, sm_count: int) -> list[tuple[dict[str, int], str]]:
    """Sizes of tiles and numbers of warps for the kernels of a program, by name, each with its reason; `cells` of the
    largest array. Those that leave multiprocessors idle come only where all do; none where nothing can be chosen."""
    tiles = chosen_tiles(generated)
    candidates = sorted(_candidates(tiles, cells, sm_count), key=lambda each: each[0])
    busy = [each for each in candidates if each[2] >= LEAST_BLOCKS] or candidates
    return [(sizes, name) for _, name, _, sizes in busy[:MOST]]


def chosen_tiles(generated: GeneratedProgram) -> list[Tile]:
    """The tiles whose size whoever launches may choose."""
    tiles = (tile for kernel in generated.program.kernels for launch in kernel.launches for tile in launch.tiles)
    return list({tile.name: tile for tile in tiles if tile.policy in (*SIZED, TilePolicy.SHARING)}.values())


def _candidates(tiles: list[Tile], cells: int, sm_count: int) -> Iterator[tuple[float, str, float, dict[str, int]]]:
    """All choices: the distance from the usual one, the reason, the blocks of a multiprocessor, and the sizes."""
    sized = [tile for tile in tiles if tile.policy in SIZED]
    if not sized:
        return
    for factors in itertools.product(_FACTORS, repeat=len(sized)):
        sizes = {tile.name: int(tile.number * factor) for tile, factor in zip(sized, factors, strict=True)}
        program = math.prod(sizes.values())
        for warps in WARPS:
            threads = warps * WARP
            blocks = cells / max(program, 1) / sm_count
            if CELLS_A_THREAD[0] <= program / threads <= CELLS_A_THREAD[1] and min(sizes.values()) >= 1:
                name = (
                    f"{threads} threads, a multiple of {WARP} from 128 to 512, of {program / threads:g} cells each; "
                    f"{blocks:.3g} blocks a multiprocessor"
                )
                far = sum(abs(math.log2(factor)) for factor in factors) + abs(math.log2(warps / 8))
                yield far, name, blocks, {**sizes, "num_warps": warps}


def read_tiles(named: str) -> Mapping[str, int]:
    """The sizes in a candidate's name: `generated triton (TILE=1024, num_warps=4)`."""
    inside = named.partition(" (")[2].removesuffix(")")
    pairs = (each.partition("=") for each in inside.split(", ") if each)
    return {name: int(value) for name, _, value in pairs if value.isdecimal()}
