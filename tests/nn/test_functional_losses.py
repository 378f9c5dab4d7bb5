from __future__ import annotations

import numpy as np
import pytest

from noyau import nn
from noyau.errors import InputError, SignatureError

LOGITS = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
LABELS = np.array([0, 6, 3, 3])
REDUCTIONS = ("mean", "sum", "none")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("label", [7, -1, -(2**63)])
def test_a_label_out_of_range_is_refused(reduction, label):
    labels = np.array([0, 6, label, 3])
    with pytest.raises(InputError, match=r"cross_entropy_\w+: an index is outside the axis that it looks into"):
        nn.cross_entropy(LOGITS, labels, reduction=reduction)


@pytest.mark.parametrize("ignored", [-100, 3])
def test_ignored_labels_count_for_nothing(ignored):
    labels = np.array([0, 6, ignored, ignored])
    each = nn.cross_entropy(LOGITS, labels, reduction="none", ignore_index=ignored)
    assert list(each[2:]) == [0, 0]
    assert nn.cross_entropy(LOGITS, labels, ignore_index=ignored) == pytest.approx(each[:2].mean(), rel=1e-6)
    assert nn.cross_entropy(LOGITS, labels, reduction="sum", ignore_index=ignored) == pytest.approx(
        each.sum(), rel=1e-6
    )


def test_where_all_are_ignored_there_is_no_mean():
    labels = np.full(4, -100)
    assert np.isnan(nn.cross_entropy(LOGITS, labels))
    assert nn.cross_entropy(LOGITS, labels, reduction="sum") == 0


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_labels_are_integers_of_any_width(dtype):
    assert nn.cross_entropy(LOGITS, LABELS.astype(dtype)) == nn.cross_entropy(LOGITS, LABELS)


def test_large_logits_do_not_overflow():
    found = nn.cross_entropy(np.float32([[1e4, 0], [-1e4, 1e4]]), np.array([0, 0]), reduction="none")
    np.testing.assert_array_equal(found, np.float32([0, 2e4]))


def test_another_reduction_is_refused():
    with pytest.raises(InputError, match="cross_entropy: reduction is 'max'; there are 'mean', 'sum' and 'none'"):
        nn.cross_entropy(LOGITS, LABELS, reduction="max")


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(SignatureError, match=r"labels: i64\[3\] binds int=i64 and does not fit int\[\*batch\]"):
        nn.cross_entropy(LOGITS, LABELS[:3])
    with pytest.raises(SignatureError, match=r"labels: f32\[4, 7\] does not fit int\[\*batch\]"):
        nn.cross_entropy(LOGITS, LOGITS)
