"""Problems from their files: JSON records of SOL-ExecBench and flashinfer-bench (a definition, its workloads,
solutions); Python files of KernelBench (pairs), GPU MODE and BackendBench (folders)."""

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from noyau.errors import InputError, reason_of
from noyau.jobs.check.submissions.problem import Problem, Status, Submission, Tolerance, Trial, field_of
from noyau.text import printable, sizes_text

Record = Mapping[str, Any]  # a JSON object
REFERENCE = "reference.py"
RUNNABLE = frozenset({"pytorch", "python", "triton", "numba", "numba_cuda", "cuda", "cuda_cpp", "cpp"})
_SIZES = (1, 2, 3, 5)  # multiples of an axis' unit that are tried before the sizes of the workloads
_UNIT = 128  # the largest unit: a power of two that divides an axis in each workload, which a kernel may assume
_MOST = 1 << 62
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_USUAL = {"max_atol": 1e-2, "max_rtol": 1e-2, "required_matched_ratio": 0.99, "max_error_cap": None}


def read_json(path: Path) -> Any:
    """A JSON file. InputError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {reason_of(error)}") from error


def read_definition(path: Path, workloads: Path | None) -> Problem:
    """The problem of a definition. `workloads`: a file with a line of JSON each; by default the one beside it, or none.
    InputError for a missing field or one of another type, an invalid expression, or an axis without a size."""
    record, place = read_json(path), str(path)
    name, reference = field_of(record, "name", str, place), field_of(record, "reference", str, place)
    tensors = {each: field_of(record, each, Mapping, place) for each in ("inputs", "outputs")}
    axes = field_of(record, "axes", Mapping, place)
    beside = path.with_name("workload.jsonl")
    lines = list(_workloads(workloads or beside)) if workloads or beside.is_file() else []
    for each in lines:
        _require_workload(each, axes, tensors["inputs"], str(workloads or beside))
    trials = sorted(_trials(record, axes, tensors, lines, place), key=lambda each: each.cells)
    if not trials:
        raise InputError(f"{place}: no sizes keep its constraints; give workloads with --workloads")
    facts = {**tensors, "custom": record.get("custom_inputs_entrypoint")}
    return Problem(name, "definitions", {REFERENCE: reference}, REFERENCE, tuple(trials), facts)


def _workloads(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a file, a line each; in flashinfer-bench they are inside a trace."""
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}:{number} is no JSON: {reason_of(error)}") from error
            yield record.get("workload", record) if isinstance(record, Mapping) else record


def _require_workload(each: Any, axes: Mapping[str, Any], inputs: Mapping[str, Any], place: str) -> None:
    own, sources = field_of(each, "axes", Mapping, place), field_of(each, "inputs", Mapping, place)
    for name, size in ((name, own.get(name)) for name, axis in axes.items() if axis.get("type") == "var"):
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InputError(f"{place}: a workload gives no size, 0 or more, for the axis {name}")
    for name in inputs:
        kind = sources.get(name, {"type": "random"}).get("type")
        if kind not in ("random", "scalar", "safetensors", "custom"):
            kinds = "random, scalar, safetensors, custom"
            raise InputError(f"{place}: the input {name} is of the type {kind}; there are {kinds}")


def _trials(
    record: Record, axes: Record, tensors: Mapping[str, Record], workloads: Sequence[Record], place: str
) -> Iterator[Trial]:
    """Calls at small sizes of the variable axes, and at the sizes of the workloads."""
    free = [name for name, axis in axes.items() if axis.get("type") == "var"]
    of_files = [any(each.get("type") == "safetensors" for each in w["inputs"].values()) for w in workloads]
    plain = next((w for w, reads in zip(workloads, of_files, strict=True) if not reads), None)
    if free and (plain is not None or not workloads):
        sources = plain["inputs"] if plain else {}
        gcds = {name: math.gcd(*(w["axes"][name] for w in workloads)) for name in free}
        units = {name: min(gcd & -gcd, _UNIT) or 1 for name, gcd in gcds.items()}  # powers of two
        chosen = {tuple(sorted(w["axes"].items())) for w in workloads}
        for step in _SIZES:
            # Axes differ in size, so that a confusion of two axes shows.
            sizes = {name: units[name] * (step + at * (step > 1)) for at, name in enumerate(free)}
            bound = bind_axes(axes, sizes, place)
            keeps = all(evaluate(each, bound, place) for each in record.get("constraints") or ())
            if keeps and tuple(sorted(sizes.items())) not in chosen:
                yield _trial(sizes, bound, sources, tensors, place, is_stated=False)
    for each in workloads or [{"axes": {}, "inputs": {}}] * (not free):
        bound = bind_axes(axes, each["axes"], place)
        yield _trial(each["axes"], bound, each["inputs"], tensors, place, workload=each)


