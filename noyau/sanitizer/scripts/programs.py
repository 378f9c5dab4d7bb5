"""A program in C, C++ or CUDA C++ run as it is, its own main() and all, every access watched without a GPU, and lint of
the launches that it made, by the grid and the block that each had."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from noyau.codegen.language import BY_SUFFIX, LANGUAGES
from noyau.errors import BuildError, CheckError, FindingKind, InputError, UnsupportedError
from noyau.kernels.c.syntax import blank_comments, syntax
from noyau.kernels.user_kernel import GPU, LaunchConfig, three
from noyau.sanitizer.c.build import OWN, InstrumentedProgram, Source, build_program, header_folders, rewrite
from noyau.sanitizer.c.debug_info import LineTable
from noyau.sanitizer.c.kernel import plans_for
from noyau.sanitizer.c.reports import ReportContext, findings_of_runs, kernel_name_at, maps_of, site_of, source_of
from noyau.sanitizer.c.run import LaunchRecord, RunResult, part_watched, run_whole
from noyau.sanitizer.lint.clocks import diagnose_c_clocks
from noyau.sanitizer.lint.diagnostics import Diagnostic, warnings_of
from noyau.sanitizer.lint.idle_lines import idle_lines_of_functions
from noyau.sanitizer.lint.launches import LaunchFacts, advise
from noyau.sanitizer.records import Site
from noyau.sanitizer.scripts.record import ScriptCheck, SeenKernel
from noyau.text import several
from noyau.verify.checks import spell_lines
from noyau.verify.findings import Finding

TIME_S = 120.0  # of the processor, after which a run is ended
SILENT_S, SILENT_TIMES = 5.0, 5  # a run in silence has at least so long, and so many times as long as the first one

_PATHS = re.compile("-(?:I|L|isystem|iquote|idirafter|include|imacros)")
_FILES = ("-include", "-imacros")  # also searched in the header folders
# A program that queries these sizes its grids by the machine, which is small here.
_OF_THE_MACHINE = re.compile(r"multiprocessorcount|cudaoccupancy", re.IGNORECASE)
_ONE_THREAD = re.compile(r"\bnum_threads\s*\(\s*1\s*\)")


def check_program(
    path: Path,
    arguments: Sequence[str] = (),
    launch: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    time_s: float = TIME_S,
    *,
    flags: str = "",
    maps: bool = False,
    say: Callable[[str], object] = str,
) -> ScriptCheck:
    """Build a program unchanged, run it with its arguments in the current folder, and report memory errors of its
    threads: of OpenMP, POSIX and C++, and of CUDA grids, which need no GPU.

    Its output is printed. A program with threads runs twice, as do its side effects; the second run is silent and
    divides the work differently. One that reads unset shared memory runs three times more, silent, with other bytes
    there. `launch`: (grid, block), not its own; `time_s`: CPU seconds per run; `flags`: for the compiler, with paths
    relative to the current folder; source files among them (`part.c`) are built and watched; `say`: receives what runs,
    each ten seconds. A call without a stand-in leaves the program unchecked, and the report names its line. InputError
    if the file is missing, has no main(), or a quote in `flags` does not end; BuildError if a text does not compile."""
    text, words_of_flags = _text(path), _flags(flags)
    language = _language(path, words_of_flags)
    try:
        program, whole = _program(path, text, words_of_flags)
    except UnsupportedError as error:
        unseen = SeenKernel(path.stem, language, str(path), 0, (), 0, unseen=str(error))
        return ScriptCheck(path.name, (unseen,), advice=_clocks(path, text, language))
    forced = None if launch is None else LaunchConfig(three(launch[0]), three(launch[1]))
    plans, words, begin = plans_for(whole), [str(path), *arguments], monotonic()
    try:
        ran, status = run_whole(program, words, plans[0], forced, time_s, is_shown=True, maps=maps, say=say)
    except CheckError as error:
        return ScriptCheck(path.name, (), str(error), advice=_clocks(path, text, language))
    runs = [ran]
    if status is not None and not ran.refusal and plans[-1] != plans[0]:
        patience_s = min(time_s, max(SILENT_S, SILENT_TIMES * (monotonic() - begin)))
        with suppress(CheckError):  # it may lack its input, and so end otherwise
            again, _ = run_whole(program, words, plans[-1], forced, patience_s, is_shown=False, maps=False, say=say)
            faults = tuple(each for each in again.faults if each.kind is not FindingKind.CRASH)
            runs.append(replace(again, faults=faults, refusal=""))
    return _check_of(path, text, language, program, runs, _fault_of(ran, status))


def _fault_of(ran: RunResult, status: int | None) -> str:
    """Describe how a run ended, if that is an error and no finding reports it."""
    has_crashed = any(each.kind is FindingKind.CRASH for each in ran.faults)
    end = "it was interrupted" if status is None else f"it ended with status {status}"
    return "" if has_crashed or ran.refusal or status == 0 else end


def _program(path: Path, text: str, flags: tuple[str, ...]) -> tuple[InstrumentedProgram, str]:
    own = tuple(word for word in flags if not _is_text(word))
    others = {Path(word): _read(Path(word)) for word in flags if _is_text(word)}
    try:
        beside = tuple(_source(each, its, own, str(each), _language(each, flags)) for each, its in others.items())
        program = build_program(replace(_source(path, text, own, OWN, _language(path, flags)), others=beside))
    except BuildError as error:
        raise error.reword(f"{path.name}: {error}") from None
    return program, "\n".join([text, *others.values()])


def _language(path: Path, flags: tuple[str, ...]) -> str:
    """Return the language of a program's file; C++ beside a GPU source may use CUDA's words."""
    on_gpu = [BY_SUFFIX[Path(word).suffix] for word in (*flags, str(path)) if _is_text(word)]
    own = BY_SUFFIX[path.suffix]
    return next((each.name for each in on_gpu if each.on_gpu and own.is_cpp), own.name)


def _source(path: Path, text: str, flags: tuple[str, ...], file: str, language: str) -> Source:
    """Rewrite a file of a program; `file`: its name in reported lines."""
    try:
        rewritten = rewrite(text, language, path.name, header_folders(path.parent, flags), file)
    except UnsupportedError as error:
        raise error.reword(str(error).removeprefix(f"{path.name}: ") if file == OWN else str(error)) from None
    text_with_line = f"#line 1 {json.dumps(file, ensure_ascii=False)}\n{rewritten}"
    level = "-O1" if LANGUAGES[language].on_gpu else "-O0"
    return Source(text_with_line, language, flags, path.resolve().parent, path.name, level=level)


def _is_text(word: str) -> bool:
    """Whether a word of the flags names a source file of the program."""
    return not word.startswith("-") and Path(word).suffix in BY_SUFFIX


def _flags(flags: str) -> tuple[str, ...]:
    """Split `flags` into words with absolute paths, since the compiler runs in another folder."""
    try:
        words = iter(shlex.split(flags))
    except ValueError as error:
        raise InputError(f"--flags={flags} cannot be read: {str(error).lower()}; end each quote") from None
    resolved = []
    for word in words:
        match = _PATHS.match(word)
        if match is None:
            resolved.append(str(Path(word).resolve()) if _is_text(word) else word)
            continue
        place = word[match.end() :] or next(words, "")
        is_there = match[0] not in _FILES or Path(place).is_file()
        resolved.append(f"{match[0]}{Path(place).resolve() if place and is_there else place}")
    return tuple(resolved)


def _text(path: Path) -> str:
    text = _read(path)
    if not re.search(r"\bmain\s*\(", blank_comments(text)):
        call = f'noyau.check("{path}::FUNCTION", args)'
        raise InputError(f"{path} has no main(), so there is nothing to run; in Python, {call} calls a function of it")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give FILE.c, FILE.cpp or FILE.cu") from None


def _check_of(
    path: Path, text: str, language: str, program: InstrumentedProgram, runs: Sequence[RunResult], fault: str
) -> ScriptCheck:
    context = ReportContext(path.name, path.stem, "main", language, str(path), text, {}, "")
    lines, launches = program.lines, launches_by_kernel(runs[0], program.lines, context)
    seen = [_kernel_seen(name, each, runs, lines, context) for name, each in launches.items()]
    of_grids = {number for each in launches.values() for number in each}
    of_host = [replace(run, faults=tuple(f for f in run.faults if f.launch not in of_grids)) for run in runs]
    of_host = [replace(run, refusal="") if _cut_launches(run) else run for run in of_host]
    findings, allowed = findings_of_runs(of_host, lines, context)
    accesses = sum(each.accesses for each in runs) - sum(each.accesses for each in seen)
    unseen = unseen_of(of_host, lines, context)
    teams = f"{several(len(runs[0].in_team), 'region')} of several threads" if runs[0].in_team else ""
    notes = (*allowed, teams) if teams else allowed
    if findings or notes or unseen or not seen:
        place = context.entry_site.place
        accesses = 0 if seen and not findings else accesses  # accesses of the host say nothing about grids
        seen.append(SeenKernel(path.stem, language, place, len(runs), (), accesses, findings, notes, unseen))
    sites = (site_of(lines.at(address), context) for each in runs for address in each.accessed_at)
    ran = {site.line for site in sites if site is not None and site.file == context.place}
    if not (launches or accesses or findings or notes or unseen) and LANGUAGES[language].on_gpu:
        seen.clear()
    idle, maps = idle_lines_of_functions(text, language, ran), maps_of(runs[0], lines, context)
    left = (f"{spell_lines(idle)} never ran",) if idle else ()
    advice = _clocks(path, text, language)
    return ScriptCheck(path.name, tuple(seen), fault, left, advice, maps, "" if seen else "it launches no kernel")


def launches_by_kernel(ran: RunResult, lines: LineTable, context: ReportContext) -> dict[str, tuple[int, ...]]:
    """Return the launch numbers of each kernel, by its name at the launch."""
    names: dict[str, tuple[int, ...]] = {}
    for number, each in enumerate(ran.grids):
        site = site_of(lines.at(each.site), context)
        name = kernel_name_at(site, context) if site is not None else context.kernel
        names[name] = (*names.get(name, ()), number)
    return names


def _kernel_seen(
    name: str, launches: tuple[int, ...], runs: Sequence[RunResult], lines: LineTable, context: ReportContext
) -> SeenKernel:
    """Return a kernel's record: its launches and the faults of their threads."""
    own = [replace(run, faults=tuple(f for f in run.faults if f.launch in launches)) for run in runs]
    context = replace(context, kernel=name)
    findings, allowed = findings_of_runs(own, lines, context)
    grids = [runs[0].grids[number] for number in launches]
    findings += tuple(diagnose_launches(replace(runs[0], grids=tuple(grids)), lines, context))
    calls, shapes = sum(each.count for each in grids), tuple(dict.fromkeys(str(each.launch) for each in grids))
    note = f"threads took turns: {sum(each.threads for each in grids)} in {several(calls, 'launch')}"
    defined = next((each.line for each in syntax(context.text, "cuda").functions if each.name == name), 0)
    place = f"{context.place}:{defined}" if defined else context.entry_site.place
    accesses = sum(each.accesses for each in grids)
    unseen = unseen_of([replace(run, alone=()) for run in runs if _cut_launches(run) & set(launches)], lines, context)
    if not unseen and (part := part_watched(grids)):
        unseen = f"it makes more accesses than are watched: {part} were; run it on less"
    return SeenKernel(name, context.language, place, calls, shapes, accesses, findings, (*allowed, note), unseen)


