"""Ops from files of Python, by `PATH.py::OP`."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noyau.errors import InputError
from noyau.ops.op import Op
from noyau.workers.import_path import run_file

Functions = dict[str, Callable[..., Any]]
_OPS = "an op is a function under @noyau.op"


def require_file(path: Path, advice: str = "give PATH.py::OP") -> None:
    """InputError where there is no such file, or it is a folder; `advice`: the remedy in the message."""
    if not path.is_file():
        what = f"{str(path)!r} is a folder, not a file" if path.is_dir() else f"there is no file {str(path)!r}"
        raise InputError(f"{what}; {advice}")


def load_op(target: str, values: Mapping[str, Any] | None = None) -> Op[Any, Any]:
    """The op of "path.py::name", or the only op of "path.py"; the file is run, under a module name of its own, unless
    `values` are the names that it defines.

    InputError where there is no such file or op, or the file fails; MissingExtraError where it needs a package."""
    place, _, wanted = target.partition("::")
    path = Path(place)
    require_file(path)
    return _op_of(run_file(path) if values is None else values, place, wanted)


def _op_of(values: Mapping[str, Any], place: str, wanted: str) -> Op[Any, Any]:
    """The op that a file defines, by its name or as the only one."""
    ops = {name: value for name, value in values.items() if isinstance(value, Op)}
    names = ", ".join(ops)
    if not ops:
        raise InputError(f"{place} has no op{f' {wanted!r}' if wanted else ''}; {_OPS}")
    if wanted and wanted not in ops:
        raise InputError(f"{place} has no op {wanted!r}; its ops are: {names}")
    if not wanted and len(ops) != 1:
        raise InputError(f"{place} has {len(ops)} ops ({names}); say which: {place}::NAME")
    return ops[wanted] if wanted else next(iter(ops.values()))


def load_op_or_module(target: str) -> Op[Any, Any] | tuple[Any, Any]:
    """The op of "path.py::name", as from `load_op`; or the torch module of that name and the inputs of a call, which
    the file defines as `inputs`: a tensor, a tuple of them, or a function without arguments that returns these.

    InputError as from `load_op`, and for a module without inputs."""
    place, _, wanted = target.partition("::")
    path = Path(place)
    if not wanted or not path.is_file():
        return load_op(target)
    values = run_file(path)
    # Whether it is a torch.nn.Module, without importing torch
    value = values.get(wanted)
    module = ("torch.nn.modules.module", "Module")
    if not any((each.__module__, each.__name__) == module for each in type(value).__mro__):
        return _op_of(values, place, wanted)
    if "inputs" not in values:
        raise InputError(f"{wanted} is a torch module: let {place} define inputs, a tensor or a tuple of them")
    inputs = values["inputs"]
    return values[wanted], inputs() if callable(inputs) else inputs


def load_ops(target: str, values: Mapping[str, Any] | None = None) -> list[Op[Any, Any]]:
    """The op of "path.py::name", or every op that the file of "path.py" defines or attaches kernels to, in order;
    `values`: as in `load_op`.

    InputError as from `load_op`, and where there is none."""
    place, _, wanted = target.partition("::")
    if wanted or not Path(place).is_file():
        return [load_op(target, values)]
    values = run_file(Path(place)) if values is None else values
    ops = {id(value): value for value in values.values() if isinstance(value, Op)}
    if not ops:
        raise InputError(f"{place} has no op; {_OPS}")
    return list(ops.values())


def load_ops_or_functions(target: str) -> tuple[Op[Any, Any] | Functions, Callable[..., Any] | None]:
    """The op of "path.py::name" or "path.py", or the functions of "path.py::f,g" by name; and the file's function
    `inputs` that makes their arguments, `(rng, n=500) -> arguments`, if they take any.

    InputError where there is no such file, op or function, or where the file fails."""
    place, _, wanted = target.partition("::")
    if not wanted:
        return load_op(target), None
    path, names = Path(place), wanted.split(",")
    require_file(path)
    values = run_file(path)
    missing = next((name for name in names if not callable(values.get(name))), None)
    if missing is not None:
        own = f"noyau_file_{path.stem}"
        defined = (n for n, each in values.items() if isinstance(each, Op) or getattr(each, "__module__", "") == own)
        known = ", ".join(defined) or "none"
        raise InputError(f"{place} has no op or function {missing!r}; it has: {known}")
    if len(names) == 1 and isinstance(values[names[0]], Op):
        return values[names[0]], None
    functions = {name: values[name] for name in names}
    takes = any(_takes_arguments(function) for function in functions.values())
    if takes and not callable(values.get("inputs")):
        raise InputError(f"{names[0]} takes arguments: let {place} define inputs(rng, n=1000), which makes them")
    return functions, values["inputs"] if takes else None


def _takes_arguments(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.default is inspect.Parameter.empty for parameter in parameters)
