"""The guide's examples of ops run as they stand; commands and files that the documents name are there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from noyau.jobs import cli
from tools import promises

ROOT = Path(__file__).resolve().parent.parent
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SAID = {
    "A NumPy function as an op": ("", "numpy"),
    "Ops that models are made of": ("LlamaRMSNorm", "transformers"),
    "Functions of numbers over arrays": ("", "numpy"),
}


def example(section: str) -> str:
    """The first block of Python under a heading of the guide."""
    found = re.search(rf"^## {section}\n.*?```python\n(.*?)```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, section
    return found[1]


@pytest.mark.long
@pytest.mark.parametrize("section", SAID)
def test_an_example_runs(section, tmp_path):
    said, needed = SAID[section]
    pytest.importorskip(needed, reason=f"{needed} is of the extra export")
    script = tmp_path / "example.py"
    script.write_text(example(section), "utf-8")
    found = {**os.environ, "PYTHONPATH": str(README.parent)}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=found, check=False)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "needed", "said"),
    [
        ("pandas", "pandas", ""),
        ("xarray", "dask", ""),
        ("databases", "duckdb", "4.0"),
        ("streams", "numpy", "999999.0"),
        ("skill", "numpy", ""),
    ],
)
def test_the_code_of_a_page_runs_in_an_empty_folder(page, needed, said, tmp_path):
    pytest.importorskip(needed, reason=f"{needed} is of the extra test")
    blocks = re.findall(r"```python\n(.*?)```", (README.parent / "docs" / f"{page}.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    (tmp_path / "page.py").write_text("\n".join(blocks), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(README.parent)}
    command = [sys.executable, "page.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


def test_what_an_example_calls_is_there():
    import noyau

    called = {name for section in SAID for name in re.findall(r"noyau\.(\w+)", example(section))}
    assert called >= {"map", "zip", "reduce", "patch", "unpatch", "check", "bench"}
    assert [name for name in called if not hasattr(noyau, name)] == []


def commands() -> list[str]:
    """Each call of noyau in a block of commands."""
    texts = "\n".join(document.read_text("utf-8") for document in DOCUMENTS)
    blocks = [*re.findall(r"```sh\n(.*?)```", texts, re.DOTALL), *re.findall(r"^    (noyau .*)$", texts, re.MULTILINE)]
    return [line for block in blocks for line in re.findall(r"(?:^|&& )(noyau .*)$", block, re.MULTILINE)]


def test_the_command_line_understands_each_command():
    assert len(commands()) > 9
    for line in commands():
        words = shlex.split(re.split(r"  +", line)[0], comments=True)[1:]
        assert cli._parser().parse_known_args(words)[1] == [], line


def test_each_record_and_each_generated_document_says_how_it_is_made():
    told = (ROOT / "docs" / "maintaining.md").read_text("utf-8")
    records = [f"benchmarks/results/{path.name}" for path in (ROOT / "benchmarks" / "results").glob("*.json")]
    generated = [f"docs/{path.name}" for path in DOCUMENTS if "file is generated" in path.read_text("utf-8").lower()]
    assert len(generated) == 3
    assert [name for name in [*records, *generated] if f"| `{name}` |" not in told] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_tests_that_a_document_names_are_there(document):
    text = document.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
    known = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert set(re.findall(r"`(test_\w+)`", text)) - known == set()


def test_each_promise_has_what_shows_it():
    found = list(promises.units(README.read_text("utf-8")))
    starts = [[start for start in promises.PROMISES if unit.startswith(start)] for unit in found]
    assert [start for each in starts for start in each] == list(promises.PROMISES)
    assert [unit for unit, each in zip(found, starts, strict=True) if len(each) != 1] == []
    assert all(bool(each.script) != bool(each.reason) for each in promises.PROMISES.values())


def test_a_promise_that_is_not_kept_is_told(tmp_path, monkeypatch, capsys):
    kept = promises.Promise("test -d examples; grep -q import block.py")
    table = dict.fromkeys(promises.PROMISES, kept) | {"noyau demo --folder .": promises.Promise("echo no; exit 3")}
    monkeypatch.setattr(promises, "PROMISES", table)
    monkeypatch.setattr(promises, "environment", lambda folder, promise: tmp_path)
    for only, status, word in (("noyau demo", 1, "status 3: no"), ("import onnxruntime", 0, "kept")):
        assert promises.main(["--only", only]) == status
        assert word in capsys.readouterr().out
