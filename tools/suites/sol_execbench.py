"""The examples of SOL-ExecBench in Triton and CUDA C++, and broken twins of those in Triton that its rule passes.

Run: python -m tools.suites.sol_execbench CHECKOUT; the twins are written to a temporary folder."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.suites.driver import Case, main

_STORE = re.compile(r"^( *)tl\.store\((?P<at>[^,]+), (?P<value>.+), mask=mask\)", re.MULTILINE)
_MASK = re.compile(r"^ *mask += (?P<offsets>\w+) < (?P<size>\w+)", re.MULTILINE)
_BLOCK = "triton.next_power_of_2("
_LAUNCH = re.compile(r"\n( *)\w+\[[^\n]*\]\((?:[^()]|\([^()]*\))*\)\n")


def without_mask(text: str) -> str:
    """Blocks of twice the width, and a store that no mask keeps within its row."""
    return _STORE.sub(r"\1tl.store(\g<at>, \g<value>)", text.replace(_BLOCK, f"2 * {_BLOCK}"))


def with_race(text: str) -> str:
    """Every program stores to the first cell of the output, too."""
    offsets = _mask(text)["offsets"]

    def doubled(store: re.Match[str]) -> str:
        base = store["at"].partition(" ")[0]
        return f"{store[0]}\n{store[1]}tl.store({base} + {offsets}, {store['value']}, mask={offsets} < 1)"

    return _STORE.sub(doubled, text)


def without_tail(text: str) -> str:
    """The last seven cells of each row are not stored."""
    mask = _mask(text)
    return _STORE.sub(rf"\1tl.store(\g<at>, \g<value>, mask=mask & ({mask['offsets']} < {mask['size']} - 7))", text)


def with_changed_input(text: str) -> str:
    """The first cell of the last input but numbers is set to 0 after the launch."""
    launch = list(_LAUNCH.finditer(text))[-1]
    return f"{text[: launch.end()]}{launch[1]}weight[0] = 0\n{text[launch.end() :]}"


def _mask(text: str) -> re.Match[str]:
    mask = _MASK.search(text)
    assert mask is not None, "the kernel has no mask of its columns"
    return mask


TWINS: dict[str, Callable[[str], str]] = {
    "no mask": without_mask,
    "a race in one cell": with_race,
    "a tail of seven cells": without_tail,
    "a changed input": with_changed_input,
}


def broken(solution: Path, name: str) -> str:
    """A solution with one defect."""
    record = json.loads(solution.read_text("utf-8"))
    text = record["sources"][0]["content"]
    record["sources"][0]["content"] = TWINS[name](text)
    assert record["sources"][0]["content"] != text, f"{solution} has no place for: {name}"
    return json.dumps({**record, "name": f"{record['name']}, {name}"})


def cases_of(checkout: Path) -> list[Case]:
    """The examples as they are, and twins of those in Triton."""
    cases, folder = [], Path(tempfile.mkdtemp(prefix="noyau-twins-"))
    for kind in ("triton", "cuda_cpp"):
        for definition in sorted((checkout / "examples" / kind).glob("*/definition.json")):
            name = f"{kind}/{definition.parent.name}"
            solution = next(iter(definition.parent.glob("solution*.json")))
            cases.append(Case(name, (str(definition), "--solution", str(solution)), checkout, False))
            for number, twin in enumerate(TWINS if kind == "triton" else ()):
                path = folder / f"{definition.parent.name}-{number}.json"
                path.write_text(broken(solution, twin), "utf-8")
                cases.append(Case(f"{name}: {twin}", (str(definition), "--solution", str(path)), checkout, True))
    return cases


if __name__ == "__main__":
    sys.exit(main("SOL-ExecBench", cases_of))
