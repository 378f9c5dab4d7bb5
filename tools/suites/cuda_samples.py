"""CUDA's samples (NVIDIA), their programs that need the runtime alone: `python -m tools.suites.cuda_samples CHECKOUT`.

All of them are right, but for one whose assertion is to fail and one whose threads race on purpose. Those that use a
library, a driver's module, a window, a texture or launches in a grid have no label: what cannot be watched without a
GPU is to be said of them, and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.suites.driver import Case, main

_LIBRARIES = (
    r"cublas|cufft|cusparse|cusolver|curand|npp|nvrtc|nvjpeg|nvsci|cooperative_groups_multi|thrust/|cub/|mpi\.h"
)
_BEYOND = re.compile(
    rf"#\s*include\s*[<\"][^>\"]*(?:{_LIBRARIES}|GL/|gl_helper|helper_gl|_interop|vulkan|d3d|EGL|nvsci|omp_mpi)"
    r"|\b(?:CUdevice|CUmodule|CUresult|cuInit|cuMem\w+)\b|\btex[123]D|TextureObject_t|SurfaceObject_t|cudaArray"
    r"|\basm\b|\bcudaIpc|cudaGraphConditional|cudaGraphAddMem|MemPool_t|cudaMemcpy\w*Array"
)
_DEFECTIVE = frozenset({"simpleAssert", "simpleAttributes"})  # an assertion; plain reads beside atomics
_MAIN = re.compile(r"\bmain\s*\(")


def cases_of(checkout: Path) -> list[Case]:
    """The programs of a checkout: of each folder the file with a main(), and the others beside it."""
    folders = sorted({path.parent for path in (checkout / "Samples").glob("*/*/*.cu")})
    return [case for folder in folders for case in _cases(checkout, folder)]


def _cases(checkout: Path, folder: Path) -> list[Case]:
    texts = {path.name: path.read_text("utf-8", "replace") for path in sorted(folder.iterdir()) if _is_source(path)}
    headers = [path.read_text("utf-8", "replace") for path in folder.glob("*.*h*")]
    mains = [name for name, text in texts.items() if _MAIN.search(text)]
    if not mains:
        return []
    others = [name for name in texts if name not in mains]
    is_beyond = folder.name.startswith("cdp") or any(_BEYOND.search(text) for text in (*texts.values(), *headers))
    flags = " ".join([f"-I{checkout / 'Common'}", "-I.", *others])
    name = f"{folder.parent.name}/{folder.name}"
    label = None if is_beyond else folder.name in _DEFECTIVE
    return [Case(name, (mains[0], "--time", "300", f"--flags={flags}"), folder, label, may_be_empty=True)]


def _is_source(path: Path) -> bool:
    return path.suffix in (".cu", ".cpp", ".c")


if __name__ == "__main__":
    sys.exit(main("CUDA's samples, without libraries", cases_of))
