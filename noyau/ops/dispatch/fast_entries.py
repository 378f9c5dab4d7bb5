"""Fast calls of the kernels chosen for a key: in C where one kernel is the whole program, else in Python.

A program with library calls looks nothing up in a call: kernels run by their fast calls, with NumPy between them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, assert_never

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.dtypes import DType
from noyau.errors import InputError, UnsupportedError
from noyau.hosts.numpy.fast_calls import MISS, Argument, FastCall, empty, in_caller_form, read_argument, threads, write
from noyau.ir.sizes import Sizes
from noyau.kernels.call import FunctionKernel, call_kernel, library_of
from noyau.kernels.programs.generate import BuiltKernel, BuiltProgram, Specialization
from noyau.kernels.programs.libraries import einsum_of, product, quiet
from noyau.kernels.programs.program import KEPT_SHAPES, KernelStep, Program, ProgramRunner, StepRun
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import Choice, Selection
from noyau.signatures.instances import TAKES
from noyau.signatures.types import Family, Signature, Term, Value

Array = np.ndarray
Run: TypeAlias = Callable[..., list[Array]]
Into: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], bool]
Entry: TypeAlias = Callable[[tuple[Any, ...], Any], Any]  # arguments, out -> results, or MISS
Ones: TypeAlias = Sequence[tuple[bool, ...]] | None  # for each argument, which axes have one cell
_ALONE = {Family.FLOAT: DType.F64, Family.INT: DType.I64}  # the dtype of a Python number beside no array


def entry(label: str, signature: Signature, chosen: Selection, ones: Ones = None) -> Entry | None:
    """The entry for the arguments of a call, which misses for another key, or for axes of one cell other than `ones`.
    None for the reference."""
    fast_call: Entry | None = of_sizes(chosen, partial(_fast_call, label, signature, chosen.wanted, ones), _by_size)
    return fast_call


def of_sizes(chosen: Selection, fast_call_of: Callable[[Choice], Any], by_size: Callable[..., Any]) -> Any:
    """The fast call of a selection, or `by_size` of several, each with its most cells; None for the reference."""
    fast_calls = [(fast_call_of(choice), most) for choice, most in chosen.choices]
    if any(fast_call is None for fast_call, _ in fast_calls):
        return None
    return fast_calls[0][0] if chosen.only else partial(by_size, fast_calls)


def run(choice: Choice, specialization: Specialization, arrays: Sequence[Array]) -> list[Array]:
    """Run a kernel on arrays of its key. UnsupportedError for the reference, which is no kernel."""
    match choice.runner:
        case BuiltProgram():
            return choice.runner(*arrays, threads=threads())
        case UserKernel():
            return call_kernel(choice.runner, specialization.instance, arrays, specialization.constants)
        case None:
            raise UnsupportedError("the reference is no kernel")


def arguments_of(
    signature: Signature, specialization: Specialization, ones: Ones = None, *, packed: bool = False
) -> list[Argument]:
    """The arguments that an entry takes, by position; with `packed`, arrays in C order alone."""
    arguments = []
    for at, (term, value) in enumerate(zip(signature.inputs, specialization.instance.inputs, strict=True)):
        layout = PACKED if packed else specialization.layout(at)
        numbers = TAKES[value.dtype.kind] if _takes_numbers(signature, term, value) else ()
        equals = specialization.integers.get(value.name)
        axes = None if ones is None else ones[at]
        arguments.append(Argument(value.dtype, len(value.shape), layout, numbers=numbers, ones=axes, equals=equals))
    return arguments


def _takes_numbers(signature: Signature, term: Term, value: Value) -> bool:
    """Whether a Python number would have this dtype here: by the signature, by an array beside it, or by itself."""
    if term.dims is not None or not isinstance(term.element, Family):
        return term.dims is None
    settled = any(other.element is term.element and other.dims is not None for other in signature.inputs)
    return settled or (term.element is not Family.ANY and value.dtype is _ALONE.get(term.element))


def _fast_call(
    label: str, signature: Signature, specialization: Specialization, ones: Ones, choice: Choice
) -> Entry | None:
    scalars = [value.scalar for value in specialization.instance.outputs]
    match choice.runner:
        case None:
            return None
        case BuiltProgram(library=path, generated=made) if path is not None and made.program.only is not None:
            symbol, ends = f"{made.program.only.name}_kernel", arguments_of(signature, specialization, ones)
            return FastCall(path, symbol, ends, scalars, label, made.program.constants).call
        case UserKernel(language=language) if LANGUAGES[language].is_native:
            path_and_symbol = library_of(choice.runner, specialization.instance, specialization.constants)
            ends = arguments_of(signature, specialization, ones, packed=True)
            return FastCall(*path_and_symbol, ends, scalars, label).call
        case BuiltProgram():
            ends, program = arguments_of(signature, specialization, ones), choice.runner
            plainly = partial(_plainly, label, ends, scalars, in_memory(program), into=into(program))
            return _product(ends, program.generated.program, plainly)
        case UserKernel():
            by_python = FunctionKernel(choice.runner, specialization.instance, specialization.constants)
            ends = arguments_of(signature, specialization, ones)
            return partial(_plainly, label, ends, scalars, as_called(by_python, specialization))
        case _:
            assert_never(choice.runner)


def as_called(run: Run, specialization: Specialization) -> Run:
    """Adapt a kernel that takes arrays as the caller sees them to arrays in memory order, as fast calls read them."""
    if not any(layout.axes for layout in specialization.layouts):
        return run
    return lambda *arrays: run(*(specialization.layout(at).as_called(array) for at, array in enumerate(arrays)))


def _plainly(
    label: str,
    ends: Sequence[Argument],
    scalars: Sequence[bool],
    run: Run,
    arguments: tuple[Any, ...],
    out: Any = None,
    *,
    into: Into | None = None,
) -> Any:
    """A fast call in Python, for anything but one kernel in C. What it refuses is a MISS; full dispatch says why."""
    if len(arguments) != len(ends):
        return MISS
    arrays = [read_argument(end, each) for end, each in zip(ends, arguments, strict=True)]
    if any(array is None for array in arrays):
        return MISS
    inputs = [array for array in arrays if array is not None]
    if into is not None and out is not None and into(inputs, out if isinstance(out, tuple) else (out,)):
        return out
    try:
        results = run(*inputs)
    except InputError:
        return MISS
    whole = in_caller_form(results, scalars)
    return whole if out is None else write(label, whole, out, arguments)


def _product(ends: Sequence[Argument], program: Program, plainly: Entry) -> Entry:
    """The entry of a program that is one product of two matrices: np.dot for shapes and strides that `plainly` took, if
    they are packed or transposed. `plainly` for another program."""
    seen = einsum_of(program.graph) if len(program.steps) == 1 else None
    if seen is None or not (how := product(seen[0])).is_plain or seen[2] not in (DType.F32, DType.F64):
        return plainly
    names, turned, dtype = [node.output for node in program.graph.inputs], how.turned is not None, seen[2].numpy
    places = [names.index(name) for name in seen[1]]
    flips = [bool(ends[at].layout.axes) ^ bool(order) ^ turned for at, order in zip(places, how.orders, strict=True)]
    (first, second), (flip, flop) = (places[::-1], flips[::-1]) if turned else (places, flips)
    known, count = set[tuple[tuple[int, ...], ...]](), len({*places})

    def call(arguments: tuple[Any, ...], out: Any = None) -> Any:
        if len(arguments) != count or out is not None:
            return plainly(arguments, out)
        left, right = arguments[first], arguments[second]
        if not (type(left) is type(right) is np.ndarray and left.dtype is right.dtype is dtype):
            return plainly(arguments, None)
        key = left.shape, left.strides, right.shape, right.strides
        if key in known:
            return quiet()((left.T if flip else left).dot, right.T if flop else right)
        results = plainly(arguments, None)
        if results is not MISS and left.flags.forc and right.flags.forc and len(known) < KEPT_SHAPES:
            known.add(key)
        return results

    return call if count == len(ends) else plainly


def _by_size(fast_calls: Sequence[tuple[Entry, float]], arguments: tuple[Any, ...], out: Any = None) -> Any:
    """The fast call for the size of the largest array."""
    cells = max((each.size for each in arguments if isinstance(each, np.ndarray)), default=0)
    return next(fast_call for fast_call, most in fast_calls if cells <= most)(arguments, out)


def array_runner(built: BuiltProgram) -> ProgramRunner:
    """A built program on NumPy's arrays."""
    program = built.generated.program
    pairs = zip(program.kernel_steps, built.kernels, strict=True)
    return ProgramRunner(program, [_kernel(built, step, native) for step, native in pairs])


