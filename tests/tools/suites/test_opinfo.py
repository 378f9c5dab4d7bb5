"""A sample of PyTorch's operator suite, whose descriptions take seconds to import: one test has them all."""

from __future__ import annotations

import pytest
import torch

from noyau.toolchain.c import compiler

SAMPLE = (  # operator, dtype, sample, of how many, with dynamic sizes, with gradients, kernels that are kept, an error
    ("gather", "float32", 4, 7, False, False),  # by no indices at all
    ("nn.functional.layer_norm", "float32", 0, 1, False, True),  # of whose gradients two are one value
    ("narrow", "float32", 1, 6, False, False),  # to a length that is data, at which dynamo breaks the graph
    ("index_add", "float32", 0, 0, False, False, "all", True),  # of updates that do not fit
)
MORE = (
    ("max.reduction_with_dim", "float32", 3, 4, False, False),  # of rank 0
    ("index_add", "float32", 0, 1, False, False),  # of rank 0
    ("squeeze.multiple", "float32", 0, 1, False, False),  # without axes
    ("floor_divide", "int64", 0, 1, False, False),
    ("max.reduction_with_dim", "float32", 3, 4, False, True),
    ("aminmax", "float32", 6, 7, False, True),
    ("var", "float64", 1, 3, True, False),
    ("cummax", "float32", 1, 3, False, True),
    ("kthvalue", "float32", 6, 10, False, True),
    ("gather", "float32", 4, 7, False, True),
    ("scatter_add", "float32", 4, 7, False, True),
    ("index_add", "float32", 0, 1, False, True),
    ("index_select", "float32", 0, 1, False, False),
    ("index_copy", "float32", 2, 3, False, False),
    ("argmin", "int64", 1, 3, False, False),
    ("as_strided", "float32", 2, 5, False, True),
    ("unfold", "float32", 1, 3, False, True),
    ("gradient", "float32", 0, 1, True, False),
    ("nn.functional.max_unpool2d.grad", "float32", 2, 4, False, False),
    ("native_layer_norm", "bfloat16", 0, 1, False, True),
    ("softmax", "bfloat16", 1, 4, False, True),
    ("tensor_split", "float32", 1, 6, False, False),
)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [SAMPLE, pytest.param(MORE, marks=pytest.mark.long)], ids=["some", "more"])
def test_a_sample_of_the_operators_is_right(sample):
    from tools.suites.opinfo_cases import Case, judge

    cases = [Case(*(*each, "all")[:7], *each[7:]) for each in sample]
    verdicts = {case: judge(case) for case in cases}
    assert {case: each for case, each in verdicts.items() if each[0] != "right"} == {}


@pytest.mark.slow
def test_what_the_suite_tells(monkeypatch, capfd, tmp_path):
    from tools.suites import opinfo, opinfo_cases
    from tools.suites.opinfo_cases import Case, judge
    from tools.suites.torch_cases import difference

    one, other = torch.ones(3), torch.ones(3) + 1e-4
    assert difference([one], [other], lambda: [one.double()]).startswith("result 0 is off by 0.0001")
    assert difference([one], [other], lambda: [other.double()]) == ""
    ours, torchs = torch.tensor([257.0, 0.1]).bfloat16(), torch.tensor([257.0, 0.11]).bfloat16()
    assert difference([torchs], [ours], lambda: [torch.tensor([256.0, 0.1]).double()]) == ""  # one cell is like torch's
    assert opinfo_cases.layouts([torch.ones(2, 1, 3)]) != opinfo_cases.layouts([torch.ones(3, 1, 2).mT])

    monkeypatch.setattr("noyau.jobs.optimize.torch.candidates.Certifiers", None)  # what --quick does is undone
    monkeypatch.setattr("noyau.toolchain.c.compiler._FLAGS", compiler._FLAGS)
    assert opinfo.main(["--only", "sin", "--keep", "all", "--quick"]) == 0

    def fail(*_, **__):
        raise KeyError("odd")

    monkeypatch.setattr("noyau.jobs.optimize.torch.backend.optimize_graph", fail)
    assert judge(Case("abs", "float32", 0))[0] == "exception"
    asked = ["--only", "abs,jiterator_unary", "--time", "30", "--log", str(tmp_path / "log")]
    assert [opinfo.main(asked), opinfo.main(asked)] == [1, 1]  # of which the second runs nothing again
    lines = capfd.readouterr().out.splitlines()
    assert sum("0 right, 0 wrong, 1 exception, 0 hang, 0 torch's, 1 refused" in line for line in lines) == 2
    assert sum(line.startswith("abs float32 0: exception") for line in lines) == 1
