"""Random graphs through passes, lowering, schedules and C: none comes out wrong, and planted bugs are found."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from noyau.codegen.c.printer import CPrinter, print_kernel
from noyau.compiler.schedules.cpu import blocked_folds, strategy_choice
from noyau.errors import CheckError, GraphError, InputError, UnsupportedError
from noyau.ir.graph import Kind
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS
from noyau.ir.ranges import _simplify
from noyau.toolchain.c.compiler import CompilerOptions as Build
from noyau.toolchain.c.library import Native
from tests.batching import QUICK, build_printed, run_apart
from tests.compiler.schedules.asking import unasked
from tests.compiler.schedules.groups import lowered, reduced
from tests.planted import PLANTED
from tests.random_graphs import Case, Coverage, generate, graphs
from tests.trying import MOST, Try, attempt, steps

BATCH = 100
BATCHES = range(10, 12)  # 200 graphs, of which some 160 have a kernel
RARE = (1, 31, 51, 94, 163, 342, 352, 465, 514, 642, 683, 720, 1996)  # graphs of what none of these holds
MORE_BATCHES = [*range(10), *range(12, 25)]  # by hand, of which any ten hold all there is
FEW = 400  # graphs within which each planted bug is found
# The first graph that these show in is a late one: the search begins with it.
LATE = {"a_guard_forgotten": 263, "a_lost_transpose": 150, "a_wrong_position": 85, "views_composed_the_wrong_way": 117}
FIRST = 200  # graphs that the interpreter runs too, of which each step takes Python; twice as many by hand
SHIPPED, MORE_SHIPPED = range(0, 25 * BATCH, 83), range(1300, 1400)  # graphs built as kernels are; others quickly


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """So small that a reduction of a few cells has several."""
    monkeypatch.setitem(blocked_folds.full.__kwdefaults__, "block", 16)
    monkeypatch.setattr(blocked_folds, "BLOCK", 16)
    monkeypatch.setattr(strategy_choice, "BLOCK", 16)


@pytest.fixture(scope="session")
def through_c(tmp_path_factory):
    """A folder that all processes of a run share: what has run through C so far, a file a batch."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "through_c"
    folder.mkdir(exist_ok=True)
    return folder


def interpreted_from(seed):
    """The batches that start there."""
    more = range(seed + FIRST, seed + 2 * FIRST, BATCH)
    return [*range(seed, seed + FIRST, BATCH), *(pytest.param(start, marks=pytest.mark.long) for start in more)]


def test_a_seed_gives_the_same_graph_and_inputs():
    first, again = generate(7), generate(7)
    assert first.graph == again.graph
    assert all(first.inputs[name].tobytes() == again.inputs[name].tobytes() for name in first.inputs)
    assert first.graph != generate(8).graph


def test_a_reduction_of_a_few_cells_has_several_blocks():
    assert len(strategy_choice.schedule(lowered(reduced("sum", 17))).launches) == 2


@pytest.mark.parametrize("start", interpreted_from(0))
def test_lowered_kernels_compute_what_the_graph_does(start):
    faults = []
    for seed in range(start, start + BATCH):
        made = attempt(seed)
        if made is not None and steps(made.lowered, made.case.sizes) < MOST:
            faults.append(made.interpreted(made.lowered))
    assert len(faults) > 0.7 * BATCH
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("start", interpreted_from(1000))
def test_scheduled_kernels_do_too_in_any_order(start):
    faults = []
    for seed in range(start, start + BATCH):
        made = attempt(seed)
        if made is not None and steps(made.scheduled, made.case.sizes) < MOST:
            assert unasked(made.scheduled) == []
            faults.append(made.interpreted(made.scheduled))
    assert len(faults) > 0.7 * BATCH
    assert [fault for fault in faults if fault] == []


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_graphs_that_hypothesis_makes_smaller(case: Case):
    for seed in (0, 1):  # as it is, and normal
        made = Try(case, seed)
        try:
            kernel = made.scheduled
        except UnsupportedError:
            continue
        if steps(kernel, case.sizes) < MOST:
            assert made.interpreted(made.lowered) is None
            assert made.interpreted(kernel) is None


def printable(tries: Iterable[Try | None]) -> tuple[list[Try], dict[str, CPrinter]]:
    """Those of which language c has a spelling, and their kernels, printed, by their names."""
    ready, parts = [], {}
    for made in tries:
        if made is not None:
            with suppress(UnsupportedError):  # a spelling that language c does not have
                parts[made.scheduled.name] = print_kernel(made.scheduled)
                ready.append(made)
    return ready, parts


