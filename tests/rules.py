"""The rules that a syntax tree is enough for, each with texts that break it and a text that keeps it."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from types import ModuleType, UnionType

from noyau import dtypes
from noyau.errors import FindingKind
from noyau.ir import graph, loops

FORBIDDEN_WORDS = {"utils", "util", "helpers", "helper", "base", "manager"}
LANGUAGE_TABLES = ("LANGUAGES", "GENERATIONS", "CALLERS", "SANITIZERS")  # whose entries are records
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Rule = Callable[[ast.Module], list[str]]


@lru_cache(maxsize=1)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a file, walked once for all questions that are asked of it in turn."""
    return tuple(ast.walk(tree))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(tree) if isinstance(node, FUNCTIONS))


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def words(name: str) -> set[str]:
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_"))


def long_functions(tree: ast.Module) -> list[str]:
    return [f"{node.name} has {lines(node)} lines" for node in functions(tree) if lines(node) > 40]


def bad_names(tree: ast.Module) -> list[str]:
    named = [node.name for node in nodes(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    return [
        f"the name {name}"
        for name in named
        if words(name) & FORBIDDEN_WORDS or name.strip("_").startswith(("get_", "set_"))
    ]


def hidden_failures(tree: ast.Module) -> list[str]:
    """Handlers of everything that do nothing: a bare one, or one of Exception that passes."""
    handlers = [node for node in nodes(tree) if isinstance(node, ast.ExceptHandler)]
    return [f"line {node.lineno} hides every failure" for node in handlers if node.type is None or _is_blind(node)]


def _is_blind(node: ast.ExceptHandler) -> bool:
    caught = {name.id for name in ast.walk(node.type or node) if isinstance(name, ast.Name)}
    idle = all(isinstance(each, ast.Pass | ast.Continue | ast.Break) or _is_constant(each) for each in node.body)
    return bool(caught & {"Exception", "BaseException"}) and idle


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr | ast.Return) and (node.value is None or isinstance(node.value, ast.Constant))


def closed_sets(*modules: ModuleType) -> dict[str, frozenset[str]]:
    """The names of the classes of each union of IR nodes, and of the members of each Enum, by the name of the set."""
    found = {}
    for name, value in ((name, value) for module in modules for name, value in vars(module).items()):
        if isinstance(value, UnionType) and all(
            each.__module__.startswith("noyau.ir") for each in typing.get_args(value)
        ):
            found[name] = frozenset(each.__name__ for each in typing.get_args(value))
        elif isinstance(value, type) and issubclass(value, Enum) and value is not Enum:
            found[name] = frozenset(value.__members__)
    return found


CLOSED = closed_sets(graph, loops, dtypes)


def open_matches(tree: ast.Module) -> list[str]:
    """Matches over the nodes of an IR, or members of an Enum, that let what nobody thought of pass in silence.

    A match that asks one question of a node spells its answer for all others, in `case _`. One that names more than
    half of a closed set goes through the set: its last case raises or calls assert_never.
    """
    return [
        f"the match of line {node.lineno} {fault}"
        for node in nodes(tree)
        if isinstance(node, ast.Match) and (fault := _openness(node))
    ]


def _openness(node: ast.Match) -> str | None:
    last, names = node.cases[-1], _names(node)
    touched = {name: len(names & members) / len(members) for name, members in CLOSED.items() if names & members}
    takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
    if touched and not takes_all:
        return "has no `case _`"
    through = [name for name, share in touched.items() if share > 0.5]
    return f"goes through {through[0]} and lets the rest pass" if through and not _ends(last.body[-1]) else None


def _names(node: ast.Match) -> set[str]:
    """The classes and the members that the cases name."""
    patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
    named = [each.cls for each in patterns if isinstance(each, ast.MatchClass)]
    named += [each.value for each in patterns if isinstance(each, ast.MatchValue)]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in named}


def _ends(last: ast.stmt) -> bool:
    """It raises, or calls assert_never."""
    called = last.value if isinstance(last, ast.Expr | ast.Return) else None
    never = isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "assert_never"
    return never or isinstance(last, ast.Raise)


def isinstance_ladders(tree: ast.Module) -> list[str]:
    """Chains of if and elif with three or more tests by isinstance."""
    found = []
    for node in nodes(tree):
        rungs, step = 0, node
        while isinstance(step, ast.If):
            rungs += _is_by_class(step.test)
            step = step.orelse[0] if len(step.orelse) == 1 else None
        if rungs >= 3:
            found.append(f"a ladder of isinstance from line {node.lineno}")
    return found


