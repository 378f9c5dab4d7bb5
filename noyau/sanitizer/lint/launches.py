"""Correct launches that waste a GPU: block sizes that are no multiple of a warp, blocks too small to fill a
multiprocessor, a block per cell, grids that leave multiprocessors idle.

Source: NVIDIA, CUDA C++ Best Practices Guide, "Thread and Block Heuristics"; a multiprocessor holds at most 32 blocks
and 2048 threads (compute capabilities 8.0 and 9.0). CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability": registers and shared memory."""

import linecache
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from noyau.kernels.user_kernel import GPU, Three, short

WARP, BLOCKS_MOST = 32, 32  # threads per warp; blocks that a multiprocessor holds
# Per multiprocessor of compute capability 9.0: threads, registers, their unit per warp, bytes of shared memory.
THREADS_MOST, REGISTERS_MOST, REGISTERS_UNIT, SHARED_MOST = 2048, 65536, 256, 228 << 10
FEWEST_CELLS, WORK_CELLS = 16, 1 << 18  # least cells for advice on cells, and on multiprocessors
Advice = tuple[str, str]  # the message and the remedy

# Words by which a kernel depends on its block: shared memory, synchronization, functions of a warp.
_OF_BLOCKS = re.compile(r"shared|sync|shfl|ballot|laneid|warpsize", re.IGNORECASE)
_FLAT = re.compile(
    r"(?:cuda\.)?threadIdx\.(\w)\s*\+\s*(?:cuda\.)?(?:blockIdx|blockDim)\.\1\s*\*\s*(?:cuda\.)?(?:blockIdx|blockDim)\.\1"
    r"|(?:cuda\.)?(?:blockIdx|blockDim)\.(\w)\s*\*\s*(?:cuda\.)?(?:blockIdx|blockDim)\.\2\s*\+\s*(?:cuda\.)?threadIdx\.\2"
)


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """A launch. `shape`: of the largest array argument; `idle`: the number of threads that touched nothing, None if
    unseen; `text`: of the kernel; `sm_count`: multiprocessors of the GPU, 0 if unknown; `registers`: per thread of the
    compiled kernel, 0 if it is not compiled; `shared_bytes`: per block."""

    grid: Three
    block: Three
    shape: tuple[int, ...]
    text: str = ""
    idle: int | None = None
    sm_count: int = GPU.sm_count
    is_of_programs: bool = False
    registers: int = 0
    shared_bytes: int = 0

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"[{short(self.grid)}]" if self.is_of_programs else f"[{short(self.grid)}, {short(self.block)}]"


def is_free(text: str) -> bool:
    """Whether a kernel works with blocks of any size, since it only uses its thread's index in the grid."""
    rest = _FLAT.sub("", text)
    return not _OF_BLOCKS.search(rest) and not re.search(r"\b(?:threadIdx|blockIdx)\b", rest)


def sm_count_in(file: str) -> int:
    """Return the number of multiprocessors that a script's launches target; 0 if it queries the machine."""
    return 0 if "multiprocessor_count" in "".join(linecache.getlines(file)).lower() else GPU.sm_count


def advise(launch: LaunchFacts) -> list[Advice]:
    """Advise on a launch; [] for a good one. For Triton programs only the grid is judged, since Triton itself chooses
    their blocks."""
    if launch.is_of_programs:
        machine = _of_the_machine(launch)
        return [] if machine is None else [(machine[0], "launch more programs, of fewer cells each")]
    advice = [*_of_blocks(launch), of_cells(launch), _of_the_machine(launch)]
    if launch.registers and launch.sm_count and launch.threads <= THREADS_MOST // 2:
        advice += _of_residence(launch)
    return [each for each in advice if each is not None]


