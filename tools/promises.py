"""The promises of README, each run in a fresh environment of its smallest extra: `python -m tools.promises`.

Each block of code, sentence and row of the sections below has an entry here, by what it begins with; a test compares.
An environment is made for each extra, in a folder that `--keep` keeps for another run; it takes minutes and a network,
for torch some gigabytes of disk. Exit status 0 where all that can be tried here is kept."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ("A model", "A NumPy function", "A kernel that may be wrong", "A module of PyTorch", "What works")
BLOCK = "{block}"  # the block itself, in a script; of Python, as block.py


@dataclass(frozen=True, slots=True)
class Promise:
    """What shows a promise: a script of bash, run in an empty folder beside `block.py` and `examples`, in an
    environment of noyau with an extra and other packages. Without a script it is shown elsewhere, or promises nothing,
    as `reason` says."""

    script: str = ""
    extra: str = ""
    packages: tuple[str, ...] = ()
    reason: str = ""


_MODEL = """noyau demo --folder . > demo.txt
noyau optimize llama_tiny.onnx -o fused.onnx --keep all --dim sequence=32 > told.txt"""
_RUN = """python - <<END
import numpy, onnxruntime
def run(name, library):
    options = onnxruntime.SessionOptions()
    if library:
        options.register_custom_ops_library("./fused.so")
    session = onnxruntime.InferenceSession(name, options)
    ids = numpy.arange(32).reshape(1, 32)
    inputs = {each.name: ids.astype("int64" if "int64" in each.type else "float32") for each in session.get_inputs()}
    return session.run(None, inputs)[0]
want, kernels, bodies = run("llama_tiny.onnx", 0), run("fused.onnx", 1), run("fused.onnx", 0)
assert numpy.abs(kernels - want).max() < 1e-4 * numpy.abs(want).max()
assert numpy.abs(bodies - want).max() < 1e-5 * numpy.abs(want).max()
END"""
_SPELLINGS = """python - <<END
import onnx
steps = "m = ReduceMax<axes=[-1]>(z) d = Sub(z, m) e = Exp(d) s = ReduceSum(e, a) y = Div(e, s)"
for name, text in (("one", "y = Softmax<axis=-1>(z)"), ("other", steps)):
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 64] x) => (float[n, 64] y) <int64[1] a = {-1}>'
    onnx.save(onnx.parser.parse_model(head + " { z = Add(x, x) " + text + " }"), name + ".onnx")
END
noyau show one.onnx > one.txt; noyau show other.onnx > other.txt
grep -q 'in 1 kernel' one.txt; test "$(sed -n 3p one.txt)" = "$(sed -n 3p other.txt)"  # of one name: of one text"""
_BOOK = """cat > book.ipynb <<'END'
{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code", "id": "a", "metadata": {},
 "outputs": [], "execution_count": null, "source": ["import numpy as np, numba\\n",
 "@numba.njit(parallel=True)\\n", "def f(c):\\n", "    for i in numba.prange(9):\\n", "        c[0] += i\\n",
 "f(np.zeros(1))\\n"]}]}
END
noyau check book.ipynb > told.txt && exit 9; test $? = 1; grep -q race told.txt
"""
_MODULE = """import torch
model = torch.nn.Sequential(torch.nn.Embedding(9, 16), torch.nn.LayerNorm(16), torch.nn.GELU()).eval()
ids = torch.arange(6)[None] % 9
"""
_OF_MODULE = """
assert torch.allclose(fast(ids), model(ids), atol=1e-5) and torch.allclose(fused(ids), model(ids), atol=1e-5)
assert torch.allclose(noyau.load("model.noyau")(ids), model(ids), atol=1e-5) and fused.report
"""


def _wrong(*files: str) -> str:
    """A script in which each file of examples/defects is found wrong."""
    return "\n".join(f"noyau check examples/defects/{file} > told.txt && exit 9; test $? = 1" for file in files)


