"""Run an instrumented program: write its request, start its process, read its result."""

import math
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import CheckError, FindingKind, UnsupportedError
from noyau.kernels.user_kernel import LaunchConfig, three
from noyau.sanitizer.c.build import InstrumentedProgram, source_name
from noyau.sanitizer.engine import FILLS
from noyau.text import several
from noyau.workers.resources import wait_factor
from noyau.workers.signals import INTERRUPTED, wait_or_end

Array = np.ndarray
BLOCKS, ROUND_ROBIN, RANDOM = 0, 1, 2
WAITS_TIMES = 10  # limit in elapsed time, as a multiple of the CPU seconds
MEMORY_MIB = 4096  # limit on a program with the shadow of its memory
# Watched accesses of grids, of 50 ns each: of a launch, more if a run has more than a minute, and of all per second.
WATCHED, WATCHED_IN_A_SECOND = 200_000_000, 10_000_000
ONE_THREAD = LaunchConfig()
WHOLE = -1  # in place of the number of a call: the program's own main()
POISON = 0xCB  # the bytes of memory that nobody has set
SHARED, UNUSED = "shared", "unused"  # words of a read of unset shared memory, and of one on which nothing depends


@dataclass(frozen=True, slots=True)
class WorkSharing:
    """The distribution of work over the threads of a run: in blocks, round robin, or at random; `fill`: the bytes of
    shared memory that nobody has set."""

    threads: int = 4
    distribution: int = ROUND_ROBIN
    seed: int = 1
    fill: int = POISON


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array of a call; `contents`: None for a fresh one. `is_output`: the kernel should write it; `on_gpu`: the host
    may not touch it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    contents: Array | None = None
    is_output: bool = False
    on_gpu: bool = False

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that a run reports: sites are addresses of the program, offsets are bytes of the block `name`."""

    kind: FindingKind
    how: int
    other_how: int
    site: int
    other_site: int
    name: str
    offset: int
    size: int
    unit: int
    allocation: int
    count: int
    changed: int
    launch: int  # the position of its launch among `grids`; -1 for the host
    reach: int  # as in Observation
    owner: str
    other_owner: str
    words: str


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """Equal launches from one site: `count` launches, with `accesses` together. In each, at least `idle` threads
    touched nothing; `cells`: of the largest array; `watched`: of all `blocks`, how many were watched; `digest`: of
    the accesses and the results, with another fill than `POISON`."""

    site: int
    launch: LaunchConfig
    idle: int
    cells: int
    count: int = 1
    accesses: int = 0
    blocks: int = 0
    watched: int = 0
    digest: int = 0

    @property
    def threads(self) -> int:
        """The threads of all launches."""
        return self.count * math.prod((*self.launch.grid, *self.launch.block))


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. `threads`: of all launched grids, of which `idle` touched nothing; `grids`: distinct
    launches, in order, 256 at most. `arrays`: the contents of the call's arrays afterwards, None if it did not end.
    `write_log`: lines on writes, for maps. `refusal`: why the rest of the run was not watched, with the site; `alone`,
    `in_team`: parallel regions that never had more than one thread, and those that had; `accessed_at`: sites of
    accesses that ran; `result`: words that the call returned."""

    faults: tuple[Fault, ...]
    accesses: int
    launches: int
    threads: int
    idle: int
    arrays: tuple[Array, ...] | None
    write_log: tuple[str, ...] = ()
    grids: tuple[LaunchRecord, ...] = ()
    refusal: str = ""
    refused_at: int = 0
    alone: tuple[int, ...] = ()
    in_team: tuple[int, ...] = ()
    accessed_at: tuple[int, ...] = ()
    result: bytes = b""

    @property
    def concurrency(self) -> str:
        """The number of threads that took turns, in words; "" if no grid was launched."""
        return f"threads took turns: {self.threads} in {several(self.launches, 'launch')}" if self.launches else ""


def part_watched(grids: Sequence[LaunchRecord]) -> str:
    """Return the watched part of these, if they make too many accesses; "" if all were watched."""
    watched, blocks = sum(each.watched for each in grids), sum(each.blocks for each in grids)
    return f"{watched} of {blocks} blocks" if watched < blocks else ""


