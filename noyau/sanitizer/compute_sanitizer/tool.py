"""compute-sanitizer: its discovery, its runs, and its records as findings. Records are XML (`--xml --save FILE`).

Source: NVIDIA, Compute Sanitizer 2025.3, User Manual; and records that its four tools wrote."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from noyau.errors import DeviceError, FindingKind, InputError, NoyauError
from noyau.sanitizer.compute_sanitizer.driver import ENVIRONMENT, WISH
from noyau.sanitizer.records import ALIGN, Site, digest
from noyau.sanitizer.scripts.record import ScriptCheck
from noyau.verify.findings import Finding
from noyau.workers.signals import kill_group

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TIME_S = 240.0  # of one run under one tool
_LIMIT = 40  # records per run at most: the first of a kind suffice
_SIMULATING = ("TRITON_INTERPRET", "NUMBA_ENABLE_CUDASIM")  # environment variables with which nothing is launched
_HOMES = ("/usr/local/cuda/bin", "/opt/cuda/bin")


def find_tool() -> str | None:
    """Return the path of the CUDA toolkit's compute-sanitizer; None if it is not installed."""
    homes = [f"{os.environ[each]}/bin" for each in ("CUDA_HOME", "CUDA_PATH") if each in os.environ]
    return shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *homes, *_HOMES]))


def missing() -> str:
    """Return why there is no second opinion here, in one line; "" if there is one."""
    if find_tool() is None:
        return "compute-sanitizer is not installed; it comes with NVIDIA's CUDA toolkit, and needs a GPU"
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return "compute-sanitizer needs a GPU of NVIDIA, and there is none here"
    return ""


def run_tools(
    command: Sequence[str], environment: Mapping[str, str] | None = None, tools: Sequence[str] = TOOLS
) -> list[ToolReport]:
    """Run a command under each tool and read the reports. DeviceError if a tool fails, or no report says why."""
    program = find_tool()
    if program is None:
        raise DeviceError(missing())
    reports, failed = list[ToolReport](), ""
    plain = {name: value for name, value in os.environ.items() if name not in _SIMULATING}
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        for tool in tools:
            record = Path(folder) / f"{tool}.xml"
            own = (program, "--tool", tool, "--xml", "--save", str(record), "--print-limit", str(_LIMIT))
            status, output = _run([*own, *command], {**plain, **(environment or {})})
            if not record.exists():
                end = " ".join(output.split())[-300:]
                raise DeviceError(f"compute-sanitizer {tool} did not look at the program: {end}")
            if status and not failed:
                lines = [line.strip() for line in output.splitlines() if not line.startswith("=========")]
                last = next(filter(None, reversed(lines)), "it printed nothing")[-300:]
                failed = f"under compute-sanitizer {tool} the program ended with status {status}: {last}"
            reports += read_reports(record.read_text(encoding="utf-8", errors="replace"), tool)
    if failed and not reports:
        raise DeviceError(failed)
    return reports


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the status and the output. DeviceError after the time limit, at which its process group is killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            printed = b"".join(process.communicate(timeout=TIME_S))
        except BaseException as fault:
            kill_group(process)
            if isinstance(fault, subprocess.TimeoutExpired):
                raise DeviceError(f"compute-sanitizer did not end within {TIME_S:g} s; check smaller inputs") from None
            raise
    return process.returncode, printed.decode("utf-8", "replace")


_OUTSIDE = (FindingKind.NEGATIVE_INDEX, FindingKind.CRASH)
_ALIKE = {**dict.fromkeys(_OUTSIDE, FindingKind.OUT_OF_BOUNDS), FindingKind.WRITTEN_TWICE: FindingKind.RACE}