def _cut_launches(ran: RunResult) -> set[int]:
    """Return the numbers of the launches that may have been running when the run was ended."""
    return {number for number, each in enumerate(ran.grids) if ran.refusal and each.site == ran.refused_at}


def unseen_of(runs: Sequence[RunResult], lines: LineTable, context: ReportContext) -> str:
    """Explain why a program is not fully seen: refusals of the runtime, and parallel regions run by one thread."""
    reasons = []
    for each in (run for run in runs if run.refusal):
        site = site_of(lines.at(each.refused_at), context)
        reasons.append(f"line {site.line}: {each.refusal}" if site else each.refusal)
    in_team = {address for each in runs for address in each.in_team}
    for address in dict.fromkeys(address for each in runs for address in each.alone if address not in in_team):
        site = site_of(lines.at(address), context)
        if site is not None and not _ONE_THREAD.search(source_of(site, context).split("\n")[site.line - 1]):
            reasons.append(f"the region of line {site.line} ran with one thread; run it where it has more")
    return "; ".join(dict.fromkeys(reasons))


def _clocks(path: Path, text: str, language: str) -> tuple[Finding, ...]:
    """Warn about clocks of the host that do not wait for a launch."""
    remarks = diagnose_c_clocks(text, str(path)) if LANGUAGES[language].on_gpu else []
    return tuple(warnings_of(remarks, path.name, "", language))


