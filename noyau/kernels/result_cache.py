"""Certificates and timings that are kept from one run to the next: until text, machine, versions or code change."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np

from noyau.errors import FindingKind
from noyau.ir.graph import Constant, Graph
from noyau.timing.comparison import Comparison, Verdict
from noyau.timing.conditions import this_machine
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.cache import today
from noyau.verify.certificate import Certificate, Errors, Failure, Outcome
from noyau.verify.values import Case

_JUDGES = ("verify", "ir", "toolchain/c/library.py", "toolchain/guard_zones.py", "dtypes.py")
_CLOCKS = ("timing",)


@dataclass(frozen=True, slots=True)
class CachedTiming:
    """A comparison of an earlier run, and the day that it was made on."""

    comparison: Comparison
    timed_on: str


def certificate_key(library_key: str, graph: Graph, captured: Sequence[Case], made_up: bool, seed: int) -> str:
    """The key of a certificate: what was built, the graph that it is judged by, what it is tried on, and the code
    that judges."""
    cases = (part for case in captured for part in (case.label, *map(_spelt, case.inputs)))
    return toolchain_cache.digest(
        "certificate",
        _code(_JUDGES),
        np.__version__,
        this_machine().cpu,
        library_key,
        _graph(graph),
        str((made_up, seed)),
        *cases,
    )


def recall_certificate(key: str, name: str) -> Certificate | None:
    """The certificate that was kept, under the name that the kernel has now."""
    told = toolchain_cache.recall(key)
    try:
        return None if told is None else dataclasses.replace(certificate_of(told), name=name)
    except (KeyError, TypeError, ValueError):
        return None


def keep_certificate(key: str, certificate: Certificate) -> None:
    toolchain_cache.keep(key, dataclasses.asdict(certificate))


def timing_key(parts: Iterable[str | bytes], arrays: Mapping[str, np.ndarray], threads: int) -> str:
    """The key of a timing: the texts and models of both sides, the shapes of what they read, the machine and its
    versions, the threads, and the code that times."""
    machine = this_machine()
    where = (
        machine.cpu,
        str(machine.cores),
        machine.level,
        machine.compiler,
        machine.os,
        *map(str, sorted(machine.versions.items())),
    )
    shapes = (f"{name}: {array.dtype}{array.shape}" for name, array in sorted(arrays.items()))
    return toolchain_cache.digest("timing", _code(_CLOCKS), *where, str(threads), *parts, *shapes)


def recall_timing(key: str, ambiguous: bool = False) -> CachedTiming | None:
    """The comparison that was kept, unless it is of more than 30 days ago, or AMBIGUOUS because the machine was noisy:
    another moment may tell. `ambiguous`: such a one is taken as well."""
    told = toolchain_cache.recall(key)
    try:
        if told is None or not toolchain_cache.is_recent(told["timed_on"]):
            return None
        found = told["comparison"]
        before_s, after_s = (tuple(map(float, found[name])) for name in ("before_s", "after_s"))
        made = Comparison(before_s, after_s, found["calls"], found["seed"], found["swapped_at"])
        is_noise = made.verdict is Verdict.AMBIGUOUS and not made.is_nearly_same
        return None if is_noise and not ambiguous else CachedTiming(made, told["timed_on"])
    except (KeyError, TypeError, ValueError):
        return None


def keep_timing(key: str, comparison: Comparison) -> None:
    """Keep a comparison in place of what the key had; an AMBIGUOUS one too, so that an older verdict goes."""
    toolchain_cache.keep(key, {"timed_on": today(), "comparison": dataclasses.asdict(comparison)})


def recall_late(key: str, limit_s: float) -> bool:
    """Whether what has this key would take longer than so many seconds, as was kept at most 30 days ago."""
    told = toolchain_cache.recall(toolchain_cache.digest("late", key))
    try:
        return told is not None and limit_s < float(told["runs_s"]) and toolchain_cache.is_recent(told["timed_on"])
    except (KeyError, TypeError, ValueError):
        return False


def keep_late(key: str, runs_s: float) -> None:
    """Keep that the runs of what has this key would take so many seconds."""
    toolchain_cache.keep(toolchain_cache.digest("late", key), {"timed_on": today(), "runs_s": runs_s})


def certificate_of(told: Mapping[str, Any]) -> Certificate:
    """A certificate as `dataclasses.asdict` wrote it; KeyError, TypeError or ValueError where it is none."""
    outcomes = tuple(
        Outcome(
            **{
                **each,
                "kernel": Errors(**each["kernel"]),
                "unfused": Errors(**each["unfused"]),
                "failures": tuple(_failure(one) for one in each["failures"]),
            }
        )
        for each in told["outcomes"]
    )
    return Certificate(**{**told, "outcomes": outcomes})


def _failure(told: Mapping[str, Any]) -> Failure:
    cell = None if told["cell"] is None else tuple(told["cell"])
    return Failure(**{**told, "kind": FindingKind(told["kind"]), "cell": cell})


def _graph(graph: Graph) -> str:
    """A graph in full, with the bits of its constants; of what noyau does not look into, the name alone."""
    nodes = (
        f"{node.output} {_spelt(node.kind.value) if isinstance(node.kind, Constant) else node.kind} "
        f"{node.inputs} {node.dtype.value} {tuple(map(str, node.shape))}"
        for node in graph.nodes
    )
    return "\n".join([*nodes, str(graph.outputs), *map(str, graph.demands)])


def _spelt(array: np.ndarray) -> str:
    return f"{array.dtype}{array.shape} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


@cache
def _code(names: tuple[str, ...]) -> str:
    """A digest of the files of noyau that something depends on."""
    total = hashlib.sha256()
    for name in names:
        for path in _files(files("noyau").joinpath(*name.split("/"))):
            total.update(path.read_bytes())
    return total.hexdigest()


def _files(place: Traversable) -> Iterable[Traversable]:
    if place.is_file():
        return [place] if place.name.endswith((".py", ".c")) else []
    found = sorted(place.iterdir(), key=lambda each: each.name)
    return [path for each in found for path in _files(each)]