def _of_blocks(launch: LaunchFacts) -> Iterator[Advice]:
    """Yield advice on blocks whose last warp is not full, and on blocks of one warp."""
    rest = launch.threads % WARP
    if rest and launch.blocks >= 2 and launch.blocks * launch.threads >= 8 * WARP:
        message = f"{launch} has blocks of {launch.threads} threads, no multiple of 32: {WARP - rest} lanes"
        mend = "launch blocks of 128 or 256 threads, and guard the end: if i < n"
        yield f"{message} of the last warp of each do nothing", mend
    if launch.threads == WARP and launch.blocks >= BLOCKS_MOST and is_free(launch.text):
        message = f"{launch} has blocks of 32 threads: a multiprocessor holds 32 blocks"
        mend = "launch blocks of 128 to 512 threads, and as many fewer of them"
        yield f"{message}, so at most half of its 2048 threads", mend


def of_cells(launch: LaunchFacts) -> Advice | None:
    """Advise against a block per cell: `<<<n, 256>>>` for `<<<n / 256, 256>>>`. An axis of one cell is no evidence."""
    total = launch.blocks * launch.threads
    if launch.idle is None or min(launch.shape, default=1) <= 1 or launch.threads < 2:
        return None
    if not FEWEST_CELLS <= launch.cells <= launch.blocks or 4 * launch.idle < 3 * total:
        return None
    message = f"{launch} starts {total} threads, and {launch.idle} of them touch nothing: a block for each cell"
    return message, "launch (n + threads - 1) // threads blocks"


def _of_the_machine(launch: LaunchFacts) -> Advice | None:
    if launch.cells < WORK_CELLS or not launch.sm_count or 2 * launch.blocks > launch.sm_count:
        return None
    owners = f"{'program' if launch.is_of_programs else 'block'}{'s' * (launch.blocks != 1)}"
    message = f"{launch} has {launch.blocks} {owners} for {launch.cells} cells: of {launch.sm_count} multiprocessors"
    mend = "launch 2 to 4 blocks a multiprocessor: launch=lambda device: (4 * device.sm_count, 128)"
    return f"{message} {launch.sm_count - launch.blocks} have nothing to do", mend


def resident(launch: LaunchFacts) -> tuple[int, str]:
    """Return how many blocks a multiprocessor of compute capability 9.0 holds at once, and the limiting resource."""
    warps = -(-launch.threads // WARP)
    of_a_warp = -(-launch.registers * WARP // REGISTERS_UNIT) * REGISTERS_UNIT
    limits = (
        (REGISTERS_MOST // (of_a_warp * warps), f"the {launch.registers} registers of a thread"),
        (SHARED_MOST // (launch.shared_bytes + 1024), f"the {launch.shared_bytes} bytes of shared memory of a block"),
        (THREADS_MOST // (warps * WARP), f"its {THREADS_MOST} threads"),
        (BLOCKS_MOST, f"its {BLOCKS_MOST} blocks"),
    )
    return min(limits, key=itemgetter(0))


def _of_residence(launch: LaunchFacts) -> Iterator[Advice]:
    """Yield advice on low occupancy, and on a small last wave, which takes as long as a full one."""
    blocks, limit = resident(launch)
    held = blocks * -(-launch.threads // WARP) * WARP
    if 2 * held < THREADS_MOST:
        message = f"{launch} keeps {held} of {THREADS_MOST} threads of a multiprocessor busy ({blocks} blocks)"
        mend = "let a thread or a block hold less: __launch_bounds__(threads, blocks), smaller tiles, or other blocks"
        yield f"{message}: {limit} leave room for no more", mend
    wave = max(blocks, 1) * launch.sm_count
    waves, rest = divmod(launch.blocks, wave)
    if waves and rest and 4 * (wave - rest) > launch.blocks + wave - rest:
        message = f"{launch} runs in {waves + 1} waves of up to {wave} blocks, and the last one has {rest}"
        mend = f"launch a multiple of {wave} blocks, or as many as are at once, and loop with a stride of the grid"
        yield f"{message}: most multiprocessors wait for it", mend
