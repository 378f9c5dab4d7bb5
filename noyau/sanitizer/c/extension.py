"""Functions of an extension of torch in C++ and CUDA C++ (`load_inline`), called on arrays with every access watched.

A small header stands in for torch (include/torch/extension.h): its tensors are packed memory, of a device where a
function makes them. A function takes tensors and numbers, and returns a tensor, several, or nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import SignatureError
from noyau.kernels.user_kernel import number_text
from noyau.sanitizer.c.build import OWN, Source, build_program, rewrite
from noyau.sanitizer.c.reports import ReportContext, findings_of_runs
from noyau.sanitizer.c.run import ArrayArgument, LaunchConfig, WorkSharing, run
from noyau.sanitizer.records import WatchedRun

Array = np.ndarray
_MOST_RANK = 8
_TYPES = {  # by the number that torch has for them
    DType.U8: 0, DType.I8: 1, DType.I16: 2, DType.I32: 3, DType.I64: 4,
    DType.F16: 5, DType.F32: 6, DType.F64: 7, DType.BOOL: 11, DType.BF16: 15,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extension:
    """The texts of an extension: `cuda` has its kernels and what calls them, `cpp` mostly declarations. `place`: where
    the former stands, in reports."""

    cuda: str
    cpp: str = ""
    place: str = "cuda_sources"

    @property
    def text(self) -> str:
        """Both texts, each on its own lines."""
        own = f'#line 1 "{OWN}"\n{rewrite(self.cuda, "cuda", self.place)}'
        rest = rewrite(self.cpp, "cuda", "cpp_sources")
        return f'#include <torch/extension.h>\n#line 1 "cpp_sources"\n{rest}\n{own}\n#line 1 "noyau_call"\n'


def call_extension(
    extension: Extension,
    function: str,
    args: Sequence[Array | float | None],
    results: Sequence[Array],
    patience_s: float = 10.0,
) -> WatchedRun:
    """Call a function of an extension on arrays and numbers. `results`: arrays of the shapes and the dtypes that it is
    to return; `outputs` are what it returned, or what it left of arrays that it changed where it returns nothing.

    SignatureError where it returns others, or a dtype is none of torch; UnsupportedError for what cannot be watched,
    and where the function raises; BuildError where the text does not compile."""
    arguments: list[ArrayArgument | int | float] = []
    texts = [_argument(each, arguments) for each in args]
    count, kinds = len(arguments), [np.zeros(2 + _MOST_RANK, np.int64) - 1 for _ in results]
    for number, (kind, result) in enumerate(zip(kinds, results, strict=True)):
        arguments.append(ArrayArgument(f"the shape of result {number}", kind.shape, kind.dtype, kind))
        arguments.append(ArrayArgument(f"result {number}", result.shape, result.dtype, np.zeros_like(result)))
    sinks = [f"{{(int64_t *)a[{count + 2 * k}], a[{count + 2 * k + 1}], {r.nbytes}}}" for k, r in enumerate(results)]
    call = f"torch::noyau_call([&]() {{ return {function}({', '.join(texts)}); }}, to);"
    start = f"static void noyau_entry_0(void **a) {{ (void)a; torch::noyau_sink to[] = {{{', '.join([*sinks, '{}'])}}};"
    entry = 'extern "C" void noyau_entry(void **a) { noyau_entry_0(a); }'
    program = build_program(Source(f"{extension.text}{start} {call} }}\n{entry}\n", "cuda", called=extension.place))
    ran = run(program, arguments, WorkSharing(1), LaunchConfig(), patience_s=patience_s)
    shapes = {each.name: each.shape for each in arguments if isinstance(each, ArrayArgument)}
    context = ReportContext(function, function, function, "cuda", extension.place, extension.cuda, shapes, "")
    findings, allowed = findings_of_runs([ran], program.lines, context)
    outputs = None if ran.arrays is None else _outputs(ran.arrays, args, results, function)
    return WatchedRun(findings, ran.accesses, allowed, (ran.concurrency,) if ran.concurrency else (), outputs)


def _argument(value: Array | float | None, arguments: list[ArrayArgument | int | float]) -> str:
    """The text of an argument; an array is one of the call."""
    if value is None:
        return "std::nullopt"
    if not isinstance(value, np.ndarray):
        return json.dumps(value) if isinstance(value, bool) else number_text(value)
    dtype = from_numpy(value.dtype)
    if dtype not in _TYPES:
        raise SignatureError(f"a tensor of torch holds no {value.dtype}; give float32, or another dtype that both have")
    arguments.append(ArrayArgument(f"argument {len(arguments)}", value.shape, value.dtype, np.ascontiguousarray(value)))
    shape = ", ".join(f"{extent}ll" for extent in value.shape)
    return f"torch::Tensor(a[{len(arguments) - 1}], (torch::ScalarType){_TYPES[dtype]}, {{{shape}}})"


def _outputs(
    arrays: Sequence[Array], args: Sequence[Array | float | None], results: Sequence[Array], function: str
) -> tuple[Array, ...]:
    """The results of a function; where it returned nothing, its arrays as it left them."""
    count = sum(isinstance(each, np.ndarray) for each in args)
    returned = arrays[count:]
    kinds = [[int(number) for number in each] for each in returned[::2]]
    if all(kind[0] < 0 for kind in kinds):
        return tuple(arrays[:count])
    for (code, rank, *sizes), result in zip(kinds, results, strict=True):
        dtype = from_numpy(result.dtype)
        if dtype is None or code != _TYPES.get(dtype) or tuple(sizes[: max(rank, 0)]) != result.shape:
            names = {number: dtype.numpy.name for dtype, number in _TYPES.items()}
            shape = f"{names.get(code, 'nothing')}[{', '.join(map(str, sizes[: max(rank, 0)]))}]"
            raise SignatureError(f"{function} returns {shape}; {result.dtype}{list(result.shape)} is asked for")
    return tuple(returned[1::2])
