"""The laws of a reduction, tested on random states: zero is an identity, merge is associative, any chunks give the
result of one pass, states survive packing; and merge is commutative, unless the reduction is `in_order`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noyau.engines.reduction import Reduction, as_reduction
from noyau.errors import CheckError, FindingKind, NoyauError, SignatureError
from noyau.ops.op import Op
from noyau.ops.op_files import load_op, load_ops
from noyau.verify.checks import KernelCheck, OpCheck
from noyau.verify.findings import Finding
from noyau.workers.import_path import run_file

ROUNDS, _ROWS = 12, (1, 2, 7, 64, 301)
Columns = tuple[np.ndarray, ...]
Bare = Callable[[], Any]


class LawCheck(OpCheck):
    """The check of a reduction, with its laws in place of an op's kernels."""

    @property
    def is_verified(self) -> bool:
        return self.ok


def check_laws(reduction: Reduction, seed: int = 0) -> LawCheck:
    """Test each law on states of random columns. SignatureError where `inputs` lacks a column of a step."""
    fault = _broken_law(reduction, np.random.default_rng(seed))
    code = type(reduction).step.__code__
    place = f"{code.co_filename}:{code.co_firstlineno}"
    mend = "mend it, or let the rows go through it in order: @noyau.reduction(sequential=True)"
    finding = Finding(reduction.name, "laws", "python", FindingKind.WRONG_VALUE, place, "", fault, mend=mend)
    note = f"its laws hold in {ROUNDS} rounds of random states"
    laws = KernelCheck("laws", "python", None, (finding,) if fault else (), notes=() if fault else (note,))
    return LawCheck(reduction.name, place, (laws,))


def require_laws(reduction: Reduction) -> None:
    """CheckError where a reduction breaks a law that merging relies on."""
    for finding in check_laws(reduction).findings:
        raise CheckError(f"{reduction.name} is no monoid: {finding.message}; {finding.mend}, or stream(in_order=True)")


def _broken_law(one: Reduction, rng: np.random.Generator) -> str:
    """A text on the first law that a reduction breaks; empty if it breaks none."""
    for _ in range(ROUNDS):
        a, b, c = (_columns(one, rng, int(rng.choice(_ROWS))) for _ in range(3))
        for law, *sides in _laws(one, a, b, c):
            try:
                got, want = (one.finish(side()) for side in sides)
            except NoyauError:
                raise
            except Exception as fault:  # noqa: BLE001  of the user's functions
                return f"{law}: {type(fault).__name__}: {fault}"
            if not is_near(got, want):
                return f"{law}: {_brief(got)} is not {_brief(want)}"
    return ""


def _laws(one: Reduction, a: Columns, b: Columns, c: Columns) -> Sequence[tuple[str, Bare, Bare]]:
    """Each law with its two sides as functions that make fresh states, since merge may modify its first argument."""

    def of(*chunks: Columns) -> Any:
        state = one.zero()
        for chunk in chunks:
            state = one.step(state, *chunk)
        return state

    bytes_law = ("a state is not what its bytes give back", lambda: one.unpack(one.pack(of(a))), lambda: of(a))
    both = tuple(np.concatenate(pair) for pair in zip(a, b, strict=True))
    chunk_law = ("it depends on where a chunk ends", lambda: of(both), lambda: of(a, b))
    if one.sequential:
        return [bytes_law, chunk_law]
    in_turn: Bare = lambda: one.merge(of(a), of(b))  # noqa: E731
    swapped = ("merge is not commutative; in_order=True says so", in_turn, lambda: one.merge(of(b), of(a)))
    left: Bare = lambda: one.merge(one.merge(of(a), of(b)), of(c))  # noqa: E731
    return [
        bytes_law,
        ("merge(zero, s) is not s", lambda: one.merge(one.zero(), of(a)), lambda: of(a)),
        ("merge(s, zero) is not s", lambda: one.merge(of(a), one.zero()), lambda: of(a)),
        ("merge is not associative", left, lambda: one.merge(of(a), one.merge(of(b), of(c)))),
        ("merged chunks are not one pass", in_turn, lambda: of(a, b)),
        chunk_law,
        *([] if one.in_order else [swapped]),
    ]


def _columns(one: Reduction, rng: np.random.Generator, rows: int) -> Columns:
    """Random columns of `rows` rows, by `inputs(rng, n)` of the reduction if it has that, else normal numbers."""
    maker = getattr(one, "inputs", None)
    columns = maker(rng, rows) if callable(maker) else {name: rng.normal(size=rows) for name in one.columns}
    if (missing := next((name for name in one.columns if name not in columns), None)) is not None:
        raise SignatureError(f"inputs of {one.name} makes no column {missing}, which its step takes")
    return tuple(np.asarray(columns[name]) for name in one.columns)


def is_near(got: Any, want: Any) -> bool:
    """Whether two results are equal, floats up to half of their digits, relative to the largest of them."""
    if isinstance(got, tuple | list | dict):
        pairs = zip(*(x.values() if isinstance(x, dict) else x for x in (got, want)), strict=True)
        return len(got) == len(want) and all(is_near(*pair) for pair in pairs)
    x, y = np.asarray(got), np.asarray(want)
    if x.dtype.kind not in "fc" or x.shape != y.shape:
        return np.array_equal(x, y)
    near = 2.0 ** (-np.finfo(x.dtype).nmant // 2)  # merges round in another order; wrong laws err far more
    return np.allclose(x, y, near, near * np.max(abs(y), where=np.isfinite(y), initial=0), equal_nan=True)


def _brief(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def load_target(target: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """Load the op or the reduction, with these parameters, of "path.py::name". InputError as from `load_op`."""
    place, _, name = target.partition("::")
    values = run_file(Path(place)) if name and Path(place).is_file() else {}
    return as_reduction(values.get(name), parameters) or load_op(target, values or None)


def load_checked(target: str) -> tuple[list[Op[..., Any]], list[Reduction]]:
    """Load the ops and reductions of "path.py", or the one of "path.py::name". InputError as from `load_ops`."""
    place, _, name = target.partition("::")
    values = run_file(Path(place)) if Path(place).suffix == ".py" and Path(place).is_file() else {}
    kinds = [value for key, value in values.items() if key == name or (not name and isinstance(value, type))]
    reductions = [each for each in map(as_reduction, kinds) if each is not None]
    has_ops = any(isinstance(value, Op) for value in values.values())
    return ([] if reductions and (name or not has_ops) else load_ops(target, values or None)), reductions
