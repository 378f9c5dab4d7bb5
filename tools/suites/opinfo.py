"""The operators of PyTorch under `torch.compile(backend="noyau")`: `python -m tools.suites.opinfo`.

Each operator of torch's own list, on samples that torch makes up for it, in the midst of `f(x * 2).abs() + 1`. A case
is right within the dtype's tolerances, or where it is as near to a run in float64 as torch is; refused where torch
itself does not run it; torch's where `backend="aot_eager"` fails too. Exit status 0 where no fault is noyau's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import torch

from tools.suites.opinfo_cases import OPERATORS, Case, judge, samples_of
from tools.suites.torch_cases import add_options, judge_all

_UNTOLD = ("empty", "new_empty")  # their cells are what was in memory


def cases_of(wishes: argparse.Namespace) -> Iterator[Case]:
    """The cases that the command line asks for."""
    named = set(filter(None, wishes.only.split(",")))
    for name, operator in OPERATORS.items():
        if name.startswith(_UNTOLD) or (named and not named & {name, operator.name}):
            continue
        for dtype in wishes.dtypes.split(","):
            has = getattr(torch, dtype) in (operator.backward_dtypes if wishes.gradients else operator.dtypes)
            has |= wishes.errors and operator.error_inputs_func is not None  # which have dtypes of their own
            if has and (operator.supports_autograd or not wishes.gradients):
                for at in range(wishes.sample or len(samples_of(name, dtype, wishes.gradients, 0, wishes.errors))):
                    asked = (wishes.sample, wishes.dynamic, wishes.gradients, wishes.keep, wishes.errors)
                    yield Case(name, dtype, at, *asked)


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual, meaning in (
        ("only", "", "operators: max.reduction_with_dim,gather"),
        ("dtypes", "float32", "float32,bfloat16,float64,int64 (default: float32)"),
        ("sample", 1, "samples of each, 0 for all (default: 1)"),
    ):
        parser.add_argument(f"--{name}", default=usual, type=type(usual), help=meaning)
    parser.add_argument("--dynamic", action="store_true", help="with sizes that are names")
    parser.add_argument("--gradients", action="store_true", help="with gradients")
    parser.add_argument("--errors", action="store_true", help="samples that torch refuses: its types of errors")
    add_options(parser, 60)
    wishes = parser.parse_args(words)
    return judge_all(judge, cases_of(wishes), wishes)


if __name__ == "__main__":
    sys.exit(main())
