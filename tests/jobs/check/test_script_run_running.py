from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import noyau
from noyau.errors import CheckError, InputError
from noyau.jobs.check.script_run import check_script

SCRIPT = """
    import sys
    import numpy as np
    from numba import cuda, njit, prange

    @njit(parallel=True)
    def racy(x, c):
        for i in prange(x.shape[0]):
            c[0] += x[i]  # race

    @njit(parallel=True)
    def total(x):
        s = 0.0
        for i in prange(x.shape[0]):
            s += x[i]
        return s

    @cuda.jit("void(float32[:], float32[:])")
    def add(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] + 1

    @cuda.jit
    def counter(c):
        c[0] += 1  # counter

    x = np.arange(100.0)
    racy(x, np.zeros(1))
    print("total", total(x), sys.argv[1:])
    stream = cuda.stream()
    with cuda.pinned(x):
        d = cuda.to_device(np.arange(100, dtype=np.float32), stream=stream)
    out = cuda.device_array(100, np.float32)
    start, stop = cuda.event(), cuda.event()
    start.record(stream)
    add[3, 32, stream](d, out)
    stop.record(stream)
    stop.synchronize()
    cuda.synchronize()
    print("first", out.copy_to_host()[1])
    count = np.zeros(1, np.int32)
    counter[2, 32](count)
    print("count", count[0])
"""


def written(folder, text, name="script.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def line_with(path, mark):
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"# {mark}" in line)


def test_a_script_as_it_is(tmp_path, capfd):
    path = written(tmp_path, SCRIPT)
    found = check_script(path, ["--n", "5"])
    printed = capfd.readouterr().out
    assert "total 4950.0 ['--n', '5']" in printed
    assert "first 2.0" in printed
    assert "count 64" in printed
    seen = {(each.kernel, each.kind, each.place) for each in found.findings}
    assert ("racy", "race", f"{path}:{line_with(path, 'race')}") in seen
    assert ("counter", "race", f"{path}:{line_with(path, 'counter')}") in seen
    assert {(kernel, kind) for kernel, kind, _ in seen} == {("racy", "race"), ("counter", "race"), ("add", "unwritten")}
    kernels = {each.name: each for each in found.kernels}
    assert kernels["total"].notes[0].endswith("reduction: iterations only update s (sum)")
    assert kernels["add"].shapes == ("x: float32[100], out: float32[100]",)
    assert not found.ok
    with pytest.raises(CheckError, match=r"^racy of script\.py: race: iteration 1 writes c\[0\]"):
        found.raise_if_bad()


def test_another_launch_and_an_exception(tmp_path):
    text = """
        import numpy as np
        from numba import cuda

        @cuda.jit
        def fill(out):
            i = cuda.grid(1)
            if i < out.size:
                out[i] = 1

        out = cuda.device_array(64, np.float32)
        fill[1, 32](out)
        print(out.copy_to_host().sum())
        raise ValueError("no more")
    """
    path = written(tmp_path, text)
    found = check_script(path, launch=(2, 32))
    assert found.findings == ()
    assert found.fault == "it ended with ValueError: no more (line 14)"
    assert not found.ok
    with pytest.raises(CheckError, match="no more"):
        found.raise_if_bad()


def test_a_script_that_changes_what_watches_it_is_not_verified(tmp_path):
    """It hides its own race, so that nothing else would speak against it."""
    text = """
        import numba, numpy as np
        from noyau.sanitizer.scripts.record import ScriptSession
        ScriptSession.add = lambda *each: None
        np.asarray = np.array

        @numba.njit(parallel=True)
        def total(x, out):
            for i in numba.prange(len(x)):
                out[0] += x[i]

        total(np.ones(9), np.zeros(1))
    """
    found = check_script(written(tmp_path, text))
    assert found.unseen == "it put functions of its own in place of numpy.asarray, ScriptSession.add"
    assert found.ok and not found.is_verified


def test_a_script_that_crashes_or_never_ends(tmp_path):
    crash = written(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert check_script(crash).fault == "it crashed (signal 11)"
    endless = check_script(written(tmp_path, "import time\ntime.sleep(60)\n"), time_s=5)
    limit = "it did not end within 5 s (line 2), which is its limit; give it longer with --time"
    assert (endless.fault, endless.unseen, endless.ok, endless.is_verified) == ("", limit, True, False)
    assert endless.verdicts(everything=False) == [f"{endless.script}: not verified: {limit}"]
    assert check_script(written(tmp_path, "raise SystemExit(3)\n")).fault == "it ended with status 3"
    assert (
        check_script(written(tmp_path, "import sys\nsys.exit('no data')\n")).fault == "it ended with sys.exit: no data"
    )


def test_what_was_seen_before_a_crash_is_told(tmp_path):
    text = """
        import os, signal
        import numpy as np
        from numba import cuda

        @cuda.jit
        def count(c):
            c[0] += 1

        count[2, 32](np.zeros(1))
        os.kill(os.getpid(), signal.SIGSEGV)
    """
    found = check_script(written(tmp_path, text))
    assert found.fault == "it crashed (signal 11)"
    assert [(each.kernel, each.kind) for each in found.findings] == [("count", "race")]


def test_a_notebook_cell_by_cell(tmp_path, capfd):
    cells = [
        "%load_ext noyau\nimport numpy as np\nfrom numba import cuda",
        "@cuda.jit\ndef count(c):\n    c[0] += 1",
        "c = np.zeros(1, np.int32)\ncount[2, 32](c)\n%timeit count[1, 1](c)\nint(c[0])",
        "%%bash\nfalse",
    ]
    book = {"cells": [{"cell_type": "code", "source": [each]} for each in cells], "nbformat": 4}
    path = written(tmp_path, json.dumps(book), "book.ipynb")
    found = check_script(path)
    assert capfd.readouterr().out.splitlines()[-1] == "65"
    (race,) = found.findings
    assert (race.kind, race.place) == ("race", "book.ipynb[cell 2]:3")
    assert " 3 |     c[0] += 1" in str(found)
    assert found.notes == ("3 lines of IPython's own (%..., !...) were not run",)


def test_what_is_no_script(tmp_path):
    with pytest.raises(
        InputError, match=r"^there is no file 'nothing\.py'; give SCRIPT\.py, BOOK\.ipynb or FILE\.py::OP$"
    ):
        check_script(type(tmp_path)("nothing.py"))
    path = written(tmp_path, "{}", "book.ipynb")
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))} is no notebook of Jupyter \(KeyError"):
        check_script(path)


GOES_AWAY = """
    import os
    import numpy as np
    from numba import cuda
    os.chdir("/")
    @cuda.jit
    def counter(c):
        c[0] += 1
    counter[1, 32](np.zeros(1))
    counter[1, 2048](np.zeros(1))
"""


def test_a_script_that_goes_to_another_folder_is_read_still(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(noyau.__file__).parent.parent))
    path = Path("goes.py")
    path.write_text(textwrap.dedent(GOES_AWAY))
    found = check_script(path)
    (race,) = found.findings
    assert (race.kind, race.place) == ("race", "goes.py:8")
    assert found.fault.startswith("it ended with DeviceError: the block of a launch is")
    assert found.fault.endswith("(line 10)")
    files = re.findall(r'File "(.*)", line', capfd.readouterr().err)
    assert files == ["goes.py"]  # no frame of noyau's own


