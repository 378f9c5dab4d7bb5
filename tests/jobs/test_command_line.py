from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import noyau
from noyau.errors import InputError, OutputError
from noyau.jobs.command_line import declare_inputs, declare_record, require_place, share_of, size_of_each, sizes_of
from noyau.text import path_of


def test_sizes_as_they_are_typed():
    assert sizes_of(["sequence=1,128", "a=b=3"]) == {"sequence": [1, 128], "a=b": [3]}
    assert size_of_each(["sequence=128", "a=b=3"]) == {"sequence": 128, "a=b": 3}
    assert sizes_of(["n=1e3:1e6:log", "m=0:100:lin:3", "k=1:64:log:4", "j=1e3,5"]) == {
        "n": [1000, 10_000, 100_000, 1_000_000], "m": [0, 50, 100], "k": [1, 4, 16, 64], "j": [1000, 5],
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        "n=1:5",
        "n=5:1:log",
        "n=0:5:log",
        "n=1:5:cubic",
        "n=1:5:lin:1",
        "n=1:5:lin:",
        "sequence",
        "=3",
        "n=",
        "n=1,,2",
        "n=-1",
        "n=1.5",
        f"n={'9' * 19}",
    ],
)
def test_what_is_no_size(wrong):
    with pytest.raises(InputError, match="is not NAME=N or NAME=N,N"):
        sizes_of([wrong])


def test_a_share_of_the_time():
    assert (share_of("5%", "--x"), share_of("0.5%", "--x")) == (0.05, 0.005)
    with pytest.raises(InputError, match="--x 5 is no share of the time: --x 5%"):
        share_of("5", "--x")


def test_a_size_is_given_once_and_its_option_is_named():
    with pytest.raises(InputError, match="--sizes n is given twice: give it once, as n=N,N for several"):
        sizes_of(["n=1", "n=2"], "--sizes")
    with pytest.raises(InputError, match="--dim n has several numbers, and the path is captured in one run: give one"):
        size_of_each(["n=1,2"])


def test_arguments_are_declared_with_what_they_are_for():
    parser = argparse.ArgumentParser()
    declare_inputs(parser, "run both", "or with several")
    declare_record(parser, "line by line")
    told = " ".join(parser.format_help().split())
    assert "run both with these arrays, or with each dict of arrays that `inputs` of F.py yields" in told
    assert "run both with this size, or with several" in told
    assert "write the full record here, line by line" in told
    read = parser.parse_args(["--dim", "n=1", "--dim", "m=2", "--json", "r.json"])
    assert (read.dim, read.json, read.inputs) == (["n=1", "m=2"], Path("r.json"), None)


def test_a_record_has_a_place_of_its_own(tmp_path):
    model = tmp_path / "model.onnx"
    require_place(tmp_path / "r.json", model)
    require_place(tmp_path / "one" / "two" / "r.json", model)
    assert (tmp_path / "one" / "two").is_dir()
    (tmp_path / "file").write_text("")
    for record, told in [
        (model, "which is the model itself"),
        (tmp_path / "file" / "r.json", "file is no folder and cannot be made one: .*; name another"),
        (tmp_path, "cannot be written: it is a folder"),
    ]:
        with pytest.raises(OutputError, match=told):
            require_place(record, model)


@pytest.mark.parametrize("wrong", [3, None, b"model.onnx", ["model.onnx"]])
def test_what_is_no_path(wrong, tmp_path):
    """One clear error of each public function that takes a path."""
    told = f"the path of a file, and this is of the type {type(wrong).__name__}: give a text or a Path"
    calls = {
        "noyau.optimize takes a torch.nn.Module or": lambda: noyau.optimize(wrong),
        "noyau.load takes": lambda: noyau.load(wrong),
        "noyau.show takes": lambda: noyau.show(wrong),
        "noyau.extract takes": lambda: noyau.extract(wrong, (["A"], ["B"])),
        "noyau.profile takes": lambda: noyau.profile(wrong),
    }
    for called, call in calls.items():
        with pytest.raises(InputError, match=f"^{called} {told}$"):
            call()
    assert path_of(str(tmp_path), "f takes") == path_of(tmp_path, "f takes") == tmp_path