def run(
    program: InstrumentedProgram,
    arguments: Sequence[ArrayArgument | int | float],
    plan: WorkSharing,
    launch: LaunchConfig = ONE_THREAD,
    number: int = 0,
    patience_s: float = 5.0,
    *,
    maps: bool = False,
) -> RunResult:
    """Run the call of this number in a process of its own, for up to `patience_s` CPU seconds; `maps`: record the
    writes. CheckError if it reports nothing, UnsupportedError if it does what cannot be watched."""
    with _prepare_folder(program, _request(program, arguments, plan, launch, number, patience_s, maps=maps)) as command:
        folder = Path(command[0]).parent
        try:
            process = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=WAITS_TIMES * patience_s * wait_factor(), env={"PATH": os.environ.get("PATH", "")}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CheckError("it waits and never ends") from None
        if not (folder / "found").is_file():
            *_, last = "it says nothing", *process.stderr.decode("utf-8", "replace").strip().splitlines()
            raise CheckError(f"it ended its process (status {process.returncode}): {last}", FindingKind.CRASH)
        arrays = _arrays(folder / "arrays", arguments) if process.returncode == 0 else None
        result = _result_of((folder / "found").read_text("utf-8", "replace"), arrays)
        if result.refusal and not result.faults:
            raise UnsupportedError(result.refusal)
        if plan.fill == POISON:
            more = launch, number, patience_s
            result = _with_unused(result, plan, lambda other: run(program, arguments, other, *more))
        has_words = (folder / "result").is_file()
        return replace(result, result=(folder / "result").read_bytes()) if has_words else result


def run_whole(
    program: InstrumentedProgram,
    words: Sequence[str],
    plan: WorkSharing,
    launch: LaunchConfig | None,
    patience_s: float,
    *,
    is_shown: bool,
    maps: bool,
    say: Callable[[str], object] = str,
) -> tuple[RunResult, int | None]:
    """Run a whole program in the current folder, with these words as its `argv`, for up to `patience_s` CPU seconds;
    also return its exit status, None if Ctrl-C ended it. `launch`: replaces each of its own; `is_shown`: it reads and
    prints as usual, else not; `maps`: as in `run`. CheckError if it reports nothing."""
    forced, where = launch or LaunchConfig((0, 0, 0), (0, 0, 0)), None if is_shown else subprocess.DEVNULL
    with _prepare_folder(program, _request(program, (), plan, forced, WHOLE, patience_s, maps=maps)) as command:
        with subprocess.Popen([*command, *words], stdin=where, stdout=where, stderr=where) as process:
            report = partial(say, f"{Path(words[0]).name} runs{'' if is_shown else ' again'}")
            cut = wait_or_end(process, WAITS_TIMES * patience_s, report=report)  # it has then written its findings
        status = None if cut else process.returncode
        result = Path(command[2])
        if not result.is_file():
            raise CheckError(f"{cut or f'it ended its process (status {status})'}, and nothing is known of it")
        ran = _result_of(result.read_text("utf-8", "replace"), None)
        if plan.fill == POISON:
            again = partial(run_whole, launch=launch, patience_s=patience_s, is_shown=False, maps=False)
            ran = _with_unused(ran, plan, lambda other: again(program, words, other)[0])
        return replace(ran, refusal=ran.refusal.replace(INTERRUPTED, cut or INTERRUPTED) or cut), status


def _with_unused(ran: RunResult, plan: WorkSharing, again: Callable[[WorkSharing], RunResult]) -> RunResult:
    """Mark the reads of unset shared memory on which nothing depends: with each fill of that memory their launch makes
    the same accesses, and leaves and prints the same."""
    unset = [each for each in ran.faults if each.kind is FindingKind.UNINITIALISED and each.words == SHARED]
    same: set[int] = set()
    with suppress(CheckError, UnsupportedError):  # a run that ends otherwise depends on it
        runs = [again(replace(plan, fill=fill)) for fill in FILLS] if unset and not ran.refusal else []
        ended = bool(runs) and not any(run.refusal for run in runs)
        for number, (own, *grids) in enumerate(zip(ran.grids, *(run.grids for run in runs), strict=False)):
            seen = {(each.site, each.launch, each.count) for each in (own, *grids)}  # files may lead it elsewhere
            if ended and len(seen) == len({each.digest for each in grids}) == 1:
                same.add(number)
    unused = {each for each in unset if each.launch in same}
    return replace(ran, faults=tuple(replace(each, words=UNUSED) if each in unused else each for each in ran.faults))