def _trial(
    sizes: Mapping[str, int],
    bound: Mapping[str, int],
    sources: Record,
    tensors: Mapping[str, Record],
    place: str,
    *,
    workload: Record | None = None,
    is_stated: bool = True,
) -> Trial:
    shapes = {name: shape_of(each, bound, place) for part in tensors.values() for name, each in part.items()}
    cells = sum(math.prod(shape) for shape in shapes.values() if shape is not None)
    arguments = {"shapes": shapes, "sources": dict(sources), "axes": dict(bound)}
    return Trial(_label(sizes), arguments, cells, is_stated, _tolerance(workload, place), workload)


def shape_of(tensor: Mapping[str, Any], bound: Mapping[str, int], place: str) -> list[int] | None:
    """The shape of an input or an output; None for a number. InputError if it names an unknown axis."""
    if not isinstance(tensor, Mapping) or not isinstance(tensor.get("dtype"), str) or "shape" not in tensor:
        remedy = "give both, a shape of null for a number"
        raise InputError(f"{place}: an input or an output has no shape or no dtype; {remedy}")
    if tensor["shape"] is None:
        return None
    unknown = next((axis for axis in tensor["shape"] if axis not in bound), None)
    if unknown is not None:
        raise InputError(f"{place}: a shape names {unknown!r}, which is no axis; there are {', '.join(bound)}")
    return [bound[axis] for axis in tensor["shape"]]


def _tolerance(workload: Mapping[str, Any] | None, place: str) -> Tolerance:
    own = (workload or {}).get("tolerance") or {}
    numbers = {name: own.get(name, usual) for name, usual in _USUAL.items()}
    for name, each in numbers.items():
        if each is not None and not isinstance(each, int | float):
            raise InputError(f"{place}: the tolerance {name} is no number")
    atol, rtol, share, cap = numbers.values()
    return Tolerance(atol or 0.0, rtol or 0.0, share or 0.0, cap)


def bind_axes(axes: Mapping[str, Any], sizes: Mapping[str, int], place: str) -> dict[str, int]:
    """The size of each axis. InputError if one has none."""
    bound = {name: sizes[name] for name, axis in axes.items() if axis.get("type") == "var"}
    fixed = {name: axis for name, axis in axes.items() if axis.get("type") == "const"}
    bound |= {name: field_of(axis, "value", int, f"{place}: {name}") for name, axis in fixed.items()}
    for name, axis in axes.items():
        if axis.get("type") == "expr":
            bound[name] = int(evaluate(field_of(axis, "expression", str, f"{place}: {name}"), bound, place))
        elif name not in bound:
            raise InputError(f"{place}: the axis {name} is of the type {axis.get('type')}; there are const, var, expr")
    return bound


