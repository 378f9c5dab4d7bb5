"""The document of the defects in examples/defects, by language.

`python -m tests.defects_table > docs/defects.md` writes it again; a test holds the two, and the examples, together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.defects import FOLDER
from tools.suites.driver import scores_of

LANGUAGES = {"c": "C, C++", "numba": "Numba", "numba_cuda": "Numba-CUDA", "cuda": "CUDA C++", "triton": "Triton"}

# Reasons for a missing example, by the letter in the table.
REASONS = {
    "a": "impossible: kernels of the language have no vector loads.",
    "b": "impossible: a kernel takes arrays with their strides.",
    "c": "impossible: noyau passes packed arrays of the right dtypes to such a kernel, and refuses others before the "
    "call; for a user's own call by an address see the row on addresses.",
    "d": "impossible: such a kernel is called, not launched, and has ended when it returns.",
    "e": "not a defect of a kernel: the host's line is the same in every language, and is shown once.",
    "f": "the same arithmetic, which the reference of the op reveals in any language: it is shown once.",
    "g": "impossible: owners have no barriers, no shuffles and no memory of their own.",
    "h": "within a program a statement covers all lanes, and the compiler orders statements; between programs "
    "it is found: `result_of_the_neighbour` in `tests/sanitizer/triton/test_run_bare_call_tutorials.py`.",
    "i": "impossible: a variable belongs to its iteration, its thread or its program; for arrays and `__shared__` "
    "variables see other rows.",
    "j": "depends on the machine: a warning follows a measurement on the machine at hand "
    "(`noyau/sanitizer/lint/false_sharing.py`), so no example can promise it.",
    "k": "the same as the row on one cell that all add to.",
    "l": "impossible: offsets are computed in 64 bits unless they are cast, as in the example of Numba-CUDA.",
    "m": "the same warning, from the text of the kernel (`tests/sanitizer/lint`).",
    "n": "impossible: the sum of a block is a tree, so that a lane adds few numbers.",
    "o": "impossible: the language has no locks, no fences, and no loops that do not wait for each other.",
    "p": "a warning if the grid leaves a GPU idle (`tests/sanitizer/triton`); Triton chooses the threads of a block.",
    "q": "found by the same shadow memory as any race, however rare: shown in two languages.",
    "r": "impossible: the compiler refuses it.",
    "s": "found: `relaxed_ticket` in `tests/sanitizer/triton/test_run_bare_call_tutorials.py`.",
    "t": "locks are built of atomics there (`locked_sum` in "
    "`tests/sanitizer/triton/test_run_bare_call_tutorials.py` is right); "
    "an access that no lock orders is a race like any other.",
    "u": "found in scripts of torch, Triton and Numba-CUDA alike: `tests/sanitizer/scripts/test_streams.py`.",
}


@dataclass(frozen=True)
class Row:
    """A defect: where it is shown by language, or the letter of the reason why not."""

    title: str
    cells: Mapping[str, str]


def row(title: str, c: str, numba: str, numba_cuda: str, cuda: str, triton: str) -> Row:
    return Row(title, dict(zip(LANGUAGES, (c, numba, numba_cuda, cuda, triton), strict=True)))


def host(title: str, example: str) -> Row:
    """What a host in Python does, shown once."""
    return row(title, "r", "e", example, "r", "e")


OMP, CU, PR, NC, TR, HO, HC, LA, TH, IF = (
    *("openmp.c", "cuda_cpp.cu", "prange.py", "numba_cuda_kernels.py", "triton_kernels.py"),
    *("host.py", "host.cu", "large.py", "threads.cpp", "interfaces.py"),
)
ROWS = (
    row("rows are read several cells at a time, past their end",
        f"{OMP}::row_sums_broken", "a", "a", f"{CU}::row_sums_broken", f"{TR}::lanes_broken"),
    row("all owners add to one cell", f"{OMP}::total_broken {TH}::total_broken",
        f"{PR}::total_in_one_cell {PR}::total_by_threads {PR}::positive_in_one_cell", f"{NC}::counter_broken",
        f"{CU}::count_broken", f"{TR}::sum_broken"),
    row("a sum in float32 of more than 2^24 numbers", "m", f"{PR}::long_total_in_float32 {LA}::sum_broken",
        f"{LA}::atomics_broken", "m", "n"),
    row("a strided array is read as a packed one", "c", f"{PR}::doubled_as_if_packed", "b", "c",
        f"{TR}::stride_broken"),
    row("an address is read as packed float32 (a binding)", f"{IF}::address_broken", "b", "b", "c", "c"),
    row("a gradient that ignores the gradient of the result", *5 * [f"{IF}::gradient_broken"]),
    row("work is divided into parts, and nobody does the rest", f"{OMP}::fours_broken", f"{PR}::add_without_tail",
        f"{NC}::quarters_broken", f"{CU}::streams_broken", f"{TR}::grid_broken"),
    row("no event waits for the work of another stream", "d", "d", "u", f"{CU}::events_broken", "u"),
    row("a block for each cell", "d", "d", f"{NC}::strided_broken {HO}::launched_broken",
        f"{CU}::strided_broken {HC}::launched_broken", "p"),
    row("a clock around a launch that the host does not wait for", "d", "d", f"{HO}::timed_broken",
        f"{HC}::timed_broken {HC}::copied_broken", "e"),
    row("a benchmark that compares different products", *5 * [f"{IF}::panels_broken"]),
    host("a method is named and not called: `t.is_contiguous`", f"{HO}::packed_broken"),
    host("a method is named and not called: `cuda.synchronize`", f"{HO}::waited_broken"),
    row("no guard: past the end", f"{OMP}::differences_broken", f"{PR}::add_without_guard {PR}::shifted_too_far",
        f"{NC}::add_broken", f"{CU}::add_broken", f"{TR}::mask_broken {TR}::tail_broken"),
    row("a grid that is too small: the tail is unwritten", "d", "d", f"{NC}::double_broken", f"{CU}::twice_broken",
        f"{TR}::grid_broken"),
    row("a histogram whose bins are added to without an atomic", "k", "k", f"{NC}::privatised_broken",
        f"{CU}::histogram_broken", "k"),
    row("bins by truncation, towards zero", "f", "f", f"{NC}::truncated_broken", "f", "f"),
    row("totals of threads that share a cache line", *5 * ["j"]),
    row("blocks of one warp, or of no multiple of a warp", "d", "d",
        f"{HO}::in_warps_broken {HO}::in_hundreds_broken", f"{HC}::in_warps_broken {HC}::in_hundreds_broken", "p"),
    row("a neighbour's result is read without waiting", f"{OMP}::sums_so_far_broken {TH}::half_broken",
        f"{PR}::running_at_once", f"{NC}::halves_broken {NC}::halo_broken", f"{CU}::sum_broken", "h"),
    row("a barrier that not all threads reach", f"{OMP}::waits_broken", "g",
        f"{NC}::early_broken {NC}::branch_broken", f"{CU}::smooth_broken", "g"),
    row("a shuffle that not all lanes reach", "g", "g", f"{NC}::shuffle_broken", f"{CU}::warp_sum_broken", "g"),
    row("uninitialised memory is read", f"{OMP}::counts_broken", f"{PR}::pairs_from_nothing",
        f"{NC}::tile_broken", f"{CU}::reversed_broken", f"{TR}::empty_broken"),
    row("a result is handed on without a fence", f"{TH}::handed_over_broken", "o", f"{NC}::ticket_broken",
        f"{CU}::last_block_broken", "s"),
    row("a temporary that threads share", f"{OMP}::squares_broken", "i", "i", "i", "i"),
    row("two loops of which one does not wait, two locks for one array",
        f"{OMP}::two_loops_broken {OMP}::locks_broken", "o", *3 * ["t"]),
    row("a sleep in place of a wait, which the order of a lock hides", f"{TH}::mean_broken", "o", *3 * ["t"]),
    row("a race that touches one cell in many", f"{OMP}::rare_broken", "q", "q", f"{CU}::rare_broken", "q"),
    row("an offset in 32 bits", "m", "l", f"{LA}::place_broken", "m", "m"),
)  # fmt: skip


def kind_of(example: str) -> str:
    """The kind that the line of an example's defect says. KeyError where there is none."""
    file, name = example.split("::")
    lines = (FOLDER / file).read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if re.search(rf"\b{name}\(", line))
    while first and lines[first - 1].startswith("@"):
        first -= 1
    for line in lines[first:]:
        found = re.search(r"defect: ([\w-]+)", line)
        if found:
            return found[1]
        if re.search(r"_mended\(", line):
            break
    raise KeyError(example)


