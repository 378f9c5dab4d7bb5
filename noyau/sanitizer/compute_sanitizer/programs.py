"""The programs that compute-sanitizer runs: a kernel in CUDA C++ as a program of its own, compiled by nvcc with the
lines of its text, or a script as it is on the GPU."""

from __future__ import annotations

import json
import re
import site
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import BuildError, FindingKind, NoyauError, UnsupportedError
from noyau.kernels.c.parameters import prototype
from noyau.kernels.user_kernel import UserKernel, number_text
from noyau.sanitizer.c.calls import EntryCall, call_of, is_grid
from noyau.sanitizer.c.run import ArrayArgument
from noyau.sanitizer.compute_sanitizer.driver import ENVIRONMENT, WISH
from noyau.sanitizer.compute_sanitizer.tool import (
    TOOLS,
    ToolReport,
    find_tool,
    in_files,
    merge_witnesses,
    missing,
    run_tools,
)
from noyau.sanitizer.scripts.record import ScriptCheck
from noyau.signatures.types import Instance
from noyau.verify.findings import Finding

BUILD_S = 120.0
_CALL = re.compile(
    r"noyau_grid\(.*?\)\.call\(\[\]\(auto\.\.\. p\)[^{]*\{ (?P<entry>.*?)\(p\.\.\.\); \}(?:, )?(?P<given>.*)\); \}\s*$",
    re.DOTALL,
)
_HEAD = """
#line 1 "noyau_main"
#include <cstdio>
#include <cstdlib>
#include <vector>
struct noyau_any { void *at; template <class T> operator T *() const { return (T *)at; } };
static void *noyau_place(FILE *file, size_t bytes, bool is_set, bool is_device) {
    std::vector<char> held(bytes + 1);
    if (is_set && fread(held.data(), 1, bytes, file) != bytes) exit(3);
    void *place = nullptr;
    if (!is_device) { place = malloc(bytes + 1); memcpy(place, held.data(), bytes); return place; }
    if (cudaMalloc(&place, bytes) != cudaSuccess) exit(4);
    if (is_set) cudaMemcpy(place, held.data(), bytes, cudaMemcpyHostToDevice);
    return place;
}
"""
_MAIN = """int main(int, char **argv) {{
    FILE *file = fopen(argv[1], "rb");
    if (!file) return 2;
    void *a[] = {{{places}}};
    (void)a;
    {call};
    cudaError_t ended = cudaDeviceSynchronize();
    if (ended != cudaSuccess) {{ fprintf(stderr, "%s\\n", cudaGetErrorString(ended)); return 1; }}
    for (void *each : {{{devices}}}) cudaFree(each);
    return 0;
}}
"""


def written(
    kernel: UserKernel, instance: Instance, arrays: Sequence[np.ndarray], constants: Mapping[str, Any], folder: Path
) -> tuple[Path, Path]:
    """The text of a program that launches a kernel once on arrays, and the file with what they hold. UnsupportedError
    for a call that has no such text."""
    call = call_of(kernel, instance, arrays, constants)
    arrays_of_call = [isinstance(each, ArrayArgument) and _is_array(call, k) for k, each in enumerate(call.arguments)]
    is_device = [is_grid(kernel) and each for each in arrays_of_call]
    array_file = folder / "arrays"
    array_file.write_bytes(b"".join(_bytes(each) for each in call.arguments))
    places = [_place(each, device) for each, device in zip(call.arguments, is_device, strict=True)]
    devices = [f"a[{k}]" for k, device in enumerate(is_device) if device] or ["(void *)nullptr"]
    numbers, named = kernel.numbers(constants), {each.name for each in prototype(kernel).parameters}
    macros = "".join(f"#define {n} {number_text(numbers[n])}\n" for n in kernel.usage.constants if n not in named)
    main = _MAIN.format(places=", ".join(places), call=_call_text(kernel, call), devices=", ".join(devices))
    place = kernel.place.replace("\\", "/").replace('"', "")
    program = folder / "program.cu"
    program.write_text(f'{macros}#include <cstring>\n#line 1 "{place}"\n{kernel.text}\n{_HEAD}{main}', encoding="utf-8")
    return program, array_file


