"""What every test runs under: a cache of kernels of the tests' own, kept between runs beside pytest's."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# A shell that starts pytest in the background has it ignore SIGINT, and nohup SIGHUP; what the tests start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the texts in tests/golden anew")


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


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache folder of this test alone; the result is where noyau makes its own in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "noyau"
