from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.errors import InputError
from noyau.hosts.onnxruntime.activations import ActivationCapture, entering
from noyau.hosts.onnxruntime.bodies import laid_flat
from tests.control_flow import arrays, control_flow

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LOOP = """g (float[2,3] x, int64 trip, bool go) => (float[2,3] y, float[2,3] z) {
  y, z = Loop (TRIP, GO, x, x) <body = b (int64 i, bool c, h, unread) => (c2, h2, unread2) {
    k = Constant <value = int64 {LAST}> ()
    c2 = Less (i, k)
    h2 = Add (h, x)
    unread2 = Mul (h, h)
  }>
}"""
SCAN = """g (float[2] s, float[2,3] x, float[3,2] w) => (float[2] y, float[2,3] z) {
  y, z = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1], scan_output_axes = [1],
               body = b (h, p, q) => (h2, o) { h2 = Add (h, p)  o = Add (h2, q) }> (s, x, w)
}"""


def flat(text):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return laid_flat(model, ())


def entry(text, **known):
    model, bodies = flat(text)
    return entering(model, None, bodies[0], lambda _: known)


@pytest.mark.parametrize(
    ("trip", "last", "middle"),
    [("trip", 99, 2), ("", 2, 1), ("trip", 0, 0)],
    ids=["by a count", "by a condition", "once"],
)
def test_of_a_loop_the_iteration_in_the_middle_is_taken(trip, last, middle):
    text = LOOP.replace("TRIP", trip).replace("GO", "").replace("LAST", str(last))
    found, fault = entry(text, x=X, trip=np.array(5))
    assert not fault and list(found) == ["Loop_0/body", *(f"Loop_0/body/{name}" for name in ("i", "c", "h", "unread"))]
    assert found["Loop_0/body"] == min(5, last + 1)
    assert (int(found["Loop_0/body/i"]), bool(found["Loop_0/body/c"])) == (middle, True)
    np.testing.assert_array_equal(found["Loop_0/body/h"], X * (middle + 1))


@pytest.mark.parametrize(("trip", "go"), [(0, True), (3, False)])
def test_a_loop_that_does_not_run_says_so(trip, go):
    text = LOOP.replace("TRIP", "trip").replace("GO", "go").replace("LAST", "9")
    found = entry(text, x=X, trip=np.array(trip), go=np.array(go))
    assert found == ({"Loop_0/body": 0}, "Loop_0/body does not run with these inputs")


@pytest.mark.parametrize("length", [1, 3])
def test_of_a_scan_the_step_in_the_middle_is_taken(length):
    s, w, middle = np.float32([1, 2]), np.arange(2 * length, dtype=np.float32).reshape(length, 2), length // 2
    found = entry(SCAN, s=s, x=X[:, :length], w=w)[0]
    assert found["Scan_0/body"] == length
    np.testing.assert_array_equal(found["Scan_0/body/h"], s + X[:, :middle].sum(axis=1))
    np.testing.assert_array_equal(found["Scan_0/body/p"], X[:, middle])
    np.testing.assert_array_equal(found["Scan_0/body/q"], w[length - 1 - middle])


def test_a_scan_without_steps_does_not_run():
    found = entry(SCAN, s=np.float32([1, 2]), x=X[:, :0], w=np.zeros((0, 2), np.float32))
    assert found[1] == "Scan_0/body does not run with these inputs"


def test_what_cannot_be_captured_is_said():
    text = LOOP.replace("TRIP", "trip").replace("GO", "").replace("LAST", "9")
    found = entry(text, x=X)
    assert found[1] == "what enters Loop_0/body could not be captured: trip is not known"
    model, bodies = flat(SCAN.replace("num_scan_inputs = 2, ", ""))
    found = entering(model, None, bodies[0], lambda _: {"s": X, "x": X, "w": X})
    assert found == ({}, "what enters Scan_0/body could not be captured: list index out of range")
    with pytest.raises(InputError, match="onnxruntime does not run"):
        entry(SCAN, s=np.float32([1, 2, 3, 4, 5]), x=X, w=np.zeros((3, 2), np.float32))


def test_values_of_bodies_are_captured_where_those_run(tmp_path):
    model, bodies = laid_flat(control_flow(), ())
    capturing = ActivationCapture(model, tmp_path, range(bodies[0].entries.start, len(model.graph.node)), bodies)
    capturing.without = [at for body in bodies for at in body.entries]
    wanted = ["Loop_4/body/If_5/then_branch/u", "Scan_6/body/q", "always/then_branch/u", "If_1/else_branch/u"]
    feeds = arrays(3, True, 4)
    known, faults = capturing.entering(feeds, wanted)
    assert faults == {"If_1/else_branch/": "If_1/else_branch does not run with these inputs"}
    found = capturing.capture({**feeds, **known}, wanted[:3])
    np.testing.assert_allclose(found["always/then_branch/u"], np.tanh(feeds["x"]), rtol=1e-5)
    state = known["Loop_4/body/h"]
    inner = [1 / (1 + np.exp(-(state + 2) * feeds["x"])) - feeds["x"]]
    inner += [1 / (1 + np.exp(-(np.abs(inner[0]) + 3) * feeds["x"])) - feeds["x"]]
    np.testing.assert_allclose(found["Loop_4/body/If_5/then_branch/u"], inner[0], rtol=1e-5)
    state = np.abs(inner[1])  # of the last iteration, which the Scan reads
    np.testing.assert_allclose(known["Scan_6/body/t"], state[1], rtol=1e-5)
    np.testing.assert_allclose(found["Scan_6/body/q"], (state[1] - known["Scan_6/body/h"]) ** 2, rtol=1e-4)
    faults = capturing.entering(arrays(3, False, 0), wanted)[1]
    assert faults == {"Loop_4/body/": "Loop_4/body does not run with these inputs"}


def test_a_loop_that_carries_a_sequence_is_taken_to_run_as_often_as_it_may(tmp_path):
    model, bodies = flat("""g (float[2,3] x, int64 trip) => (float[2,3] y) {
      list = SequenceConstruct (x)
      y, more = Loop (trip, , x, list) <body = b (int64 i, bool c, h, s) => (c2, h2, s2) {
        c2 = Identity (c)
        k = Cast <to = 1> (i)
        h2 = Mul (h, k)
        s2 = SequenceInsert (s, h2)
      }>
    }""")
    without = [position for position in bodies[0].entries if position != bodies[0].entries.start]
    capturing = ActivationCapture(model, tmp_path, without, bodies)
    known, faults = capturing.entering({"x": X, "trip": np.array(7)}, ["Loop_1/body/h2"])
    assert not faults and (known["Loop_1/body"], known["Loop_1/body/i"]) == (7, 3)
    found = capturing.capture({"x": X, "trip": np.array(7), **known}, ["Loop_1/body/h2", "Loop_1/body/k", "list"])
    assert found == {"Loop_1/body/k": 3.0}  # what needs the states is not known
    endless = flat("""g (float[2,3] x) => (float[2,3] y) { list = SequenceConstruct (x)
      more = Loop ( , , list) <body = b (int64 i, bool c, s) => (c2, s2) {
        c2 = Less (i, i)  s2 = SequenceInsert (s, x) }>
      y = SequenceAt (more, n)  n = Constant <value_int = 0> () }""")
    fault = entering(endless[0], None, endless[1][0], lambda _: {"x": X})[1]
    assert fault == "what enters Loop_1/body could not be captured: list is not known"
