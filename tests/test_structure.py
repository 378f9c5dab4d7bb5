"""The rules of style that a machine can hold (see CONTRIBUTING.md); each is first shown to find what it forbids."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path

import pytest

import noyau
from noyau import errors
from noyau.toolchain.garbage_collection import without_collections
from tests.rules import ALLOWED, CLOSED, FORBIDDEN_WORDS, RULES, functions, lines, nodes, words
from tools import structure

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = sorted((ROOT / "noyau").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SOURCES = [
    path for folder in ("noyau", "tests", "examples", "benchmarks") for path in sorted((ROOT / folder).rglob("*"))
]

# An optional package is imported only in files, or in folders, that are named for it.
OPTIONAL = {
    "onnx": ("onnx*",),
    "onnxruntime": ("onnxruntime*",),
    "torch": ("torch*", "triton*", "cuda*"),  # triton kernels run on tensors
    "numba": ("numba*",),
    "triton": ("triton*", "cuda"),
    "transformers": (),
    "onnxscript": (),
    "ziglang": (),
    "elftools": ("debug_info", "cuda"),  # of programs of the CPU and of cubins
    **dict.fromkeys(("pyarrow", "fsspec"), ("arrow*", "adbc*", "spark*")),
    **dict.fromkeys(("adbc_driver_manager", "adbc_driver_postgresql", "adbc_driver_sqlite"), ("adbc*",)),
    **dict.fromkeys(("pandas", "xarray"), ()),
    "duckdb": ("duckdb*",),
    "mcp": ("mcp",),
    "shtab": ("completion",),
    **dict.fromkeys(("dask", "distributed"), ("dask*",)),
    "pyspark": ("spark*",),
    **dict.fromkeys(("tree_sitter", "tree_sitter_c", "tree_sitter_cpp"), ("syntax",)),
}

# Test files that are about no single file of the package.
CROSS_CUTTING = {
    "test_defects_table.py",
    "test_documents.py",
    "test_gallery.py",
    "test_held_out.py",
    "test_readme.py",
    "test_requirements.py",
    "test_wheel.py",
    "test_structure.py",
    "test_random_graphs.py",
    "hosts/test_versions.py",
}


def name_of(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def show(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@lru_cache(maxsize=1)
def runtime_imports(path: Path, tree: ast.Module) -> set[str]:
    """The full names of what a file imports when it runs; what only type checkers read does not count."""
    found: set[str] = set()
    for node, type_only in structure.statements(tree):
        if isinstance(node, ast.Import) and not type_only:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not type_only:
            found |= {f"{_origin(path, node)}.{alias.name}" for alias in node.names}
    return found


def _origin(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = name_of(path.parent / "__init__.py").split(".")
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def is_within(name: str, layer: str) -> bool:
    return f"{name}.".startswith(f"{layer}.")


def misplaced_imports(path: Path, tree: ast.Module) -> list[str]:
    """Imports of optional packages in a file that is not named for them."""
    stems = [Path(part).stem for part in path.relative_to(ROOT).parts]
    tops = {name.partition(".")[0] for name in runtime_imports(path, tree)} & OPTIONAL.keys()
    return [
        top for top in sorted(tops) if not any(fnmatch(stem, pattern) for stem in stems for pattern in OPTIONAL[top])
    ]


@cache
def survey() -> dict[str, dict[str, list[object]]]:
    """What each question finds in each file of the package."""
    found: dict[str, dict[str, list[object]]] = {name: {} for name in QUESTIONS}
    with without_collections():
        for path in PACKAGE:
            tree = structure.modules()[structure.name_of(path)]
            for name, question in QUESTIONS.items():
                if answer := question(path, tree):
                    found[name][show(path)] = answer
    return found


def called(tree: ast.Module) -> list[str]:
    """The last name of everything that is called."""
    calls = (node.func for node in nodes(tree) if isinstance(node, ast.Call))
    return [str(getattr(func, "id", None) or getattr(func, "attr", None)) for func in calls]


QUESTIONS: dict[str, Callable[[Path, ast.Module], list]] = {
    **{rule.__name__: lambda path, tree, rule=rule: rule(tree) for rule in RULES},
    "lengths": lambda path, tree: [lines(node) for node in functions(tree)],
    "misplaced imports": misplaced_imports,
    "calls": lambda path, tree: called(tree),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_it_forbids(rule):
    assert [text for text in RULES[rule] if not rule(ast.parse(text))] == []
    assert rule(ast.parse(ALLOWED[rule])) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_a_rule(rule):
    assert survey()[rule.__name__] == {}


def test_the_closed_sets_are_found():
    assert {"Kind", "Expr", "Statement", "Axis", "DType"} <= CLOSED.keys()
    assert {"Load", "Fold"} <= CLOSED["Expr"]
    assert {"Map", "Reduce"} <= CLOSED["Kind"]
    assert "F32" in CLOSED["DType"]


def test_files_are_under_500_lines():
    counts = {show(path): len(path.read_text(encoding="utf-8").splitlines()) for path in [*PACKAGE, *TESTS]}
    assert {path: count for path, count in counts.items() if count >= 500} == {}


def test_the_median_function_is_under_10_lines():
    assert statistics.median(length for lengths in survey()["lengths"].values() for length in lengths) < 10


def test_no_file_or_folder_is_a_drawer():
    paths = [path for path in (ROOT / "noyau").rglob("*") if path.suffix in ("", ".py")]
    assert [show(path) for path in paths if words(path.stem) & FORBIDDEN_WORDS] == []


def test_sources_are_ascii():
    texts = [path for path in SOURCES if path.suffix in (".py", ".c", ".h")]
    assert [show(path) for path in texts if not path.read_bytes().isascii()] == []


def test_every_folder_of_the_package_says_what_it_holds():
    folders = {path.parent for path in PACKAGE}
    assert [show(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import onnx.helper", {"onnx.helper"}),
        ("def f():\n    from onnx import helper, checker", {"onnx.helper", "onnx.checker"}),
        ("if TYPE_CHECKING:\n    import torch\nelse:\n    import re", {"re"}),
        ("from . import cache", {"noyau.toolchain.c.cache"}),
        ("from ...ir import graph", {"noyau.ir.graph"}),
        ("from ...ir.graph import Node", {"noyau.ir.graph.Node"}),
    ],
)
def test_imports_are_found(text, found):
    path = ROOT / "noyau/toolchain/c/compiler.py"
    assert runtime_imports(path, ast.parse(text)) == found
    optional = {name.partition(".")[0] for name in found} & OPTIONAL.keys()
    assert set(misplaced_imports(path, ast.parse(text))) == optional


def test_optional_packages_are_imported_in_their_own_files():
    assert survey()["misplaced imports"] == {}


def test_every_folder_and_every_file_at_the_top_is_a_layer():
    tops = {path.stem for path in (ROOT / "noyau").glob("*.py")} | {path.name for path in (ROOT / "noyau").glob("*/")}
    assert tops - {"__pycache__"} == set(structure.LAYERS)
    assert len(structure.LAYERS) == len(set(structure.LAYERS))


def test_no_import_runs_upwards():
    assert structure.upward_imports(structure.modules()) == []


def unknown_names(tree: ast.Module) -> list[str]:
    """What a file imports of the package that is not there; what the package itself gives is found when asked for."""
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    pairs = [(node.module, alias.name) for node in asked for alias in node.names if node.module.startswith("noyau.")]
    files = structure.modules()
    known = {f"noyau.{name}" for name in files}
    return [f"{module}.{name}" for module, name in pairs if f"{module}.{name}" not in known | names_of(module)]


@cache
def names_of(module: str) -> set[str]:
    """The names that a module of the package binds at its top, with the module's own before them."""
    tree = structure.modules().get(module.removeprefix("noyau."), ast.Module([], []))
    names = set[str]()
    for node, _ in structure.statements(tree):
        names |= {getattr(node, "name", None)} - {None}
        names |= {alias.asname or alias.name for alias in getattr(node, "names", ()) if isinstance(alias, ast.alias)}
        targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
        names |= {part.id for each in targets if each for part in ast.walk(each) if isinstance(part, ast.Name)}
    return {f"{module}.{name}" for name in names}


