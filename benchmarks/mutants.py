"""How many mutants of correct kernels are found, and as what they are?

`python benchmarks/mutants.py [-o FILE]` (from the root; needs numba, triton, torch and gcc) makes the mutants of the
tests in every language: a dropped atomic is a race, a dropped guard is out of bounds, and so on, by construction. It
counts those of which a watched run shows a kind that they must have; equivalent ones, listed in the tests with a reason
each, are left out. It takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import write as write_record

from noyau.timing.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "mutants.json"
SHARE, EXCLUDED, LEAST = 0.95, 0.10, 300


@dataclass(frozen=True)
class Count:
    """Mutants of a language: how many there are, are left out, and were not found as what they are."""

    made: int
    excluded: int
    missed: tuple[str, ...]

    @property
    def share(self) -> float:
        return 1 - len(self.missed) / (self.made - self.excluded)


def of_numba_cuda(folder: Path) -> Count:
    from tests.sanitizer.numba_cuda import test_launch_mutants

    every = test_launch_mutants.mutants()
    made = [each for each in every if each.name not in test_launch_mutants.EQUIVALENT]
    module = test_launch_mutants.loaded_mutants(made, folder)
    missed = [each.name for each in made if not test_launch_mutants.kinds_of(each, module) & each.kinds]
    return Count(len(every), len(every) - len(made), tuple(missed))


def of_numba(folder: Path) -> Count:
    from tests.sanitizer.numba import test_kernel_watching_mutants

    made, left_out = test_kernel_watching_mutants.mutants()
    missed = [each.name for each in made if not test_kernel_watching_mutants.kinds_of(each) & each.kinds]
    return Count(len(made) + len(left_out), len(left_out), tuple(missed))


def of_c(folder: Path) -> Count:
    from tests.sanitizer.c import test_kernel_mutants

    found = [pair for file in test_kernel_mutants.FILES for pair in test_kernel_mutants.watched(file, 1)]
    kept = [
        (each, seen) for each, seen in found if (each.of, each.rule, each.line) not in test_kernel_mutants.EQUIVALENT
    ]
    missed = [each.name for each, seen in kept if not each.kinds & {finding.kind for finding in seen.findings}]
    return Count(len(found), len(found) - len(kept), tuple(missed))


def of_triton(folder: Path) -> Count:
    from tests.sanitizer.triton import test_kernel_watching_mutants as triton_test_kernel_watching_mutants

    missed, tried = dict[str, object](), 0
    for module in triton_test_kernel_watching_mutants.MODULES:
        more, count = triton_test_kernel_watching_mutants.missed_of(module, folder, 1)
        missed, tried = missed | more, tried + count
    return Count(
        tried + len(triton_test_kernel_watching_mutants.EQUIVALENT),
        len(triton_test_kernel_watching_mutants.EQUIVALENT),
        tuple(missed),
    )


LANGUAGES = {"numba_cuda": of_numba_cuda, "numba": of_numba, "c, cuda": of_c, "triton": of_triton}


def main() -> int:
    """0 where as many are found as was promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", type=Path, default=RESULTS, metavar="FILE")
    place = parser.parse_args().o
    with tempfile.TemporaryDirectory() as folder:
        counts = {name: count(Path(folder)) for name, count in LANGUAGES.items()}
    missed = tuple(f"{name}: {each}" for name, count in counts.items() for each in count.missed)
    whole = Count(sum(c.made for c in counts.values()), sum(c.excluded for c in counts.values()), missed)
    for name, each in {**counts, "all": whole}.items():
        told = f"{each.made - each.excluded - len(each.missed)} of {each.made - each.excluded}"
        print(f"{name:<12} {told} found as what they are ({each.share:.1%}), {each.excluded} equivalent")
    rows = {name: {**asdict(each), "share": each.share} for name, each in {**counts, "all": whole}.items()}
    write_record({"machine": asdict(this_machine()), "rows": rows}, place)
    few = whole.made < LEAST or whole.share < SHARE or whole.excluded > EXCLUDED * whole.made
    return int(few)


if __name__ == "__main__":
    sys.exit(main())