def evaluate(text: str, names: Mapping[str, int], place: str) -> Any:
    """The value of an expression of sizes. InputError if it is invalid or too large."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                one, other = value(left), value(right)
                if isinstance(sign, ast.Pow) and not (abs(one) <= _MOST and 0 <= other <= 64):
                    raise ValueError("it is too large")
                return _OPERATORS[type(sign)](one, other)
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _OPERATORS:
                return _OPERATORS[type(sign)](value(left), value(right))
            case _:
                raise ValueError(f"{ast.unparse(node)} is no arithmetic on axes")

    try:
        result = value(ast.parse(text, mode="eval").body)
        if not abs(result) <= _MOST:
            raise ValueError("it is too large")
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError) as error:
        raise InputError(f"{place}: {text!r} cannot be evaluated: {error}") from error
    return result


def read_solution(path: Path, problem: Problem) -> Submission:
    """A solution; one that cannot be run has a refusal. InputError if the file is no JSON."""
    record = read_json(path)
    name = printable(str(record.get("name", path.stem))) if isinstance(record, Mapping) else path.stem
    try:
        return _solution(record, name, problem)
    except InputError as error:
        return Submission(name, {}, ("", ""), refusal=(Status.NOT_CHECKED, str(error)))


def _solution(record: Mapping[str, Any], name: str, problem: Problem) -> Submission:
    spec, sources = field_of(record, "spec", Mapping, name), field_of(record, "sources", list, name)
    if (own := record.get("definition")) != problem.name:
        raise InputError(f"it solves {printable(str(own))}, and the definition is {problem.name}")
    languages = spec.get("languages") or [spec.get("language")]
    file, _, function = field_of(spec, "entry_point", str, name).partition("::")
    files = {field_of(each, "path", str, name): field_of(each, "content", str, name) for each in sources}
    options = spec.get("compile_options") or {}
    flags = tuple(str(each) for part in ("cflags", "cuda_cflags") for each in options.get(part) or ())
    outside = next((each for each in files if leaves_folder(each)), None)
    unknown = [str(each) for each in languages if each not in RUNNABLE]
    refusal = None
    if outside is not None:
        refusal = Status.FORBIDDEN, f"its source {printable(outside)!r} would lie outside its folder"
    elif unknown:
        reason = f"{printable(', '.join(unknown))} is not run without a GPU; there are {', '.join(sorted(RUNNABLE))}"
        refusal = Status.NOT_CHECKED, reason
    elif file not in files or not function:
        reason = f"its entry point {printable(file)}::{printable(function)} is no function of its sources"
        refusal = Status.NOT_CHECKED, reason
    fills = bool(spec.get("destination_passing_style", True))
    return Submission(name, files, (file, function), tuple(map(str, languages)), fills, refusal, flags)


def leaves_folder(path: str) -> bool:
    """Whether the path of a source may lead out of the folder that it is written into."""
    parts = PurePosixPath(path).parts
    return not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or len(path) > 200


TASK, SUBMISSION = "task.yml", "submission.py"
MODEL = frozenset({"Model", "get_inputs"})  # the names of a KernelBench problem
PAIR = MODEL | {"ModelNew"}
_ENTRY_OF = {"kernelbench": "ModelNew", "gpu_mode": "custom_kernel"}
_SEED = re.compile(r"seed|^(default_rng|RandomState|Random|SeedSequence|PRNGKey|key)$", re.IGNORECASE)
_DRAW = re.compile(r"rand|normal|uniform|bernoulli|poisson|exponential|integers|choice|multinomial")
_CAPS = (32, 128)  # the largest constants of a pair: its sizes are halved until they fit
_SMALL_CAPS = (8, 16)  # the same where none is above 32
_ITEM = re.compile(r"""["']?([A-Za-z_]\w*)["']?\s*:\s*("[^"]*"|'[^']*'|[^,}\s]+)""")
_OPERATOR = re.compile(r"(\w+?)__([A-Za-z]\w*)")
# Shapes of the tensors that an operator of torch takes; its schema has the rest.
_TENSORS = (
    ((5, 7),), ((33, 65),), ((1025,),), ((5, 7), (7, 9)), ((16, 16),),
    ((2, 5, 7), (2, 7, 9)), ((2, 3, 8, 9), (4, 3, 3, 3)),
)  # fmt: skip


def defines(path: Path, names: frozenset[str]) -> bool:
    """Whether a file defines functions and classes of all these names."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError):
        tree = ast.parse(path.read_bytes())
        return names <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return False


def read_file(path: Path, format_name: str) -> Submission:
    """A submission of one Python file. InputError if there is none."""
    return Submission(path.stem, {path.name: _text(path)}, (path.name, _ENTRY_OF[format_name]))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error


