"""The tasks of an op, one for each set of sizes: its inputs, candidates, check by the certificate, and work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError, NoyauError
from noyau.jobs.bench.candidates import CandidateCall, Entry, of_functions
from noyau.jobs.bench.inputs import InputMaker, draw_by, usual_numbers, vary
from noyau.jobs.bench.op_candidates import of_op, signature_of
from noyau.jobs.bench.tasks import BenchOptions, BenchTask, by_function, of_dtypes
from noyau.jobs.bench.workload import Workload, work_of_arrays, work_of_graph
from noyau.kernels.programs.generate import Specialization, lazy_graph, specialization_of, trace_reference
from noyau.kernels.reference import graph_of
from noyau.ops.op import Op
from noyau.signatures.binding import Bound, bind
from noyau.timing.output_checks import Arrays, Check, by_graph


def op_tasks(op: Op[..., Any], wishes: BenchOptions, *, judge_alone: bool = False) -> Iterator[BenchTask]:
    """Tasks of an op, and of its peers; `judge_alone`: with its reference as the only candidate. SignatureError where
    it has no signature, or inputs do not fit it."""
    constants = op.description.reference.constants
    for numbers in wishes.sizes:
        inputs, bound = _op_inputs(op, numbers, wishes)
        scalars = tuple(value.scalar for value in bound.instance.inputs)
        calling = CandidateCall(inputs.views, scalars, tuple(value.dtype.numpy for value in bound.instance.outputs))
        others = (replace(entry, is_peer=True) for entry in of_functions(wishes.peers, calling))
        own = of_op(op, bound, constants, calling)
        entries = (next(own),) if judge_alone else (*own, *others)
        request = specialization_of(signature_of(op), bound, constants)
        check = _op_check(op, entries[0], bound, request, calling)
        work = _op_work(op, request, bound)
        yield BenchTask(bound.sizes, inputs, _apart(entries), check, work, None, request, largest(bound))


def largest(bound: Bound) -> int:
    """The cells of the largest array of a call."""
    return max((array.size for array in bound.arrays), default=0)


def _apart(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The candidates. InputError where two have one name."""
    names = [entry.name for entry in entries]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise InputError(f"two candidates are called {twice}; give the peer another name")
    return tuple(entries)


def _op_check(op: Op[..., Any], judge: Entry, bound: Bound, request: Specialization, calling: CandidateCall) -> Check:
    """By the certificate; in float64, where the reference itself would be the truth, against a longer one."""
    assert judge.returning is not None
    if any(value.dtype is DType.F64 for value in bound.instance.inputs):
        return by_function(judge.returning, calling.dtypes)
    reference = op.description.reference
    judged = by_graph(graph_of(reference, bound.instance, reference.constants), lazy_graph(reference, request))

    def check(inputs: Arrays, outputs: Arrays) -> str:
        summary = judged(calling.views.memory_as_given(tuple(inputs)), outputs)
        return summary.removeprefix("tried on 1 case: ")

    return of_dtypes(check, calling.dtypes)


def _op_inputs(op: Op[..., Any], numbers: dict[str, int], wishes: BenchOptions) -> tuple[InputMaker, Bound]:
    """Draws for an op, and what they bind."""
    signature, args, seed = signature_of(op), wishes.args, wishes.seed
    constants = op.known(op.description.reference.constants)
    bound = partial(bind, signature, known=constants, called=op.name)
    if args is not None and not callable(args):
        if numbers:
            raise InputError(f"{op.name}: both inputs and sizes are given; the sizes are those of the inputs")
        inputs = vary(bound(op.arguments(args, {})[0]).arrays, seed)
    else:
        usual = numbers if args or op.inputs is not None else usual_numbers(signature, constants, numbers)

        def bound_arrays(number: int) -> Sequence[Any]:
            rng = np.random.default_rng(seed + number)
            return bound(tuple(args(rng, **usual)) if args else op.make(seed + number, **usual)).arrays

        inputs = draw_by(bound_arrays)
    return inputs, bound(inputs.views.memory_as_given(inputs.draws[0]))


def _op_work(op: Op[..., Any], request: Specialization, bound: Bound) -> Workload:
    """From the traced graph; where it cannot be traced, all inputs and outputs of the signature."""
    try:
        return work_of_graph(trace_reference(op.description.reference, request), bound.sizes)
    except NoyauError:
        outputs = [
            np.broadcast_to(np.empty((), value.dtype.numpy), shape)
            for value, shape in zip(bound.instance.outputs, bound.shapes, strict=True)
        ]
        return work_of_arrays(bound.arrays, outputs)
