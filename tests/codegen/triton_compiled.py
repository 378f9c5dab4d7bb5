"""Whether texts of language triton are what Triton compiles, where there is no GPU: their launches, as far as Triton's
own representation of them, in which everything has a type. Support for tests, not a test.

`python -m tests.codegen.triton_compiled` is given cases in JSON, and answers with what is wrong with each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace

from noyau.codegen.triton import printer as triton_printer
from noyau.ir.loops import Kernel, Role


@dataclass(frozen=True)
class Case:
    """A text, its function, how many launches it has, and what it is called with: dtypes and shapes of tensors."""

    text: str
    name: str
    launches: int
    calls: list[list[tuple[str, list[int]]]]


def case(kernel: Kernel, *sizes: dict[str, int]) -> Case:
    """A kernel called at some sizes: 17, and those given, one after the other."""
    calls = []
    for given in sizes or ({},):
        inputs = kernel.of(Role.INPUT)
        known = {name: given.get(name, 17) for buffer in inputs for dim in buffer.shape for name in dim.names}
        calls.append([(buffer.dtype.name, [dim.evaluate(known) for dim in buffer.shape]) for buffer in inputs])
    return Case(triton_printer.together([kernel]), kernel.name, len(kernel.launches), calls)


def faults(cases: Sequence[Case]) -> list[str]:
    """What Triton says of each, and nothing where it compiles."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_DEFAULT_FP_FUSION": "1"}
    command, given = [sys.executable, "-m", __name__], json.dumps([asdict(each) for each in cases])
    told = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    made: list[str] = json.loads(told.stdout.splitlines()[-1])  # Triton prints what it finds wrong
    return made


def fault(given: Case) -> str:
    """What Triton says of a case, in this process."""
    import torch
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    from noyau.dtypes import DType
    from noyau.frontends.torch.tensors import TO_TORCH
    from noyau.hosts.torch.cuda.launch_records import foretell, function_of
    from noyau.ir.loops import Launch
    from noyau.toolchain.triton.parallel_compile import task_of

    function = function_of(given.text, Kernel(given.name, (), (), (Launch(()),) * given.launches))
    called = [[torch.empty(shape, dtype=TO_TORCH[DType[dtype]]) for dtype, shape in call] for call in given.calls]
    launches = {launch[0].__name__: launch for tensors in called for launch in foretell(function, tensors)}  # each once
    for name, launch in launches.items():
        task = task_of(*launch)
        target = GPUTarget(*task.target)
        backend, context = make_backend(target), ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        found = backend.parse_options(dict(task.options))
        source = ASTSource(launch[0], task.signature, task.constants, task.attributes)
        words, modules = backend.get_codegen_implementation(found), backend.get_module_map()
        try:
            source.make_ir(target, found, words, modules, context)
        except Exception as error:  # noqa: BLE001  of many kinds: of Triton's own, and assertions within it
            return f"{name}: {error} {error.__cause__ or ''}"
    return ""


if __name__ == "__main__":
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    there = GPUTarget("cuda", 90, 32)  # of this machine Triton is not asked
    driver.set_active(SimpleNamespace(get_current_device=lambda: 0, get_current_target=lambda: there))
    print(json.dumps([fault(Case(**each)) for each in json.load(sys.stdin)]))