def test_a_name_that_is_not_there_is_found():
    text = "from noyau.dtypes import DType, Dtype\nfrom noyau.ir import graph, graphs\nfrom noyau.text_of import line"
    assert unknown_names(ast.parse(text)) == ["noyau.dtypes.Dtype", "noyau.ir.graphs", "noyau.text_of.line"]


def test_benchmarks_tools_and_examples_import_what_is_there():
    paths = [path for folder in ("benchmarks", "tools", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert {show(path): names for path in paths if (names := unknown_names(ast.parse(path.read_text())))} == {}


def test_no_files_import_each_other_in_a_circle():
    assert structure.cycles(structure.modules()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import noyau.ops.op",
        "from noyau.ops import op",
        "from noyau.ops.op import Op",
        "def f():\n    from noyau.ops.op import Op",
        "if TYPE_CHECKING:\n    from noyau.ops.op import Op",
        "import noyau",
    ],
)
def test_an_upward_import_is_found(text):
    files = {"ir.graph": ast.parse(text), "ops": ast.parse(""), "ops.op": ast.parse(""), "__init__": ast.parse("")}
    assert len(structure.upward_imports(files)) == 1


def test_a_circle_of_files_is_found():
    texts = {
        "ir.a": "from noyau.ir import b",
        "ir.b": "def f():\n    import noyau.ir.c",
        "ir.c": "from noyau.ir.a import x",
    }
    files = {name: ast.parse(text) for name, text in texts.items()} | {"ir": ast.parse("")}
    assert structure.cycles(files) == [["ir.a", "ir.b", "ir.c"]]
    files["ir.b"] = ast.parse("if TYPE_CHECKING:\n    import noyau.ir.c")
    assert structure.cycles(files) == []


BLOCKED = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(OPTIONAL)}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("program", ["import noyau", "from noyau.jobs.cli import main; sys.exit(main(['doctor']))"])
def test_noyau_needs_nothing_optional(program):
    subprocess.run([sys.executable, "-c", BLOCKED + program], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_the_blocker_blocks():
    run = subprocess.run([sys.executable, "-c", BLOCKED + "import onnx.helper"], capture_output=True, check=False)
    assert b"onnx is blocked" in run.stderr


def test_no_module_bears_the_name_of_a_public_function():
    public = {name for name in noyau.__all__ if callable(getattr(noyau, name))}
    modules = {path.stem for path in (ROOT / "noyau").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert public & modules == set()


def test_every_error_is_raised_somewhere():
    made = {name for path, names in survey()["calls"].items() if path != "noyau/errors.py" for name in names}
    assert {kind.__name__ for kind in error_classes()} - made == set()


def test_errors_derive_from_noyau_and_from_the_fitting_built_in():
    kinds = error_classes()
    assert all(issubclass(kind, errors.NoyauError) and len(kind.__bases__) == 2 and kind.__doc__ for kind in kinds)


def error_classes() -> list[type]:
    """The classes of noyau/errors.py that can be raised, but for the base of all."""
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, BaseException)]
    return [each for each in classes if each is not errors.NoyauError]


def test_tests_mirror_the_package():
    """tests/a/test_b.py, or tests/a/test_b_of_some_kind.py, is about noyau/a/b.py; tests/tools is about tools."""
    wrong = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        parent = path.relative_to(ROOT / "tests").parent
        folder = ROOT / parent if parent.parts[:1] == ("tools",) else ROOT / "noyau" / parent
        stem = path.stem.removeprefix("test_")
        subjects = {each.stem for each in folder.glob("*.py")} | {each.name for each in folder.glob("*/")}
        if show(path).removeprefix("tests/") not in CROSS_CUTTING and not any(
            stem == subject or stem.startswith(f"{subject}_") for subject in subjects
        ):
            wrong.append(show(path))
    assert wrong == []


def test_the_readme_s_commands_are_what_is_checked():
    readme, script = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", ".ci/run"))
    commands = re.findall(r"^pip install .*$", readme, re.MULTILINE)[:2]
    assert "noyau demo" in commands[0]
    assert "pytest" in commands[1]
    assert "README.md" in script
