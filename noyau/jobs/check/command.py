"""The command `noyau check` for ops, models, scripts, notebooks and programs; and %%check for a notebook's cell."""

from __future__ import annotations

import argparse
import ast
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.errors import InputError, NoyauError
from noyau.jobs import command_line
from noyau.jobs.check.submissions import command as submissions
from noyau.jobs.command_line import Command, declare_inputs, progress, progress_lines, size_of_each, sizes_of

if TYPE_CHECKING:
    from noyau.ops.op import Op
    from noyau.sanitizer.access_map import AccessMap
    from noyau.sanitizer.scripts.record import ScriptCheck
    from noyau.verify.checks import OpCheck


_OF_OPS = ("gradient", "generated", "language")  # options
_OF_ALL_BUT_MODELS = ("sarif", "sanitizer", "strict", "all", "allow_unseen")
_INTERPRET = "TRITON_INTERPRET"
_OF_PYTHON = (".py", ".ipynb")
KERNEL_S = 1.25  # the budget of a kernel of a file, after which no further inputs are tried
_LAUNCH = re.compile(r"(\d+(?:x\d+){0,2}),(\d+(?:x\d+){0,2})")
BLOCK_MOST = 1024  # the most threads of a block on any GPU
_MAKE_OPS = frozenset({"op", "map", "zip", "reduce", "reduction"})  # noyau's functions that make ops
_INTERPRETS = "Triton interprets in this process from here on, also in other cells; restart to compile"


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    many: dict[str, Any] = {"action": "append", "default": []}
    targets = "MODEL.onnx|FILE.py[::OP]|SCRIPT.py|BOOK.ipynb|PROGRAM.c"
    target = (
        "the model whose float64 evaluation is the truth; an op, of which every kernel is checked; or a script, "
        "a notebook or a program in C, C++ or CUDA C++ (.c, .cpp, .cu), which is run as it is, its parallel loops, "
        "threads and launches watched (a program with threads runs twice, and does twice what else it does)"
    )
    add("target", type=command_line.target_of, metavar=targets, help=target)
    add("arguments", nargs="*", default=[], metavar="ARGS", help="of a script or a program; its options go after --")
    add("--launch", metavar="GRID,BLOCK", help="of a script or a program: launch each kernel so (8,64 or 4x4,16x16)")
    add("--flags", metavar="F", help="of a program: for the compiler, run here: --flags='-DN=100 part.c'")
    seconds = "end a script or a program after S seconds, and report what was seen; of a submission: for each kernel"
    add("--time", type=float, metavar="S", help=f"{seconds} (default: 10)")
    add("--map", metavar="F.svg", help="tell who writes which cell in a small launch or call, and draw it (-: no)")
    add("--against", type=Path, metavar="B.onnx", help="the model to judge: at each output, and at each common value")
    sizes = "or with several in turn (default: small ones, then all at 1); for an op, check it there; can be repeated"
    declare_inputs(parser, "run both models", sizes)
    meant = "of an op: sizes that it is meant for; its launches and its index arithmetic are looked at there"
    add("--sizes", **many, metavar="NAME=N", help=f"{meant}, and nothing is run; can be repeated")
    add("--tolerance", type=float, metavar="T", help="of an op: allow |got - want| <= T * max(1, |want|) instead")
    command_line.declare_record(parser, "value by value", page=True)
    _declare_verdict(add, many)
    submissions.declare(parser)


def _declare_verdict(add: Callable[..., Any], many: Mapping[str, Any]) -> None:
    """Declare the options on what to check of an op, which findings count, and how much to print."""
    add("--gradient", action="store_true", help="of an op: check what it gives back too, also where that is derived")
    add("--generated", action="store_true", help="of an op with kernels of its own: check those that noyau makes, too")
    language = "of an op: check the kernels that noyau makes in L; numba_cuda runs without a GPU too"
    add("--language", **many, metavar="L", help=f"{language}, each thread in turn; can be repeated")
    add("--all", action="store_true", help="of all but models: each finding, each shape and how exact")
    add("--sanitizer", action="store_true", help="of ops and scripts: ask compute-sanitizer too, where there is a GPU")
    add("--strict", action="store_true", help="of all but models: warnings make the status 1 too")
    unseen = "what was not checked, or not watched, leaves the status 0; else it is 3"
    add("--allow-unseen", action="store_true", help=f"of all but models: {unseen}")
    findings = "write the findings here, for editors and code hosts"
    add("--sarif", type=Path, metavar="F", help=f"of all but models: {findings}")


