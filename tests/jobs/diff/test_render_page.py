"""The page of a difference."""

from __future__ import annotations

from noyau.jobs.cli import main
from noyau.jobs.diff.render import page
from noyau.jobs.diff.run import diff
from tests.small_models import NODE, chain, model_of, twice, value, written


def test_nodes_of_one_model_alone_are_marked_in_both_graphs(tmp_path):
    ends = [value("x", ("rows", 6))], [value("y", ("rows", 6))]
    one = model_of([*chain("x", "a", "a"), NODE("Exp", ["a"], ["y"])], *ends)
    other = model_of([*chain("x", "a", "a"), NODE("Relu", ["a"], ["r"]), NODE("Exp", ["r"], ["y"])], *ends)
    document = page(diff(written(one, tmp_path, "one.onnx"), written(other, tmp_path, "other.onnx")))
    assert document.sections[0]["headline"] == "1 node added" and document.sections[0]["state"] == "doubt"
    before, after = document.sections[1]["drawings"]
    assert [each["lines"][0] for each in after["nodes"] if each.get("tone") == "added"] == ["Relu"]
    twins = [{each["twin"] for each in drawing["nodes"] if each.get("twin")} for drawing in (before, after)]
    assert twins[0] == twins[1] and len(twins[0]) == 4


def test_the_command_prints_writes_and_says_by_its_status_whether_they_differ(tmp_path, capsys):
    model, page_place = str(written(twice(), tmp_path)), tmp_path / "new" / "page.html"
    assert main(["diff", model, model, "--html", str(page_place), "--json", str(tmp_path / "r.json")]) == 0
    assert "the same model" in capsys.readouterr().out
    assert page_place.exists() and '"same": true' in (tmp_path / "r.json").read_text()