@pytest.mark.slow
@pytest.mark.parametrize("batch", [*BATCHES, *(pytest.param(each, marks=pytest.mark.long) for each in MORE_BATCHES)])
def test_scheduled_kernels_in_c(batch, through_c):
    """The batch that is done last says whether all of them cover the IR."""
    rare = RARE if batch == BATCHES[-1] else ()
    ready = run_in_c([*range(batch * BATCH, (batch + 1) * BATCH), *rare], QUICK)
    note_coverage(through_c / f"{batch}.json", ready)
    done = list(through_c.glob("*.json"))
    if len(done) >= 10 or {each.stem for each in done} >= set(map(str, BATCHES)):
        require_coverage(sum((Counter(json.loads(each.read_text("utf-8"))) for each in done), Counter()))


@pytest.mark.as_shipped
@pytest.mark.parametrize(
    "seeds", [pytest.param(SHIPPED, id="few"), pytest.param(MORE_SHIPPED, marks=pytest.mark.long, id="more")]
)
def test_scheduled_kernels_in_c_as_shipped(seeds):
    assert len(run_in_c(seeds, Build())) > 0.7 * len(seeds)


def run_in_c(seeds: Iterable[int], options: Build) -> list[Try]:
    """The graphs of these seeds that have a kernel; nothing is wrong with what these give, built so."""
    ready, parts = printable(map(attempt, seeds))
    natives = build_printed(parts, options)
    jobs = [partial(run_native, made, native) for made, native in zip(ready, natives, strict=True)]
    faults = [fault and f"{fault} (seed {made.seed})" for made, fault in zip(ready, run_apart(jobs), strict=True)]
    assert [fault for fault in faults if fault] == []
    return ready


def note_coverage(file: Path, ready: Iterable[Try]) -> None:
    """Write down what a batch had; the file appears as a whole."""
    covered = Coverage()
    for made in ready:
        covered.take(made.case)
    print(f"\n{covered}")
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(covered.counts), "utf-8")
    draft.replace(file)


def run_native(made: Try, native: Native) -> str | None:
    """What is wrong with what the built kernel gives, in pieces that run in reverse order, or None."""
    try:
        got = native.call_guarded(*made.arrays(made.scheduled), pieces=3, order=lambda count: range(count)[::-1])
    except (CheckError, InputError) as error:
        return str(error)
    return made.wrong(made.scheduled, got)


def require_coverage(counts: Counter[str]) -> None:
    """Each feature has been drawn, and most of them often; a batch prints what it had, to be seen with -s."""
    assert counts["graphs"] >= 0.75 * BATCH * len(BATCHES)
    kinds = {"Input", "Constant", "Iota", "Map", "View", "Select", "Gather", "Reduce", "Scan"}
    rare = {"kind Scatter", "kind Contract", "kind Opaque", "kind Part"}  # none of these is drawn
    assert {f"kind {name.__name__}" for name in Kind.__args__} == {f"kind {name}" for name in kinds} | rare
    wanted = {f"kind {name}": 50 for name in kinds}  # of 2,000 graphs
    wanted |= {f"function {name}": 2 for name in OPERATORS if name != "floor_divide"}
    wanted |= {f"monoid {name}": 5 for name in MONOIDS if not name.endswith("_apart") and not name.startswith("fold_")}
    wanted |= {f"scan {name}": 10 for name in ("sum", "prod", "max", "min")}
    wanted |= {f"dtype {name}": 20 for name in "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64".split()}
    wanted |= {f"rank {rank}": 10 for rank in range(7)}
    wanted |= {f"axes {count}": 3 for count in range(1, 5)}
    wanted |= {"extent 0": 100, "extent 1": 500, "symbolic": 1000}
    wanted |= {f"outputs {count}": 100 for count in range(1, 5)}
    wanted |= {f"consumers {count}": 5 for count in range(5)}
    views = "broadcast,broadcast as it runs,diagonal,expand,flip,merge,slice,split,squeeze,transpose,unsqueeze,beyond"
    wanted |= {f"tag {name}": 10 for name in [*views.split(","), "concat", "pad", "rotate", "rows", "cells", "points"]}
    share = min(counts["graphs"] / 2000, 1)
    assert {name: counts[name] for name, least in wanted.items() if counts[name] < max(int(least * share), 1)} == {}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, monkeypatch):
    """Within a few hundred graphs, by a wrong number or by an error of the interpreter."""
    plant(monkeypatch)
    _simplify.cache_clear()
    start = LATE.get(plant.__name__, 0)
    assert first_fault((*range(start, FEW), *range(start))) is not None


def first_fault(seeds: Iterable[int]) -> str | None:
    """The first thing that is wrong with the kernels of the graphs of these seeds, or None."""
    for seed in seeds:
        made = Try(generate(seed), seed)
        try:
            kernels = made.lowered, made.scheduled
        except UnsupportedError:
            continue
        except (AssertionError, KeyError, RecursionError, GraphError) as error:
            return f"seed {seed}: {type(error).__name__} {error}"
        for kernel in kernels:
            if steps(kernel, made.case.sizes) < MOST and (fault := made.interpreted(kernel)):
                return fault
    return None
