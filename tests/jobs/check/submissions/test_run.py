"""Submissions of all kinds, right, wrong and hostile, to small problems: one process has the packages of all."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from noyau.jobs.check.submissions import definitions
from noyau.jobs.check.submissions.definitions import read_definition
from noyau.jobs.check.submissions.problem import Problem, Status, Submission, Tolerance, Trial, Verdict
from noyau.jobs.check.submissions.run import RANK, check_submissions, finite, referee

pytestmark = pytest.mark.slow

TRITON = """
import torch, triton, triton.language as tl
cache = {}
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
def run(x, y, out):
    n = x.numel()
    add[(triton.cdiv(n, 64),)](x, y, out, n, 64)
"""
NUMBA = """
from numba import cuda
@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
def run(x, y, out):
    arrays = [cuda.as_cuda_array(each) for each in (x, y, out)]
    add[(x.numel() + 31) // 32, 32](*arrays)
"""
CUDA = """
#include <torch/extension.h>
#include "own.h"
__global__ void add(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
void run(torch::Tensor x, torch::Tensor y, torch::Tensor out) {
    int n = x.numel() - LESS;
    add<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
INLINE = """
from torch.utils.cpp_extension import load_inline
TEXT = '''
__global__ void add(float *x, const float *y, float *out, int n) {
    for (int i = threadIdx.x; i < n; i += 64) out[i] = x[i] + y[i];
    if (n == 500 && threadIdx.x == 7) x[7] = 0;
}
torch::Tensor added(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    add<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}'''
module = load_inline("own", "torch::Tensor added(torch::Tensor x, torch::Tensor y);", TEXT, functions=["added"])
def run(x, y):
    return module.added(x, y)
"""
PLAIN = "import torch, os, sys\ncache = {}\ndef run(x, y, out):\n    out.copy_(x + y)\n"
RETURNS = "import torch\ncache = {}\ndef run(x, y):\n    return x + y\n"


def instead(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


STATIC = instead(
    INLINE,
    ("    if (n == 500 && threadIdx.x == 7) x[7] = 0;\n", ""),
    (
        "    auto out =",
        "    static float *at; static torch::Tensor out;\n    if (at == x.data_ptr<float>()) return out;\n    out =",
    ),
    ("    return out;\n}", "    at = x.data_ptr<float>();\n    return out;\n}"),
)
FILLING = {
    "right": (TRITON, Status.RIGHT),
    "right_numba": (NUMBA, Status.RIGHT),
    "right_torch": (PLAIN, Status.RIGHT),
    "right_compiled": (instead(PLAIN, ("def run", "@torch.compile(mode='reduce-overhead')\ndef run")), Status.RIGHT),
    "no_mask": (instead(TRITON, (", mask=at < n)\ndef", ")\ndef")), Status.OUT_OF_BOUNDS),
    "one_cell_racy": (instead(TRITON, ("tl.store(out + at,", "tl.store(out + at % (n - 1),")), Status.RACY),
    "tail": (instead(TRITON, (", mask=at < n)\ndef", ", mask=at < n - 1)\ndef")), Status.UNWRITTEN),
    "tail_numba": (instead(NUMBA, ("out.size:", "out.size - 1:")), Status.UNWRITTEN),
    "tail_torch": (instead(PLAIN, ("out.copy_(x + y)", "out[:-1] = (x + y)[:-1]")), Status.UNWRITTEN),
    "changes_input": (instead(PLAIN, ("out.copy_(x + y)", "out.copy_(x.add_(y))")), Status.CHANGED_INPUTS),
    "changes_one": (instead(TRITON, ("64)\n", "64)\n    x[0] = 0\n")), Status.CHANGED_INPUTS),
    "wrong": (instead(PLAIN, ("x + y", "x + y + 0.1")), Status.WRONG),
    "raises": (instead(PLAIN, ("out.copy_(x + y)", "raise ValueError('no')")), Status.CRASHED),
    "bad_shapes": (instead(PLAIN, ("x + y", "x + y[: len(y) + 1].reshape(-1, 0)")), Status.CRASHED),
    "syntax": ("def run(x, y, out:\n", Status.NOT_BUILT),
    "not_there": ("import cutlass.cute\n" + PLAIN, Status.NOT_CHECKED),
    "no_function": ("import torch\n", Status.NOT_CHECKED),
    "never_ends": (instead(PLAIN, ("out.copy_(x + y)", "while True: pass")), Status.NO_ANSWER),
    "ends_small_alone": (instead(PLAIN, ("    out", "    while len(x) > 60: pass\n    out")), Status.NO_ANSWER),
    "os_exit": (instead(PLAIN, ("out.copy_(x + y)", "os._exit(0)")), Status.CRASHED),
    "sys_exit": (instead(PLAIN, ("out.copy_(x + y)", "sys.exit(0)")), Status.CRASHED),
    "segfault": (instead(PLAIN, ("out.copy_(x + y)", "import ctypes; ctypes.string_at(8)")), Status.CRASHED),
    "forks": (instead(PLAIN, ("out.copy_(x + y)", "os.fork()")), Status.FORBIDDEN),
    "shell": (instead(PLAIN, ("out.copy_(x + y)", "os.system('true')")), Status.FORBIDDEN),
    "socket": (instead(PLAIN, ("out.copy_(x + y)", "import socket; socket.socket()")), Status.FORBIDDEN),
    "writes": (instead(PLAIN, ("out.copy_(x + y)", "open('../judged', 'w')")), Status.FORBIDDEN),
    "allocates": (instead(PLAIN, ("out.copy_(x + y)", "cache[0] = bytearray(1 << 40)")), Status.OUT_OF_MEMORY),
    "patches": (
        "import numpy, torch\nimport noyau.jobs.check.submissions.problem as j\n"
        "j.faults_of = lambda *_: []\nnumpy.array_equal = torch.equal = torch.allclose = lambda *_, **__: True\n"
        + instead(PLAIN, ("x + y", "x - y")),
        Status.WRONG,
    ),
    "cached": (instead(PLAIN, ("x + y", "cache.setdefault(x.data_ptr(), x + y)")), Status.REPLAYED),
    "cached_by_object": (
        instead(PLAIN, ("x + y", "cache.setdefault(id(x), (x, x + y))[1]")),
        Status.REPLAYED,
    ),
    "after_all": (TRITON, Status.RIGHT),
}  # fmt: skip
COMPILED = {  # by the number of cells that it leaves out
    "cuda": ("0", Status.RIGHT), "cuda_tail": ("7", Status.UNWRITTEN), "cuda_syntax": ("", Status.NOT_BUILT),
}  # fmt: skip
RETURNING = {
    "returns": (RETURNS, Status.RIGHT),
    "shape": (instead(RETURNS, ("x + y", "(x + y)[None]")), Status.WRONG_SHAPE),
    "dtype": (instead(RETURNS, ("x + y", "(x + y).double()")), Status.WRONG_DTYPE),
    "count": (instead(RETURNS, ("x + y", "(x + y, x + 1)")), Status.WRONG_SHAPE),
    "text": (instead(RETURNS, ("x + y", "'x + y'")), Status.CRASHED),
    "unwritten": (instead(RETURNS, ("x + y", "torch.empty_like(x)")), Status.UNWRITTEN),
    "inline_changes_input": (INLINE, Status.CHANGED_INPUTS),
    "inline_cached_by_address": (STATIC, Status.REPLAYED),
    "inline_ptx": (instead(INLINE, ("    add<<<", "    asm(\"\"); add<<<")), Status.NOT_CHECKED),
}  # fmt: skip
ALL = FILLING | COMPILED | RETURNING
REASONS = {
    "inline_ptx": "kernel.py: line 10 uses asm: PTX cannot be watched", "cuda_syntax": "own.cu:9:",
    "os_exit": "ended its process with status 0", "never_ends": "gave none at sizes of the problem",
    "forks": "started a process",
    "not_there": "cutlass, which is not installed", "no_function": "no function run",
    "syntax": "SyntaxError: '(' was never closed (line 1)",
    "allocates": "more than 1 GiB", "socket": "opened a socket", "raises": "ValueError: no", "writes": "wrote to",
}  # fmt: skip

ENDLESS = ("never_ends", "ends_small_alone")


def definition(folder: Path, reference: str = "def run(x, y):\n    return x + y\n") -> Problem:
    folder.mkdir(exist_ok=True)
    tensor = {"shape": ["n"], "dtype": "float32"}
    record = {"name": "add", "axes": {"n": {"type": "var"}}, "reference": f"import torch, time\n{reference}"}
    record |= {"inputs": {"x": tensor, "y": tensor}, "outputs": {"out": tensor}}
    (folder / "definition.json").write_text(json.dumps(record))
    sources = {"x": {"type": "random"}, "y": {"type": "random"}}
    lines = [json.dumps({"uuid": str(n), "axes": {"n": n}, "inputs": sources}) for n in (70, 500)]
    (folder / "workload.jsonl").write_text("\n".join(lines))
    return read_definition(folder / "definition.json", None)


def submission(name: str, text: str, fills: bool) -> Submission:
    return Submission(name, {"kernel.py": text}, ("kernel.py", "run"), ("triton",), fills)


@pytest.fixture(scope="module")
def judge():
    with referee(3.0, 1 << 30) as judge:
        yield judge


@pytest.fixture(scope="module")
def brief(judge):
    """The same process with less time, for what uses it up."""
    return replace(judge, limits=replace(judge.limits, cpu_s=0.8, clock_s=9.0))


@pytest.fixture(scope="module")
def verdict_of(judge, brief, tmp_path_factory):
    """The verdict on a submission by its name, each judged once, when a test asks for it."""
    folder = tmp_path_factory.mktemp("add")
    problem = definition(folder)

    @cache
    def verdict(name: str) -> Verdict:
        if name in COMPILED:
            files = {"src/own.cu": CUDA, "src/own.h": f"#define LESS {COMPILED[name][0]}\n"}
            flags = ("-DNONE", "-lineinfo")
            kernel = Submission(name, files, ("src/own.cu", "run"), ("cuda",), True, flags=flags)
        else:
            kernel = submission(name, ALL[name][0], name in FILLING)
        limits = brief if name in ENDLESS else judge
        return check_submissions(problem, [kernel], limits, folder, lambda _: None)[0]

    return verdict


@pytest.mark.parametrize("name", ALL)
def test_each_kind_has_its_status_and_the_next_kernel_is_unharmed(verdict_of, name):
    verdict, (_, status) = verdict_of(name), ALL[name]
    assert verdict.status is status, "\n".join(verdict.lines())
    assert REASONS.get(name, "") in verdict.reason
    assert status is not Status.RIGHT or [each.label for each in verdict.trials()][-1] == "n = 500"


@pytest.mark.parametrize("name", ["one_cell_racy", "changes_one", "inline_changes_input"])
def test_the_rule_of_the_benchmark_passes_what_is_wrong_in_one_cell_of_500(verdict_of, name):
    passed = {each.number: each.passes for each in verdict_of(name).records}
    assert passed[max(passed)], "\n".join(verdict_of(name).lines())
    assert "the rule of its benchmark passes it" not in next(verdict_of("right").lines())


def test_findings_name_lines_of_the_submission(verdict_of):
    complaint = next(each for each in verdict_of("no_mask").complaints if each.status is Status.OUT_OF_BOUNDS)
    assert complaint.finding.place == "no_mask/kernel.py:7"
    assert "tl.store(out + at" in "\n".join(verdict_of("no_mask").lines())


def test_what_was_launched_and_what_was_not_is_said(verdict_of):
    assert any("add: " in each and "accesses seen" in each for each in verdict_of("right").kernels)
    assert verdict_of("right_torch").kernels == ("no kernel of its own was launched: torch did the work",)
    assert any("torch.compile" in each for each in verdict_of("right_compiled").notes)


REFERENCES = {
    "random": ("def run(x, y):\n    return x + y + torch.rand(x.shape)\n", "other results when it is called again"),
    "raising": ("def run(x, y):\n    raise ValueError('not here')\n", "ValueError: not here"),
    "no_run": ("", "has no function run"),
    "never": ("def run(x, y):\n    while True: pass\n", "no answer within"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_bad_reference_is_named_and_nobody_is_accused(brief, tmp_path, name):
    problem = definition(tmp_path / "problem", REFERENCES[name][0])
    verdict = check_submissions(problem, [submission("right", TRITON, True)], brief, tmp_path, lambda _: None)[0]
    assert verdict.status is Status.BAD_REFERENCE
    assert REFERENCES[name][1] in verdict.reason


def test_huge_shapes_are_not_tried(judge, tmp_path):
    tensor = {"shape": ["n"], "dtype": "float32"}
    trial = Trial("n = 2^40", {"shapes": {"x": [1 << 40]}, "sources": {}, "axes": {}}, 1 << 40, True, Tolerance())
    facts = {"inputs": {"x": tensor}, "outputs": {"out": tensor}, "custom": None}
    problem = Problem("huge", "definitions", {"reference.py": "def run(x): return x"}, "reference.py", (trial,), facts)
    verdict = check_submissions(problem, [submission("right", TRITON, True)], judge, tmp_path, lambda _: None)[0]
    assert verdict.status is Status.NOT_CHECKED
    assert "too many cells" in verdict.reason


PAIR = """
import torch
from torch import nn
rows = 4096
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 8)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs(): return [torch.rand(rows, 16)]
def get_init_inputs(): return [16]
"""
PAIRED = instead(
    PAIR, ("class Model(", "class ModelNew("), ("torch.relu(self.linear(x))", "self.linear(x).clamp(min=0)")
)


def test_a_pair_of_kernelbench(judge, tmp_path):
    for name, text in (("model", PAIR), ("right", PAIRED), ("wrong", PAIRED.replace("min=0", "min=0.1"))):
        (tmp_path / f"{name}.py").write_text(text)
    problem = definitions.read_model(tmp_path / "model.py")
    kernels = [definitions.read_file(tmp_path / f"{name}.py", problem.format) for name in ("right", "wrong")]
    right, wrong = check_submissions(problem, kernels, judge, tmp_path, lambda _: None)
    assert right.status is Status.RIGHT, "\n".join(right.lines())
    assert [each.label for each in right.trials()] == ["rows = 32", "rows = 128", "rows = 4096"]
    assert wrong.status is Status.WRONG


def test_what_is_right_at_the_stated_sizes_alone_is_said_to_be(judge, tmp_path):
    padded = "torch.nn.functional.pad(self.linear(x).clamp(min=0), (0, 0, 0, 4096 - len(x)))"
    for name, text in (("model", PAIR), ("fixed", instead(PAIRED, ("self.linear(x).clamp(min=0)", padded)))):
        (tmp_path / f"{name}.py").write_text(text)
    problem = definitions.read_model(tmp_path / "model.py")
    kernel = definitions.read_file(tmp_path / "fixed.py", problem.format)
    (verdict,) = check_submissions(problem, [kernel], judge, tmp_path, lambda _: None)
    assert next(verdict.lines()).endswith(": right at rows = 4096, and not at rows = 32; rows = 128")


NUMBERS = instead(PAIR, ("rows = 4096\n", ""), ("torch.rand(rows, 16)", "torch.rand(4096, 64)"), ("[16]", "[64]"))
FIXED = instead(NUMBERS, ("nn.Linear(width, 8)", "nn.Linear(64, 8)"))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (NUMBERS, ["32 for 4096, 32 for 64", "128 for 4096", "as it is"]),
        (FIXED, ["128 for 4096", "as it is"]),  # the reference refuses other columns
        (instead(FIXED, ("4096, 64", "72, 64")), ["18 for 72", "as it is"]),
    ],
)
def test_numbers_within_the_functions_of_a_pair_are_varied_where_the_reference_takes_others(
    judge, tmp_path, text, labels
):
    changed = instead(
        text, ("class Model(", "class ModelNew("), ("return torch", "x[len(x) // 200] = 0\n        return torch")
    )
    for name, each in (("model", text), ("changes", changed)):
        (tmp_path / f"{name}.py").write_text(each)
    problem = definitions.read_model(tmp_path / "model.py")
    kernel = definitions.read_file(tmp_path / "changes.py", problem.format)
    verdict = check_submissions(problem, [kernel], judge, tmp_path, lambda _: None)[0]
    assert verdict.status is Status.CHANGED_INPUTS
    assert [each.label for each in verdict.trials()] == labels


TASK = {
    "task.yml": """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "tools.py", "source": "../tools.py"}
  - {"name": "reference.py", "source": "reference.py"}
tests:
  - {"size": 65, "seed": 4}  # small
benchmarks:
  - {"size": 300, "seed": 5}
""",
    "reference.py": """
import torch
from tools import same
def generate_input(size, seed):
    rng = torch.Generator(device='cuda').manual_seed(seed)
    return torch.randn(size, device='cuda', generator=rng), torch.empty(size, device='cuda')
def ref_kernel(data):
    return data[0] * 2
def check_implementation(data, output):
    return same(output, ref_kernel(data))
""",
    "../tools.py": """
def same(one, other):
    is_same = one.shape == other.shape and bool((one == other).all())
    return is_same, '' if is_same else 'they differ'
""",
    "submission.py": """
def custom_kernel(data):
    x, out = data
    assert x.is_cuda
    out[...] = x + x
    return out
""",
    "empty.py": "def custom_kernel(data):\n    return data[1]\n",
    "near.py": "def custom_kernel(data):\n    return data[0] * 2 * (1 + 2e-7)\n",
    "large.py": "def custom_kernel(data):\n    return data[0] * (2 if len(data[0]) < 100 else 2.5)\n",
}


def test_a_task_of_gpu_mode(judge, tmp_path):
    folder = tmp_path / "task"
    folder.mkdir()
    for name, text in TASK.items():
        (folder / name).write_text(text)
    problem = definitions.read_task(folder)
    kernels = [
        definitions.read_submission(folder / f"{name}.py", problem) for name in ("submission", "empty", "near", "large")
    ]
    right, empty, near, large = check_submissions(problem, kernels, judge, folder, lambda _: None)
    assert right.status is Status.RIGHT, "\n".join(right.lines())
    assert empty.status is Status.UNWRITTEN
    assert near.status is Status.WRONG
    assert "the task's own check finds: they differ" in "\n".join(near.lines())
    assert large.status is Status.WRONG


def test_operators_that_take_a_number_first_or_a_condition(judge, tmp_path):
    texts = {
        "remainder__Scalar_Tensor": "torch.remainder(torch.tensor(3), b)",  # of a number that is not always 3
        "where__ScalarSelf": "torch.where(a, b, c)",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        path = tmp_path / name / f"{name}_implementation_v1.py"
        path.write_text(f"import torch\ndef {name}_kernel_impl(a, b, c=None): return {text}\n")
    pairs = [definitions.read_operator(each) for each in definitions.operator_folders(tmp_path)]
    verdicts = [check_submissions(problem, [each], judge, tmp_path, lambda _: None)[0] for problem, each in pairs]
    assert [each.submission for each in verdicts] == list(texts)
    assert [each.status for each in verdicts] == [Status.WRONG, Status.RIGHT]


def test_an_operator_of_backendbench(judge, tmp_path):
    texts = {
        "add__Tensor": "def add__Tensor_kernel_impl(x, y):\n    return x + y\n",
        "mm__default": "import torch\ndef mm__default_kernel_impl(x, y):\n    return torch.einsum('ik,kj->ij', x, y)\n",
        "relu__default": "def relu__default_kernel_impl(x):\n    return x.abs()\n",
        "nosuch__default": "def nosuch__default_kernel_impl(x):\n    return x\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}_implementation_v1.py").write_text(text)
    pairs = [definitions.read_operator(each) for each in definitions.operator_folders(tmp_path)]
    judged = [check_submissions(problem, [kernel], judge, tmp_path, lambda _: None)[0] for problem, kernel in pairs]
    statuses = {each.submission.partition("__")[0]: each.status for each in judged}
    assert statuses.pop("nosuch") is Status.BAD_REFERENCE
    assert statuses == {"add": Status.RIGHT, "mm": Status.RIGHT, "relu": Status.WRONG}


def test_each_status_but_right_has_a_rank_and_traces_have_finite_numbers():
    assert set(RANK) == set(Status) - {Status.RIGHT}
    assert [finite(each) for each in (1.5, float("nan"), float("inf"))] == [1.5, 0.0, 0.0]