def compiled(program: Path, kernel: UserKernel) -> Path:
    """The program, built with line numbers. BuildError as nvcc says."""
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise BuildError("nvcc is not installed; it comes with NVIDIA's CUDA toolkit")
    binary = program.with_suffix("")
    folder = [] if kernel.place == "a text" else ["-I", str(Path(kernel.place).parent)]
    flags = [*kernel.usage.options.get("flags", ()), "-arch=native", "-lineinfo", "-std=c++17"]
    command = [nvcc, *flags, *folder, "-o", str(binary), str(program)]
    try:
        build = subprocess.run(command, capture_output=True, timeout=BUILD_S, check=False, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        raise BuildError(f"{kernel.called} is not built within {BUILD_S:g} s") from None
    if build.returncode:
        raise BuildError(f"{kernel.called} does not compile: {' '.join((build.stderr or build.stdout).split())[:400]}")
    return binary


def _is_array(call: EntryCall, place: int) -> bool:
    """Whether a place of a call is handed over as a pointer, and not as a number."""
    return re.search(rf"\*\(const [^()]*\*\)a\[{place}\]", call.text) is None


def _place(each: ArrayArgument | int | float, is_device: bool) -> str:
    is_set = not isinstance(each, ArrayArgument) or each.contents is not None
    size = each.bytes if isinstance(each, ArrayArgument) else 8
    return f"noyau_place(file, {size}, {str(is_set).lower()}, {str(is_device).lower()})"


def _bytes(each: ArrayArgument | int | float) -> bytes:
    if not isinstance(each, ArrayArgument):
        return np.array(each, np.float64 if isinstance(each, float) else np.int64).tobytes()
    return b"" if each.contents is None else np.ascontiguousarray(each.contents, each.dtype).tobytes()


def _call_text(kernel: UserKernel, call: EntryCall) -> str:
    """The call as nvcc reads it."""
    if not is_grid(kernel):
        body = re.search(r"\(void\)a; (?P<call>.*;) \}\s*$", call.text, re.DOTALL)
        if body is None or "noyau_parallel" in call.text:
            raise UnsupportedError(f"{kernel.called} is called in pieces, which compute-sanitizer is not asked about")
        return body["call"]
    match = _CALL.search(call.text)
    if match is None:
        raise UnsupportedError(f"{kernel.called} is called in a way that has no launch")
    grid, block = (f"dim3({', '.join(map(str, each))})" for each in (call.launch.grid, call.launch.block))
    return f"{match['entry']}<<<{grid}, {block}, {call.launch.shared_bytes}>>>({match['given']})"


def second_opinion(checked: ScriptCheck, path: Path, arguments: Sequence[str] = ()) -> ScriptCheck:
    """The check of a script with what compute-sanitizer reports of the same script run on the GPU; why it was not asked
    stands among the notes. Installed packages are not looked at; a failed call of the API, which may be one of theirs,
    is a warning."""
    why = "compute-sanitizer runs scripts, and no notebooks" if path.suffix == ".ipynb" else missing()
    if not why:
        wish = {"script": str(path), "arguments": list(arguments)}
        environment = {**ENVIRONMENT, WISH: json.dumps(wish)}
        try:
            reports = run_tools([sys.executable, "-m", "noyau.sanitizer.compute_sanitizer.driver"], environment)
        except NoyauError as error:
            why = str(error)
        else:
            installed = [Path(each) for each in (*site.getsitepackages(), sysconfig.get_paths()["stdlib"])]
            return _with(checked, in_files(reports, installed), path)
    return replace(checked, notes=(*checked.notes, why))


def _with(checked: ScriptCheck, reports: Sequence[ToolReport], path: Path) -> ScriptCheck:
    """Each report goes to the kernel that it names, else beside the script; what names a kernel on no line, and none of
    the script, is of an installed package. Marks on its lines allow it."""
    kernels, rest = list(checked.kernels), list[Finding]()
    for each in reports:
        if each.is_allowed:
            continue
        matches = [k for k, kernel in enumerate(kernels) if kernel.name in each.function]
        at = max(matches, key=lambda k: len(kernels[k].name), default=None)  # `add` is in `add_rows` too
        if at is None and each.site is None and each.kind is not FindingKind.LAUNCH:
            continue
        if at is None:
            one = replace(each, is_error=each.is_error and each.kind is not FindingKind.LAUNCH)
            rest.append(one.finding(checked.script, each.function or "script", "cuda", str(path), ""))
        else:
            kernel_seen = kernels[at]
            finding = each.finding(checked.script, kernel_seen.name, kernel_seen.language, kernel_seen.place, "")
            kernels[at] = replace(kernel_seen, findings=merge_witnesses(kernel_seen.findings, [finding]))
    note = f"compute-sanitizer looked at it too: {', '.join(TOOLS)}"
    return replace(checked, kernels=tuple(kernels), advice=(*checked.advice, *rest), notes=(*checked.notes, note))
