"""The syntax of a text in C, C++ or CUDA C++, parsed by tree-sitter: its functions, macros and launches.

For the grammar, CUDA's keywords are replaced by blanks and `f<<<grid, block>>>(x)` by `f(((grid, block)))(x)`, so that
offsets in the tree are offsets in the text. An incomplete text is parsed as far as it goes. Unknown types of a
prototype (a typedef, a macro) are left to the compiler, which checks the call that noyau prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING

from noyau.codegen.language import LANGUAGES
from noyau.dtypes import HALVES, DType
from noyau.errors import SignatureError, dependency

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query


_COMMENT = r"/\*.*?\*/ | //[^\n]*"
_STRING = r""" "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' """
_LEXICAL = re.compile(rf"(?P<comment>{_COMMENT}) | {_STRING}", re.DOTALL | re.VERBOSE)

# CUDA's keywords beside those of C++; they may stand anywhere among the words of a declaration.
_CUDA = re.compile(
    r"\b__(?:global|device|host|shared|constant|managed|grid_constant|forceinline|noinline)__\b|\b__restrict(?:__)?\b"
    r"|\b__(?:launch_bounds|cluster_dims|maxnreg|align)__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
)
# A macro call at the left margin, on lines of its own; the declaration that follows does not depend on it.
_MARGIN = re.compile(r"^[A-Z]\w*[ \t]*\((?:[^(){};]|\([^(){};]*\))*\)[ \t]*$(?!\s*\{)", re.MULTILINE)
_LAUNCH = re.compile(r"<<<(?P<grid>.*?)>>>(?=\s*\()", re.DOTALL)
_ENDS = frozenset(";{}()")  # tokens that end the search backwards for the head of a function
_QUERY = """
(function_definition) @function
(ERROR (function_declarator) @cut)
[(preproc_def value: (preproc_arg)) (preproc_function_def value: (preproc_arg))] @macro
(call_expression) @call
(declaration (storage_class_specifier) declarator: (array_declarator)) @array
"""

_QUALIFIERS = frozenset(
    "const restrict __restrict __restrict__ volatile register static inline __inline__ __inline extern".split()
)
_WORDS = frozenset("void char short int long float double signed unsigned bool _Bool _Float16 __bf16".split())

# The dtypes that each C type holds, its words sorted; `char` and `void` are absent, for they hold any.
_TYPES = {
    "float": (DType.F32,),
    "double": (DType.F64,),
    "_Float16": (DType.F16,),
    "__bf16": (DType.BF16,),
    **dict.fromkeys(("bool", "_Bool"), (DType.BOOL,)),
    **dict.fromkeys(("char signed", "int8_t"), (DType.I8,)),
    **dict.fromkeys(("char unsigned", "uint8_t"), (DType.U8, DType.BOOL)),
    **dict.fromkeys(("short", "short signed", "int short", "int16_t"), (DType.I16,)),
    **dict.fromkeys(("short unsigned", "int short unsigned", "uint16_t"), (DType.U16, *HALVES)),
    **dict.fromkeys(("int", "signed", "int signed", "int32_t"), (DType.I32,)),
    **dict.fromkeys(("unsigned", "int unsigned", "uint32_t"), (DType.U32,)),
    **dict.fromkeys(
        ("long", "int long", "long long", "int long long", "int64_t", "ssize_t", "ptrdiff_t", "intptr_t"), (DType.I64,)
    ),
    **dict.fromkeys(("long unsigned", "long long unsigned", "uint64_t", "size_t", "uintptr_t"), (DType.U64,)),
}


def blank_comments(text: str) -> str:
    """The text with comments and strings replaced by blanks, so that offsets stay."""
    return _LEXICAL.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


@cache
def _grammar(language: str) -> Language:
    with dependency(f"a kernel in {language} is read by tree-sitter, which", "noyau-kernels[check-c]"):
        import tree_sitter
        import tree_sitter_c
        import tree_sitter_cpp
    return tree_sitter.Language((tree_sitter_cpp if LANGUAGES[language].is_cpp else tree_sitter_c).language())