def read_model(path: Path) -> Problem:
    """The problem of a KernelBench file: first with all its sizes halved until they are small, or, if the reference
    refuses that, only one of them, then unchanged."""
    text, tolerance = _text(path), Tolerance(1e-2, 1e-2)
    numbers = dict(_sizes(ast.parse(text)))
    caps = _CAPS if max(numbers.values(), default=0) > _CAPS[0] else _SMALL_CAPS
    sizes = {name: value for name, value in numbers.items() if value > caps[0]}
    small, medium = ({name: _halve(value, cap) for name, value in sizes.items()} for cap in caps)
    tried = [small, medium]
    spare = [{**sizes, name: value} for name, value in small.items()] if len(sizes) > 1 else []
    trials: list[Trial] = []
    for each in (*tried, *spare):
        if each != sizes and all(each != other.arguments["constants"] for other in trials):
            arguments = {"constants": each, "is_spare": each in spare}
            trials.append(Trial(_label(each), arguments, _product(each), False, tolerance))
    trials.append(Trial(_label(sizes), {"constants": {}}, _product(sizes), True, tolerance))
    return Problem(path.stem, "kernelbench", {path.name: text}, path.name, tuple(trials))


def _sizes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The integers that a file assigns to names, and the integers within the functions that make inputs, under the
    names that `replaced_sizes` uses. Seeds and scales of random numbers are not sizes."""
    values = _random_values(tree)
    uses = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    unsized = {each.id for each in uses} - {each.id for each in uses if each not in values}
    for node in tree.body:
        match node:
            case ast.Assign():
                for name, value in _targets(node):
                    match value:
                        case ast.Constant(value=int(number)) if name not in unsized:
                            yield name, number
                        case ast.BinOp(ast.Constant(int(one)), ast.Mult(), ast.Constant(int(two))):
                            yield name, one * two
                        case _:
                            continue
            case ast.FunctionDef(name="get_inputs" | "get_init_inputs"):
                nodes = (each for each in ast.walk(node) if each not in values)
                numbers = (each.value for each in nodes if isinstance(each, ast.Constant))
                yield from ((str(each), each) for each in numbers if type(each) is int)
            case _:
                continue


def _targets(node: ast.Assign) -> list[tuple[str, ast.expr]]:
    """The names that a statement assigns to, and the value of each; of `a = b = 1` the first name."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = zip(names, values, strict=False)
            return [(each.id, value) for each, value in pairs if isinstance(each, ast.Name)]
        case _:
            return []


def replaced_sizes(tree: ast.Module, sizes: Mapping[str, int]) -> ast.Module:
    """The module with other sizes: values assigned to names, and integers of these values where inputs are made."""
    values = _random_values(tree)
    for node in tree.body:
        match node:
            case ast.Assign(value=value):
                new = {
                    one: ast.copy_location(ast.Constant(sizes[name]), one)
                    for name, one in _targets(node)
                    if name in sizes
                }
                if isinstance(value, ast.Tuple):
                    value.elts = [new.get(each, each) for each in value.elts]
                node.value = new.get(value, value)
            case ast.FunctionDef(name="get_inputs" | "get_init_inputs"):
                for each in ast.walk(node):
                    if isinstance(each, ast.Constant) and type(each.value) is int and each not in values:
                        each.value = sizes.get(str(each.value), each.value)
    return tree


def _random_values(tree: ast.Module) -> set[ast.AST]:
    """The expressions that seed random numbers, or that, without a call, scale them or are compared with them."""
    values = list[ast.AST]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if _SEED.search(name):
                values += [*node.args, *(each.value for each in node.keywords)]
            case ast.BinOp(left=one, right=two) | ast.Compare(left=one, comparators=[two]):
                values += [a for a, b in ((one, two), (two, one)) if _calls(b, _DRAW) and not _calls(a)]
            case _:
                continue
    return {each for value in values for each in ast.walk(value)}


def _calls(node: ast.AST, name: str | re.Pattern[str] = "") -> bool:
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(re.match(name, getattr(each, "attr", getattr(each, "id", ""))) for each in calls)


def _halve(value: int, cap: int) -> int:
    """A size halved to at most a cap, plus 1 if needed to keep its parity."""
    size = value
    while size > cap:
        size //= 2
    return size + (size % 2 != value % 2)


