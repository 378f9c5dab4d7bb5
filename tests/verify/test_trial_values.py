from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import CheckError, FindingKind, InputError
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.adversarial import cases
from noyau.verify.failures import Case
from noyau.verify.floats import kind
from noyau.verify.trial import certify
from tests.jobs.check import groups, kernels
from tests.jobs.check.groups import F32, Group
from tests.jobs.check.kernels import RIGHT, WRONG

SIZES = {"rows": 24, "n": 100}


def unfused(graph):
    """The computation that a kernel replaces, as a kernel."""

    def kernel(inputs):
        found = evaluate(graph, dict(zip((node.output for node in graph.inputs), inputs, strict=True)))
        return [found[name] for name in graph.outputs]

    return kernel


def adversarial(graph, sizes=SIZES, seed=0):
    return cases(graph, sizes, np.random.default_rng(seed))


def of_arrays(kernel):
    return lambda inputs: [np.ascontiguousarray(array) for array in kernel(*inputs)]


def judge(graph, got, *inputs):
    """The certificate of a kernel that gives these results, for one case."""
    given = tuple(np.asarray(array) for array in inputs)
    results = got if isinstance(got, list) else [got]
    return certify(graph, lambda _: [np.asarray(result) for result in results], [Case("it", given)], name="k")


def members(table):
    return [(group, kernel) for group, members in table.items() for kernel in members]


def name_of(value):
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


@pytest.fixture(scope="module")
def trials():
    """The adversarial cases of each group."""
    graphs = {group: getattr(groups, group)() for group in RIGHT}
    return {group: (graph, tuple(adversarial(graph))) for group, graph in graphs.items()}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("group", "kernel"), members(RIGHT), ids=name_of)
def test_right_kernels_are_accepted(trials, group, kernel):
    graph, made = trials[group]
    certificate = certify(graph, of_arrays(kernel), made, name=kernel.__name__)
    certificate.raise_if_bad()
    assert certificate.worst_ratio < 2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("group", "kernel"), members(WRONG), ids=name_of)
def test_wrong_kernels_are_refused(trials, group, kernel):
    """By at least one of the cases; those after it would take most of the time."""
    graph, made = trials[group]
    tried = (certify(graph, of_arrays(kernel), [case], name="kernel") for case in made)
    certificate = next(each for each in tried if each.worst_ratio > 50)
    assert not certificate.ok
    with pytest.raises(CheckError, match=r"^kernel is wrong at "):
        certificate.raise_if_bad()


def test_a_certificate_is_the_same_every_time():
    graph = groups.softmax()
    once, again = (certify(graph, of_arrays(kernels.softmax_online), adversarial(graph), name="k") for _ in range(2))
    assert once == again


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("make", [groups.softmax, groups.rms_norm, groups.swiglu], ids=lambda make: make.__name__)
def test_the_unfused_computation_and_the_rounded_truth_are_right_in_every_float(make, dtype):
    graph = make(dtype=dtype)

    def rounded(inputs):
        found = evaluate(graph, dict(zip((node.output for node in graph.inputs), inputs, strict=True)), wide=True)
        return [found[name].astype(dtype.numpy) for name in graph.outputs]

    for kernel in (unfused(graph), rounded):
        certify(graph, kernel, adversarial(graph, {"rows": 5, "n": 40}), name="k").raise_if_bad()


# The rule, cell by cell.


def test_what_is_allowed_is_two_ulp_and_eight_times_what_the_unfused_runs_stray():
    graph = groups.one_map("negative")
    one = np.float32(1)  # moved by an ulp: 2^-23 up, 2^-24 down
    edges = [-1 - k * 2.0**-23 for k in (2 + 8, 2 + 8 + 1)]
    inside, outside = (judge(graph, np.full(4, edge, np.float32), np.full(4, one)) for edge in edges)
    assert inside.ok
    assert inside.worst_ratio == 1.0
    assert not outside.ok
    assert outside.failures[0].allowed == 10 * 2.0**-23


def test_a_cell_where_the_unfused_runs_happen_to_be_exact_is_allowed_the_usual_share():
    """0.5 + x is exact for the second cell alone, and its runs hardly stray."""
    graph = groups.one_map("exp")
    x = np.concatenate([np.linspace(1, 2, 101), [1e-30]]).astype(np.float32)
    right = np.exp(x.astype(float)).astype(np.float32)
    off = right.copy()
    off[-1] += 3 * 2.0**-23
    assert judge(graph, off, x).ok
    off[-1] += 40 * 2.0**-23
    assert not judge(graph, off, x).ok


