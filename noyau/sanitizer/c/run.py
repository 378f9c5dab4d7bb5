"""One run of a program that watches itself: what it is given, and what it says."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noyau.errors import CheckError, FindingKind
from noyau.sanitizer.c.build import Program, plain_name
from noyau.text import several

Array = np.ndarray
BLOCKS, TURNS, DRAWN = 0, 1, 2
WHOLE = -1  # instead of the number of a call: the program's own main()


@dataclass(frozen=True, slots=True)
class Plan:
    """How the threads of a run are dealt their work: how many, and in blocks, in turns, or drawn."""

    threads: int = 4
    dealing: int = TURNS
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Given:
    """An array of a call; `holds`: what is in it before, None where it is fresh. `is_output`: it is to be written."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    holds: Array | None = None
    is_output: bool = False

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Launch:
    """A grid of CUDA: blocks, threads of a block, and bytes of shared memory that a block asks for."""

    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0

    def __str__(self) -> str:
        grid, block = (str(_short(part)) for part in (self.grid, self.block))
        return f"<<<{grid}, {block}{f', {self.shared_bytes}' if self.shared_bytes else ''}>>>"


def _short(part: tuple[int, int, int]) -> tuple[int, ...] | int:
    return part[0] if part[1:] == (1, 1) else part


@dataclass(frozen=True, slots=True)
class Fault:
    """What a run found, as it says it: places are addresses of the program, offsets are bytes of the block `name`."""

    kind: FindingKind
    how: int
    other_how: int
    site: int
    other_site: int
    name: str
    offset: int
    size: int
    unit: int
    made_at: int
    count: int
    changed: int
    owner: str
    other_owner: str
    words: str


@dataclass(frozen=True, slots=True)
class Launched:
    """Launches that are alike, from one place of the program. Of the threads of each at least `idle` touched nothing;
    `cells`: of the largest array that they touched."""

    site: int
    launch: Launch
    idle: int
    cells: int


@dataclass(frozen=True, slots=True)
class Ran:
    """`threads` of all grids that were launched, of which `idle` touched nothing; `grids`: those that are not alike,
    in order, 256 at most. `arrays`: what each array of the call
    holds afterwards; None where it did not come to its end. `drawn`: lines on who wrote what, for c/mapping.py."""

    faults: tuple[Fault, ...]
    accesses: int
    launches: int
    threads: int
    idle: int
    arrays: tuple[Array, ...] | None
    drawn: tuple[str, ...] = ()
    grids: tuple[Launched, ...] = ()

    @property
    def turns(self) -> str:
        """How much ran side by side, in words; nothing where no grid was launched."""
        return f"threads took turns: {self.threads} in {several(self.launches, 'launch')}" if self.launches else ""


def run(
    program: Program,
    given: Sequence[Given | int | float],
    plan: Plan,
    launch: Launch = Launch(),
    chosen: int = 0,
    patience_s: float = 5.0,
    *,
    maps: bool = False,
) -> Ran:
    """Run the call of this number in a process of its own, for up to `patience_s` of the processor's time; `maps`: who
    writes what is kept. CheckError where that says nothing."""
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        folder = Path(name)
        path = folder / "program"
        shutil.copyfile(program.path, path)
        path.chmod(0o700)
        (folder / "given").write_bytes(_spelt(program, given, plan, launch, chosen, patience_s, maps=maps))
        command = [str(path), str(folder / "given"), str(folder / "found"), str(folder / "arrays")]
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=10 * patience_s, env={"PATH": os.environ.get("PATH", "")}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CheckError("it waits, and does not end") from None
        if not (folder / "found").is_file():
            told = done.stderr.decode("utf-8", "replace").strip().splitlines()
            said = told[-1] if told else "it says nothing"
            raise CheckError(f"it ended its process (status {done.returncode}): {said}", FindingKind.CRASH)
        arrays = _arrays(folder / "arrays", given) if done.returncode == 0 else None
        return _read((folder / "found").read_text("utf-8", "replace"), arrays)


