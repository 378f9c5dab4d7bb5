"""Lint of the text of a script or notebook, without running it: clocks that do not wait for kernels, and methods that
are named but not called (as a statement without effect, as a condition always true)."""

import ast
import json
import linecache
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from noyau.errors import FindingKind
from noyau.sanitizer.lint.clocks import Reader, clock_diagnostic, diagnose_clocks, last_pending_launch
from noyau.sanitizer.lint.diagnostics import HOST, Diagnostic, dotted_name, warnings_of
from noyau.sanitizer.scripts.notebooks import cells_of, remember_cells
from noyau.verify.findings import Finding

# Methods, none of which is a property in numba, torch, cupy, triton or NumPy. A statement names them for their effect.
DONE = frozenset(
    "synchronize syncthreads syncwarp threadfence threadfence_block threadfence_system copy_to_host copy_to_device "
    "block_until_ready wait record backward zero_grad empty_cache debug_barrier sync_threads commit flush join".split()
)
# Methods that answer a question.
ASKED = frozenset(
    "is_contiguous is_available is_floating_point is_complex is_pinned is_coalesced is_current_stream_capturing "
    "is_c_contiguous is_f_contiguous isfinite isnan isdigit".split()
)
OF_ARRAYS = frozenset({"any", "all"})  # names that a flag may have too
_ARRAYS = frozenset({"np", "numpy", "cp", "cupy", "torch", "jnp"})
_TIMED = re.compile(r"^\s*(%%?time(?:it)?)\b(?P<options>(?:\s+-\w+(?:\s*\d+)?)*)\s*(?P<rest>.*)$")


def uncalled_methods(tree: ast.AST, file: str) -> list[Diagnostic]:
    """Report each method that is named, but not called, as a statement or a condition."""
    arrays = {name for node in ast.walk(tree) for name in _arrays_made(node)}
    own = {name for node in ast.walk(tree) for name in _own_fields(node)}
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    idle = [each for each in statements if isinstance(each, ast.Attribute) and each.attr in DONE]
    conditions = (each for each in _conditions(tree) if isinstance(each, ast.Attribute) and each.attr not in own)
    remarks = [_uncalled_remark(each, file, "is named and not called: nothing is done") for each in idle]
    always = "is a method that is not called: as a condition it always holds"
    remarks += [_uncalled_remark(each, file, always) for each in conditions if _is_method(each, arrays)]
    return sorted(remarks, key=lambda each: each.line)


def _uncalled_remark(node: ast.Attribute, file: str, fault: str) -> Diagnostic:
    text = ast.unparse(node)
    return Diagnostic(FindingKind.LAUNCH, file, node.lineno, f"{text} {fault}", f"write {text}()")


def _conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions used as conditions; `and`, `or` and `not` are replaced by their operands."""
    nodes = list(ast.walk(tree))
    waiting = [each.test for each in nodes if isinstance(each, ast.If | ast.While | ast.Assert | ast.IfExp)]
    waiting += [test for each in nodes if isinstance(each, ast.comprehension) for test in each.ifs]
    while waiting:
        match waiting.pop(0):
            case ast.BoolOp(values=values):
                waiting += values
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                waiting.append(operand)
            case test:
                yield test


def _is_method(node: ast.Attribute, arrays: set[str]) -> bool:
    if node.attr not in OF_ARRAYS:
        return node.attr in ASKED
    return node.value.id in arrays if isinstance(node.value, ast.Name) else not isinstance(node.value, ast.Attribute)


def _arrays_made(node: ast.AST) -> Iterator[str]:
    """Yield names that are assigned a comparison or the result of an array package's function."""
    if not isinstance(node, ast.Assign):
        return
    value = node.value
    is_array = isinstance(value, ast.Compare) and not isinstance(value.ops[0], ast.In | ast.NotIn | ast.Is | ast.IsNot)
    if isinstance(value, ast.Call):
        is_array = dotted_name(value.func).partition(".")[0] in _ARRAYS
    if is_array:
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _own_fields(node: ast.AST) -> Iterator[str]:
    """Yield the names of fields and properties in the file's classes."""
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        match each:
            case ast.FunctionDef(name=name, decorator_list=marks) if any("property" in ast.unparse(m) for m in marks):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def lint_script(path: Path) -> tuple[Finding, ...]:
    """Warn about the host code of a script or notebook: clocks that are read while a kernel may still run, and methods
    that are named but not called. A mark `noyau: allow(launch)` on a line silences its warnings."""
    is_book = path.suffix == ".ipynb"
    linecache.checkcache(str(path))
    if is_book:
        texts = [(text, file) for file, text in remember_cells(cells_of(path), path.name).items()]
    else:
        texts = [(path.read_text(encoding="utf-8", errors="replace"), str(path))]
    trees = [(tree, file) for text, file in texts for tree in _parse(text, file)]
    clocks, reader = diagnose_clocks(trees)
    magics = _magics(path, texts, reader) if is_book else ()
    remarks = [*clocks, *magics, *(each for tree, file in trees for each in uncalled_methods(tree, file))]
    by_place = {(each.file, each.line, each.message): each for each in remarks}
    return tuple(warnings_of(by_place.values(), path.name, "script", HOST))


def lint_text(text: str, name: str) -> tuple[Finding, ...]:
    """Warn in the same way about one text, the cell that runs now."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    trees = [(tree, name) for tree in _parse(text, name)]
    remarks = [*diagnose_clocks(trees)[0], *(each for tree, file in trees for each in uncalled_methods(tree, file))]
    return tuple(warnings_of(remarks, name, "cell", HOST))


def _parse(text: str, file: str) -> Iterator[ast.Module]:
    """Yield the tree of a text; nothing for a syntax error, which the run itself reports."""
    with suppress(SyntaxError, ValueError):
        yield ast.parse(text, file)


def _magics(path: Path, texts: Sequence[tuple[str, str]], reader: Reader) -> Iterator[Diagnostic]:
    """Yield remarks on %timeit, %%timeit, %time and %%time; these words are missing in the text of a cell that runs."""
    book = json.loads(path.read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    for source, (_, file) in zip(sources, texts, strict=True):
        lines = source.splitlines()
        for number, line in enumerate(lines, 1):
            if match := _TIMED.match(line):
                yield from _times(match, number, lines, file, reader)


def _times(match: re.Match[str], number: int, lines: Sequence[str], file: str, reader: Reader) -> Iterator[Diagnostic]:
    is_cell = match[1].startswith("%%")
    text = "\n".join(lines[number:]) if is_cell else match["rest"]
    for tree in _parse(text, file):
        ast.increment_lineno(tree, number if is_cell else number - 1)
        launch = last_pending_launch(list(reader.events(tree.body, file)))
        if launch is not None:
            yield clock_diagnostic(launch, number, file, match[1], reader.wait)
        yield from uncalled_methods(tree, file)
