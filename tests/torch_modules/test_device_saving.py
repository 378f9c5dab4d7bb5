"""Modules with kernels in Triton as files, in Triton's interpreter."""

from __future__ import annotations

import warnings
import zipfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from noyau.builders.triton import interprets  # noqa: E402
from noyau.errors import ModelError  # noqa: E402
from noyau.torch_modules import device_compiling, places, saving  # noqa: E402
from noyau.torch_modules.compiling import Compiled, swaps_of  # noqa: E402
from noyau.torch_modules.device_saving import noted_later, reopened  # noqa: E402
from noyau.torch_modules.exporting import export  # noqa: E402
from noyau.torch_modules.optimizing import _piece  # noqa: E402
from noyau.torch_modules.rewriting import rewritten  # noqa: E402
from noyau.torch_modules.wishes import Wishes  # noqa: E402

pytestmark = pytest.mark.skipif(not interprets(), reason="Triton does not interpret")


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x):
        return torch.softmax(x.transpose(0, 1).tanh() * self.weight, -1)


def test_a_module_comes_back_with_its_kernels(tmp_path, monkeypatch):
    module, x = Scaled(), torch.randn(5, 3, 8).transpose(0, 1)
    exported = export(module, (x,), False)
    found = places.traced(exported.program)
    made = Compiled("inference", found, *device_compiling.judged_on(places.CPU, found, Wishes(keep="all")))
    swaps = swaps_of(made, registered=False)
    assert swaps
    pairs = [(one, group) for one in made.kept for group in one.planned.groups]
    pieces = {swap.target: _piece(swap, *pair) for swap, pair in zip(swaps, pairs, strict=True)}
    path = tmp_path / "m.noyau"
    saving.save(path, exported, rewritten(exported.program, swaps), pieces)
    assert [name for name in zipfile.ZipFile(path).namelist() if name.startswith("kernels/")] == ["kernels/0.py"]
    with torch.no_grad():
        want = module(x)
        assert torch.allclose(saving.load(path)(x), want, atol=1e-6)
        monkeypatch.setattr("noyau.builders.triton.interprets", lambda: False)
        with pytest.warns(RuntimeWarning, match="runs on torch's kernels alone: kernels in Triton run on a GPU"):
            plain = saving.load(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(plain(x), want)


def test_a_graph_of_a_file_is_flat_from_its_second_call_on():
    run = noted_later(torch.fx.symbolic_trace(lambda x, w: (torch.relu(x @ w), x)).graph)
    for _ in range(3):
        x, w = torch.randn(2, 3), torch.randn(3, 3)
        given = [x, w]
        made, same = run(given)
        assert torch.equal(made, torch.relu(x @ w)) and same is x and not given


def test_what_cannot_be_read_is_said():
    for told, fault in (({}, "'name'"), ({"name": "a b", "launches": 1, "axes": []}, "a b is no name")):
        with pytest.raises(ModelError, match=f"a kernel of the file cannot be read: .*{fault}"):
            reopened(told, "")
    for text in ("x = 1", "1 / 0", "("):
        with pytest.raises(ModelError, match="f has a text that Triton does not read"):
            reopened({"name": "f", "launches": 1, "axes": []}, text)
    with pytest.raises(ModelError, match="it has 100000 launches"):
        reopened({"name": "f", "launches": 100_000, "axes": []}, "")
