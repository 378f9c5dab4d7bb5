"""What every test runs under: a cache of kernels of the tests' own, kept between runs beside pytest's.

Tests need all packages of the extra `test`: without one they fail. `--without NAME,NAME` skips what fails for want of
packages that cannot be there, whether a test imports them or noyau does for it.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

import tests.plain_import  # noqa: F401  before noyau  # isort: split
from noyau.jobs.check import attempts as check_attempts
from noyau.jobs.check import kernel as check_kernel
from noyau.timing import sides
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import Effort
from tests.by_hand import BY_HAND

# Where there is no GPU, Triton interprets: it asks for that when it is imported, which torch may do first.
if not Path("/proc/driver/nvidia").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Whether the compiler and the processor do AVX-512 is inductor's to try: it imports torch in a new process for that.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Files of the tests lie in memory where there is room and they may be run: a disk takes a twenty-fifth of their time.
MEMORY, NEEDED_BYTES = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
    status = os.statvfs(MEMORY)
    if not status.f_flag & os.ST_NOEXEC and status.f_bavail * status.f_frsize > NEEDED_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# Modules are compiled once, whatever the shell says: each process that the tests start is a second faster for it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts pytest in the background has it ignore SIGINT, and nohup SIGHUP; what the tests start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Every op of the catalogue in every dtype and layout: run by hand, pytest -m long.
LONG = ("tests/test_nn_catalogue_torch_rules",)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Hundreds of items that would only be left out are not made."""
    is_long = str(collection_path).startswith(tuple(str(config.rootpath / name) for name in LONG))
    return True if is_long and "not long" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark what takes long, as a whole or by its parameters; a pattern that fits nothing of its file is an error."""
    idle = {(file, pattern) for file, patterns in BY_HAND.items() for pattern in patterns}
    seen = set()
    for item in items:
        file, _, name = item.nodeid.removeprefix("tests/").partition(".py::")
        seen.add(file)
        fitting = [pattern for pattern in BY_HAND.get(file, ()) if re.search(pattern, name)]
        idle -= {(file, pattern) for pattern in fitting}
        if fitting or item.nodeid.startswith(LONG):
            item.add_marker("long")
    stale = [f"{file}: {pattern}" for file, pattern in sorted(idle) if file in seen]
    if stale and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"tests/by_hand.py has patterns of tests that are not there: {stale}")


def compile_in_shares(config: pytest.Config) -> None:
    """Where all tests are asked for, each process compiles every so many of their files before it collects any: what
    the others have compiled it then finds beside them. By pytest's own two steps; where they are gone, nothing is lost.
    """
    folder, mine = Path(__file__).parent, os.environ.get("PYTEST_XDIST_WORKER")
    if mine is None or [Path(name).resolve() for name in config.args] != [folder]:
        return
    first, step = int(mine.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    with suppress(AttributeError, KeyError, OSError, TypeError, ValueError):
        state = config.stash[rewrite.assertstate_key]
        for path in sorted(folder.rglob("test_*.py"))[first::step]:
            compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
            if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(compiled.parent):
                source, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(state, code, source, compiled)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Nothing that is collected here goes away: no collection of garbage looks at it, neither now nor in any test."""
    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # not gc.disable(): dask notes at its import whether it is to enable it again
    try:
        compile_in_shares(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*thresholds)


with suppress(ModuleNotFoundError):  # it may be among those that are not there
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow]  # a busy machine is no fault of a test
    settings.register_profile("few", max_examples=18, suppress_health_check=slow)  # what a test asks for itself counts
    settings.register_profile("many", max_examples=250, suppress_health_check=slow)  # by hand, before a release
    settings.load_profile("few")