def in_memory(program: BuiltProgram) -> Run:
    """A program on arrays whose axes are in the order of memory, as fast calls read them."""
    if program.generated.program.single is None:
        return array_runner(program)
    return lambda *arrays: program.kernels[0](*arrays, threads=threads(), empty=empty)


def into(program: BuiltProgram) -> Into | None:
    """A function that writes the results of a program of one kernel to the arrays `out`, if they fit; or None."""
    if program.generated.program.single is None:
        return None

    def write_into(arrays: Sequence[Array], out: Sequence[Array]) -> bool:
        if not all(isinstance(target, np.ndarray) for target in out):
            return False
        try:
            program.kernels[0](*arrays, out=out, threads=threads())
        except InputError:
            return False
        return True

    return write_into


def _kernel(program: BuiltProgram, step: KernelStep, native: BuiltKernel) -> StepRun:
    """A kernel by its fast call; by its slow call if it has none, or if a library's result is not packed."""
    if program.library is None or any(buffer.strides for buffer in step.kernel.buffers):
        return lambda arrays, sizes: native(*arrays, threads=threads(), empty=empty)
    ends = [Argument(node.dtype, len(node.shape), PACKED) for node in step.graph.inputs]
    return partial(_through, FastCall(program.library, f"{step.kernel.name}_kernel", ends).call, native)


def _through(fast_call: Callable[..., Any], native: BuiltKernel, arrays: list[Array], sizes: Sizes) -> Sequence[Array]:
    results = fast_call(tuple(arrays), None)
    if results is MISS:
        return native(*map(np.ascontiguousarray, arrays), threads=threads(), empty=empty)
    return results if isinstance(results, tuple) else [results]
