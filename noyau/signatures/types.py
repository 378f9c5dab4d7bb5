"""Signatures: terms of a dtype or a family of dtypes, and dims; instances, settled by a call; and the parser of texts.

An error in a text is reported with its column."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from noyau.codegen.tables import as_operand, dim_text, unwrap
from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim, DimOp, Shape

ELLIPSIS = "..."
OUT = "out"  # the name of a result without one
_MOST_LETTERS = 240  # of a signature in a message

_FLOATS = tuple(dtype for dtype in DType if dtype.is_float)
_INTEGERS = (DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64)
_TOKEN = re.compile(r"\s*(?:(->|//|\.\.\.|[A-Za-z_][A-Za-z_0-9]*|[0-9]+|[\[\],:()+*-])|(\S))")
_LARGEST = 2**63 - 1
_DEEPEST = 32  # parentheses within one another


class Family(Enum):
    """A set of dtypes; in a call all terms of a family have the same dtype."""

    FLOAT = "float"
    INT = "int"
    ANY = "any"

    @property
    def members(self) -> tuple[DType, ...]:
        return _MEMBERS[self]


_MEMBERS = {Family.FLOAT: _FLOATS, Family.INT: _INTEGERS, Family.ANY: (DType.BOOL, *_INTEGERS, *_FLOATS)}
Element: TypeAlias = DType | Family

# Short names, long names, families.
ELEMENTS: dict[str, Element] = {
    **{dtype.value: dtype for dtype in Family.ANY.members},
    **{dtype.numpy.name: dtype for dtype in Family.ANY.members},
    **{name: dtype for dtype in DType if dtype.is_float8 for name in (dtype.value, dtype.numpy.name)},
    **{family.value: family for family in Family},
}


@dataclass(frozen=True, slots=True)
class Rest:
    """Any number of axes: `*batch`, or `...`; the same axes wherever the name stands."""

    name: str

    def __str__(self) -> str:
        return self.name if self.name == ELLIPSIS else f"*{self.name}"


@dataclass(frozen=True, slots=True)
class Term:
    """An input or a result. `dims` None: a run-time scalar."""

    name: str
    element: Element
    dims: tuple[Dim | Rest, ...] | None

    @property
    def rest(self) -> Rest | None:
        return next((dim for dim in self.dims or () if isinstance(dim, Rest)), None)

    @property
    def fixed(self) -> tuple[Dim, ...]:
        """The dims without the Rest."""
        return tuple(dim for dim in self.dims or () if isinstance(dim, Dim))

    def __str__(self) -> str:
        element: str = self.element.value
        return element if self.dims is None else f"{element}[{', '.join(map(spell_dim, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs by the names of the parameters, and results. `str` of it parses back."""

    inputs: tuple[Term, ...]
    outputs: tuple[Term, ...]

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of dims and of Rests, in the order of `str`; `...` has no name."""
        return tuple(dict.fromkeys(_names((*self.inputs, *self.outputs))))

    @property
    def integers(self) -> tuple[str, ...]:
        """The integer scalars whose names are also names of dims."""
        return tuple(term.name for term in self.inputs if is_integer(term) and term.name in self.sizes)

    def __str__(self) -> str:
        results = [str(term) if term.name == OUT else f"{term.name}: {term}" for term in self.outputs]
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(results)}".lstrip()


@dataclass(frozen=True, slots=True)
class Value:
    """An input or a result with known dtype and rank; `scalar`: a bare dtype."""

    name: str
    dtype: DType
    shape: Shape
    scalar: bool = False

    def __str__(self) -> str:
        return self.dtype.value if self.scalar else f"{self.dtype.value}[{', '.join(map(spell_dim, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Instance:
    """A signature with dtypes and ranks settled, and with numbers for the sizes that no shape binds.

    `sizes`: the Dim of each name of the signature, in the order of the text: a Rest is the product of its extents.
    Names that an integer parameter determines are not included."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sizes: tuple[tuple[str, Dim], ...]

    @property
    def ends(self) -> tuple[Value, ...]:
        """The inputs, then the outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """List the dtypes of the inputs."""
        return tuple(value.dtype for value in self.inputs)

    @property
    def ranks(self) -> tuple[int, ...]:
        """List the ranks of the inputs."""
        return tuple(len(value.shape) for value in self.inputs)

    def __str__(self) -> str:
        inputs, outputs = (", ".join(f"{v.name}: {v}" for v in part) for part in (self.inputs, self.outputs))
        return f"{inputs} -> {outputs}"


def brief(value: object) -> str:
    """Print a signature or a part of it for a message: if very long, only its beginning and its end."""
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS // 2]} ... {text[-_MOST_LETTERS // 4 :]}"


def is_integer(term: Term) -> bool:
    """Whether a term is a run-time scalar of integers."""
    return term.dims is None and (term.element is Family.INT or term.element in _INTEGERS)


def spell_dim(dim: Dim | Rest) -> str:
    """A dim in the notation of signatures: `n - 2`, `2 * n`, `(n + 1) // 2`."""
    return str(dim) if isinstance(dim, Rest) else unwrap(dim_text(dim, str, _operate))


def _operate(op: DimOp, left: str, right: str) -> str:
    if op.kind == "max":
        return f"max({left}, {right})"
    return f"({as_operand(left)} {'//' if op.kind == 'floordiv' else '%'} {as_operand(right)})"


def _names(terms: Iterable[Term]) -> Iterator[str]:
    for term in terms:
        for dim in term.dims or ():
            if isinstance(dim, Rest):
                yield from () if dim.name == ELLIPSIS else (dim.name,)
            else:
                yield from re.findall(r"[A-Za-z_]\w*", spell_dim(dim), re.ASCII)


@dataclass(frozen=True, slots=True)
class SignatureToken:
    """A token of a signature, and its column, from 1; the end has the text ""."""

    text: str
    column: int

    @property
    def is_name(self) -> bool:
        return self.text.isidentifier()


def parse(text: str, parameters: Sequence[str] | None = None) -> Signature:
    """The signature of a text, with inputs named by `parameters` (by default x0, x1...).

    A parameter beyond the text's inputs must have the name of a dim: then it is an integer that determines it.
    SignatureError where the text is wrong, with the column; or where the parameters do not fit it."""
    signature = _Parser(text).signature()
    count = len(signature.inputs)
    names = [f"x{k}" for k in range(count)] if parameters is None else list(parameters)
    extra = [name for name in names if name in signature.sizes] if len(names) > count else []
    named = [name for name in names if name not in extra]
    if len(named) != count:
        takes = f"takes {len(names)}: {', '.join(names)}" if names else "takes none"
        raise SignatureError(f'the signature "{brief(text)}" has {count} inputs, but the function {takes}')
    inputs = iter(signature.inputs)
    terms = [Term(name, DType.I64, None) if name in extra else replace(next(inputs), name=name) for name in names]
    parsed = Signature(tuple(terms), signature.outputs)
    _require_distinct(parsed, text)
    _require_families(parsed, text)
    return parsed


class _Parser:
    """A recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at, self.depth = text, list(_tokens(text)), 0, 0

    @property
    def next(self) -> SignatureToken:
        return self.tokens[self.at]

    def fault(self, what: str, token: SignatureToken | None = None) -> SignatureError:
        token = token or self.next
        where = f"at column {token.column}, {token.text!r}" if token.text else "at its end"
        return SignatureError(f'the signature "{brief(self.text)}" is wrong {where}: {what}')

    def take(self, *texts: str) -> SignatureToken | None:
        """Consume the next token if it is one of these; else None."""
        if self.next.text not in texts:
            return None
        self.at += 1
        return self.tokens[self.at - 1]

    def need(self, text: str, why: str) -> None:
        if not self.take(text):
            raise self.fault(f"{text!r} is expected{why}")

    def signature(self) -> Signature:
        inputs = () if self.next.text == "->" else tuple(self.terms(are_results=False))
        self.need("->", " between inputs and results")
        outputs = tuple(self.terms(are_results=True))
        if self.next.text:
            raise self.fault("nothing may follow the results")
        return Signature(inputs, outputs)

    def terms(self, *, are_results: bool) -> Iterator[Term]:
        yield self.term(are_results)
        while self.take(","):
            yield self.term(are_results)

    def term(self, is_result: bool) -> Term:
        first = self.next
        if not first.is_name:
            raise self.fault(f"a dtype such as f32 is expected, or a family: {', '.join(f.value for f in Family)}")
        self.at += 1
        if self.next.text != ":":
            return self.element_term(OUT, first)
        if not is_result:
            raise self.fault("inputs take their names from the function's parameters; give the dtype alone", first)
        if first.text in ELEMENTS:
            raise self.fault("a dtype cannot be the name of a result", first)
        self.at += 2
        return self.element_term(first.text, self.tokens[self.at - 1])

    def element_term(self, name: str, token: SignatureToken) -> Term:
        element = ELEMENTS.get(token.text)
        if element is None:
            raise self.fault("this is no dtype; there are f32, f64, i32, i64, u8, bool... and float, int, any", token)
        if not self.take("["):
            return Term(name, element, None)
        dims = [] if self.next.text == "]" else list(self.dims())
        self.need("]", " after the dims")
        return Term(name, element, tuple(dims))

    def dims(self) -> Iterator[Dim | Rest]:
        rests = 0
        while True:
            start = self.next
            dim = self.dim()
            rests += isinstance(dim, Rest)
            if rests > 1:
                raise self.fault("a term has at most one * or ...", start)
            yield dim
            if not self.take(","):
                return

    def dim(self) -> Dim | Rest:
        start = self.next
        if self.take(ELLIPSIS):
            return Rest(ELLIPSIS)
        if self.take("*"):
            return Rest(self.name())
        result = self.sum()
        if (result.constant or 0) < 0:
            raise self.fault("an extent cannot be negative", start)
        return result

    def name(self) -> str:
        token = self.next
        if not token.is_name:
            raise self.fault("a dim is expected: a name, an integer, ... or *name")
        if token.text in ELEMENTS:
            raise self.fault("a dtype cannot be the name of a dim", token)
        self.at += 1
        return token.text

    def sum(self) -> Dim:
        total = self.product()
        while sign := self.take("+", "-"):
            right = self.product()
            total = total + right if sign.text == "+" else total - right
        return total

    def product(self) -> Dim:
        result = self.atom()
        while sign := self.take("*", "//"):
            place, right = self.next, self.atom()
            if sign.text == "//" and right.constant is not None and right.constant < 1:
                raise self.fault(f"a dim is divided by {'what is not positive' if right.constant else '0'}", place)
            result = result * right if sign.text == "*" else result // right
        return result

    def atom(self) -> Dim:
        token = self.next
        if token.text.isdigit():
            self.at += 1
            if int(token.text) > _LARGEST:
                raise self.fault("this integer does not fit 64 bits", token)
            return Dim.of(int(token.text))
        if not self.take("(", "-"):
            return Dim.of(self.name())
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.fault("too many parentheses within one another", token)
        inner = self.sum() if token.text == "(" else -self.atom()
        if token.text == "(":
            self.need(")", " after the dim")
        self.depth -= 1
        return inner