# By what it begins with, in the order of README.
PROMISES: Mapping[str, Promise] = {
    "noyau demo --folder .": Promise(BLOCK, "onnx"),
    "The written model runs in plain onnxruntime": Promise(f"{_MODEL}\n{_RUN}", "onnx"),
    "import onnxruntime": Promise(f"{_MODEL}\npython block.py", "onnx"),
    "**Spelling does not matter.**": Promise(_SPELLINGS, "onnx"),
    "Groups are found by index maps": Promise(_SPELLINGS, "onnx"),
    "**Every kernel has a certificate**": Promise(f"{_MODEL}\ngrep -q 'error (unfused)' told.txt", "onnx"),
    "A kernel that is wrong, or does not win": Promise("noyau demo > told.txt; grep -q kept told.txt", "onnx"),
    "**Every fused node is also a function**": Promise(
        f"""{_MODEL}
python -c "import onnx; assert onnx.load('fused.onnx').functions" """,
        "onnx",
    ),
    "Without the library": Promise(f"{_MODEL}\n{_RUN}", "onnx"),
    "import numpy as np, noyau": Promise("python block.py > told.txt; grep -q 'runs c' told.txt"),
    "An op takes NumPy arrays": Promise(
        """python - <<END
import numpy as np, torch, noyau
f = noyau.op(lambda x: np.exp(x) * 2)
x = torch.ones(5, requires_grad=True)
f(x).sum().backward()
assert torch.allclose(x.grad, 2 * x.exp()) and type(f(np.ones(5))) is np.ndarray
class Speaks:
    def __init__(self, array): self.array = array
    def __dlpack__(self, **options): return self.array.__dlpack__(**options)
    def __dlpack_device__(self): return self.array.__dlpack_device__()
assert np.allclose(np.from_dlpack(f(Speaks(np.ones(5)))), 2 * np.exp(1))
END""",
        "torch",
    ),
    "A kernel of your own is attached": Promise(
        """python - <<END
import numpy as np, noyau
twice, x = noyau.op("f32[n] -> f32[n]")(lambda x: 2 * x), np.ones(5, np.float32)
text = "void f(const float *x, float *out, long n) {{ for (long i = 0; i < n; ++i) out[i] = {} * x[i]; }}"
for factor in (3, 2):
    twice.kernel(text.format(factor), language="c", name=f"by{factor}")
assert "by2" in dict(twice.explain(x).rejected)
noyau.check(twice, budget_s=1)
rejected = dict(twice.explain(x).rejected)
assert "finds it wrong" in rejected["by3"] and "by2" not in rejected
END""",
        "check-c",
    ),
    "noyau check script.py": Promise(
        "cp examples/defects/prange.py script.py; noyau check script.py > told.txt && exit 9; test $? = 1\n"
        + _BOOK
        + _wrong("openmp.py"),
        "check-c,numba",
    ),
    "Races, out-of-bounds accesses": Promise(
        _wrong("prange.py", "numba_cuda_kernels.py", "triton_kernels.py", "openmp.py", "threads.py", "cuda_cpp.py"),
        "check-c,numba,triton",
        ("numba-cuda",),
    ),
    "import torch, noyau": Promise("python block.py", "torch"),
    "| ONNX models in onnxruntime": Promise(f"{_MODEL}\n{_RUN}", "onnx"),
    "| PyTorch ops and modules, and ONNX models": Promise(reason="pytest -m gpu, on a machine with a GPU"),
    "| `noyau check` of ops": Promise(f"{_MODEL}\nnoyau check llama_tiny.onnx --against fused.onnx > told.txt", "onnx"),
    "| data larger than memory": Promise(
        """cat > total.py <<END
import numpy as np, noyau
@noyau.op("f64[n] -> f64")
def total(x): return (x * x).sum()
if __name__ == "__main__":
    for engine in ("local", "processes", "dask"):
        assert noyau.stream(total, {"x": np.ones(100_000)}, engine=engine).value == 100_000
END
python total.py""",
        "dask",
    ),
    "| generated CUDA C++": Promise(
        """cat > added.py <<END
import numpy as np, noyau
@noyau.op("f32[n], f32[n] -> f32[n]")
def added(x, y): return np.exp(x) + y
if __name__ == "__main__":
    assert "__global__" in added.source("cuda")
END
python added.py
noyau check added.py --language numba_cuda --allow-unseen | grep -q "added.numba_cuda.: agreed on"
""",
        "numba",
    ),
    "| pages for a browser": Promise(
        f"""{_MODEL}
noyau show llama_tiny.onnx --html new/page.html > told.txt
noyau profile llama_tiny.onnx --dim sequence=32 --html new/profile.html > told.txt
noyau check llama_tiny.onnx --against fused.onnx --html new/check.html > told.txt
noyau diff llama_tiny.onnx fused.onnx --html new/diff.html > told.txt
test "$(grep -l default-src new/*.html | wc -l)" = 4""",
        "onnx",
    ),
    "| Linux on x86-64": Promise("noyau doctor > told.txt"),
    "| macOS, Windows, Arm": Promise(reason="not tried"),
    "[docs/support.md]": Promise(reason="tests/test_documents.py"),
}


