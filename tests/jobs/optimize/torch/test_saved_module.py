from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
import torch

import noyau
from noyau.errors import BuildError, InputError, ModelError, OutputError, UnsupportedError
from noyau.jobs.optimize.torch import saved_module
from noyau.toolchain.c import compiler as c_compiler
from tests.jobs.optimize.torch.modules import Block, same


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    torch._dynamo.reset()
    block = Block()
    path = tmp_path_factory.mktemp("saved") / "block.noyau"
    optimized = noyau.optimize(block, torch.randn(2, 5, 32), dynamic=True, keep="all", budget_s=0.05)
    optimized.save(path)
    with pytest.raises(OutputError, match="cannot be written"):
        optimized.save(path.parent / "missing" / "x.noyau")
    return block, path


def changed(path, target, change):
    """The file with its manifest changed, or with an entry of it."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(entries["noyau.json"])
    change(manifest, entries)
    entries["noyau.json"] = json.dumps(manifest).encode() if isinstance(manifest, dict) else manifest
    with zipfile.ZipFile(target, "w") as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return target


def test_it_comes_back_with_its_kernels_and_nothing_is_built(saved, monkeypatch):
    block, path = saved
    monkeypatch.setattr(c_compiler, "compile_library", None)
    loaded = noyau.load(path)
    for shape in ((2, 5, 32), (3, 8, 32)):
        x = torch.randn(shape)
        with torch.no_grad():
            assert same(loaded(x), block(x))


def test_a_new_process_needs_nothing_but_the_file(saved):
    block, path = saved
    program = (
        "import sys, torch, noyau\n"
        "x = torch.linspace(-1, 1, 2 * 3 * 32).reshape(2, 3, 32)\n"
        "print(float(noyau.load(sys.argv[1])(x)[0].sum()))\n"
        "print('torch._dynamo.convert_frame' in sys.modules)"
    )
    made = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    x = torch.linspace(-1, 1, 2 * 3 * 32).reshape(2, 3, 32)
    with torch.no_grad():
        assert float(made.stdout.split()[0]) == pytest.approx(float(block(x)[0].sum()), rel=1e-4)
    assert made.stdout.split()[1] == "False"  # nothing is compiled, and dynamo takes two seconds to import


def test_another_machine_builds_from_the_text(saved, tmp_path):
    block, path = saved
    other = changed(path, tmp_path / "x", lambda manifest, _: manifest.update(level="x86-64-v9"))
    with pytest.warns(RuntimeWarning, match="written for x86-64-v9; its kernels were built anew"):
        loaded = noyau.load(other)
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        assert same(loaded(x), block(x))


def test_without_a_compiler_it_runs_on_torchs_kernels(saved, tmp_path, monkeypatch):
    block, path = saved

    def refuse(text):
        raise BuildError("no C compiler")

    monkeypatch.setattr(saved_module, "library_of", refuse)
    other = changed(path, tmp_path / "x", lambda manifest, _: manifest.update(level="x86-64-v9"))
    with pytest.warns(RuntimeWarning, match="runs on torch's kernels alone: no C compiler"):
        loaded = noyau.load(other)
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        assert same(loaded(x), block(x))


def test_arguments_of_another_form(saved):
    loaded = noyau.load(saved[1])
    with pytest.raises(InputError, match="argument 0 has the shape"):
        loaded(torch.randn(2, 5, 31))
    with pytest.raises(InputError, match="saved for arguments of the form"):
        loaded(torch.randn(2, 5, 32), 3)
    with pytest.raises(InputError, match=r"argument 0 is float16, and .* for float32; give it .to\(torch.float32\)"):
        loaded(torch.randn(2, 5, 32).half())
    with pytest.raises(InputError, match=r"argument 0 is on meta, and the module was saved for one on cpu; give"):
        loaded(torch.randn(2, 5, 32, device="meta"))


def _operator(manifest, _):
    next(node for node in manifest["fused"] if node["op"] == "call_function")["target"] = "os.system.default"


def _library(_, entries):
    entries["kernels/0.so"] += b"x"


def _kernel(manifest, _):
    manifest["kernels"]["0"].update(inputs=[["no", 1]])


def _short(_, entries):
    entries["tensors/0"] = entries["tensors/0"][:-4]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_operator, "calls os.system.default, which is no operator"),
        (_library, "damaged: the library of the kernel 0 was changed"),
        (_short, "damaged: .*not as many bytes as its shape says"),
        (lambda manifest, _: manifest.update(format=99), "written in another format, by noyau"),
        (lambda manifest, _: manifest.update(fused="x"), "a list of nodes"),
        (lambda manifest, _: manifest.update(fused=[{"op": "x"}]), "cannot be read"),
        (_kernel, "a kernel of the file cannot be read"),
        (lambda manifest, _: manifest.pop("layout"), "damaged"),
        (lambda manifest, _: manifest["layout"].update(forms=[["float32", "cpu"]] * 9), "damaged: .*9 dtypes"),
        (lambda _, entries: entries.pop("tensors/1"), "damaged"),
        (lambda manifest, _: manifest.update(kernels=dict.fromkeys(map(str, range(10_001)))), "10001 kernels are more"),
    ],
)
def test_hostile_files_are_refused(saved, tmp_path, change, told):
    with pytest.raises(ModelError, match=told):
        noyau.load(changed(saved[1], tmp_path / "x", change))


def test_what_is_no_file_of_noyaus(tmp_path):
    (tmp_path / "x").write_bytes(b"PK nonsense")
    for name in ("x", "missing"):
        with pytest.raises(ModelError, match="is no module that noyau saved"):
            noyau.load(tmp_path / name)


def test_what_torch_cannot_export(tmp_path):
    class Asking(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x - 1

    optimized = noyau.optimize(Asking(), torch.ones(3))
    assert torch.equal(optimized(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(UnsupportedError, match="torch cannot export Asking, so it cannot be saved"):
        optimized.save(tmp_path / "x.noyau")


def test_buffers_that_a_module_changes_are_changed(tmp_path):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x.exp() * 2 + 1)
            return self.total * 2

    optimized = noyau.optimize(Counting(), torch.zeros(3), keep="all", budget_s=0.1)
    optimized.module.total.zero_()
    optimized.save(tmp_path / "x.noyau")
    loaded = noyau.load(tmp_path / "x.noyau")
    assert torch.equal(loaded(torch.zeros(3)), torch.full((3,), 6.0))
    assert torch.equal(loaded(torch.zeros(3)), torch.full((3,), 12.0))