def _tokens(text: str) -> Iterator[SignatureToken]:
    for match in _TOKEN.finditer(text):
        if match[2]:
            place = f"at column {match.start(2) + 1}, {match[2]!r}"
            raise SignatureError(f'the signature "{brief(text)}" is wrong {place}: no signature has this character')
        yield SignatureToken(match[1], match.start(1) + 1)
    yield SignatureToken("", len(text) + 1)


def _require_distinct(signature: Signature, text: str) -> None:
    """Require that each name has one meaning; an integer scalar may have the name of the dim that it determines."""
    results = [term.name for term in signature.outputs]
    scalars = {term.name for term in signature.inputs if is_integer(term)}
    rests = {term.rest.name for term in (*signature.inputs, *signature.outputs) if term.rest}
    dims = {name for t in (*signature.inputs, *signature.outputs) for dim in t.fixed for name in dim.names}
    inputs = [term.name for term in signature.inputs]
    kinds = {"an input": inputs, "a result": results, "a dim": dims - scalars, "several dims": rests}
    counts = Counter(name for names in kinds.values() for name in names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        named = [kind for kind, names in kinds.items() for name in names if name == twice[0]]
        missing = "a result without a name is called out; name it"
        fault = missing if twice[0] == OUT else f"{' and '.join(named)}; each needs a name of its own"
        raise SignatureError(f'the signature "{brief(text)}" has two things named {twice[0]}: {fault}')


def _require_families(signature: Signature, text: str) -> None:
    """Require that an input determines the dtype of each result, and the axes of its Rest."""
    elements = {term.element for term in signature.inputs}
    rests = {term.rest for term in signature.inputs}
    for term in signature.outputs:
        if isinstance(term.element, Family) and term.element not in elements:
            fault = f"no input says which dtype the {term.element.value} of {term.name} is"
            raise SignatureError(f'the signature "{brief(text)}" is not complete: {fault}; give a dtype such as f32')
        if term.rest and term.rest not in rests:
            fault = f"no input has the {term.rest} of {term.name}"
            raise SignatureError(f'the signature "{brief(text)}" is not complete: {fault}')
