"""`noyau check` on machine-written kernels: definitions and solutions, pairs, tasks, folders of operators."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.errors import InputError
from noyau.jobs.command_line import progress, require_limit, require_record_places

if TYPE_CHECKING:
    from noyau.jobs.check.submissions.problem import Problem, Submission, Verdict

_GIB = 1 << 30
_OTHERS = "arguments launch flags map against dim inputs sizes tolerance gradient sanitizer sarif".split()
OPTIONS = "workloads memory jsonl trace gate".split()  # for submissions alone
_TIME_S, _GIB_MOST = 10.0, 2.0  # the default limits of each kernel: seconds of the processor, GiB of memory


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of submissions."""
    add = parser.add_argument_group("kernels that machines write (DEFINITION.json, MODEL.py, a folder)").add_argument
    solution = "the kernel: SOLUTION.json or a file of Python; can be repeated"
    add("--solution", action="append", type=Path, default=[], metavar="F", help=solution)
    add("--workloads", type=Path, metavar="F.jsonl", help="of a definition (default: workload.jsonl beside it)")
    add("--memory", type=float, metavar="GIB", help="for each kernel (default: 2 GiB); --time S is 10 by default")
    add("--jsonl", type=Path, metavar="F", help="write each finding here, a line of JSON each")
    add("--trace", type=Path, metavar="F", help="write a trace for each workload here, in the schema of SOL-ExecBench")
    add("--gate", action="store_true", help="print yes where the status is 0, else no (1: wrong, 3: not verified)")


def is_submission(arguments: argparse.Namespace) -> bool:
    """Whether the target is a problem of a benchmark, with or without submissions."""
    path = Path(arguments.target)
    if arguments.solution or path.suffix == ".json" or path.is_dir():
        return True
    if path.suffix != ".py" or not path.is_file():
        return False
    from noyau.jobs.check.submissions.definitions import PAIR, defines

    return defines(path, PAIR)


def check_and_print(arguments: argparse.Namespace) -> int:
    """The status of a check of submissions: the worst of all. InputError for an invalid target or option."""
    from noyau.jobs.check.submissions.problem import LIMIT, record_json, summary
    from noyau.jobs.check.submissions.run import check_submissions, referee
    from noyau.jobs.report.text import print_lines, write_json, write_text

    path = Path(arguments.target)
    _require(arguments, path)
    problems = list(_problems(path, arguments))
    verdicts: list[Verdict] = []
    with (
        progress(quiet=arguments.quiet) as say,
        referee(arguments.time or _TIME_S, int((arguments.memory or _GIB_MOST) * _GIB)) as judge,
    ):
        root = path if path.is_dir() else path.parent
        for problem, submissions in problems:
            verdicts += check_submissions(problem, submissions, judge, root.resolve(), say)
    status = max((verdict.status.exit_status for verdict in verdicts), key=(0, 3, 1).index)
    if arguments.json is not None:
        write_json(record_json(verdicts), arguments.json)
    lines = {arguments.jsonl: [each.to_json(verdict) for verdict in verdicts for each in verdict.complaints]}
    lines |= {arguments.trace: [trace for verdict in verdicts for trace in verdict.traces()]}
    for place, records in lines.items():
        if place is not None:
            write_text("".join(f"{json.dumps(each, allow_nan=False)}\n" for each in records), place)
    if arguments.html is not None:
        from noyau.jobs.check.page import submissions_page

        submissions_page(path.name, verdicts, summary(verdicts), status, LIMIT).save(arguments.html)
    if arguments.gate:
        sys.stdout.write("no\n" if status else "yes\n")
        return status
    if arguments.quiet:
        print_lines(f"{path.name}: {summary(verdicts)}")
        return status
    counts = [summary(verdicts)] if len(verdicts) > 1 else []
    print_lines("\n".join([*(line for verdict in verdicts for line in verdict.lines()), *counts, f"limits: {LIMIT}"]))
    return status


def _require(arguments: argparse.Namespace, path: Path) -> None:
    """InputError for an invalid limit of memory, or an option without effect on submissions."""
    require_limit("--memory", arguments.memory, "GiB", most=1e6)
    wrong = next((name for name in _OTHERS if getattr(arguments, name)), None)
    if wrong is not None:
        raise InputError(f"{path} is a problem of a benchmark: it takes no --{wrong}")
    require_record_places(path, arguments.json, arguments.jsonl, arguments.trace, arguments.html)


def _problems(path: Path, arguments: argparse.Namespace) -> Iterator[tuple[Problem, list[Submission]]]:
    """Each problem of the target, with its submissions."""
    from noyau.jobs.check.submissions import definitions

    solutions = [each for place in arguments.solution for each in _files(place, path)]
    if path.suffix == ".json":
        if not solutions:
            raise InputError(f"{path} is a definition: give the kernel with --solution SOLUTION.json")
        problem = definitions.read_definition(path, arguments.workloads)
        yield problem, [definitions.read_solution(each, problem) for each in solutions]
    elif path.suffix == ".py":
        if not definitions.defines(path, definitions.MODEL):
            raise InputError(f"{path} has no Model and get_inputs: --solution is of problems of KernelBench there")
        problem = definitions.read_model(path)
        yield problem, [definitions.read_file(each, problem.format) for each in solutions or [path]]
    elif (path / definitions.TASK).is_file():
        problem = definitions.read_task(path)
        solutions = solutions or [path / definitions.SUBMISSION]
        yield problem, [definitions.read_submission(each, problem) for each in solutions]
    elif operators := definitions.operator_folders(path):
        yield from ((problem, [submission]) for problem, submission in map(definitions.read_operator, operators))
    else:
        choices = "DEFINITION.json, MODEL.py, a folder with task.yml, a folder of OP/OP_implementation_v1.py"
        raise InputError(f"{path} is no problem of a benchmark; there are: {choices}")


def _files(path: Path, problem: Path) -> list[Path]:
    """The file of a solution, or the files of a folder of solutions."""
    if path.is_dir():
        suffix = ".json" if problem.suffix == ".json" else ".py"
        inside = sorted(each for each in path.rglob("*") if each.suffix == suffix)
        if not inside:
            raise InputError(f"{path} holds no solution; give a file, or a folder of them")
        return inside
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; give --solution SOLUTION.json, or a file of Python")
    return [path]