@contextmanager
def _prepare_folder(program: InstrumentedProgram, request: bytes) -> Iterator[list[str]]:
    """Yield the command that runs a copy of a program in a new folder: it, its request, its result, its arrays."""
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        command = [f"{name}/{each}" for each in ("program", "given", "found", "arrays")]
        shutil.copyfile(program.path, command[0])
        Path(command[0]).chmod(0o700)
        Path(command[1]).write_bytes(request)
        yield command


def _request(
    program: InstrumentedProgram,
    arguments: Sequence[ArrayArgument | int | float],
    plan: WorkSharing,
    launch: LaunchConfig,
    number: int,
    patience_s: float,
    *,
    maps: bool,
) -> bytes:
    """Return the request that main.c reads."""
    of_launch = int(WATCHED * max(1, patience_s / 60))
    lines = [
        f"threads {plan.threads} plan {plan.distribution} seed {plan.seed} limit {int(patience_s * 1000)}",
        f"chosen {number}",
        f"memory {MEMORY_MIB} watched {of_launch} {int(patience_s * WATCHED_IN_A_SECOND)}",
        f"map {int(maps)} fill {plan.fill}",
        f"grid {' '.join(map(str, (*launch.grid, *launch.block)))} {launch.shared_bytes}",
    ]
    for owned in program.globals:
        name = "?" if owned.name.startswith("_ZGV") else source_name(owned.name)[:60] or "?"
        lines.append(f"global {owned.offset:x} {owned.size} {int(owned.is_tls)} {owned.gap} {name}")
    data = []
    for each in arguments:
        if not isinstance(each, ArrayArgument):
            low = struct.unpack("<Q", struct.pack("<d" if isinstance(each, float) else "<q", each))[0]
            lines.append(f"number {low:x} 0")
            continue
        use, is_filled = 2 if each.on_gpu else int(each.is_output), int(each.contents is not None)
        lines.append(f"array {each.bytes} {each.dtype.itemsize} {use} {is_filled} {each.name[:60]}")
        if each.contents is not None:
            data.append(np.ascontiguousarray(each.contents, each.dtype).tobytes())
    return "\n".join([*lines, "data", ""]).encode("ascii", "replace") + b"".join(data)


def _arrays(path: Path, arguments: Sequence[ArrayArgument | int | float]) -> tuple[Array, ...]:
    held = (each for each in arguments if isinstance(each, ArrayArgument))
    with path.open("rb") as file:
        return tuple(np.frombuffer(file.read(each.bytes), each.dtype).reshape(each.shape).copy() for each in held)


def _result_of(text: str, arrays: tuple[Array, ...] | None) -> RunResult:
    accesses = launches = threads = idle = refused_at = 0
    refusal = ""
    faults, grids = [], []
    regions: dict[str, list[int]] = {"O": [], "T": [], "A": []}
    for line in text.splitlines():
        word, *parts = line.split("\t")
        if word == "S":
            accesses, launches, threads, idle = map(int, parts)
        elif word == "U":
            refused_at, refusal = int(parts[0], 16), parts[1]
        elif word in regions:
            regions[word].append(int(parts[0], 16))
        elif word == "L":
            numbers = [int(part) for part in parts[1:]]
            launch = LaunchConfig(three(numbers[:3]), three(numbers[3:6]))
            grids.append(LaunchRecord(int(parts[0], 16), launch, *numbers[6:]))
        elif word == "F" and len(parts) == 17:
            faults.append(_fault(parts))
    log = tuple(line for line in text.splitlines() if line[:2] in ("R\t", "B\t", "W\t", "C\t"))
    counts, (alone, in_team, accessed_at) = (accesses, launches, threads, idle), map(tuple, regions.values())
    seen = tuple(faults), *counts, arrays, log, tuple(grids)
    return RunResult(*seen, refusal, refused_at, alone, in_team, accessed_at)


def _fault(parts: Sequence[str]) -> Fault:
    kind, how, other_how, site, other_site, name, offset, size, unit, allocation, *counts, owner, other, words = parts
    values: list[Any] = [FindingKind(kind), int(how), int(other_how), int(site, 16), int(other_site, 16), name]
    values += [int(offset), int(size), int(unit), int(allocation, 16), *map(int, counts), owner, other, words]
    return Fault(*values)