def merge_witnesses(watched: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """Merge the findings of watched runs with those of the other witness: shared findings name both, its own follow.
    Findings are shared if their kernels and kinds agree and they have a line in common."""
    findings = list(watched)
    for other in others:
        same = next((k for k, each in enumerate(findings) if _same(each, other)), None)
        if same is None:
            findings.append(other)
        else:
            witnesses = findings[same].witnesses or ("noyau",)
            findings[same] = replace(findings[same], witnesses=tuple(dict.fromkeys((*witnesses, *other.witnesses))))
    return tuple(findings)


def _same(one: Finding, other: Finding) -> bool:
    kinds = {_ALIKE.get(each.kind, each.kind) for each in (one, other)}
    return one.kernel == other.kernel and len(kinds) == 1 and bool(_lines(one) & _lines(other))


def _lines(finding: Finding) -> set[tuple[str, str]]:
    """Return the lines that a finding names, with absolute paths."""
    places = [place.rpartition(":") for place in (finding.place, finding.other_place) if place]
    return {(os.path.abspath(file), line) for file, _, line in places}


WITNESS = "compute-sanitizer"
_KINDS = {  # by the kind of a record, or by its tool
    **dict.fromkeys(("Initcheck", "initcheck"), FindingKind.UNINITIALISED),
    **dict.fromkeys(("Analysis", "Hazard", "racecheck"), FindingKind.RACE),
    **dict.fromkeys(("Synccheck", "synccheck"), FindingKind.DIVERGENT_BARRIER),
}
_VERBS = {"Read": "reads", "Write": "writes", "Atomic": "merges into"}


@dataclass(frozen=True, slots=True)
class ToolReport:
    """A report of a tool, given `count` times, the first time by `owners`; sites of both accesses, the other one None
    for a single access. `function`: the name of the kernel that made the access."""

    kind: FindingKind
    message: str
    site: Site | None
    other: Site | None
    owners: tuple[str, ...]
    function: str
    is_error: bool = True
    count: int = 1
    mend: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether a mark on one of its lines allows it."""
        return any(site is not None and site.allows(self.kind) is not None for site in (self.site, self.other))

    def finding(self, op: str, kernel: str, language: str, place: str, size: str) -> Finding:
        """Return the report as a finding; `place`: of the kernel, if the tool knows no line."""
        text, other = (each.text if each else "" for each in (self.site, self.other))
        times = f" ({self.count} times)" if self.count > 1 else ""
        return Finding(
            *(op, kernel, language, self.kind, self.site.place if self.site else place, size, self.message + times),
            severity="error" if self.is_error else "warning",
            other_place=self.other.place if self.other else "",
            owners=self.owners,
            digest=digest(self.kind, kernel, text, other),
            mend=self.mend or self.kind.remedy,
            witnesses=(WITNESS,),
        )


def read_reports(text: str, tool: str) -> tuple[ToolReport, ...]:
    """Read the record of a tool, with equal reports merged. InputError for a text that is no such record."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  written by the tool that was run
    except ElementTree.ParseError as fault:
        raise InputError(f"the record of compute-sanitizer {tool} is not read: {fault}; run it again") from None
    by_key: dict[tuple[object, ...], ToolReport] = {}
    for each in filter(None, (_report_of(record, tool) for record in root.iter("record"))):
        key = each.kind, each.site, each.other, each.function
        first = by_key.get(key)
        by_key[key] = each if first is None else replace(first, count=first.count + each.count)
    precise = [each for each in by_key.values() if each.kind is not FindingKind.LAUNCH]
    return tuple(precise or by_key.values())  # calls of the API fail after a kernel has failed


def _report_of(record: ElementTree.Element, tool: str) -> ToolReport | None:
    kind = record.findtext("kind", "")
    if kind == "Api":
        message = record.findtext("what/message") or record.findtext("what/text", "")
        message = f"{record.findtext('what/api', 'a call')} failed: {message}"
        return ToolReport(FindingKind.LAUNCH, message, None, None, (), "")
    if kind.endswith("ApiError") or kind == "Leak":
        return None  # accesses by the host, and memory that is not freed
    if record.find("what/source") is not None:
        return _race(record)
    return _access(record, _KINDS.get(kind) or _KINDS.get(tool) or FindingKind.OUT_OF_BOUNDS)


def _race(record: ElementTree.Element) -> ToolReport:
    one, other = record.find("what/source"), record.find("what/destination")
    sites = _site(one), _site(other)
    verbs = [_VERBS.get(each.findtext("direction", "") if each is not None else "", "touches") for each in (one, other)]
    where = "the same line" if sites[0] == sites[1] else f"line {sites[1].line}" if sites[1] else "another line"
    function = one.findtext("where/func", "") if one is not None else ""
    message = f"a thread {verbs[0]} shared memory which another {verbs[1]} on {where}, and no barrier lies between them"
    count = int(record.findtext("what/destination/count", "1"))
    is_error = record.findtext("level", "Error") == "Error"
    mend = "put a barrier of the block between the two"
    return ToolReport(FindingKind.RACE, message, *sites, (), function, is_error, count, mend)


def _access(record: ElementTree.Element, kind: FindingKind) -> ToolReport:
    text = " ".join(record.findtext("what/text", "").split())
    fault, mend = record.findtext("what/error", ""), ""
    if fault == "misaligned":
        kind, mend = FindingKind.CRASH, ALIGN
    thread, block = (_place(record.find(f"who/{name}")) for name in ("threadIdx", "blockIdx"))
    owners = (f"thread {thread} of block {block}",) if thread and block else ()
    message = f"{owners[0] if owners else 'a thread'}: {text[:1].lower()}{text[1:]}"
    return ToolReport(kind, message, _site(record), None, owners, record.findtext("where/func", ""), mend=mend)


def _place(element: ElementTree.Element | None) -> str:
    if element is None:
        return ""
    numbers = [element.findtext(axis, "0") for axis in "xyz"]
    while len(numbers) > 1 and numbers[-1] == "0":
        numbers.pop()
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def _site(element: ElementTree.Element | None) -> Site | None:
    """Return the line of an access; None if the code has no lines."""
    if element is None:
        return None
    path, line = element.findtext("where/path", ""), element.findtext("where/line", "")
    return Site.of(path, int(line)) if path and line.isdigit() else None


def in_files(reports: Iterable[ToolReport], folders: Sequence[Path]) -> list[ToolReport]:
    """Return the reports on no known line, or on files outside these folders of installed packages."""
    files = [(each, Path(each.site.file) if each.site else Path()) for each in reports]
    return [each for each, file in files if not any(file.is_relative_to(folder) for folder in folders)]


def second_opinion(checked: ScriptCheck, path: Path, arguments: Sequence[str] = ()) -> ScriptCheck:
    """Add compute-sanitizer's reports on the same script, run on the GPU, to its check, or a note on why there are
    none. Installed packages are ignored; a failed call of the API, which may be one of theirs, is a warning."""
    why = "compute-sanitizer runs scripts, and no notebooks" if path.suffix == ".ipynb" else missing()
    if not why:
        environment = {**ENVIRONMENT, WISH: json.dumps({"script": str(path), "arguments": list(arguments)})}
        try:
            reports = run_tools([sys.executable, "-m", "noyau.sanitizer.compute_sanitizer.driver"], environment)
        except NoyauError as error:
            why = str(error)
        else:
            installed = [Path(each) for each in (*site.getsitepackages(), sysconfig.get_paths()["stdlib"])]
            return _with(checked, in_files(reports, installed), path)
    return replace(checked, notes=(*checked.notes, why))


def _with(checked: ScriptCheck, reports: Sequence[ToolReport], path: Path) -> ScriptCheck:
    """Add each report to the kernel that it names, else to the script. A report without a line, and on no kernel of the
    script, belongs to an installed package and is dropped, as is one that a mark on its line allows."""
    kernels, rest = list(checked.kernels), list[Finding]()
    for each in reports:
        if each.is_allowed:
            continue
        matches = [k for k, kernel in enumerate(kernels) if kernel.name in each.function]
        at = max(matches, key=lambda k: len(kernels[k].name), default=None)  # `add` is in `add_rows` too
        if at is None and each.site is None and each.kind is not FindingKind.LAUNCH:
            continue
        if at is None:
            one = replace(each, is_error=each.is_error and each.kind is not FindingKind.LAUNCH)
            rest.append(one.finding(checked.script, each.function or "script", "cuda", str(path), ""))
        else:
            kernel_seen = kernels[at]
            finding = each.finding(checked.script, kernel_seen.name, kernel_seen.language, kernel_seen.place, "")
            kernels[at] = replace(kernel_seen, findings=merge_witnesses(kernel_seen.findings, [finding]))
    note = f"compute-sanitizer looked at it too: {', '.join(TOOLS)}"
    return replace(checked, kernels=tuple(kernels), advice=(*checked.advice, *rest), notes=(*checked.notes, note))
