"""The languages of kernels: those that noyau generates, and those that only users write.

A language is one record. Higher layers have their own record for each language by its name: calls of user kernels in
kernels/call.py, observation of accesses in sanitizer/routes.py."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeAlias

from noyau.codegen.c import printer as c_printer
from noyau.codegen.cuda import expressions as cuda_expressions
from noyau.codegen.cuda import printer as cuda_printer
from noyau.codegen.numba import printer as numba_printer
from noyau.codegen.numba import spellings as numba_spellings
from noyau.codegen.numba_cuda import printer as numba_cuda_printer
from noyau.codegen.triton import printer as triton_printer
from noyau.codegen.triton import tables as triton_tables
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options
from noyau.compiler.schedules.gpu.blocks import in_blocks, in_threads
from noyau.compiler.schedules.gpu.scatters import Way
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.ir.loops import Kernel
from noyau.toolchain.c import compiler as c_compiler

Schedule: TypeAlias = Options | Callable[[Kernel], Kernel]  # options of the CPU's schedule, or another schedule


class TextPrinter(Protocol):
    """Protocol of a function that prints kernels with distinct names as one text, headed by a comment."""

    def __call__(self, kernels: Sequence[Kernel], comment: str = "") -> str: ...


class Grid(Enum):
    """The grid that a kernel is launched over."""

    NONE = "called as a function"
    THREADS = "blocks of threads: launch=(grid, block)"
    PROGRAMS = "programs, each a block of one: launch=grid"


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """The generation of kernels in a language, by `schedule` and `printer`. `deterministic`: a schedule with the same
    bits in each run, if `schedule` does not ensure that; `reserved`: names that the printed text itself needs;
    `shares_scans`: threads share a scan, for which other languages use one thread a row; `sums_small_products`: small
    products of matrices are sums in the kernel around them."""

    printer: TextPrinter
    schedule: Schedule
    reserved: frozenset[str] = frozenset()
    has_float8: bool = True
    deterministic: Schedule | None = None
    shares_scans: bool = False
    sums_small_products: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """A language of kernels.

    `suffixes`: of its text files, empty if a kernel is a Python function; `packages`: required ones; `decorators`: a
    pattern of the types that its decorators make; `flags`: by which the C compiler selects the language; `is_native`:
    kernels are built into a library with the interface of noyau.h, which every host can call; `is_jit`: it compiles at
    the first call, for seconds; `is_threaded`: a kernel may run in several threads; `thread_pool`: the package that
    owns these threads; `scalar_bits`: of scalar arguments; `widening`: the remedy for an index beyond int32;
    `generation`: None if only users write it; `require_compiler`: raises BuildError if nothing can build a text."""

    name: str
    suffixes: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    decorators: str = ""
    grid: Grid = Grid.NONE
    flags: tuple[str, ...] = ()
    is_cpp: bool = False
    is_native: bool = False
    is_jit: bool = False
    is_threaded: bool = True
    thread_pool: str = ""
    scalar_bits: int = 64
    widening: str = "compute it in int64: without int32(...)"
    generation: Generation | None = None
    require_compiler: Callable[[], object] = lambda: None

    @property
    def on_gpu(self) -> bool:
        """Whether its kernels run on a GPU."""
        return self.grid is not Grid.NONE

    @property
    def is_text(self) -> bool:
        """Whether a kernel is attached as a file or a text, not as a function."""
        return bool(self.suffixes)


def _require_c_compiler() -> None:
    c_compiler.find_compiler()


_C = Generation(c_printer.together, USUAL)
# LLVM rounds such a sum otherwise in the vectors and in the remainder of the loop around it.
_NUMBA = Generation(numba_printer.together, numba_printer.SCHEDULE, numba_spellings.RESERVED, sums_small_products=False)
_TRITON = Generation(triton_printer.together, on_gpu, triton_tables.RESERVED, has_float8=False)
_CUDA = Generation(
    cuda_printer.together, in_blocks, cuda_expressions.RESERVED, False, partial(in_blocks, way=Way.OWNER), True
)
_NUMBA_CUDA = Generation(
    numba_cuda_printer.together, in_threads, numba_spellings.RESERVED, False, partial(in_threads, way=Way.OWNER), True
)
_WIDER_IN_C = "widen it first: (long long)row * n + col, or size_t"
_CPP = ("-x", "c++", "-std=c++17")
_ALL = (
    Language("c", (".c",), is_native=True, generation=_C, require_compiler=_require_c_compiler, widening=_WIDER_IN_C),
    Language("cpp", suffixes=(".cc", ".cpp", ".cxx"), flags=_CPP, is_cpp=True, widening=_WIDER_IN_C),
    Language("numba", (), ("numba",), r"numba\.(?!(.*\.)?cuda\.)", is_jit=True, thread_pool="numba", generation=_NUMBA),
    Language(
        "triton",
        packages=("triton", "torch"),
        decorators=r"triton\.",
        grid=Grid.PROGRAMS,
        is_jit=True,
        scalar_bits=32,
        widening="widen it first: row.to(tl.int64) * stride",
        generation=_TRITON,
    ),
    Language(
        "cuda",
        suffixes=(".cu",),
        grid=Grid.THREADS,
        flags=(*_CPP, "-Wno-attributes"),
        is_cpp=True,
        widening=_WIDER_IN_C,
        generation=_CUDA,
    ),
    Language("numba_cuda", (), ("numba",), r"numba\.(.*\.)?cuda\.", Grid.THREADS, generation=_NUMBA_CUDA),
    Language("python", is_threaded=False),
)
LANGUAGES: Mapping[str, Language] = MappingProxyType({each.name: each for each in _ALL})
BY_SUFFIX: Mapping[str, Language] = MappingProxyType({suffix: each for each in _ALL for suffix in each.suffixes})
GENERATIONS: Mapping[str, Generation] = MappingProxyType({e.name: e.generation for e in _ALL if e.generation})


def languages_for(*, gpu: bool) -> tuple[str, ...]:
    """The generated languages for a GPU, or for the CPU, in order of preference."""
    return tuple(name for name in GENERATIONS if LANGUAGES[name].on_gpu is gpu)