def _run(arguments: argparse.Namespace) -> int:
    """Exit status 0 if nothing differs, 1 if something does."""
    command_line.require_limit("--time", arguments.time)
    if submissions.is_submission(arguments):
        return submissions.check_and_print(arguments)
    if wrong := _first_given(arguments, *submissions.OPTIONS):
        raise InputError(f"--{wrong} is of DEFINITION.json, MODEL.py or a folder; {arguments.target} is none of them")
    if is_script(arguments.target):
        return check_and_print(arguments)
    is_op = Path(arguments.target.partition("::")[0]).suffix == ".py"
    for name in ("arguments", "launch", "flags", "time", *(() if is_op else ("map",))):
        if getattr(arguments, name):
            raise InputError(f"{arguments.target} is no script: it takes no {name}")
    if is_op:
        return _check_op(arguments)
    target = Path(arguments.target)
    if wrong := _first_given(arguments, *_OF_OPS, "sizes", "tolerance", *_OF_ALL_BUT_MODELS):
        raise InputError(f"{target} is a model: it takes no --{wrong}")
    if arguments.against is None and target.suffix != ".onnx":
        targets = "MODEL.onnx --against B.onnx, FILE.py::OP, SCRIPT.py, BOOK.ipynb, PROGRAM.c, .cpp or .cu"
        raise InputError(f"{target} is nothing that can be checked; there are: {targets}")
    if arguments.against is None:
        raise InputError(f"{target} is checked against another model: noyau check {target} --against B.onnx")
    command_line.require_record_places(target, arguments.json, arguments.html)
    from noyau.jobs.check.model_difference import model_difference
    from noyau.jobs.report.text import print_record

    with progress(quiet=arguments.quiet) as say:
        say(f"running {target.name} and {arguments.against.name}")
        difference = model_difference(target, arguments.against, dims=sizes_of(arguments.dim), inputs=arguments.inputs)
        difference.write_where(arguments.json, arguments.html)
    print_record(difference, quiet=arguments.quiet)
    return 0 if difference.ok else 1


def _first_given(arguments: argparse.Namespace, *names: str) -> str:
    """The first of some options that is set, or an empty text."""
    for name in names:
        if (value := getattr(arguments, name)) is not None and value is not False and value != []:
            return name.replace("_", "-")
    return ""


def _check_op(arguments: argparse.Namespace) -> int:
    """Check every kernel of an op, or of each op of a file, against its reference."""
    from noyau.verify.checks import LIMITS, report_json, report_text

    if arguments.against is not None or arguments.inputs is not None:
        raise InputError("--against and --inputs are of models: an op is checked against its own reference")
    path = Path(arguments.target.partition("::")[0])
    command_line.require_record_places(path, arguments.json, arguments.html, arguments.sarif, drawing_of(arguments.map))
    with _interpreting(path) if _wants_maps(arguments) else nullcontext():
        checks = _check_ops(arguments)
        maps = _maps(arguments)
    report = report_text(checks, everything=arguments.all)
    return _report(arguments, path, report_json(checks), checks, report, maps, LIMITS)


def _report(
    arguments: argparse.Namespace,
    path: Path,
    record: Mapping[str, Any],
    checks: Sequence[OpCheck | ScriptCheck],
    report: str,
    maps: Sequence[AccessMap],
    limits: Sequence[str],
) -> int:
    """Write and print a check; return its exit status: 0, 1 if an error was found, 3 if not all could be watched.
    Warnings count under --strict, unwatched parts by default."""
    from noyau.jobs.check.page import verdict_text
    from noyau.jobs.report.text import print_lines, write_json
    from noyau.verify.reports import sarif

    findings = [finding for each in checks for _, group in each.groups for finding in group]
    if arguments.json is not None:
        write_json(record, arguments.json)
    if arguments.sarif is not None:
        write_json(sarif(findings), arguments.sarif)
    printed = maps if arguments.map is not None else ()
    text = "\n".join([report, *map(str, printed), *(f"limits: {limit}" for limit in limits)])
    is_right = all(each.ok for each in checks) and not (arguments.strict and findings)
    is_seen = arguments.allow_unseen or all(each.is_verified for each in checks)
    status = 1 if not is_right else 0 if is_seen else 3
    print_lines(f"{path.name}: {verdict_text(findings, status)}" if arguments.quiet else text)
    if arguments.html is not None:
        from noyau.jobs.check.page import check_page

        check_page(path.name, checks, maps, status).save(arguments.html)
    draw(maps, drawing_of(arguments.map), path, status)
    return status


@contextmanager
def _interpreting(path: Path) -> Iterator[None]:
    """Set Triton's interpreter if a file uses Triton and there is no GPU, so that writes can be watched."""
    from noyau.workers.nvml import has_driver

    if "triton" in sys.modules or has_driver() or not path.is_file() or b"triton" not in path.read_bytes():
        yield
        return
    before = os.environ.get(_INTERPRET)
    os.environ[_INTERPRET] = "1"  # read when Triton is imported
    try:
        yield
    finally:
        _restore(before)