# The same texts are built in a quarter of the time; that the compiler is right is not what most tests ask.
SHIPPED = c_compiler._FLAGS
LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()  # in two thirds of the time of the usual one
QUICK = (*("-Og" if flag == "-O3" else flag for flag in SHIPPED), *LINKER)
FEW = Effort(2, 8, 1 << 15)
LARGE, WATCHED = check_kernel.LARGE, check_kernel.WATCHED
MOST, SOME = check_attempts.MOST, check_attempts.FEW
OTHERS_REST = sides.others_rest
_begun: set[Path] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """C is built quickly, checks try less and no clock waits for other threads to rest, within this process, but for
    tests marked as_shipped and their fixtures.

    What a file leaves behind (packages and their caches) is not looked at for garbage in the files after it.
    """
    if item.path not in _begun:
        _begun.add(item.path)
        gc.collect()
        gc.freeze()
    is_shipped = item.get_closest_marker("as_shipped") is not None
    c_compiler._FLAGS = SHIPPED if is_shipped else QUICK
    check_kernel.LARGE, check_kernel.WATCHED = (LARGE, WATCHED) if is_shipped else (LARGE >> 4, WATCHED // 4)
    check_attempts.MOST, check_attempts.FEW = (MOST, SOME) if is_shipped else (MOST // 2, SOME * 2 // 3)
    sides.others_rest = OTHERS_REST if is_shipped else lambda: True
    return (yield)


class Without:
    """Skips what fails for want of a package that is not there, and is not asked for."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def missing(self, error: BaseException | None) -> str:
        """The package for want of which it was raised, or nothing."""
        while error is not None:
            name = (getattr(error, "name", None) or "").partition(".")[0]
            if isinstance(error, ModuleNotFoundError) and name in self.names:
                return name
            error = error.__cause__ or error.__context__
        return ""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        missing = (
            re.search(r"ModuleNotFoundError: No module named '(\w+)", str(report.longrepr)) if report.failed else None
        )
        if missing and missing[1] in self.names:
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"{missing[1]} is not installed")
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        return (yield from self.skipped())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self) -> Generator[None, object, object]:
        return (yield from self.skipped())

    def skipped(self) -> Generator[None, object, object]:
        try:
            return (yield)
        except Exception as error:
            if name := self.missing(error):
                pytest.skip(f"{name} is not installed")
            raise


def send_less(config: pytest.Config) -> None:
    """A process of xdist tells of a test that passes once, not five times: its start, its end, and that its setup and
    its teardown passed too took a millisecond of each test. A report for machines (--junitxml) wants them all.
    """
    plugins = config.pluginmanager.get_plugins()
    sender: Any = next((each for each in plugins if type(each).__name__ == "WorkerInteractor"), None)
    if sender is None or getattr(config.option, "xmlpath", None):
        return
    send = sender.pytest_runtest_logreport

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            send(report)

    config.pluginmanager.unregister(sender)
    sender.pytest_runtest_logreport = pytest_runtest_logreport
    sender.pytest_runtest_logstart = sender.pytest_runtest_logfinish = None
    config.pluginmanager.register(sender)


def pytest_configure(config: pytest.Config) -> None:
    send_less(config)
    if names := config.getoption("--without"):
        config.pluginmanager.register(Without(frozenset(names.split(","))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the texts in tests/golden anew")
    parser.addoption(
        "--without", default="", help="packages, by commas, that cannot be installed here: skip their tests"
    )


@pytest.fixture
def golden(request):
    """Compares a text with the file of a path in tests/golden, or writes it there with --update-golden."""

    def compare(path: str, text: str) -> None:
        file = Path(__file__).parent / "golden" / path
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "ascii")
        assert file.exists(), f"there is no {path} yet: pytest --update-golden writes it"
        assert text == file.read_text("ascii"), f"{path} is not what is printed now: see pytest --update-golden"

    return compare


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
    folder = tmp_path_factory.mktemp("cache") if kept is None else kept.mkdir("noyau")
    folder.chmod(0o700)
    os.environ["XDG_CACHE_HOME"] = str(folder)


@pytest.fixture(autouse=True, scope="session")
def _lasting_inference(request: pytest.FixtureRequest) -> Iterator[None]:
    """Imports of models ask one process for shapes, not each one of its own: a start takes a quarter of a second."""
    if "onnx" in request.config.getoption("--without").split(","):
        yield
        return
    from noyau.frontends.onnx import importer

    kind, made = importer.Inference, {}

    def lasting() -> nullcontext[importer.Inference]:
        mine = os.getpid(), threading.get_ident()  # a child that a test has forked asks another
        return nullcontext(made.get(mine) or made.setdefault(mine, kind()))

    with pytest.MonkeyPatch.context() as patch, ExitStack() as ended:
        patch.setattr(importer, "Inference", lasting)
        yield
        for each in made.values():
            ended.enter_context(each)


@pytest.fixture(scope="session")
def _workers() -> Iterator[object]:
    from noyau.hosts.onnxruntime.session_workers import Workers

    with Workers() as made:
        yield made


@pytest.fixture(scope="module")
def lasting_workers(_workers) -> Iterator[None]:
    """The main job has the processes that earlier tests have started, on all cores again: a start takes a second.

    They try fewer awkward inputs, but for tests marked as_shipped: those of tests/checking ask what inputs find."""
    from noyau.jobs.optimize.onnx import candidates as onnx_candidates
    from noyau.kernels import certificates
    from noyau.workers.worker import pin

    def lasting() -> nullcontext[object]:
        pin([worker for worker in _workers.workers if worker.is_running], threads=0)
        return nullcontext(_workers)

    def task(*given: Any, **named: Any) -> certificates.CertificateTask:
        effort = certificates.FULL if c_compiler._FLAGS is SHIPPED else FEW
        return certificates.CertificateTask(*given, **{"effort": effort, **named})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noyau.jobs.optimize.onnx.run.Workers", lasting)
        patch.setattr(onnx_candidates, "CertificateTask", task)
        yield


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache folder of this test alone; the result is where noyau makes its own in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "noyau"