def _is_by_class(test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance"


def missing_docstring(tree: ast.Module) -> list[str]:
    """A module has a docstring."""
    return [] if ast.get_docstring(tree) else ["no docstring"]


OPENINGS = {"What", "Which", "Where", "How", "Of", "Who", "Whose"}
IRREGULAR = set(
    "told made found given known spelt kept held seen shown taken left written built begun chosen led".split()
)
NO_PARTICIPLES = {
    "bound",
    "embed",
    "feed",
    "need",
    "seed",
    "shed",
    "speed",
    "searchsorted",
    "versioned",
}  # others' names too
PREPOSITIONS = set("as at beside by for from in of on out to with within".split())
EMPTY_NAMES = {"told", "made", "found", "given", "asked", "spelt"}  # of which nobody knows what they hold


def foreign_docstrings(tree: ast.Module) -> list[str]:
    """Docstrings begin with a noun or a verb, never with a relative or an interrogative."""
    texts = [
        ast.get_docstring(node) for node in nodes(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module))
    ]
    first = [text.split()[0].rstrip(",:;") for text in texts if text]
    return [f"a docstring begins with {word}" for word in first if word in OPENINGS]


def participle_names(tree: ast.Module) -> list[str]:
    """Functions, methods and classes are named by nouns and verbs: a participle says when a thing came, not what it is.
    A property may be one, as an adjective, and a noun may have one before it."""
    classes = [node for node in nodes(tree) if isinstance(node, ast.ClassDef)]
    own = [node for each in (tree, *classes) for node in each.body if isinstance(node, FUNCTIONS)]
    names = [node.name for node in own if not any("property" in ast.unparse(each) for each in node.decorator_list)]
    bad = [name for name in names if _begins_with_participle(name.strip("_").split("_"))]
    bad += [node.name for node in classes if _is_participle(re.findall("[A-Z]?[a-z]+|$", node.name)[-2:][0].lower())]
    return [f"the name {name}" for name in bad]


def _begins_with_participle(parts: list[str]) -> bool:
    return _is_participle(parts[0]) and (len(parts) == 1 or parts[1] in PREPOSITIONS)


def _is_participle(word: str) -> bool:
    return word not in NO_PARTICIPLES and (word.endswith("ed") or word in IRREGULAR)