def test_zero_is_not_near_a_small_truth():
    graph = groups.one_map("negative")
    x = np.array([1e-42, 1e-38, 1.0], np.float32)
    for at in range(3):
        wrong = -x
        wrong[at] = 0
        assert judge(graph, -x, x).ok
        assert not judge(graph, wrong, x).ok


def test_what_does_not_cancel_is_right_where_the_truth_does():
    """x (1 + tanh(u)) / 2 is 0 in float64 where u is far below 0, and x sigmoid(2 u) is not: the unfused computation
    with another rounding is not 0 either. A kernel that is wrong there is still refused."""
    g = Group()
    x = g.input("x", F32, "n")
    raised = g.map("add", g.map("tanh", x), g.full(1.0, x))
    g.map("multiply", g.map("multiply", x, g.full(0.5, x)), raised)
    graph, given = g.graph(), np.linspace(-60, -5, 40_000, dtype=np.float32)

    def by_sigmoid(inputs):
        return [(inputs[0] / (1 + np.exp(-2 * inputs[0].astype(np.float64)))).astype(np.float32)]

    def wrong(inputs):
        return [by_sigmoid(inputs)[0] - np.float32(1e-4)]

    certify(graph, by_sigmoid, [Case("far out", (given,))], name="k").raise_if_bad()
    assert not certify(graph, wrong, [Case("far out", (given,))], name="k").ok


def test_nan_must_stay_nan_and_appears_nowhere_else():
    graph = groups.one_map("negative")
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    assert judge(graph, -x, x).ok
    for got in ([-1, 1, -np.inf, np.inf], [np.nan, np.nan, -np.inf, np.inf], [-1, np.inf, -np.inf, np.inf]):
        assert not judge(graph, np.array(got, np.float32), x).ok


def test_infinities_keep_their_sign():
    graph = groups.one_map("negative")
    x = np.array([np.inf, -np.inf], np.float32)
    assert not judge(graph, x, x).ok
    assert not judge(graph, np.array([-3e38, np.inf], np.float32), x).ok


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32], ids=lambda dtype: dtype.value)
def test_what_overflows_the_dtype_is_infinite(dtype):
    graph = groups.one_map("multiply", dtype, 2)
    large = np.array([60000.0 if dtype is DType.F16 else 3e38] * 2, dtype.numpy)
    two = np.array([2, -2], dtype.numpy)
    infinite = np.array([np.inf, -np.inf], dtype.numpy)
    assert judge(graph, infinite, large, two).ok
    assert not judge(graph, np.array([65504.0, -65504.0], dtype.numpy), large, two).ok
    assert not judge(graph, infinite, large, two / 4).ok


def test_where_an_intermediate_overflows_the_exact_result_is_right_too():
    """x * x * y in float32: infinity; a kernel that overflows elsewhere, or not at all, is as right."""
    g = Group()
    x, y = g.input("x", F32, "n"), g.input("y", F32, "n")
    g.map("multiply", g.map("multiply", x, x), y)
    given = np.array([1e30], np.float32), np.array([1e-30], np.float32)
    assert judge(g.graph(), np.array([np.inf], np.float32), *given).ok
    assert judge(g.graph(), np.array([1e30], np.float32), *given).ok
    assert not judge(g.graph(), np.array([1e29], np.float32), *given).ok


def test_a_root_of_zero_is_zero():
    """The moves leave zeros alone: else NaN, the root of the number below, would be right."""
    graph = groups.one_map("sqrt")
    x = np.array([0, 1, 4], np.float32)
    assert judge(graph, np.sqrt(x), x).ok
    assert not judge(graph, np.array([np.nan, 1, 2], np.float32), x).ok


def test_integers_equal_the_truth_or_an_unfused_run():
    g = Group()
    whole = g.map("cast", g.map("round_even", g.input("x", F32, "n")), dtype=DType.I32)
    graph, x = g.graph(whole), np.array([0.2, 2.5, 7.9], np.float32)
    for second, ok in ((2, True), (3, True), (4, False), (1, False)):  # 2.5 is moved up and down in some runs
        assert judge(graph, np.array([0, second, 8], np.int32), x).ok is ok
    assert not judge(graph, np.array([1, 2, 8], np.int32), x).ok


