"""The task of an engine where a source has no partition, as an empty DataFrame of Spark."""

import numpy as np
import pytest

import noyau
from noyau.engines.partitions import Answer, Task
from noyau.engines.reading import Reading
from noyau.engines.work import Work

X = {"x": np.zeros(0)}


@noyau.op("f64[n] -> f64")
def total(x):
    return x.sum()


@noyau.op("f64[n] -> y: f64[n]")
def doubled(x):
    return 2 * x


@pytest.mark.parametrize(("value", "result"), [(total, 0.0), (noyau.reductions.Top(2), []), (doubled, None)])
def test_no_answers_are_merged_to_the_state_of_no_rows(value, result):
    task = Task(Work(value, {"x": "x"}, {}, (), Reading(("x",), 10), X))
    answer, one = task.merge([]), task.work.reduction
    assert (answer.parts, answer.counts, answer.notes, answer.compiled) == ((), {}, frozenset(), 0)
    assert (None if one is None else np.asarray(one.finish(one.unpack(answer.state))).tolist()) == result
    last = Answer(3, answer.state)
    assert task.merge([answer, last]).last == 3