def run_whole(
    program: Program,
    words: Sequence[str],
    plan: Plan,
    launch: Launch | None,
    patience_s: float,
    *,
    shown: bool,
    maps: bool,
) -> tuple[Ran, int | None]:
    """Run a whole program, with these words as its `argv`, in the folder that this is in, for up to `patience_s` of the
    processor's time; and the status that it ended with, None where Ctrl-C ended it. `launch`: in place of each of its
    own; `shown`: it reads and prints as it would by itself, else nothing; `maps`: as in `run`. CheckError where it says
    nothing."""
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        folder = Path(name)
        path = folder / "program"
        shutil.copyfile(program.path, path)
        path.chmod(0o700)
        forced = launch or Launch((0, 0, 0), (0, 0, 0))
        (folder / "given").write_bytes(_spelt(program, (), plan, forced, WHOLE, patience_s, maps=maps))
        command = [str(path), str(folder / "given"), str(folder / "found"), str(folder / "arrays"), *words]
        where = None if shown else subprocess.DEVNULL
        try:
            status = _ended(command, where, 10 * patience_s)
        except subprocess.TimeoutExpired:
            raise CheckError("it waits, and does not end") from None
        if not (folder / "found").is_file():
            told = "it was interrupted" if status is None else f"it ended its process (status {status})"
            raise CheckError(f"{told}, and nothing is known of it")
        return _read((folder / "found").read_text("utf-8", "replace"), None), status


def _ended(command: Sequence[str], where: int | None, time_s: float) -> int | None:
    """The status of a process. Ctrl-C reaches it too: it is waited for, and has none."""
    with subprocess.Popen(command, stdin=where, stdout=where, stderr=where) as process:
        try:
            return process.wait(time_s)
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            return None
        finally:
            process.kill()


def _spelt(
    program: Program,
    given: Sequence[Given | int | float],
    plan: Plan,
    launch: Launch,
    chosen: int,
    patience_s: float,
    *,
    maps: bool,
) -> bytes:
    """What main.c reads."""
    lines = [
        f"threads {plan.threads} plan {plan.dealing} seed {plan.seed} limit {int(patience_s * 1000)}",
        f"chosen {chosen}",
        f"map {int(maps)}",
    ]
    lines += [f"grid {' '.join(map(str, (*launch.grid, *launch.block)))} {launch.shared_bytes}"]
    for held in program.globals:
        lines.append(f"global {held.offset:x} {held.size} {int(held.is_tls)} 0 {plain_name(held.name)[:60] or '?'}")
    data = []
    for each in given:
        if not isinstance(each, Given):
            low = struct.unpack("<Q", struct.pack("<d" if isinstance(each, float) else "<q", each))[0]
            lines.append(f"number {low:x} 0")
            continue
        is_filled = each.holds is not None
        unit = each.dtype.itemsize
        lines.append(f"array {each.bytes} {unit} {int(each.is_output)} {int(is_filled)} {each.name[:60]}")
        if each.holds is not None:
            data.append(np.ascontiguousarray(each.holds, each.dtype).tobytes())
    return "\n".join([*lines, "data", ""]).encode("ascii", "replace") + b"".join(data)


def _arrays(path: Path, given: Sequence[Given | int | float]) -> tuple[Array, ...]:
    data, at, made = path.read_bytes(), 0, []
    for each in given:
        if isinstance(each, Given):
            made.append(np.frombuffer(data[at : at + each.bytes], each.dtype).reshape(each.shape).copy())
            at += each.bytes
    return tuple(made)


def _read(text: str, arrays: tuple[Array, ...] | None) -> Ran:
    accesses = launches = threads = idle = 0
    faults, grids = [], []
    for line in text.splitlines():
        word, *parts = line.split("\t")
        if word == "S":
            accesses, launches, threads, idle = map(int, parts)
        elif word == "L":
            grids.append(_launched(parts))
        elif word == "F" and len(parts) == 15:
            faults.append(_fault(parts))
    drawn = tuple(line for line in text.splitlines() if line[:2] in ("R\t", "B\t", "W\t", "C\t"))
    return Ran(tuple(faults), accesses, launches, threads, idle, arrays, drawn, tuple(grids))


def _launched(parts: Sequence[str]) -> Launched:
    gx, gy, gz, bx, by, bz, idle, cells = map(int, parts[1:])
    return Launched(int(parts[0], 16), Launch((gx, gy, gz), (bx, by, bz)), idle, cells)


def _fault(parts: Sequence[str]) -> Fault:
    kind, how, other_how, site, other_site, name, offset, size, unit, made_at, count, changed, *texts = parts
    return Fault(
        FindingKind(kind),
        int(how),
        int(other_how),
        int(site, 16),
        int(other_site, 16),
        name,
        int(offset),
        int(size),
        int(unit),
        int(made_at, 16),
        int(count),
        int(changed),
        *texts,
    )