def test_a_value_that_only_jumps_is_near_one_of_the_runs_not_between_them():
    g = Group()
    x = g.input("x", F32, "n")
    whole = g.map("round_even", x)
    g.map("multiply", whole, g.full(0.1, whole))
    given = np.array([2.5, 0.2, 7.9], np.float32)
    for whole, ok in ((2, True), (3, True), (2.5, False), (5, False)):
        assert judge(g.graph(), (np.array([whole, 0, 8], np.float32) * np.float32(0.1)), given).ok is ok


def test_bools_are_compared():
    graph = groups.one_map("less", F32, 2, DType.BOOL)
    given = np.array([1, 2, 3], np.float32), np.array([2, 2, 2], np.float32)
    assert judge(graph, np.array([True, False, False]), *given).ok
    assert judge(graph, np.array([True, True, False]), *given).ok  # 2 < 2 is a tie: some run has it
    assert not judge(graph, np.array([False, False, False]), *given).ok


def test_undefined_cells_are_left_out():
    graph = groups.one_map("cast", F32, 1, DType.I8)
    x = np.array([1.5, 1e9, np.nan], np.float32)
    for anything in (-128, 0, 127):
        assert judge(graph, np.array([1, anything, anything], np.int8), x).ok
    assert not judge(graph, np.array([2, 0, 0], np.int8), x).ok


def test_empty_outputs_are_right_if_their_shape_is():
    graph = groups.softmax()
    empty = np.empty((0, 7), np.float32)
    assert judge(graph, empty, empty).ok
    assert not judge(graph, np.empty((7, 0), np.float32), empty).ok


def test_scalars_are_judged():
    g = Group()
    g.map("exp", g.input("x", F32))
    assert judge(g.graph(), np.exp(np.float32(1)), np.float32(1)).ok
    certificate = judge(g.graph(), np.float32(2), np.float32(1))
    assert certificate.failures[0].cell == ()


# What else can be wrong.


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([np.zeros((2, 3), np.float32)] * 2, "gave 2 outputs, not 1"),
        ([], "gave 0 outputs, not 1"),
        ([np.zeros((3, 2), np.float32)], r"gave f32\[3, 2\] as v9, not f32\[2, 3\]"),
        ([np.zeros((2, 3))], r"gave f64\[2, 3\] as v9, not f32\[2, 3\]"),
        ([np.zeros((2, 3), np.complex64)], r"gave complex64\[2, 3\] as v9"),
    ],
)
def test_results_of_another_kind_are_refused(results, reason):
    with pytest.raises(CheckError, match=f"^k is wrong: it {reason}.*; for x: f32\\[2, 3\\]"):
        judge(groups.softmax(), results, np.ones((2, 3), np.float32)).raise_if_bad()


def test_a_kernel_that_changes_an_input_is_refused():
    graph, x = groups.one_map("negative"), np.ones(3, np.float32)

    def kernel(inputs):
        np.negative(inputs[0], out=inputs[0])
        return [inputs[0].copy()]

    with pytest.raises(CheckError, match="changed its input 0"):
        certify(graph, kernel, [Case("it", (x,))], name="k").raise_if_bad()
    assert x.tolist() == [1, 1, 1]


def test_a_kernel_that_raises_is_refused():
    def kernel(inputs):
        raise CheckError("k wrote outside output 0", FindingKind.OUT_OF_BOUNDS)

    certificate = certify(groups.one_map("exp"), kernel, [Case("it", (np.ones(3, np.float32),))], name="k")
    assert not certificate.ok
    assert "ended with CheckError: k wrote outside output 0" in str(certificate.failures[0])
    assert certificate.failures[0].kind is FindingKind.OUT_OF_BOUNDS


def test_an_index_outside_its_table_must_be_refused_by_the_kernel_too():
    graph = groups.embedding(11)
    given = Case("ids", (np.ones((11, 3), np.float32), np.array([0, 11], np.int64)))
    assert certify(graph, unfused(graph), [given], name="k").ok
    clamping = certify(graph, lambda inputs: [inputs[0][np.minimum(inputs[1], 10)] / 2], [given], name="k")
    assert not clamping.ok
    assert "accepted what it must refuse: an index is outside" in clamping.summary()


def test_a_kernel_of_a_gpu_refuses_no_index_and_keeps_to_its_memory():
    graph, labels = groups.embedding(11), np.array([0, 11], np.int64)
    given = [Case("ids", (np.ones((11, 3), np.float32), each)) for each in (labels, labels % 11)]
    assert certify(graph, lambda inputs: unfused(graph)((inputs[0], inputs[1] % 11)), given, name="k", refuses=False).ok
    assert not certify(graph, lambda inputs: [inputs[0][inputs[1] % 11]], given, name="k", refuses=False).ok


