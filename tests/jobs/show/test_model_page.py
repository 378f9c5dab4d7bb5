"""The page of a view."""

from __future__ import annotations

import noyau
from noyau.jobs.cli import main
from noyau.jobs.show.stages import TRY
from tests.small_models import twice, written


def test_a_model_has_its_graph_its_kernels_and_the_reasons(tmp_path):
    shown = noyau.show(written(twice(), tmp_path))
    document = shown._page()
    assert [each["title"] for each in document.sections] == [
        "Summary",
        "The graph",
        "Kernels",
        "Why the rest is as it is",
    ]
    assert document.sections[0]["headline"] == shown.count
    assert list(document.sources) == [each.operator for each in shown.plan.kernels]
    assert all(each["evidence"] == TRY for each in document.sources.values())


def test_an_op_has_its_steps_and_its_text(tmp_path, capsys):
    (tmp_path / "ops.py").write_text(
        "import noyau\nimport numpy as np\n@noyau.op('f32[n] -> f32[n]')\ndef twice(x):\n    return np.exp(x) * 2\n"
    )
    assert main(["show", f"{tmp_path}/ops.py::twice", "--html", f"{tmp_path}/new/op.html"]) == 0
    assert "twice" in capsys.readouterr().out
    text = (tmp_path / "new" / "op.html").read_text(encoding="utf-8")
    assert '"command":"show"' in text and "noyau_exp" in text
