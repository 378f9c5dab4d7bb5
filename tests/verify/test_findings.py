from __future__ import annotations

import pickle

import pytest

from noyau.errors import CheckError, FindingKind, InputError, RaisedError, UnansweredError
from noyau.kernels.user_kernel import LANGUAGES
from noyau.verify.failures import Failure
from noyau.verify.findings import Finding, excerpt
from noyau.verify.trial import kind_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CheckError("k wrote outside out", FindingKind.OUT_OF_BOUNDS), "out-of-bounds"),
        (CheckError("k gave f64[3] as out, not f32[3]"), "wrong-value"),
        (RaisedError("k raised ValueError: no"), "crash"),
        (UnansweredError("k did not answer within 3 s and was ended"), "crash"),
        (InputError("an index is outside its axis"), "wrong-value"),
    ],
)
def test_an_error_says_its_kind(error, kind):
    assert kind_of(error) == kind
    again = pickle.loads(pickle.dumps(error))
    assert (kind_of(again), str(again)) == (kind, str(error))
    other = error.reword("it")
    assert (type(other), kind_of(other), str(other)) == (type(error), kind, "it")


@pytest.mark.parametrize(
    ("got", "want", "kind"),
    [(1.00001, 1.0, "precision"), (1.1, 1.0, "wrong-value"), (float("nan"), 1.0, "wrong-value")],
)
def test_a_value_that_is_nearly_right_lost_precision(got, want, kind):
    assert Failure.of_cell("case", "x: f32[3]", "", "out", (0,), got, want, 1e-6).kind == kind


def finding(place: str = "/folder/kernel.py:12", **said) -> Finding:
    return Finding(
        "op", "k", "python", FindingKind.UNWRITTEN, place, "x: f32[3]", "wrong: it never wrote", (1, 2), **said
    )


def test_every_kind_has_a_remedy():
    kinds = "race out-of-bounds negative-index uninitialised unwritten written-twice ordered-by-chance"
    kinds += " divergent-barrier wrong-value mutated-input order-dependent gradient launch precision crash"
    assert list(FindingKind) == kinds.split()
    assert all(kind.remedy for kind in FindingKind)
    assert all(kind.remedies.keys() <= set(LANGUAGES) for kind in FindingKind)


def test_a_kind_is_made_of_its_text_and_of_no_other():
    assert FindingKind("race") is FindingKind.RACE
    with pytest.raises(ValueError, match="typo"):
        FindingKind("typo")


def test_a_finding_names_file_and_line():
    told = finding().to_json()
    assert (told["file"], told["line"]) == ("/folder/kernel.py", 12)
    assert (finding("/folder/kernel.c").to_json()["file"], finding("/folder/kernel.c").to_json()["line"]) == (
        "/folder/kernel.c",
        None,
    )
    assert told["id"] == finding().id == "op[k]:unwritten"
    assert told["cell"] == [1, 2]
    assert told["remedy"].startswith("let the loop reach the last cells")
    keys = "id op kernel language kind severity file line other_line owners cell size message remedy change"
    assert list(told) == keys.split()


def test_a_line_is_shown_where_a_file_has_it():
    place = f"{__file__}:1"
    shown = excerpt(Finding("op", "k", "c", FindingKind.RACE, place, "", "two write"))
    assert shown[:2] == [f"  --> {place}", " 1 | from __future__ import annotations"]
    told = excerpt(Finding("op", "k", "c", FindingKind.RACE, "a text:1", "", "two write"))
    assert told[0] == "  --> a text:1"
    assert "= mend: " in told[1]


@pytest.mark.parametrize("file", ["/tmp/ipykernel_71/4205.py", "<ipython-input-3-0a1b>"])
def test_a_cell_of_a_notebook_has_no_path(file):
    assert excerpt(Finding("op", "k", "c", FindingKind.RACE, f"{file}:2", "", "two write"))[0] == "  --> a cell:2"


@pytest.mark.parametrize("kind", [FindingKind.WRONG_VALUE, FindingKind.GRADIENT])
def test_a_remedy_speaks_of_a_cell_only_where_one_is_named(kind):
    facts = "f", "f_", "c", kind, "f.c:3", "", "gave 0 outputs, not 1"
    assert Finding(*facts).remedy == "mend what the message names"
    assert "cell" in Finding(*facts, cell=()).remedy and Finding(*facts, mend="return it").remedy == "return it"
