"""The fixtures `noyau_check` and `noyau_bench` of pytest: one line a test checks, or times, every kernel of an op.

def test_softmax(noyau_check, noyau_bench):
    noyau_check(softmax)
    noyau_bench(softmax, sizes={"rows": 100, "n": 1000})
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from noyau.jobs.bench.record import BenchRecord
    from noyau.ops.op import Op
    from noyau.verify.checks import OpCheck

_TABLES = pytest.StashKey[list[str]]()  # the tables of timings, printed after the tests


@pytest.fixture
def noyau_check() -> Callable[..., OpCheck]:
    """`noyau.check` of an op; the test fails with the report if a kernel is wrong, and is skipped if none of its
    kernels can run here. Options as of `noyau.check`: sizes={"n": 1000}, tolerance=1e-3."""
    return _passes


@pytest.fixture
def noyau_bench(request: pytest.FixtureRequest) -> Callable[..., BenchRecord]:
    """`noyau.bench` of an op, or of functions by name; the test fails if a candidate is wrong, and the table is printed
    after all tests. It takes the arguments of `noyau.bench`, and returns the record: `bench.at[0].verdict(name)`.
    Winners are not recorded unless `record=True`."""
    return partial(_time, request.config.stash.setdefault(_TABLES, []), request.node.nodeid)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the tables of `noyau_bench`."""
    tables = config.stash.get(_TABLES, [])
    if tables:
        terminalreporter.section("noyau bench")
    for text in tables:
        terminalreporter.write_line(text)


def _time(tables: list[str], test: str, what: Any, args: Any = None, **options: Any) -> BenchRecord:
    __tracebackhide__ = True
    from noyau.errors import NoyauError
    from noyau.jobs.bench.run import bench

    try:
        record = bench(what, args, **{"record": False, **options})
    except NoyauError as error:
        raise error.with_traceback(None) from None
    tables.append(f"{test}\n{record}\n")
    if not record.ok:
        pytest.fail(str(record), pytrace=False)
    return record


def _passes(op: Op[..., Any], **wishes: Any) -> OpCheck:
    __tracebackhide__ = True
    from noyau.errors import NoyauError  # imported here to keep the collection of tests fast
    from noyau.jobs.check.run import check as check_op

    try:
        check = check_op(op, **wishes)
    except NoyauError as error:  # the error's own line suffices, without a traceback
        raise error.with_traceback(None) from None
    if not check.ok:
        pytest.fail(str(check), pytrace=False)
    if check.kernels and all(kernel.skipped for kernel in check.kernels):
        pytest.skip(str(check))
    return check