@cache
def _query(language: str) -> Query:
    import tree_sitter

    return tree_sitter.Query(_grammar(language), _QUERY)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSyntax:
    """A function definition: `head`, the words before its name; `marks`, such as `__global__`; parameters and body.

    `body` is None if the text ends within it. `line` is that of the name."""

    name: str
    head: tuple[str, ...]
    marks: frozenset[str]
    parameters: Node
    body: Node | None
    line: int

    @property
    def is_on_device(self) -> bool:
        """Whether it is a kernel or runs only on a GPU."""
        return "__global__" in self.marks or ("__device__" in self.marks and "__host__" not in self.marks)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchSyntax:
    """A launch in a text: the plain name of its kernel, the offset of `<<<`, and `grid, block` as text.

    `callee` is the name with its template arguments; `arguments` begins at the parenthesis after `>>>`."""

    name: str
    place: int
    callee: Node
    call: Node
    grid: str
    arguments: Node

    @property
    def line(self) -> int:
        return self.call.start_point.row + 1

    @property
    def last_line(self) -> int:
        node = self.call
        while node.parent is not None and not node.type.endswith(("statement", "declaration")):
            node = node.parent
        return (node if node.parent is not None else self.call).end_point.row + 1


_OPEN_ENDED = re.compile(r"(\w+)\s*\[\s*\]((?:\[.*\])?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DynamicArray:
    """`extern __shared__ TYPE NAME[]ROW`: dynamic shared memory, whose size is an argument of the launch. `row`: `[N]`
    or empty; `start`, `end`: offsets in the text; `is_local`: declared within a function."""

    type: str
    name: str
    row: str
    start: int
    end: int
    is_local: bool


@lru_cache(maxsize=16)
def syntax(text: str, language: str) -> Syntax:
    """The syntax of a text. MissingExtraError without tree-sitter."""
    return Syntax(text, language)


class Syntax:
    """A text and its tree. Byte offsets in the tree are offsets in the text: non-ASCII characters become one byte."""

    def __init__(self, text: str, language: str) -> None:
        self.text, self._language, self._grammar = text, language, _grammar(language)
        plain = _LEXICAL.sub(lambda match: _blank(match) if match["comment"] else match[0], text)
        plain = re.sub(r"[^\x00-\x7f]", "_", plain)
        plain = _MARGIN.sub(_blank, plain)
        if LANGUAGES[language].is_cpp:
            plain = _CUDA.sub(_blank, plain)
        bare = blank_comments(plain)
        self._openings = {match.start(): match for match in _LAUNCH.finditer(bare)}
        for match in self._openings.values():
            start, end = match.span()
            plain = f"{plain[:start]}((({plain[start + 3 : end - 3]}))){plain[end:]}"
        self.launch_places = [match.start() for match in re.finditer("<<<", bare)]
        self._plain = plain.encode("ascii")
        self.root = self._parse(None)

    def _parse(self, inside: Node | None) -> Node:
        """The tree of the text, or only of the text of a node."""
        import tree_sitter

        parser = tree_sitter.Parser(self._grammar)
        if inside is not None:
            span = tree_sitter.Range(inside.start_point, inside.end_point, inside.start_byte, inside.end_byte)
            parser.included_ranges = [span]
        return parser.parse(self._plain).root_node

    def source(self, node: Node) -> str:
        return self.text[node.start_byte : node.end_byte]

    def _capture(self, root: Node, name: str) -> list[Node]:
        import tree_sitter

        nodes = tree_sitter.QueryCursor(_query(self._language)).captures(root).get(name, [])
        return sorted(nodes, key=lambda node: node.start_byte)

    @cached_property
    def functions(self) -> tuple[FunctionSyntax, ...]:
        """The functions that the text defines, without those nested in other functions."""
        functions, end = list[FunctionSyntax](), 0
        nodes = [*self._capture(self.root, "function"), *self._capture(self.root, "cut")]
        for node in sorted(nodes, key=lambda node: node.start_byte):
            function = self._function(node) if node.start_byte >= end else None
            if function is not None:
                functions.append(function)
                end = function.body.end_byte if function.body else end
        return tuple(functions)

    def _function(self, node: Node) -> FunctionSyntax | None:
        """The function of a definition, or of a declarator whose body the text cuts short; None for anything else."""
        body = node.child_by_field_name("body")
        outer = declarator = node.child_by_field_name("declarator") if body else node
        while declarator is not None and declarator.type != "function_declarator":
            declarator = next(iter(declarator.named_children[-1:]), None)  # of a pointer, a reference, in parentheses
        name = declarator.child_by_field_name("declarator") if declarator else None
        parameters = declarator.child_by_field_name("parameters") if declarator else None
        if outer is None or declarator is None or name is None or parameters is None:
            return None
        behind = outer.next_sibling
        if behind is None or behind.type == "declaration" or (body is None and behind.type != "{"):
            return None  # a K&R definition, whose parameters are declared after the name, or no definition
        words = re.findall(r"\w+", re.sub(r"<.*", "", self.source(name), flags=re.DOTALL))
        head = [*_head(outer), *("*" for _ in range(outer.type == "pointer_declarator"))]
        marks = frozenset(re.findall(r"\b__\w+__\b", self.text[_end_before(node) : declarator.start_byte]))
        return FunctionSyntax(words[-1], tuple(head), marks, parameters, body, name.start_point.row + 1)

    @cached_property
    def macros(self) -> tuple[tuple[str, Node], ...]:
        """The macros that the text defines, without empty ones, each with the tree of its body."""
        macros = []
        for node in self._capture(self.root, "macro"):
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if name is not None and value is not None:
                macros.append((self.source(name), self._parse(value)))
        return tuple(macros)

    @cached_property
    def launches(self) -> tuple[LaunchSyntax, ...]:
        """The launches of the text and of its macros, in the order of the text."""
        return tuple(filter(None, map(self.launch, self._everywhere("call") if self._openings else [])))

    def launch_on(self, line: int) -> LaunchSyntax | None:
        """The launch whose statement covers a line; None if there is none, or more than one."""
        launches = {(each.name, each.line): each for each in self.launches if each.line <= line <= each.last_line}
        return launches.popitem()[1] if len(launches) == 1 else None

    @cached_property
    def dynamic_arrays(self) -> tuple[DynamicArray, ...]:
        """The arrays in dynamic shared memory."""
        arrays = []
        for node in self._everywhere("array"):
            declarator = node.child_by_field_name("declarator")
            open_ended = _OPEN_ENDED.fullmatch(self.source(declarator)) if declarator else None
            if declarator is None or open_ended is None or "__shared__" not in self.source(node):
                continue
            kinds = [each for each in node.children if each.end_byte <= declarator.start_byte]
            kind = " ".join(word for each in kinds for word in words(each) if word != "extern")
            name, row = open_ended.groups()
            is_local = node.parent is not None and node.parent.type == "compound_statement"
            arrays.append(DynamicArray(kind, name, row, node.start_byte, declarator.end_byte, is_local))
        return tuple(arrays)

    def _everywhere(self, name: str) -> list[Node]:
        """The nodes with a capture name in the text and in its macros, in the order of the text."""
        roots = [self.root, *(body for _, body in self.macros)]
        return sorted((node for root in roots for node in self._capture(root, name)), key=lambda node: node.start_byte)

    def launch(self, call: Node) -> LaunchSyntax | None:
        inner, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        config = inner.child_by_field_name("arguments") if inner and inner.type == "call_expression" else None
        callee = inner.child_by_field_name("function") if inner else None
        opening = self._openings.get(config.start_byte) if config else None
        if opening is None or callee is None or arguments is None:
            return None
        grid = self.text[opening.start("grid") : opening.end("grid")]
        return LaunchSyntax(plain_name(self.source(callee)), opening.start(), callee, call, grid, arguments)


def plain_name(name: str) -> str:
    """A name without its scopes and template arguments: `f` for `a::f<int>`."""
    return re.sub(r"\s*<.*", "", name, flags=re.DOTALL).rpartition(":")[2].strip()


def leaves(node: Node) -> Iterator[Node]:
    """The tokens of a node, in order."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.child_count:
            waiting += reversed(each.children)
        else:
            yield each


def words(node: Node) -> Iterator[str]:
    """The texts of the tokens of a node, in order, without CUDA's keywords."""
    return ((each.text or b"").decode("ascii") for each in leaves(node))


def _head(declarator: Node) -> list[str]:
    """The words of a function's declaration before its declarator, back to the last token of _ENDS."""
    head: list[str] = []
    node = declarator.prev_sibling
    while node is not None:
        inner = list(words(node))
        at = next((at for at in reversed(range(len(inner))) if inner[at] in _ENDS), -1)
        head[:0] = inner[at + 1 :]
        node = node.prev_sibling if at < 0 else None
    return head


def _end_before(node: Node) -> int:
    """The end of the text before a node; 0 at the beginning."""
    while node.prev_sibling is None and node.parent is not None:
        node = node.parent
    return node.prev_sibling.end_byte if node.prev_sibling else 0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a C function; `dtypes`: those that its type holds, empty for an unknown type."""

    name: str
    type: str
    is_pointer: bool
    is_const: bool

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return _TYPES.get(self.type, ())

    @property
    def is_known(self) -> bool:
        return self.type in _TYPES

    def __str__(self) -> str:
        return f"{'const ' if self.is_const else ''}{self.type} {'*' if self.is_pointer else ''}{self.name}".strip()


@dataclass(frozen=True, slots=True)
class Prototype:
    """A C function: its name, the type of what it returns, its parameters."""

    entry: str
    returns: str
    parameters: tuple[Parameter, ...]

    @property
    def result(self) -> tuple[DType, ...]:
        """The dtypes that its result holds."""
        return _TYPES.get(self.returns, ())


def prototype_of(text: str, entry: str, label: str, language: str = "c") -> Prototype:
    """Read the prototype of a function. SignatureError where the text does not define it, or it cannot be read."""
    defined = _definitions(text, language)
    function = next((each for each in defined if each.name == entry), None)
    if function is None:
        names = ", ".join(each.name for each in defined) or "none"
        raise SignatureError(f"{label} defines no function {entry}; those it defines: {names}")
    if "*" in function.head:
        raise SignatureError(f"{label}: {entry} returns a pointer; it may return nothing, a status, or a scalar result")
    parameters = []
    for number, group in enumerate(_groups(function.parameters), 1):
        plain = _plain(text, group)
        if plain != "void":
            kinds = [word for node in group for word in words(node)]
            parameters.append(_parameter(kinds, f"{label}: the parameter {plain!r}", number))
    return Prototype(entry, _type(function.head), tuple(parameters))


def functions_of(text: str, language: str = "c") -> list[str]:
    """The names of the functions that a text defines, without static ones."""
    return [each.name for each in _definitions(text, language) if "static" not in each.head]


def _definitions(text: str, language: str) -> list[FunctionSyntax]:
    """The functions of a text that declare a result type; definitions without one are macros or constructors."""
    return [each for each in syntax(text, language).functions if each.head]


def _groups(parameters: Node) -> Iterator[list[Node]]:
    """The nodes of each parameter of a parenthesised, comma-separated list."""
    group: list[Node] = []
    for node in parameters.children[1:]:
        if node.type not in (",", ")"):
            group.append(node)
        elif group or node.type == ",":
            yield group
            group = []


def _plain(text: str, group: Sequence[Node]) -> str:
    """The source of a parameter on one line, without comments."""
    return " ".join(blank_comments(text[group[0].start_byte : group[-1].end_byte]).split()) if group else ""


def _parameter(group: list[str], where: str, number: int) -> Parameter:
    """Make a Parameter of its words, which may include macros that the grammar does not know."""
    if "(" in group or group[-1:] == ["..."]:
        raise SignatureError(f"{where} is no pointer to cells and no number")
    end = next((at for at, word in enumerate(group) if word in ("[", "=")), len(group))
    is_array, plain = "[" in group, group[:end]
    stars = plain.count("*")
    if stars + is_array > 1:
        raise SignatureError(f"{where} points to pointers; arrays come packed, as one pointer each")
    kinds = [word for word in plain if word not in _QUALIFIERS and re.fullmatch(r"\w+", word)]
    if len(kinds) < 2 or kinds[-1] in _WORDS:
        raise SignatureError(f"{where}, number {number}, has no name")
    is_const = "const" in (plain[: plain.index("*")] if stars else plain)
    return Parameter(kinds[-1], _type(kinds[:-1]), bool(stars or is_array), is_const)


def _type(kinds: Sequence[str]) -> str:
    return " ".join(sorted(kind for kind in kinds if kind not in _QUALIFIERS))