def units(text: str) -> Iterator[str]:
    """The promises of README: blocks of commands and of Python, sentences, rows of tables."""
    for section in SECTIONS:
        body = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        for language, block, prose in re.findall(r"```(\w*)\n(.*?)```|((?:(?!```).)+)", body, re.DOTALL):
            if block and language:
                yield block
            for paragraph in re.split(r"\n\n|\n(?=- |\|)", prose):
                flat = " ".join(paragraph.split()).removeprefix("- ")
                if flat.startswith("|"):
                    yield from [flat] if re.search(r"\w", flat) else []
                elif flat:
                    yield from re.split(r"(?:(?<=[.:])|(?<=\*\*)) (?=[A-Z*`\[])", flat)


def script_of(unit: str, promise: Promise) -> tuple[str, str]:
    """The script of a promise, and what is in block.py."""
    if unit.startswith("import torch, noyau"):
        return promise.script, _MODULE + unit + _OF_MODULE
    return promise.script.replace(BLOCK, unit), unit


def environment(folder: Path, promise: Promise) -> Path:
    """The folder of the environment of a promise, made where it is not there yet."""
    name = "-".join(filter(None, (*promise.extra.split(","), *promise.packages))) or "plain"
    home = folder / name
    if not (home / "made").exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        target = f"{ROOT}[{promise.extra}]" if promise.extra else str(ROOT)
        words = ["-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), "-e", target]
        subprocess.run([home / "bin" / "python", *words, *promise.packages], check=True)
        (home / "made").touch()
    return home


def run(unit: str, promise: Promise, home: Path) -> str:
    """Nothing where a promise is kept; else the last lines that its script prints."""
    script, block = script_of(unit, promise)
    with tempfile.TemporaryDirectory() as name:
        Path(name, "block.py").write_text(block, "utf-8")
        Path(name, "examples").symlink_to(ROOT / "examples")
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        own |= {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(home / "cache")}
        words = ["bash", "-euo", "pipefail", "-c", script]
        ran = subprocess.run(words, cwd=name, env=own, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else f"status {ran.returncode}: {(ran.stdout + ran.stderr)[-600:]}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the promises as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="the folder of the environments, for another run")
    parser.add_argument("--only", default="", help="promises that begin so")
    wishes, broken = parser.parse_args(words), 0
    text = (ROOT / "README.md").read_text("utf-8")
    with tempfile.TemporaryDirectory() as name:
        for unit in units(text):
            start, promise = next(pair for pair in PROMISES.items() if unit.startswith(pair[0]))
            if not unit.startswith(wishes.only) or promise.reason:
                continue
            home, begin = environment(wishes.keep or Path(name), promise), time.monotonic()
            fault = run(unit, promise, home)
            broken += bool(fault)
            print(f"{start}: {fault or 'kept'} ({home.name}, {time.monotonic() - begin:.0f} s)", flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
