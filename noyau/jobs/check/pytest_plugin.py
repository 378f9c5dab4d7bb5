"""The fixture `noyau_check` of pytest: one line a test says that every kernel of an op is right.

def test_softmax(noyau_check):
    noyau_check(softmax)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from noyau.ops.op import Op
    from noyau.verify.checks import OpCheck


@pytest.fixture
def noyau_check() -> Callable[..., OpCheck]:
    """`noyau.check` of an op; the test fails with the report where a kernel is wrong, and is skipped where none of its
    kernels can run here. What it takes beside the op is what `noyau.check` takes: sizes={"n": 1000}, tolerance=1e-3."""
    return _passes


def _passes(op: Op[..., Any], **wishes: Any) -> OpCheck:
    __tracebackhide__ = True
    from noyau.errors import NoyauError  # what collects tests does not wait for these
    from noyau.jobs.check.run import check as check_op

    try:
        check = check_op(op, **wishes)
    except NoyauError as error:  # what it was asked is wrong, and its line is all there is to see
        raise error.with_traceback(None) from None
    if not check.ok:
        pytest.fail(str(check), pytrace=False)
    if check.kernels and all(kernel.skipped for kernel in check.kernels):
        pytest.skip(str(check))
    return check