def _restore(before: str | None) -> None:
    """Restore the mode of Triton, compiling or interpreting."""
    os.environ.pop(_INTERPRET, None)
    if before is not None:
        os.environ[_INTERPRET] = before


def _maps(arguments: argparse.Namespace) -> list[AccessMap]:
    """Maps of who writes which cell, of user kernels. An error if `--map` is set and they cannot be drawn."""
    if not _wants_maps(arguments):
        return []
    from noyau.jobs.check.sanitized_runs import maps_of
    from noyau.ops.op_files import load_ops

    try:
        return [each for op in load_ops(arguments.target) if op.signature for each in maps_of(op)]
    except NoyauError:
        if arguments.map is not None:
            raise
        return []


def _wants_maps(arguments: argparse.Namespace) -> bool:
    return arguments.map is not None or arguments.html is not None


def _check_ops(arguments: argparse.Namespace) -> list[OpCheck]:
    """The check of each op of the target. In a file of several, one that cannot be checked is reported and left out."""
    from noyau.engines.laws import check_laws, load_checked
    from noyau.jobs.check.attempts import size_names
    from noyau.jobs.check.isolated_kernels import young
    from noyau.jobs.check.run import CheckOptions, check_together
    from noyau.jobs.check.sanitized_runs import second_opinion
    from noyau.verify.checks import OpCheck

    sizes = size_of_each(arguments.dim)
    with progress(quiet=arguments.quiet) as say:
        say(f"loading {arguments.target}")
        ops, reductions = load_checked(arguments.target)
        _require_sizes(sizes, {name for op in ops for name in size_names(op)}, arguments.target)
        declared = size_of_each(arguments.sizes, "--sizes")
        signed = {name for op in ops if op.signature for name in op.signature.sizes}
        _require_sizes(declared, signed, arguments.target, "--sizes")
        requests: dict[int, tuple[Op[..., Any], CheckOptions]] = {}
        for number, op in enumerate(ops):
            if op.forms == (op,) and op.signature is None and len(ops) > 1:
                continue
            own = {name: size for name, size in sizes.items() if name in size_names(op)}
            signed = set(op.signature.sizes) if op.signature else set()
            sizes_of_op = {name: size for name, size in declared.items() if name in signed}
            generated = arguments.language or arguments.generated or not any(form.kernels for form in op.forms)
            options = CheckOptions(own, sizes_of_op, arguments.tolerance, budget_s=KERNEL_S, generated=generated)
            requests[number] = op, replace(options, gradient=True) if arguments.gradient else options
        with young():
            checks = dict(zip(requests, check_together(list(requests.values()), say, share=True), strict=True))
    note = "it has no signature, so it cannot be checked; give it one"
    unsigned = (OpCheck(op.name, op.description.place, (), note=note) for op in ops)
    each_op = [checks.get(number, each) for number, each in enumerate(unsigned)]
    if arguments.sanitizer:
        each_op = [second_opinion(op, each, arguments.target) for op, each in zip(ops, each_op, strict=True)]
    return [*each_op, *map(check_laws, reductions)]


def _require_sizes(sizes: Mapping[str, int], names: Collection[str], target: str, option: str = "--dim") -> None:
    unknown = next((name for name in sizes if name not in names), None)
    if unknown is not None:
        choices = ", ".join(sorted(names)) or "none"
        raise InputError(f"{option} {unknown}: no op of {target} has such a size; there are: {choices}")


COMMAND = Command("what is wrong with a model, an op's kernels, a script or program", _declare, _run)


def is_script(target: str) -> bool:
    """Whether a target runs as a script: a program in C, C++ or CUDA C++, a notebook, or Python without an op.
    InputError for a text that Python cannot parse."""
    path = Path(target)
    if path.suffix == ".ipynb" or is_program(target):
        return True
    if path.suffix != ".py" or not path.is_file():
        return path.suffix == ".py"  # a missing file is reported by the check of scripts
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as fault:
        raise InputError(f"{path} fails with {type(fault).__name__}: {fault}") from None
    return not any(_makes_an_op(node) for node in ast.walk(tree))


def is_program(target: str) -> bool:
    """Whether a target is a text in C, C++ or CUDA C++, or a function of such a text."""
    suffix = Path(target.partition("::")[0]).suffix
    if suffix in _OF_PYTHON:
        return False
    from noyau.codegen.language import BY_SUFFIX  # imports NumPy: not at the top, so that Ctrl-C works before

    return suffix in BY_SUFFIX


