"""Cases in forks of one process end as those with a process of their own do, and touch none after them."""

from __future__ import annotations

from tools.suites.driver import Case, check_case

RACY = """
import numba, numpy as np

@numba.njit(parallel=True)
def total(x):
    cell = np.zeros(1)
    for i in numba.prange(x.size):
        for j in range(2):
            cell[0] += x[i]
    return cell

total(np.ones(8))
"""
LOADS = ("noyau.sanitizer.scripts.numba_hooks",)


def test_verdicts_are_those_of_a_process_of_its_own(tmp_path):
    texts = {
        "racy": RACY,
        "changed": "import numpy\nnumpy.zeros = None\nimport os\nos.environ['NOYAU_CASE'] = 'here'\nos._exit(7)\n",
        "crash": "import os\nos.kill(os.getpid(), 11)\n",
        "endless": "while True: pass\n",
    }
    outcomes = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        case = Case(name, (f"{name}.py",), tmp_path, None, loads=LOADS)
        outcomes[name] = check_case(case, 0.5 if "while" in text else 60.0)
    verdicts = {name: (each.verdict, each.status) for name, each in outcomes.items()}
    assert verdicts == {
        "racy": ("defective", 1),
        "changed": ("undecided", 1),
        "crash": ("undecided", 1),
        "endless": ("undecided", None),
    }
    assert outcomes["changed"].unseen == ("it ended with status 7",)
    assert outcomes["crash"].unseen == ("it crashed (signal 11)",)
    assert outcomes["racy"].findings[0].startswith("race, line 9: ")
    assert outcomes["endless"].reason == "no end within 0.5 s"
