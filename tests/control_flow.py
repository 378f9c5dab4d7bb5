"""A model of bodies: an If by an input and one by a constant, an If in a Loop, a Scan. Support for tests."""

from __future__ import annotations

import numpy as np
import onnx

# The bodies of the Loop and of the Scan have one name, and so have values of several bodies; `f` of the main graph is
# made after that of the Loop's body.
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,8] x, bool c, int64 trip)
  => (float[n,8] y, float[n,8] k, float[n,8] z, float[m,n,8] zs, float[8] s, float[n,8] f)
<float[1,8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
  r = Relu (x)
  y = If (c) <
    then_branch = t () => (float[n,8] a) <float[1,8] v = {8, 7, 6, 5, 4, 3, 2, 1}> {
      u = Mul (r, v)
      a = Sigmoid (u)
    },
    else_branch = e () => (float[n,8] a) {
      u = Mul (r, w)
      a = Tanh (u)
    }>
  on = Constant <value = bool {1}> ()
  [always] k = If (on) <
    then_branch = t () => (float[n,8] a) {
      u = Tanh (x)
      a = Exp (u)
    },
    else_branch = e () => (float[n,8] a) {
      a = Identity (x)
    }>
  z, zs = Loop (trip, , y) <body = body (int64 i, bool go, h) => (bool go2, h2, o) {
    go2 = Identity (go)
    f = Cast <to = 1> (i)
    q = Add (h, f)
    p = Mul (q, x)
    r2 = Sigmoid (p)
    h2 = If (c) <
      then_branch = t () => (a) {
        u = Sub (r2, x)
        a = Abs (u)
      },
      else_branch = e () => (a) {
        a = Identity (r2)
      }>
    o = Identity (h2)
  }>
  zero = Constant <value = float[8] {0, 0, 0, 0, 0, 0, 0, 0}> ()
  s, f = Scan <num_scan_inputs = 1, scan_input_directions = [1], body = body (h, t) => (h2, o) {
    u = Sub (t, h)
    q = Mul (u, u)
    a = ReduceMean <axes = [0], keepdims = 1> (q)
    b = Sqrt (a)
    h2 = Add (h, b)
    o = Identity (h2)
  }> (zero, z)
}"""


def control_flow() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def arrays(rows: int, taken: bool, trips: int) -> dict[str, np.ndarray]:
    """Inputs of the model: which branch is taken, and how often the Loop runs."""
    x = np.random.default_rng(rows + trips).standard_normal((rows, 8)).astype(np.float32)
    return {"x": x, "c": np.array(taken), "trip": np.array(trips)}