def test_a_fault_in_a_notebook_names_its_cell(tmp_path):
    cells = [{"cell_type": "code", "source": text} for text in ("x = 1", "y = 2\nx / 0")]
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert check_script(path).fault == "it ended with ZeroDivisionError: division by zero (cell 2, line 2)"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_interrupted_script_tells_what_it_saw(is_terminal, tmp_path):
    """A terminal's Ctrl-C reaches both processes, and the one that waits sends the other a signal too."""
    text = """
        import numpy as np
        from numba import cuda
        @cuda.jit
        def count(c):
            c[0] += 1
        count[2, 32](cuda.to_device(np.zeros(1, np.int32)))
        print("waits", flush=True)
        try:
            while True:
                pass
        finally:
            import time
            time.sleep(0.5)
    """
    restored = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    called = f"from noyau.jobs.cli import main; raise SystemExit(main(['check', {str(written(tmp_path, text))!r}]))"
    command, ends = [sys.executable, "-c", f"{restored}; {called}"], subprocess.PIPE
    with subprocess.Popen(command, stdout=ends, stderr=ends, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.killpg(process.pid, signal.SIGINT) if is_terminal else process.terminate()
        told, errors = process.communicate()
    assert "race: " in told and errors == ""
    assert "script.py: it was interrupted" in told


EXTENSION = '''
import torch
from torch.utils.cpp_extension import load_inline
TEXT = """
__global__ void halves(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i / 2] = x[i];
}
void halve(torch::Tensor x, torch::Tensor out) {
    halves<<<4, 16>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
}
"""
module = load_inline("own", "void halve(torch::Tensor x, torch::Tensor out);", TEXT, functions=["halve"])
out = torch.zeros(32, device="cuda")
module.halve(torch.arange(64.0, device="cuda"), out)
print("sum", float(out.sum()) > 0)
'''


@pytest.mark.long
def test_an_extension_that_a_script_builds(tmp_path, capfd):
    path = written(tmp_path, EXTENSION)
    record = check_script(path)
    assert "sum True" in capfd.readouterr().out
    (finding,) = record.findings
    assert (finding.kernel, finding.kind) == ("halve", "race")
    assert finding.place.endswith("script.py:7")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["script.py"]


def test_kernels_of_a_package_that_no_word_of_the_script_names(tmp_path):
    path = tmp_path / "hidden.py"
    lines = (
        "import importlib, numpy as np",
        "cu = importlib.import_module('numba.' + 'cu' + 'da')",
        "@cu.jit",
        "def counter(c):",
        "    c[0] += 1",
        "counter[1, 2](np.zeros(1, np.int32))",
    )
    path.write_text("\n".join(lines), encoding="utf-8")
    (seen,) = check_script(path).kernels
    assert [each.kind for each in seen.findings] == ["race"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends a process with its parent")
def test_a_script_ends_with_the_check_that_is_killed(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("import time\nprint('here', flush=True)\ntime.sleep(20)\nprint('late')\n", encoding="utf-8")
    command = [sys.executable, "-m", "noyau", "check", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as check:
        assert check.stdout is not None
        assert check.stdout.readline() == "here\n"
        check.kill()
        assert check.stdout.read() == ""  # nobody holds it any more


def test_a_difference_that_is_only_printed_is_a_warning(tmp_path, capfd):
    path = tmp_path / "shown.py"
    text = SCRIPT.partition("    @cuda.jit(")[0]
    calls = """
    x = np.arange(4.0)
    print(np.allclose(x, 2 * x))
    if total(x) < 100:
        print(np.allclose(x, 2 * x))
    """
    path.write_text(textwrap.dedent(text + calls))
    check = check_script(path)
    assert capfd.readouterr().out == "False\nFalse\n"
    (warning,) = check.advice  # of what comes behind a kernel
    assert (warning.kind, warning.severity, check.ok) == ("wrong-value", "warning", True)
    assert path.read_text().splitlines()[int(warning.place.rpartition(":")[2]) - 1].startswith("    print(")
