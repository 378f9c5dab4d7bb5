"""The examples of SOL-ExecBench in Triton and CUDA C++, and broken twins of them that its rule passes.

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


# Of CUDA C++: the guard that returns, the last store of the kernel, the grid of a launch, a pointer to an input.
_GUARD = re.compile(r"^ *if \([^{};]*>=[^{};]*\) *(?:return;|\{\s*return;\s*\})", re.MULTILINE)
_STORE_OF_C = re.compile(r"^( *)(?P<array>\w+)\[[^\]]+\] *= *(?P<value>[^;\n]*\([^;]*);", re.MULTILINE)
_GRID = re.compile(r"<<<(?P<grid>(?:[^,()]|\([^()]*\))*),")
_CALL = re.compile(r"<<<[^;]*;")
_INPUT = re.compile(r"(\w+)\.(?:contiguous\(\)\.)?data_ptr")


def without_guard(text: str) -> str:
    """One block more than there is work for, and no guard against that."""
    return _GRID.sub(r"<<<dim3(dim3(\g<grid>).x + 1),", _GUARD.sub("", text))


def with_race_of_threads(text: str) -> str:
    """Each thread stores to the first cell of the output, too."""
    return _with_last_store(text, lambda store: f"{store[0]}\n{store[1]}{store['array']}[0] = {store['value']};")


def without_last_threads(text: str) -> str:
    """The last seven threads of the grid do not store all of theirs."""
    rest = "if (threadIdx.x + 7 < blockDim.x || blockIdx.x + 1 < gridDim.x) "
    return _with_last_store(text, lambda store: f"{store[1]}{rest}{store[0].lstrip()}")


def with_cleared_input(text: str) -> str:
    """The first cell of the last tensor before the output is set to 0 after the launch."""
    call = list(_CALL.finditer(text))[-1]
    tensor = [each for each in _INPUT.findall(text) if "out" not in each][-1]
    return f"{text[: call.end()]} cudaMemset((void *){tensor}.data_ptr(), 0, 2);{text[call.end() :]}"


def _with_last_store(text: str, change: Callable[[re.Match[str]], str]) -> str:
    store = [each for each in _STORE_OF_C.finditer(text) if "out" in each["array"]][-1]
    return f"{text[: store.start()]}{change(store)}{text[store.end() :]}"


_NAMES = ("no mask", "a race in one cell", "a tail of seven cells", "a changed input")
TWINS: dict[str, dict[str, Callable[[str], str]]] = {
    "triton": dict(zip(_NAMES, (without_mask, with_race, without_tail, with_changed_input), strict=True)),
    "cuda_cpp": dict(
        zip(_NAMES, (without_guard, with_race_of_threads, without_last_threads, with_cleared_input), strict=True)
    ),
}


def broken(solution: Path, kind: str, name: str) -> str:
    """A solution with one defect."""
    record = json.loads(solution.read_text("utf-8"))
    source = next(each for each in record["sources"] if re.search(r"@triton\.jit|__global__", each["content"]))
    text = source["content"]
    source["content"] = TWINS[kind][name](text)
    assert source["content"] != text, f"{solution} has no place for: {name}"
    return json.dumps({**record, "name": f"{record['name']}, {name}"})


def cases_of(checkout: Path) -> list[Case]:
    """The examples as they are, and their twins."""
    cases, folder = [], Path(tempfile.mkdtemp(prefix="noyau-twins-"))
    for kind, twins in TWINS.items():
        for definition in sorted((checkout / "examples" / kind).glob("*/definition.json")):
            name = f"{kind}/{definition.parent.name}"
            solution = next(iter(definition.parent.glob("solution*.json")))
            cases.append(Case(name, (str(definition), "--solution", str(solution)), checkout, False))
            for number, twin in enumerate(twins):
                path = folder / f"{kind}-{definition.parent.name}-{number}.json"
                path.write_text(broken(solution, kind, twin), "utf-8")
                cases.append(Case(f"{name}: {twin}", (str(definition), "--solution", str(path)), checkout, True))
    return cases


if __name__ == "__main__":
    sys.exit(main("SOL-ExecBench", cases_of))