def _makes_an_op(node: ast.AST) -> bool:
    """Whether a node is `noyau.op`, or imports such a name from noyau or one of its modules with ops."""
    match node:
        case ast.Attribute(value=ast.Name(id="noyau"), attr=name):
            return name in _MAKE_OPS
        case ast.ImportFrom(module=module, names=names) if module is not None and module.split(".")[0] == "noyau":
            return any(name.name in _MAKE_OPS for name in names) or module.startswith(("noyau.nn", "noyau.engines"))
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
    """The file to draw a map into; None for `-`, the text alone. InputError for a file of another kind."""
    if wish in (None, "-"):
        return None
    if Path(wish).suffix != ".svg":
        raise InputError(f"--map {wish} draws SVG: give a name that ends in .svg, or - for the text alone")
    return Path(wish)


def draw(maps: Sequence[AccessMap], place: Path | None, path: Path, status: int) -> None:
    """Write the drawing. If no launch is small enough or there is none, InputError; only a line on stderr if `status`
    is already bad."""
    if place is None:
        return
    from noyau.jobs.report.text import plain_lines, write_text
    from noyau.sanitizer.access_map import svg

    try:
        if not any(each.arrays for each in maps):
            reasons = (f"{each.kernel}{each.launch}: {reason}" for each in maps for reason in each.left)
            raise InputError(f"there is nothing to draw of {path}: {next(reasons, 'no kernel wrote to an array')}")
        write_text(svg(maps), place)
    except NoyauError as error:
        if status == 0:
            raise
        sys.stderr.write(f"noyau: {plain_lines(str(error))}\n")


def check_and_print(arguments: argparse.Namespace) -> int:
    """The status of the check of a script, including the script's own exit."""
    from noyau.verify.checks import LIMITS

    path = Path(arguments.target)
    # InputError for an option without effect on a script
    kind, own, remedy = "script", "flags", "; an op is a function under @noyau.op"
    if is_program(arguments.target):
        kind, own, remedy = "program", "sanitizer", ""
        if "::" in arguments.target:
            call = f'noyau.check("{arguments.target}", args)'
            raise InputError(f"{arguments.target} names a function, which is called in Python: {call}")
    if wrong := _first_given(arguments, "against", "inputs", "tolerance", "dim", "sizes", *_OF_OPS, own):
        raise InputError(f"{path} is a {kind}, and --{wrong} is not of {kind}s{remedy}")
    command_line.require_record_places(path, arguments.json, arguments.html, arguments.sarif, drawing_of(arguments.map))
    check = _script_check(arguments, path, None if arguments.launch is None else launch_of(arguments.launch))
    if arguments.sanitizer:
        from noyau.sanitizer.compute_sanitizer.tool import second_opinion

        check = second_opinion(check, path, arguments.arguments)
    report = check.report(everything=arguments.all)
    return _report(arguments, path, check.to_json(), [check], report, check.maps, LIMITS[:1])


def register(shell: Any) -> None:
    """Register %%check in a shell of IPython."""
    shell.register_magic_function(lambda line, cell: check_cell(shell, line, cell), "cell", "check")


def check_cell(shell: Any, line: str, cell: str) -> ScriptCheck:
    """Run a cell with its kernels watched; return the report. InputError unless `line` is `--launch G,B` or empty."""
    from noyau.jobs.check.script_run import hooks_of_script
    from noyau.sanitizer.scripts.lint import lint_text
    from noyau.sanitizer.scripts.record import ScriptSession

    words = line.split()
    if words and (len(words) != 2 or words[0] != "--launch"):
        raise InputError(f"%%check takes --launch GRID,BLOCK or nothing, not {line!r}")
    session = ScriptSession("cell")
    before = os.environ.get(_INTERPRET)
    with hooks_of_script(session, launch_of(words[1]) if words else None, cell):
        ended = shell.run_cell(cell)
    if "triton" not in sys.modules:
        _restore(before)
    elif before != os.environ.get(_INTERPRET):
        session.notes.append(_INTERPRETS)
    record = session.finish("" if ended.success else "it ended with an exception")
    return replace(record, advice=(*record.advice, *lint_text(cell, "cell")))


def _script_check(arguments: argparse.Namespace, path: Path, launch: Any) -> ScriptCheck:
    options: dict[str, Any] = {"time_s": arguments.time} if arguments.time else {}
    options |= {"maps": _wants_maps(arguments), "say": progress_lines(quiet=arguments.quiet)}
    if not is_program(arguments.target):
        from noyau.jobs.check.script_run import check_script

        return check_script(path, arguments.arguments, launch, **options)
    from noyau.sanitizer.scripts.programs import check_program

    return check_program(path, arguments.arguments, launch, flags=arguments.flags or "", **options)