def empty_names(tree: ast.Module) -> list[str]:
    """Names of variables, parameters, attributes and functions say what a thing is, not when it came."""
    names = [node.id for node in nodes(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.attr for node in nodes(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in nodes(tree) if isinstance(node, ast.arg)]
    names += [node.name for node in nodes(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    return [f"the name {name}" for name in names if name.strip("_") in EMPTY_NAMES]


def compared_languages(tree: ast.Module) -> list[str]:
    """Comparisons of a language with its name, or with names: its record in codegen/language.py says what it is."""
    compared = [node for node in nodes(tree) if isinstance(node, ast.Compare) and _is_by_name(node)]
    matched = [node.subject for node in nodes(tree) if isinstance(node, ast.Match) and _is_language(node.subject)]
    patterns = [each for each in nodes(tree) if isinstance(each, ast.MatchClass) and "language" in each.kwd_attrs]
    named = [
        pattern
        for each in patterns
        for name, pattern in zip(each.kwd_attrs, each.kwd_patterns, strict=True)
        if name == "language" and isinstance(pattern, ast.MatchValue)
    ]
    return [f"line {node.lineno} compares a language with a name" for node in (*compared, *matched, *named)]


def _is_by_name(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    by_name = any(
        isinstance(each, ast.Tuple | ast.List | ast.Set)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        or (isinstance(each, ast.Name) and each.id.isupper() and each.id not in LANGUAGE_TABLES)
        for each in sides
    )
    return by_name and any(map(_is_language, sides))


def _is_language(node: ast.expr) -> bool:
    """Whether an expression names a language: `language`, `kernel.language`, `language_of(f)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name)):
            return name in ("language", "language_of")
        case _:
            return False


def spelt_kinds(tree: ast.Module) -> list[str]:
    """Kinds of findings by their texts, outside FindingKind: in a comparison of a kind, or as a string that is nothing
    else."""
    if any(isinstance(node, ast.ClassDef) and node.name == FindingKind.__name__ for node in tree.body):
        return []
    texts = [node for node in nodes(tree) if _is_kind(node) and "-" in node.value]
    for node in nodes(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(_names_kind, (left, *others))):
                texts += filter(_is_kind, ast.walk(node))
            case ast.Match(subject=subject) if _names_kind(subject):
                texts += [each for case in node.cases for each in ast.walk(case.pattern) if _is_kind(each)]
    return [f"line {node.lineno} spells the kind {node.value}" for node in texts]


def _is_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in set(FindingKind)


def _names_kind(node: ast.expr) -> bool:
    return getattr(node, "id", getattr(node, "attr", "")) == "kind"


RULES: dict[Rule, tuple[str, ...]] = {
    long_functions: ("def f():\n" + "    x = 1\n" * 40, "class C:\n    async def f(self):\n" + "        x = 1\n" * 40),
    bad_names: (
        "def get_size(): ...",
        "class C:\n    def _set_size(self): ...",
        "class LoopManager: ...",
        "class NodeBase: ...",
        "def shape_helper(): ...",
    ),
    hidden_failures: (
        "try:\n    f()\nexcept:\n    raise",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept (ValueError, Exception) as error:\n    ...",
        "for x in y:\n    try:\n        f()\n    except BaseException:\n        continue",
        "def g():\n    try:\n        f()\n    except Exception:\n        return None",
    ),
    open_matches: (
        "match node:\n    case Load():\n        x = 1",
        "match node:\n    case ir.Load(buffer=b):\n        x = 1\n    case other if other:\n        raise E",
        "match node:\n    case A() | Load():\n        x = 1\n    case C():\n        raise E",
        "match node:\n    case Call() | Load() | Fold() | Var():\n        x = 1\n    case Const():\n        raise E\n"
        "    case _:\n        pass",
        "match axis:\n    case Axis.SERIAL:\n        x = 1\n    case Axis.LANES | Axis.THREADS:\n        x = 2\n"
        "    case _:\n        x = 3",
    ),
    isinstance_ladders: (
        "if isinstance(x, A):\n    a\nelif isinstance(x, B):\n    b\nelif isinstance(x, C):\n    c",
        "if isinstance(x, A):\n    a\nelif isinstance(x, B):\n    b\nelse:\n    if isinstance(x, C):\n        c",
    ),
    compared_languages: (
        'if language == "c": ...',
        'x = kernel.language in ("c", "numba")',
        "x = kernel.language not in CALLED",
        'x = language_of(f) != "python"',
        'match made.language:\n    case "c":\n        x',
        'match made:\n    case UserKernel(language="c"):\n        x',
    ),
    spelt_kinds: (
        'if finding.kind == "race": ...',
        'bad = [each for each in found if each.kind in ("race", "crash")]',
        'match fault.kind:\n    case "launch" if words:\n        x',
        'REMEDIES = {"out-of-bounds": "compare"}',
    ),
    foreign_docstrings: ('"""What it is."""', 'def f():\n    """Where: it is."""', 'class C:\n    """Of the rest."""'),
    participle_names: (
        "def told(): ...",
        "class Planned: ...",
        "async def found_in(): ...",
        "class C:\n    def _rounded(self): ...",
    ),
    empty_names: (
        "made = f()",
        "def f(*, given): ...",
        "class C:\n    asked: int",
        "class C:\n    def told(self): ...",
        "self._found = x",
        "def _spelt(): ...",
    ),
    missing_docstring: ("import os", "from __future__ import annotations\nx: int = 1"),
}
ALLOWED: dict[Rule, str] = {
    long_functions: "def f():\n" + "    x = 1\n" * 39,
    bad_names: "def getter(): ...\ndef setup_databases(): ...\nclass Rebase: ...\ndef budget_set(): ...",
    hidden_failures: "try:\n    f()\nexcept Exception as error:\n    told(error)\nexcept ValueError:\n    pass",
    open_matches: (
        "match a:\n    case Call() | Load() | Fold() | Const():\n        x\n    case _:\n        assert_never(a)\n"
        "match b:\n    case Call() | Load() | Fold() | Const():\n        x\n    case other:\n        raise E(other)\n"
        "match c:\n    case Load():\n        x\n    case _:\n        y\n"
        "match d:\n    case int(x):\n        x\n    case 'text':\n        x\n    case [a, b]:\n        x"
    ),
    isinstance_ladders: "if isinstance(x, A):\n    a\nelif isinstance(x, B):\n    b\nelse:\n    c",
    compared_languages: (
        "x = LANGUAGES[kernel.language].on_gpu\nif language not in LANGUAGES: ...\nif language == other.language: ...\n"
        "for language in LANGUAGES: ...\nif device == 'cuda': ..."
    ),
    spelt_kinds: (
        'class FindingKind(StrEnum):\n    CRASH = "crash"\n    OUT_OF_BOUNDS = "out-of-bounds"\n'
        'a.kind is FindingKind.RACE\nRANK = ("map", "race")\nx.kind == "map"'
    ),
    foreign_docstrings: '"""The rest."""\ndef f():\n    """Whether it is there."""\ndef g(): ...',
    participle_names: (
        "def tell(): ...\ndef foundation(): ...\ndef packed_weights(): ...\ndef feed(): ...\nclass RoundedSum:\n"
        "    @property\n    def kept(self): ..."
    ),
    empty_names: "x = made\nfoundation = 1\ndef f(maker): ...\nself.x = given.found",
    missing_docstring: '"""It."""\ndef f(): ...',
}