def shown(cell: str) -> str:
    """A cell of the table: the kind and the names, or the letter of a reason."""
    if cell in REASONS:
        return f"({cell})"
    return ", ".join(
        f"{kind_of(each)}: [`{each.split('::')[1]}`](../examples/defects/{each.split('::')[0]})"
        for each in cell.split()
    )


def document() -> Iterator[str]:
    """The lines of docs/defects.md."""
    yield "# Which defect is shown where"
    yield ""
    yield "This file is generated: `python -m tests.defects_table > docs/defects.md`. Each defect of"
    yield "[examples/defects](../examples/defects) stands beside its mended twin. Tests assert the kind and the line"
    yield "of each, and no finding on its twin. A letter gives the reason why a language has no example."
    yield ""
    yield f"| defect | {' | '.join(LANGUAGES.values())} |"
    yield f"|---|{'---|' * len(LANGUAGES)}"
    for each in ROWS:
        yield f"| {each.title} | {' | '.join(shown(each.cells[name]) for name in LANGUAGES)} |"
    yield ""
    for letter, reason in REASONS.items():
        yield f"- ({letter}) {reason}"
    yield from suites()


def suites() -> Iterator[str]:
    """The lines of the section on suites, by the scores that `tools/suites` keeps."""
    yield ""
    yield "## Suites of the field"
    yield ""
    yield "`python -m tools.suites.NAME CHECKOUT` runs a suite that you have fetched under `noyau check`, and prints"
    yield "each case whose verdict differs from its label; `--keep` records its score here. A finding counts if the"
    yield "label is of its kind; a check that does not end, or does not see all of a program, is undecided."
    yield ""
    heads = "suite|tool|cases|defective|found|accused|undecided|precision|recall|of decided|source".split("|")
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for each in scores_of():
        is_of_all = each.found + each.missed < each.defective or not each.undecided
        recall = f"{each.recall:.3f}" if is_of_all else "-"
        counts = each.cases, each.defective, each.found, each.accused, each.undecided
        shares = f"{each.precision:.3f} | {recall} | {each.recall_of_decided:.3f}"
        yield f"| {each.suite} | {each.tool} | {' | '.join(map(str, counts))} | {shares} | {each.source} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(document()) + "\n")
