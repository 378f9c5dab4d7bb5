"""The process under a tool of compute-sanitizer: it launches one kernel of an op, or runs a script."""

import json
import os
import runpy
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.kernels.call import CALLERS
from noyau.workers.array_files import read_arrays
from noyau.workers.import_path import import_path

WISH = "NOYAU_SANITIZED"
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"}


def main() -> int:
    """Run the request in the environment."""
    wish = json.loads(os.environ.pop(WISH))
    return _script(wish) if "script" in wish else _kernel(wish)


def _script(wish: Mapping[str, Any]) -> int:
    path = Path(wish["script"])
    sys.argv = [str(path), *wish["arguments"]]
    del sys.path[0]
    with import_path(path.resolve()):
        with_lines()
        runpy.run_path(str(path), run_name="__main__")
    return 0


def _kernel(wish: Mapping[str, Any]) -> int:
    from noyau.ops.op_files import load_ops
    from noyau.signatures.instances import bind

    with_lines()
    op = next(each for each in load_ops(wish["target"]) if each.name == wish["op"])
    kernel = op.kernels[wish["kernel"]]
    arrays = list(read_arrays(wish["given"]).values())
    if op.signature is None:
        raise InputError(f"{op.name} has no signature")
    bound = bind(op.signature, arrays, op.known_sizes(op.description.reference.constants), op.name)
    torch = import_module("torch")
    arguments = [  # each tensor in its own allocation
        np.asarray(array).item() if value.scalar else torch.from_numpy(np.ascontiguousarray(array)).cuda()
        for value, array in zip(bound.instance.inputs, bound.arrays, strict=True)
    ]
    CALLERS[kernel.language].on_tensors(kernel, bound.instance, {})(*arguments)
    torch.cuda.synchronize()
    return 0


def with_lines() -> None:
    """Compile kernels of Numba-CUDA with their source lines from here on, if Numba is installed."""
    if find_spec("numba") is None:
        return
    with suppress(ImportError):
        cuda: Any = import_module("numba.cuda")
        plain = cuda.jit
        cuda.jit = lambda *args, **options: plain(*args, **{"lineinfo": not options.get("debug"), **options})


if __name__ == "__main__":
    sys.exit(main())
