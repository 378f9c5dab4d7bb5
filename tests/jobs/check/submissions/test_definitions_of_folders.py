from __future__ import annotations

import ast

import pytest

from noyau.errors import InputError
from noyau.jobs.check.submissions import definitions

MODEL = "N = 2048 * 2\nrows = 100\nodd = 333\nsmall = 3\nclass Model: ...\ndef get_inputs(): ...\n"


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__dot__", ".").replace("__slash__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_constants_of_a_model_are_halved_until_they_are_small(tmp_path):
    write(tmp_path, model__dot__py=MODEL)
    problem = definitions.read_model(tmp_path / "model.py")
    assert [each.arguments["constants"] for each in problem.trials] == [
        {"N": 32, "rows": 26, "odd": 21},
        {"N": 128, "rows": 100, "odd": 83},
        {"N": 32, "rows": 100, "odd": 333},
        {"N": 4096, "rows": 26, "odd": 333},
        {"N": 4096, "rows": 100, "odd": 21},
        {},
    ]
    assert [each.is_stated for each in problem.trials] == [*[False] * 5, True]
    assert [each.arguments.get("is_spare", False) for each in problem.trials] == [False, False, True, True, True, False]


def test_small_sizes_are_halved_too_and_names_are_assigned_together(tmp_path):
    text = (
        "height = width = 16\nrows, odd = 12, 2 * 3\nclass Model: ...\ndef get_inputs(): return [height, width, rows]\n"
    )
    write(tmp_path, model__dot__py=text)
    trials = definitions.read_model(tmp_path / "model.py").trials
    constants = [each.arguments["constants"] for each in trials]
    assert constants == [{"height": 8, "rows": 6}, {"height": 8, "rows": 12}, {"height": 16, "rows": 6}, {}]
    replaced = ast.unparse(definitions.replaced_sizes(ast.parse(text), constants[0]))
    assert replaced.startswith("height = width = 8\nrows, odd = (6, 2 * 3)\n")


SEEDED = """
SEED = 1234
scale = 64
n = m = 100
rows = 200

def get_inputs():
    torch.manual_seed(4242)
    np.random.seed(seed=SEED)
    rng = torch.Generator().manual_seed(SEED)
    x = torch.randn(rows, 96, generator=rng) * scale + 77
    return [x, np.random.default_rng(555).integers(0, 50, 96) < 60, torch.full((2 * rows, 4242), SEED)[:, :96]]
"""


def test_what_seeds_or_scales_random_numbers_is_no_size(tmp_path):
    write(tmp_path, seeded__dot__py=SEEDED.replace(", SEED)[", ", 1)["))
    sizes = {"n": 100, "rows": 200, "96": 96, "50": 50, "4242": 4242}
    first = definitions.read_model(tmp_path / "seeded.py").trials[0].arguments["constants"]
    assert first == {name: definitions._halve(value, 32) for name, value in sizes.items()}
    text = ast.unparse(definitions.replaced_sizes(ast.parse(SEEDED), first))
    assert "manual_seed(4242)" in text and "(2 * rows, 16)" in text and "+ 77" in text
    write(tmp_path, seeded__dot__py=SEEDED)  # where it is a size as well, it is one
    assert "SEED" in definitions.read_model(tmp_path / "seeded.py").trials[0].arguments["constants"]


def test_sizes_of_arrays_that_random_ones_meet_stay_alike(tmp_path):
    text = "def get_inputs():\n    return [torch.rand(64, 96) * torch.ones(64, 96), torch.rand(96) * 77]"
    write(tmp_path, masked__dot__py=text)
    sizes = definitions.read_model(tmp_path / "masked.py").trials[0].arguments["constants"]
    assert sizes == {"64": 32, "96": 24}
    changed = ast.unparse(definitions.replaced_sizes(ast.parse(text), sizes))
    assert "torch.rand(32, 24) * torch.ones(32, 24), torch.rand(24) * 77" in changed


def test_pairs_and_models_are_told_by_their_classes(tmp_path):
    write(tmp_path, pair__dot__py=f"{MODEL}class ModelNew: ...\n", model__dot__py=MODEL, other__dot__py="def f(:")
    assert [
        definitions.defines(tmp_path / f"{name}.py", definitions.PAIR) for name in ("pair", "model", "other", "none")
    ] == [
        True,
        False,
        False,
        False,
    ]
    assert [definitions.defines(tmp_path / f"{name}.py", definitions.MODEL) for name in ("pair", "model", "other")] == [
        True,
        True,
        False,
    ]


TASK = """
# a comment
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "tools.py", "source": "../tools.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: "py"
tests:
  - {"m": 64, "is_small": true, "seed": 3}
  - {m: 32, kind: 'normal', seed: 4}
benchmarks:
  # - {"m": 8, "seed": 1}
  - m: 128
    seed: 5
"""


def test_a_task_is_read_without_a_parser_of_yaml(tmp_path):
    write(
        tmp_path,
        tools__dot__py="1",
        task__slash__reference__dot__py="2",
        task__slash__task__dot__yml=TASK,
        task__slash__mine__dot__py="3",
    )
    problem = definitions.read_task(tmp_path / "task")
    assert [each.arguments for each in problem.trials] == [
        {"m": 32, "kind": "normal", "seed": 4},
        {"m": 64, "is_small": True, "seed": 3},
        {"m": 128, "seed": 5},
    ]
    assert problem.files == {"tools.py": "1", "reference.py": "2"}
    submission = definitions.read_submission(tmp_path / "task" / "mine.py", problem)
    assert (submission.files, submission.entry) == (
        {"tools.py": "1", "submission.py": "3"},
        ("submission.py", "custom_kernel"),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"../tools.py"', '"../../secret.py"', "lies outside the folder of its problems"),
        ('"source": "reference.py"', '"source": "missing.py"', "missing.py cannot be read"),
        ("tests:", "texts:", "names no tests, or no reference.py"),
        ('"name": "reference.py"', '"name": "other.py"', "names no tests, or no reference.py"),
    ],
)
def test_what_is_no_task_is_one_line(tmp_path, old, new, message):
    write(
        tmp_path,
        tools__dot__py="1",
        task__slash__reference__dot__py="2",
        task__slash__task__dot__yml=TASK.replace(old, new),
    )
    with pytest.raises(InputError, match=message):
        definitions.read_task(tmp_path / "task")


def test_missing_files_are_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        definitions.read_model(tmp_path / "none.py")
    with pytest.raises(InputError, match="cannot be read"):
        definitions.read_file(tmp_path / "none.py", "kernelbench")


def test_operators_are_named_by_their_folders(tmp_path):
    write(tmp_path, add__Tensor__slash__add__Tensor_implementation_v1__dot__py="1", notes__slash__a__dot__py="2")
    (folder,) = definitions.operator_folders(tmp_path)
    assert definitions.operator_folders(folder) == [folder]
    problem, submission = definitions.read_operator(folder)
    assert (problem.name, problem.facts, submission.entry[1]) == (
        "add.Tensor",
        {"operator": "add.Tensor"},
        "add__Tensor_kernel_impl",
    )
    assert definitions.operator_folders(tmp_path / "notes") == []
