"""Words that texts have for themselves, and ops whose parameters and sizes have such names. Support for tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import noyau
from noyau.ops.op import Op

_NUMBERED = re.compile(r"q\d+q")


def numbered(self: Any, stem: str) -> str:
    """In place of the identifiers of a text: ones that stand out."""
    self.count += 1
    made = f"q{self.count}q"
    self.blocks[-1]["taken", made] = made
    return made


def own_words(texts: Iterable[str]) -> set[str]:
    """The names in the functions of a kernel `made`, but for those that are numbered; what is made of these, as made of
    `x`."""
    functions = [
        node for text in texts for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and _is_made(node)
    ]
    nodes = [node for function in functions for node in ast.walk(function)]
    found = {
        node.id if isinstance(node, ast.Name) else node.arg for node in nodes if isinstance(node, ast.Name | ast.arg)
    }
    names = {
        name for name in found if not _NUMBERED.fullmatch(name) and not re.fullmatch(r"noyau_\w+|made(_\d+)?", name)
    }
    return {_NUMBERED.sub("x", name) for name in names}


def _is_made(function: ast.FunctionDef) -> bool:
    return re.fullmatch(r"made(_\d+)?", function.name) is not None


# Names of the memory of schedules in texts, words of texts, of C, Numba and Triton, and of what these make of texts.
WORDS = """sched sizes status begin end call item items part parts kept_x kept_m own_0 x_lanes x_sum m_max e_sum x_2_sum
    x_3 x_max_lanes m_max_of_block e_sum_result tuple ValueError options params specialization backend debug maxnreg
    M_PI enable_fp_fusion instrumentation_mode NAN I EOF errno fmaxf expf np numba math prange tl triton torch INDEX
    BLOCK register volatile int64_t programs tiles n_STEP x_STEP len range print type self args kwargs nan inf min max
    abs out result shape x_i lane block length row column half grid warmup n1 n launch dims left types ir intrinsic
    scalar x dynamic_func main m e k""".split()
PLAIN = ("x", "w", "at", "n", "m", "k")
_TEXT = """
def softmax({0}, {1}, {2}):
    _e = _np.exp({0} - {0}.max(-1, keepdims=True))
    return _e / _e.sum(-1, keepdims=True) * {1}[{2}]
def total({0}, {1}, {2}):
    return {0}.sum() + ({1} * {1}).max() + {2}.astype(_np.float32).sum()
"""


def ops_of(names: Sequence[str]) -> list[Op[..., Any]]:
    """Ops of three parameters and three sizes of these names: rows that look values up, and folds of all cells."""
    space: dict[str, Any] = {"_np": np}
    exec(_TEXT.format(*names), space)
    rows, columns, many = names[3:]
    given = f"f32[{rows}, {columns}], f32[{many}], i64[{columns}]"
    return [
        noyau.op(f"{given} -> given_back: f32[{rows}, {columns}]")(space["softmax"]),
        noyau.op(f"{given} -> given_back: f32")(space["total"]),
    ]


def arrays() -> list[np.ndarray]:
    """What these ops take."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 7), 9))
    return [x, w, rng.integers(0, 9, 7)]