def test_a_failure_names_inputs_and_output_as_the_model_does_but_printable():
    g = Group()
    g.input("x\n*/ evil", F32, "n")
    g.map("exp", "x\n*/ evil")
    message = str(judge(g.graph(), np.zeros(3, np.float32), np.ones(3, np.float32)).failures[0])
    assert "\n" not in message


def test_several_outputs_are_judged_each():
    g = Group()
    x = g.input("x", F32, "n")
    outputs = g.map("exp", x), g.map("negative", x)
    given = np.array([0.5, 1, 2], np.float32)
    right = [np.exp(given), -given]
    assert judge(g.graph(*outputs), right, given).ok
    assert judge(g.graph(*outputs), right, given).cells == 6
    for at in range(2):
        wrong = list(right)
        wrong[at] = np.zeros_like(given)
        certificate = judge(g.graph(*outputs), wrong, given)
        assert {failure.output for failure in certificate.failures} == {outputs[at]}


def test_the_errors_of_kernel_and_unfused_are_measured_alike():
    graph, x = groups.rms_norm(), np.random.default_rng(0).standard_normal((9, 33)).astype(np.float32)
    w = np.ones(33, np.float32)
    certificate = certify(graph, unfused(graph), [Case("captured", (x, w), captured=True)], name="k", made_up=True)
    assert certificate.kernel == certificate.unfused
    assert 0 < certificate.kernel.mean_ulp < certificate.kernel.worst_ulp < 5
    assert 1e-9 < certificate.kernel.worst_relative < 1e-6
    assert certificate.captured
    assert certificate.made_up


def test_a_coarser_result_has_the_error_of_its_rounding():
    graph, x = groups.one_map("negative"), np.linspace(1, 2, 500).astype(np.float32)
    certificate = judge(graph, (-x).astype(ml_dtypes.bfloat16).astype(np.float32), x)
    assert 2**14 < certificate.kernel.worst_ulp <= 2**15
    assert certificate.unfused.worst_ulp == 0
    assert not certificate.ok


def test_inputs_that_do_not_fit_the_graph_are_the_callers_fault():
    with pytest.raises((InputError, ValueError)):
        certify(groups.softmax(), lambda inputs: inputs, [Case("it", ())], name="k")


@pytest.mark.parametrize("columns", [3, 10])
def test_log_softmax_of_few_columns_is_accepted(columns):
    """The moves of the inputs cancel here; what strays is the rounding of the logarithm."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    g.map("subtract", x, g.expand(g.reduce("logsumexp", x), ("rows", "n")))
    array = np.random.default_rng(1).standard_normal((200_000 // columns, columns)).astype(np.float32)

    def spelt_otherwise(inputs):
        shifted = inputs[0] - kernels.largest(inputs[0])
        return [shifted - np.log(kernels.lanes(np.exp(shifted)))]

    def without_the_least(inputs):
        shifted = np.sort(inputs[0], -1) - kernels.largest(inputs[0])
        return [inputs[0] - kernels.largest(inputs[0]) - np.log(kernels.lanes(np.exp(shifted[:, 1:])))]

    certify(g.graph(), spelt_otherwise, [Case("it", (array,))], name="k").raise_if_bad()
    assert not certify(g.graph(), without_the_least, [Case("it", (array,))], name="k").ok


@pytest.mark.parametrize("dtype", [F32, DType.F64], ids=lambda dtype: dtype.value)
def test_a_steep_function_of_a_saturated_one_is_accepted(dtype):
    """asin(tanh(x)): an ulp of x changes nothing, an ulp of tanh(x) changes half of the digits."""
    g = Group()
    g.map("asin", g.map("tanh", g.input("x", dtype, "n")))
    x = np.linspace(1, 7 if dtype is F32 else 16, 400).astype(dtype.numpy)
    exact = np.tanh(x.astype(np.longdouble))
    other = np.nextafter(np.tanh(x), np.where(exact > np.tanh(x), 1, 0).astype(dtype.numpy))
    assert judge(g.graph(), np.arcsin(other), x).ok
    assert not judge(g.graph(), np.arcsin(np.tanh(x) * (1 - 1e-5)).astype(dtype.numpy), x).ok


def test_a_bit_says_whether_a_value_is_finite_nan_or_which_infinity():
    assert kind(np.array([1, np.nan, np.inf, -np.inf, 0])).tolist() == [1, 2, 4, 8, 1]
    assert kind(np.float64(np.nan)).tolist() == 2