def diagnose_launches(ran: RunResult, lines: LineTable, context: ReportContext) -> list[Finding]:
    """Warn about the launches of a run, each at its line; equal warnings are given once."""
    remarks: dict[tuple[int, str], Diagnostic] = {}
    for each in ran.grids:
        site = site_of(lines.at(each.site), context)
        is_own = site is not None and not kernel_name_at(site, context).startswith("thrust::")
        for remark in _diagnostics(each, site, context) if site is not None and is_own else ():
            remarks.setdefault((remark.line, remark.message), remark)
    return warnings_of(remarks.values(), context.op, context.kernel, context.language)


def _diagnostics(launched: LaunchRecord, site: Site, context: ReportContext) -> Iterator[Diagnostic]:
    text = source_of(site, context)
    launch = syntax(text, "cuda").launch_on(site.line)
    name, line = (launch.name, launch.line) if launch else ("", site.line)
    grid, block = launched.launch.grid, launched.launch.block
    sm_count = 0 if _OF_THE_MACHINE.search(text) else GPU.sm_count
    facts = LaunchFacts(grid, block, (launched.cells,), text_of(text, name), launched.idle, sm_count)
    for message, mend in advise(facts):
        yield Diagnostic(FindingKind.LAUNCH, site.file, line, message, mend, name or context.kernel)


def text_of(text: str, name: str) -> str:
    """Return a kernel's text with the functions that it names, transitively; without such a kernel, the whole text."""
    tree = syntax(text, "cuda")
    bodies = [*tree.macros, *((each.name, each.body) for each in tree.functions)]
    texts = {name: tree.source(body) for name, body in bodies if body}
    if name not in texts:
        return text
    names, waiting = {name}, [name]
    while waiting:
        others = set(re.findall(r"\w+", texts[waiting.pop()])) & texts.keys() - names
        names |= others
        waiting += others
    return "\n".join(texts[each] for each in names)
