"""Functions and classes as texts from which another process rebuilds them, from a file, a notebook or `__main__`.

A function is its text with the globals and cells that it reads, a class its members; objects of packages are names."""

from __future__ import annotations

import ast
import dis
import inspect
import io
import pickle
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from types import CellType, CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from noyau.errors import UnsupportedError

_PLACE = "noyau_place"  # set on rebuilt functions, whose files may not exist here
_OWN = {f"__{name}__" for name in "dict weakref module qualname static_attributes firstlineno".split()}  # made anew
Place = tuple[str, str, int]  # a text, its file, and its first line


class _Pickler(pickle.Pickler):
    """A pickler that stores definitions of the module `home` as texts."""

    def __init__(self, file: io.BytesIO, home: str) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.home = home.partition(".")[0]

    def reducer_override(self, thing: Any) -> Any:
        match thing:
            case ModuleType():
                return import_module, (thing.__name__,)
            case MappingProxyType():
                return dict, (dict(thing),)
            case property():
                return property, (thing.fget, thing.fset, thing.fdel)
            case staticmethod() | classmethod():
                return type(thing), (thing.__func__,)
            case FunctionType() if not self.has_name(thing):
                return _reduce(thing)
            case type() if not self.has_name(thing):
                members = {name: value for name, value in vars(thing).items() if name not in _OWN}
                place = {"__module__": thing.__module__, "__qualname__": thing.__qualname__}
                return type(thing), (thing.__name__, thing.__bases__, place), members, None, None, _fill_members
            case _:
                return NotImplemented

    def has_name(self, thing: Any) -> bool:
        """Whether another process finds a definition by its name: it is not of the user's own module, or of noyau."""
        module, value = thing.__module__ or "", sys.modules.get(thing.__module__)
        if module == "__main__" or (module.partition(".")[0] == self.home != "noyau"):
            return False
        for part in thing.__qualname__.split("."):
            value = getattr(value, part, None)
        return value is thing


def dumps(value: Any, label: str, home: str) -> bytes:
    """A value as bytes, its functions as texts. UnsupportedError where a part has no text, or cannot be pickled."""
    content = io.BytesIO()
    try:
        _Pickler(content, home).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError, OSError, RecursionError) as fault:
        remedy = "let it read modules, numbers, arrays and functions that have a text in a file or a cell"
        raise UnsupportedError(f"{label} cannot go to another process: {fault}; {remedy}") from fault
    return content.getvalue()


def _reduce(function: FunctionType) -> tuple[Any, ...]:
    """A function as arguments of `_function`; its globals follow as state, since they may hold the function itself."""
    code, names = function.__code__, set(_names(function.__code__))
    read = {name: value for name, value in function.__globals__.items() if name in names}
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    place = vars(function).get(_PLACE) or _text(code)
    parts = place, code.co_name, function.__module__, function.__qualname__, code.co_freevars
    return _function, parts, (read, cells, function.__defaults__, function.__kwdefaults__), None, None, _fill_globals


def _names(code: CodeType) -> Iterator[str]:
    """The globals that code looks up, including those of nested functions."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)


def _text(code: CodeType) -> Place:
    """The text of a function. OSError where there is none, or it has changed."""
    lines, _ = inspect.findsource(code)
    nodes = [node for line, node in _functions("".join(lines)) if line == code.co_firstlineno]
    for node in nodes:
        text = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
        if isinstance(node, ast.Lambda):
            text = f"_ = {ast.unparse(node)}"
        elif node.name != code.co_name:
            continue
        place = text, code.co_filename, node.lineno
        if len(nodes) == 1 or _code(place, code.co_name, code.co_freevars).co_code == code.co_code:
            return place
    raise OSError(f"the text of {code.co_name} is not at {code.co_filename}:{code.co_firstlineno}")


@lru_cache(maxsize=4)
def _functions(text: str) -> list[tuple[int, Any]]:
    """Functions, each with its first line, which is a decorator's if it has any."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    return [(min(each.lineno for each in (node, *getattr(node, "decorator_list", ()))), node) for node in nodes]


def _code(place: Place, name: str, free: tuple[str, ...]) -> CodeType:
    """The compiled text, in a function whose parameters are its free variables. None of it runs."""
    text, file, line = place
    (statement,) = ast.parse(text).body
    (outer,) = ast.parse(f"def _({', '.join(free)}): pass").body
    assert isinstance(outer, ast.FunctionDef)
    own = getattr(statement, "name", "_")  # a function that reads its own name looks it up in the same scope
    outer.body = [statement] if own in free else [ast.Global([own]), statement]
    tree = ast.increment_lineno(ast.fix_missing_locations(ast.Module([outer], [])), line - 1)
    code: CodeType = compile(tree, file, "exec", annotations.compiler_flag, dont_inherit=True)
    for wanted in ("_", name):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == wanted)
    return code


def _function(place: Place, name: str, module: str, path: str, free: tuple[str, ...]) -> FunctionType:
    """The function of a text, without globals and cells as yet."""
    code = _code(place, name, free)
    scope = {"__name__": module, "__builtins__": __builtins__}
    function = FunctionType(code, scope, name, None, tuple(CellType() for _ in code.co_freevars))
    function.__qualname__, function.__module__ = path, module
    vars(function)[_PLACE] = place
    return function


def _fill_globals(function: FunctionType, state: Any) -> None:
    read, cells, function.__defaults__, function.__kwdefaults__ = state
    function.__globals__.update(read)
    for cell, value in zip(function.__closure__ or (), cells, strict=True):
        cell.cell_contents = value


def _fill_members(kind: type, members: Mapping[str, Any]) -> None:
    for name, value in members.items():
        setattr(kind, name, value)