def _label(sizes: Mapping[str, Any]) -> str:
    numbers = [f"{size} for {name}" for name, size in sizes.items() if name.isdecimal() and name != str(size)]
    named = sizes_text({name: size for name, size in sizes.items() if not name.isdecimal()})
    return ", ".join([*([named] if named else []), *numbers]) or "as it is"


def _product(sizes: Mapping[str, Any]) -> int:
    numbers = [each for name, each in sizes.items() if isinstance(each, int) and name != "seed"]
    return min(math.prod(each for each in numbers if each > 0), 1 << 62)


def read_task(folder: Path) -> Problem:
    """The problem of a GPU MODE folder: its tests, then its benchmarks, the smallest first. InputError if it names
    missing files, or no test."""
    items = _sections(_text(folder / TASK))
    files = [each for each in items.get("files", ()) if {"name", "source"} <= each.keys()]
    places = {str(each["name"]): str(each["source"]) for each in files}
    sources = {name: folder / at for name, at in places.items() if not at.startswith("@") and name != "eval.py"}
    above = folder.resolve().parent
    outside = next((each for each in sources.values() if not each.resolve().is_relative_to(above)), None)
    if outside is not None:
        raise InputError(f"{folder / TASK}: {outside} lies outside the folder of its problems")
    tests, benchmarks = (sorted(items.get(each, ()), key=_product) for each in ("tests", "benchmarks"))
    if not tests or "reference.py" not in sources:
        raise InputError(f"{folder / TASK} names no tests, or no reference.py among its files")
    trials = tuple(Trial(_label(each), each, _product(each)) for each in [*tests, *benchmarks])
    texts = {name: _text(path) for name, path in sources.items()}
    return Problem(folder.name, "gpu_mode", texts, "reference.py", trials)


def _sections(text: str) -> dict[str, list[dict[str, Any]]]:
    """The lists of flat records in a YAML file, by the name of their section: a task needs no more."""
    sections: dict[str, list[dict[str, Any]]] = {}
    section = ""
    for line in text.splitlines():
        bare = line.partition(" #")[0].rstrip()
        if bare and bare[0] not in " #-":
            section = bare.partition(":")[0]
        if bare.lstrip().startswith("- "):
            sections.setdefault(section, []).append({})
        if section in sections and not bare.lstrip().startswith("#"):
            sections[section][-1].update((name, _scalar(value)) for name, value in _ITEM.findall(bare.lstrip("- ")))
    return sections


def _scalar(text: str) -> Any:
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return {"true": True, "false": False, "null": None}.get(text, text)


def read_submission(path: Path, problem: Problem) -> Submission:
    """A submission to a task, with the files of the task that it may import."""
    submission = read_file(path, problem.format)
    beside = {name: text for name, text in problem.files.items() if name != problem.entry}
    return Submission(submission.name, beside | {SUBMISSION: _text(path)}, (SUBMISSION, submission.entry[1]))


def operator_folders(folder: Path) -> list[Path]:
    """The folders of a BackendBench tree that hold a kernel: itself, or its subfolders."""
    inside = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    return [each for each in (folder, *inside) if _implementation(each) is not None]


def _implementation(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(f"{folder.name}_implementation*.py"))), None)


def read_operator(folder: Path) -> tuple[Problem, Submission]:
    """An operator of torch, on tensors that its schema accepts, and the kernel for it."""
    path, match = _implementation(folder), _OPERATOR.fullmatch(folder.name)
    assert path is not None
    name = f"{match[1]}.{match[2]}" if match else f"{folder.name}.default"
    rule = Tolerance()
    trials = [
        Trial(f"{dtype}{[*map(list, shapes)]}", {"shapes": shapes, "dtype": dtype}, math.prod(shapes[0]), True, rule)
        for shapes, dtype in product(_TENSORS, ("float32", "bfloat16", "int64"))
    ]
    problem = Problem(name, "backendbench", {}, "", tuple(trials), {"operator": name})
    return problem, Submission(folder.name, {path.name: _text(path)}, (path.name, f"{folder.name}_kernel_impl"))
