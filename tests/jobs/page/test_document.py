"""The document of a page."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from noyau.errors import OutputError
from noyau.jobs.page import document
from noyau.jobs.page.document import LEFT_OUT, Page, SizedTime, summary, sweeps, table
from tests.jobs.page.samples import page


def test_a_document_is_plain_data_that_names_its_format():
    record = json.loads(json.dumps(page().to_json(), allow_nan=False))
    assert (record["format"], record["command"], list(record["sources"])) == (1, "optimize", ["kernel0"])
    kinds = [section["kind"] for section in record["sections"]]
    assert kinds == ["summary", "graphs", "table", "sweeps", "findings", "pictures", "lines"]


def test_a_table_has_a_column_for_each_cell_of_its_rows():
    rows = [{"a": 1, "b": math.nan, "c": None, "d": 0}, {"a": "", "b": "", "c": "", "d": ()}]
    assert (table("T", rows)["columns"], table("T", rows)["rows"][1]) == (["a", "b", "d"], ["", "", ()])
    assert table("T", []) == {"kind": "table", "title": "T", "columns": [], "rows": [], "note": ""}
    assert Page("p", "show", [table("T", [{"b": math.nan}])]).to_json()["sections"][0]["rows"] == [[None]]


def test_texts_beyond_two_megabytes_are_left_out_and_said():
    large = {name: {"text": name * 600_000} for name in ("x", "y", "z")}
    texts = [each["text"] for each in Page("p", "show", [summary("s", "plain")], large).to_json()["sources"].values()]
    assert texts[0] == "x" * 600_000 and texts[1:] == [LEFT_OUT, LEFT_OUT]
    assert len(Page("p", "show", [], large).html()) < 2_000_000


def test_sources_of_one_text_have_it_once():
    record = Page("p", "show", [], {"a": {"text": "same"}, "b": {"text": "same"}}).to_json()["sources"]
    assert [(each["text"], each["same"]) for each in record.values()] == [("same", "a"), ("", "a")]


def test_the_ceilings_are_those_that_were_measured(monkeypatch):
    copy = {1: {500: 8.0, 2000: 4.0, 8000: 1.0}}
    rates = {"exp_f32": 2.0, "abs_f32": 3.0, "exp_f64": 50.0}
    known = SimpleNamespace(caches={"L1": 1000, "L2": 4000}, copy=copy, read={1: {500: 9.0}}, rates=rates)
    monkeypatch.setattr(document, "recall_rates", lambda: known)
    machine = sweeps("S", "n", {"a": [SizedTime(1, 2.0)]})["machine"]
    assert machine["levels"] == {"L1": 8.0, "L2": 4.0, "DRAM": 1.0} and machine["arithmetic"][0] == "exp"
    monkeypatch.setattr(document, "recall_rates", lambda: None)
    assert sweeps("S", "n", {})["machine"] is None


def test_the_folder_of_a_page_is_made(tmp_path):
    page().save(tmp_path / "new" / "folder" / "page.html")
    assert (tmp_path / "new" / "folder" / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_page_that_has_no_place_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is no folder and cannot be made one") as caught:
        page().save(tmp_path / "file" / "page.html")
    assert "\n" not in str(caught.value)
    with pytest.raises(OutputError, match="cannot be written"):
        page().save(tmp_path)
