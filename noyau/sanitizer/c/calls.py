"""The call of a user's function: its text, below the user's own, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.codegen.c.spellings import TYPES
from noyau.codegen.language import LANGUAGES
from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.kernels.c.parameters import RANGE, Roles, prototype, roles_of
from noyau.kernels.c.syntax import plain_name, syntax
from noyau.kernels.call import FunctionKernel
from noyau.kernels.reference import bind_sizes
from noyau.kernels.user_kernel import CPU, GPU, Buffer, UserKernel, arguments_by_author, ask, number_text
from noyau.sanitizer.c.build import OWN
from noyau.sanitizer.c.run import ArrayArgument, LaunchConfig
from noyau.sanitizer.lint.launches import Three, three
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance

Array = np.ndarray
_UNSEEN = '__attribute__((no_sanitize("thread")))'
_ANY = f"struct noyau_any {{ void *at; template <class T> {_UNSEEN} operator T *() const {{ return (T *)at; }} }};"


@dataclass(frozen=True, slots=True)
class EntryCall:
    """A call to be made: the text of a function `noyau_entry_NUMBER` that makes it, what it is given, and the launch.

    `outputs`: which of those are the results, in order; `inputs`: those that it may not change."""

    text: str
    arguments: tuple[ArrayArgument | int | float, ...]
    launch: LaunchConfig
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def call_of(
    kernel: UserKernel, instance: Instance, arrays: Sequence[Array], constants: Mapping[str, Any], number: int = 0
) -> EntryCall:
    """The call of a kernel on arrays. SignatureError where it does not fit, or a grid has no launch."""
    return _CallBuilder(kernel, instance, arrays, constants, number).call()


def with_calls(text: str, calls: Sequence[EntryCall], language: str) -> str:
    """The text of a user on its own lines, and below it these calls, of which a run chooses one."""
    is_cpp = LANGUAGES[language].is_cpp
    start = 'extern "C" ' if is_cpp else ""
    cases = " ".join(f"case {number}: noyau_entry_{number}(a); break;" for number in range(len(calls)))
    last = f"{start}void {_UNSEEN} noyau_entry(void **a) {{ switch (noyau_chosen()) {{ {cases} }} }}"
    head = ["#include <stdint.h>"]
    head += [f"{start}int noyau_{name}(void);" for name in ("chosen", "own_number", "team_size")]
    head += [f"{start}void noyau_parallel(void (*run)(void *), void *data);"]
    head += [_ANY] if is_cpp else []
    own = f'#line 1 "{OWN}"\n{text.rstrip()}\n\n#line 1 "noyau_call"'
    return "\n".join([own, *head, *(call.text for call in calls), last, ""])


def is_grid(kernel: UserKernel) -> bool:
    """Whether it is launched over a grid, rather than called."""
    return LANGUAGES[kernel.language].on_gpu and is_global(kernel.text, kernel.entry)


def is_global(text: str, entry: str) -> bool:
    """Whether a function of a text is one of `__global__`."""
    name = plain_name(entry)
    return any(each.name == name and "__global__" in each.marks for each in syntax(text, "cuda").functions)


def call_line(entry: str, arguments: Sequence[str], *, is_launched: bool) -> str:
    """A statement that calls a function, or launches it over the grid that is given."""
    if not is_launched:
        return f"{entry}({', '.join(arguments)});"
    lambda_text = f"[](auto... p) {_UNSEEN} {{ {entry}(p...); }}"
    grid = "noyau_grid(noyau_given_grid(), noyau_given_block(), (size_t)noyau_given_shared())"
    return f"{grid}.call({', '.join([lambda_text, *arguments])});"


def keeping_result(statement: str, kind: str, place: int) -> str:
    """A statement that calls a function, and keeps what it returns in an array."""
    return f"{{ {kind} value = {statement} __builtin_memcpy(a[{place}], &value, sizeof value); }}"


def pointer_text(place: int, language: str) -> str:
    """An array as an argument of a call."""
    return f"noyau_any{{a[{place}]}}" if LANGUAGES[language].is_cpp else f"a[{place}]"


def entry_text(number: int, statement: str) -> str:
    """The function of a call, which a run chooses by its number."""
    return f"static void {_UNSEEN} noyau_entry_{number}(void **a) {{ (void)a; {statement} }}"


class _CallBuilder:
    """Builds a call. `arguments`: inputs, outputs, then numbers; `passed`, `places`: the text of each of the first, and
    its position, by name."""

    def __init__(
        self, kernel: UserKernel, instance: Instance, arrays: Sequence[Array], constants: Mapping[str, Any], number: int
    ) -> None:
        self.kernel, self.instance, self.constants, self.number = kernel, instance, constants, number
        self.arrays = [np.asarray(array) for array in arrays]
        self.function = FunctionKernel(kernel, instance, constants)
        sizes = bind_sizes(instance, self.arrays)
        self.sizes = {name: int(dim.evaluate(sizes)) for name, dim in instance.sizes}
        shapes = shapes_of(instance.outputs, sizes)
        self.results = [np.zeros(s, v.dtype.numpy) for s, v in zip(shapes, instance.outputs, strict=True)]
        self.prototype = prototype(kernel)
        self.arguments: list[ArrayArgument | int | float] = []
        self.passed: dict[str, str] = {}
        self.places: dict[str, int] = {}

    @property
    def offers(self) -> dict[str, Any]:
        """The values that `launch=` and `args=` may name."""
        return {**self.function.offers(self.arrays, self.results), "device": GPU if is_grid(self.kernel) else CPU}

    def call(self) -> EntryCall:
        before, usage = self.function.prepared(self.arrays, self.results), self.kernel.usage
        usage = replace(usage, launch=None) if LANGUAGES[self.kernel.language].on_gpu else usage
        roles = roles_of(self.prototype, usage, self.kernel.target, self.kernel.called)
        self.place_arrays(before)
        text = self.text([self.argument(each, roles) for each in self.passed_values(roles)], roles)
        count = len(self.instance.inputs)
        constant = [k for k, v in enumerate(self.instance.inputs) if v.name not in usage.updates and not v.scalar]
        outputs = [self.places[name] for name in usage.updates] or range(count, count + len(self.results))
        return EntryCall(text, tuple(self.arguments), self.launch(), tuple(constant), tuple(outputs))

    def place_arrays(self, before: Sequence[Array]) -> None:
        """The inputs and the outputs become arguments."""
        named = self.function.init(before, self.results)
        ends = [(v, a, False) for v, a in zip(self.instance.inputs, before, strict=True)]
        if not self.kernel.usage.updates:
            ends += [(v, a, True) for v, a in zip(self.instance.outputs, self.results, strict=True)]
        for value, array, is_output in ends:
            place = self.places[value.name] = len(self.arguments)
            is_number, language = value.scalar and not is_output, self.kernel.language
            text = f"*(const {_type(value.dtype)} *)a[{place}]" if is_number else pointer_text(place, language)
            self.passed[value.name] = text
            contents = array if not is_output or value.name in named else None
            self.arguments.append(ArrayArgument(value.name, np.shape(array), array.dtype, contents, is_output))

    def passed_values(self, roles: Roles) -> list[Any]:
        """The value of each parameter: a name, or what args= gives."""
        if roles.names is not None:
            return list(roles.names)
        arguments = arguments_by_author(self.kernel, self.offers)
        left = iter(arguments)
        parameters = self.prototype.parameters
        places = RANGE if roles.in_pieces else ()
        if len(arguments) != sum(each.name not in places for each in parameters):
            takes = f"{self.kernel.entry} takes {len(parameters)}"
            raise SignatureError(f"args= of {self.kernel.called} gives {len(arguments)} arguments, and {takes}")
        return [each.name if each.name in places else next(left) for each in parameters]

    def argument(self, each: Any, roles: Roles) -> str:
        """The text of an argument in the call."""
        if isinstance(each, Buffer):
            return self.passed[each.name]
        if isinstance(each, str) and (roles.names is not None or each in RANGE):
            if roles.in_pieces and each in RANGE:
                return each
            if each in self.passed:
                return self.passed[each]
            each = {**self.sizes, **self.kernel.numbers(self.constants)}[each]
        number = each.item() if isinstance(each, np.generic) else each
        if not isinstance(number, bool | int | float):
            reason = f"{number!r} is no number and no array that a kernel can be given"
            raise SignatureError(f"{self.kernel.called}: {reason}")
        if isinstance(number, float):
            return number_text(number)
        self.arguments.append(int(number))
        return f"*(const long long *)a[{len(self.arguments) - 1}]"

    def text(self, texts: Sequence[str], roles: Roles) -> str:
        """The call, as C or C++."""
        head: list[str] = []
        line = call_line(self.kernel.entry, texts, is_launched=is_grid(self.kernel))
        if roles.returned is not None:
            output = next(v for v in self.instance.outputs if v.name == roles.returned)
            line = keeping_result(line, _type(output.dtype), self.places[output.name])
        if roles.in_pieces:
            self.arguments.append(self.extent())
            head, line = _pieces(self.number, line, len(self.arguments) - 1)
        return "\n".join([*head, entry_text(self.number, line)])

    def extent(self) -> int:
        """The extent of the range that `begin` and `end` divide."""
        launch = self.kernel.usage.launch
        if launch is None:
            return int(self.results[0].shape[0]) if self.results and self.results[0].ndim else 1
        if isinstance(launch, str):
            return self.sizes[launch]
        return int(ask(launch, self.offers, f"launch= of {self.kernel.called}")) if callable(launch) else int(launch[0])

    def launch(self) -> LaunchConfig:
        if not is_grid(self.kernel):
            return LaunchConfig()
        launch, where = self.kernel.usage.launch, f"launch= of {self.kernel.called}"
        if launch is None:
            raise SignatureError(f"{self.kernel.called} runs over a grid; say with launch=(grid, block) over which one")
        config = ask(launch, self.offers, where) if callable(launch) else launch
        return launch_of(config, where, int(self.kernel.usage.options.get("shared_bytes", 0)))


def launch_of(config: Any, where: str, shared_bytes: int = 0) -> LaunchConfig:
    """(grid, block) or (grid, block, bytes of shared memory) as a launch. SignatureError for anything else."""
    if not isinstance(config, tuple) or len(config) not in (2, 3):
        raise SignatureError(f"{where} gives {config!r}; give (grid, block), or (grid, block, bytes of shared memory)")
    shared = int(config[2]) if len(config) == 3 else shared_bytes
    return LaunchConfig(_triple(config[0], where), _triple(config[1], where), shared)


def _triple(part: Any, where: str) -> Three:
    parts = tuple(part) if isinstance(part, tuple | list) else (part,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(each, int | np.integer) for each in parts):
        raise SignatureError(f"{where} gives {part!r}; a grid or a block is one to three integers")
    return three(parts)


def _pieces(number: int, line: str, place: int) -> tuple[list[str], str]:
    """A function that is called for pieces of its work, a piece for each of the threads of a team; and its call."""
    each = f"*(const long long *)a[{place}] * (noyau_own_number() + {{}}) / noyau_team_size()"
    head = [
        f"static void {_UNSEEN} noyau_piece_{number}(void *given) {{",
        f"    void **a = (void **)given; const long long begin = {each.format(0)}, end = {each.format(1)};",
        f"    if (begin < end) {line}",
        "}",
    ]
    return head, f"noyau_parallel(noyau_piece_{number}, a);"


def _type(dtype: DType) -> str:
    return "_Bool" if dtype is DType.BOOL else TYPES[dtype]
