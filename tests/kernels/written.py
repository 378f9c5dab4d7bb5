"""Ops with kernels in C, run as they are attached."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import noyau
from noyau.kernels.call import call_kernel
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.signatures.instances import bind


def op_of(signature: str, parameters: str = "x", **said) -> Op:
    """An op with these parameters, of which only the signature matters."""
    names = [each.split("=")[0].strip(" *") for each in parameters.split(",") if each.strip() != "*"]
    scope: dict[str, object] = {}
    exec(f"def op({parameters}):\n    return {names[0]}", scope)
    return noyau.op(signature, **said)(scope["op"])


def attached(op: Op, text: str, **said) -> UserKernel:
    return op.kernel("#include <stdint.h>\n#include <stddef.h>\n" + text, language="c", **said)


def called(op: Op, kernel: UserKernel, *arguments: object, **constants: object) -> list[np.ndarray]:
    """The results of the kernel in this process."""
    bound = bind(op.signature, arguments, op.known_sizes({**op.description.reference.constants, **constants}), op.name)
    return call_kernel(kernel, bound.instance, bound.arrays, constants)


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)
