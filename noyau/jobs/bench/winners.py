"""The winner of a race among an op's kernels, recorded for later calls; and the tile sizes to try on a GPU.

The heuristics are CUDA's (Best Practices Guide, "Execution configuration"): blocks of whole warps, 128 to 512 threads,
at least two to four blocks for each multiprocessor; and loads of 16 bytes, a few of them in flight for each thread.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from noyau.errors import OutputError
from noyau.ir.loops import Tile, TilePolicy
from noyau.jobs.bench.record import BenchPoint
from noyau.kernels.programs.generate import CPU, GeneratedProgram, Specialization, generate, in_order, lazy_graph
from noyau.kernels.trust import ineligible
from noyau.ops.dispatch.choice import REFERENCE, Winner, record, text_digest, usual_text
from noyau.ops.op import Op
from noyau.timing.verdict import Verdict
from noyau.toolchain.cache import today

WARP = 32
SIZED = (TilePolicy.FIXED, TilePolicy.LIMITED)
WARPS = (4, 8, 16)  # 128 to 512 threads
CELLS_A_THREAD = (4, 64)
LEAST_BLOCKS = 2  # for each multiprocessor
MOST = 12
_FACTORS = (0.25, 0.5, 1, 2, 4)


def record_winner(op: object, at: BenchPoint) -> None:
    """Record the winner for similar calls of the op, unless the cache cannot be written."""
    if isinstance(op, Op) and at.request and any(is_able(row.name, op, at.request) for row in at.ranked):
        with contextlib.suppress(OutputError):
            record(op.description, at.request, [winner_of(op, at, at.request, at.cells)])
        op.calls.forget()


def is_able(name: str, op: Op[..., Any], request: Specialization) -> bool:
    """Whether calls may run a candidate; on a GPU also a generated one with other tile sizes."""
    own = name.partition(" (")[0] if request.device != CPU and name.startswith("generated ") else name
    return own in [REFERENCE, *by_default(op, request)]


def winner_of(op: Op[..., Any], at: BenchPoint, request: Specialization, cells: int) -> Winner:
    """The fastest eligible kernel, if it is certainly FASTER than the default one; else the default one."""
    names = [row.name for row in at.ranked if is_able(row.name, op, request)]
    usual = next((name for name in (*by_default(op, request), REFERENCE) if name in names), names[-1])
    best = names[0] if at.comparison(names[0], usual).verdict is Verdict.FASTER else usual
    median_s, kernel = at.time_s(best) or 0.0, op.kernels.get(best)
    if kernel is not None:
        name, parted, _ = best.partition(" (")
        constants = tuple(sorted(kernel.usage.constants.items())) if parted else ()
        return Winner(cells, name, text_digest(kernel.text), median_s, today(), constants)
    if best == REFERENCE:
        return Winner(cells, REFERENCE, usual_text(op.description, request), median_s, today())
    language, tiles = best.partition(" (")[0].removeprefix("generated "), read_tiles(best)
    text = text_digest(generate(op.description, request, language).text)
    return Winner(cells, language, text, median_s, today(), tuple(sorted(tiles.items())))


def by_default(op: Op[..., Any], request: Specialization) -> Iterator[str]:
    """The eligible kernels, in the order of preference of a call without a recorded winner."""
    key = (op.description.reference, request.instance, request.constants, request.device)
    able = [each for each in op.kernels.values() if not ineligible(each, *key)]
    yield from (kernel.name for kernel in able if kernel.usage.trust)
    yield from (f"generated {each}" for each in in_order(request.languages, lazy_graph(key[0], request)))
    yield from (kernel.name for kernel in able if not kernel.usage.trust)


def tilings(generated: GeneratedProgram, cells: int, sm_count: int) -> list[tuple[dict[str, int], str]]:
    """Tile sizes and numbers of warps to try for a program, by name, each with its reason; `cells`: of the largest
    array. Those that leave multiprocessors idle are used only if all do; empty if nothing can be chosen."""
    candidates = sorted(_candidates(chosen_tiles(generated), cells, sm_count), key=lambda each: each[0])
    busy = [each for each in candidates if each[2] >= LEAST_BLOCKS] or candidates
    return [(sizes, name) for _, name, _, sizes in busy[:MOST]]


def chosen_tiles(generated: GeneratedProgram) -> list[Tile]:
    """The tiles whose sizes may be chosen at the launch."""
    tiles = (tile for kernel in generated.program.kernels for launch in kernel.launches for tile in launch.tiles)
    return list({tile.name: tile for tile in tiles if tile.policy in (*SIZED, TilePolicy.SHARING)}.values())


def _candidates(tiles: list[Tile], cells: int, sm_count: int) -> Iterator[tuple[float, str, float, dict[str, int]]]:
    """All choices: the distance from the default, the reason, the blocks for each multiprocessor, and the sizes."""
    sized = [tile for tile in tiles if tile.policy in SIZED]
    for factors in itertools.product(_FACTORS, repeat=len(sized)) if sized else ():
        sizes = {tile.name: int(tile.number * factor) for tile, factor in zip(sized, factors, strict=True)}
        program = math.prod(sizes.values())
        blocks = cells / max(program, 1) / sm_count
        for warps in WARPS:
            threads = warps * WARP
            if CELLS_A_THREAD[0] <= program / threads <= CELLS_A_THREAD[1] and min(sizes.values()) >= 1:
                each = f"of {program / threads:g} cells each; {blocks:.3g} blocks a multiprocessor"
                name = f"{threads} threads, a multiple of {WARP} from 128 to 512, {each}"
                far = sum(abs(math.log2(factor)) for factor in factors) + abs(math.log2(warps / 8))
                yield far, name, blocks, {**sizes, "num_warps": warps}


def read_tiles(named: str) -> Mapping[str, int]:
    """The tile sizes in a candidate's name: `generated triton (TILE=1024, num_warps=4)`."""
    pairs = (each.partition("=") for each in named.partition(" (")[2].removesuffix(")").split(", ") if each)
    return {name: int(value) for name, _, value in pairs if value.isdecimal()}
