"""`noyau check` of a script or a notebook.

%%check in notebooks: a cell is run, and every parallel loop and launch in it is watched.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.errors import InputError, NoyauError
from noyau.jobs.command_line import require_place

if TYPE_CHECKING:
    from noyau.sanitizer.access_map import AccessMap
    from noyau.sanitizer.scripts.record import ScriptCheck

_LAUNCH = re.compile(r"(\d+(?:x\d+){0,2}),(\d+(?:x\d+){0,2})")
BLOCK_MOST = 1024  # threads of a block, of every GPU
_MAKE_OPS = frozenset({"op", "map", "zip", "reduce"})  # of noyau


def is_script(target: str) -> bool:
    """Whether a target of `noyau check` is run as it is: a program in C, C++ or CUDA C++, a notebook, or a file of
    Python that makes no op of noyau."""
    path = Path(target)
    if path.suffix == ".ipynb" or is_program(target):
        return True
    if path.suffix != ".py" or not path.is_file():
        return False
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False  # loading it says what is wrong
    return not any(_makes_an_op(node) for node in ast.walk(tree))


def is_program(target: str) -> bool:
    """Whether a target is a text in C, C++ or CUDA C++, or a function of one."""
    from noyau.codegen.language import BY_SUFFIX  # which takes NumPy: Ctrl-C is answered before

    return Path(target.partition("::")[0]).suffix in BY_SUFFIX


def _makes_an_op(node: ast.AST) -> bool:
    """`noyau.op`, or a name that is imported from noyau or from a file beside it that may hold ops."""
    match node:
        case ast.Attribute(value=ast.Name(id="noyau"), attr=name):
            return name in _MAKE_OPS
        case ast.ImportFrom(module=module, names=names) if module is not None and module.split(".")[0] == "noyau":
            return any(name.name in _MAKE_OPS for name in names) or module.startswith("noyau.nn")
        case _:
            return False


def launch_of(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`8,64` or `4x4,16x16` as (grid, block). InputError for anything else."""
    match = _LAUNCH.fullmatch(text)
    if match is None:
        raise InputError(f"--launch {text} is no GRID,BLOCK; give two numbers (8,64), or up to three each (4x4,16x16)")
    grid, block = (tuple(map(int, part.split("x"))) for part in match.groups())
    if 0 in (*grid, *block) or math.prod(block) > BLOCK_MOST:
        problem = "starts no thread" if 0 in (*grid, *block) else f"has {math.prod(block)} threads in a block"
        raise InputError(f"--launch {text} {problem}; each number is at least 1, and a block has {BLOCK_MOST} at most")
    return grid, block


def drawing_of(wish: str | None) -> Path | None:
    """The file that a map is drawn into; none for `-`, which is its text alone. InputError for a file of another
    kind."""
    if wish in (None, "-"):
        return None
    if Path(wish).suffix != ".svg":
        raise InputError(f"--map {wish} draws SVG: give a name that ends in .svg, or - for the text alone")
    return Path(wish)


def draw(maps: Sequence[AccessMap], place: Path | None, path: Path, status: int) -> None:
    """Write the drawing. Where no launch is small enough, or there is none, InputError; a line where `status` says
    already that something is wrong with the kernels, which counts for more."""
    from noyau.jobs.report.text import plain_lines

    try:
        _draw(maps, place, path)
    except NoyauError as error:
        if status == 0:
            raise
        sys.stderr.write(f"noyau: {plain_lines(str(error))}\n")


def _draw(maps: Sequence[AccessMap], place: Path | None, path: Path) -> None:
    if place is None:
        return
    if not any(each.arrays for each in maps):
        left = [f"{each.kernel}{each.launch}: {reason}" for each in maps for reason in each.left]
        raise InputError(f"there is nothing to draw of {path}: {left[0] if left else 'no kernel wrote to an array'}")
    from noyau.jobs.report.text import write_text
    from noyau.sanitizer.access_map import svg

    write_text(svg(maps), place)


def check_and_print(arguments: argparse.Namespace) -> int:
    """0 where the script ended well and nothing speaks against its kernels, else 1; also 1 for warnings that are to
    count."""
    from noyau.jobs.report.text import print_lines, write_json
    from noyau.verify.findings import LIMITS, sarif

    path = Path(arguments.target)
    _require_of_scripts(arguments, path)
    for place in (arguments.json, arguments.sarif, drawing_of(arguments.map)):
        if place is not None:
            require_place(place, path)
    launch = None if arguments.launch is None else launch_of(arguments.launch)
    check = _checked(arguments, path, launch)
    if arguments.sanitizer:
        from noyau.sanitizer.compute_sanitizer.programs import second_opinion

        check = second_opinion(check, path, arguments.arguments)
    if arguments.json is not None:
        write_json(check.to_json(), arguments.json)
    if arguments.sarif is not None:
        write_json(sarif(check.findings), arguments.sarif)
    text = "\n".join([str(check), *map(str, check.maps), f"limits: {LIMITS[0]}"])
    print_lines(text)
    status = 0 if check.ok and not (arguments.strict and check.findings) else 1
    draw(check.maps, drawing_of(arguments.map), path, status)
    return status


def _checked(arguments: argparse.Namespace, path: Path, launch: Any) -> ScriptCheck:
    if not is_program(arguments.target):
        from noyau.jobs.check.script_run import check_script

        return check_script(path, arguments.arguments, launch, maps=arguments.map is not None)
    from noyau.sanitizer.scripts.programs import check_program

    return check_program(path, arguments.arguments, launch, flags=arguments.flags or "", maps=arguments.map is not None)


def _require_of_scripts(arguments: argparse.Namespace, path: Path) -> None:
    """InputError for an option that does nothing to a script."""
    options = {name: getattr(arguments, name) for name in ("against", "inputs", "tolerance")}
    options |= {name: getattr(arguments, name) or None for name in ("dim", "sizes", "gradient")}
    if is_program(arguments.target):
        if "::" in arguments.target:
            call = f'noyau.check("{arguments.target}", args)'
            raise InputError(f"{arguments.target} names a function, which is called in Python: {call}")
        options["sanitizer"] = arguments.sanitizer or None
    else:
        options["flags"] = arguments.flags
    wrong = next((name for name, value in options.items() if value is not None), None)
    if wrong is not None and is_program(arguments.target):
        raise InputError(f"{path} is a program, and --{wrong} is not of programs")
    if wrong is not None:
        raise InputError(f"{path} is a script, and --{wrong} is not of scripts; an op is a function under @noyau.op")
