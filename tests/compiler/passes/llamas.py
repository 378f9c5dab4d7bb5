"""A LLaMA of any number of layers as ONNX's own text, in plain operators: two heads of 4, hidden 8."""

from __future__ import annotations

HEAD = """(float[batch, seq, 8] x0, float[batch, 1, seq, seq] mask, float[seq, 4] cos, float[seq, 4] sin)
=> (float[batch, seq, 8] y)
<float eps = {{0.00001}}, float two = {{2.0}}, float scale = {{0.5}}, int64[1] last = {{-1}},
int64[4] split = {{0, 0, 2, 4}}, int64[3] join = {{0, 0, 8}}, int64[2] halves = {{2, 2}}, {weights}>"""

NORM = """sq{n} = Pow({x}, two) me{n} = ReduceMean<keepdims = 1>(sq{n}, last) ep{n} = Add(me{n}, eps)
ro{n} = Sqrt(ep{n}) in{n} = Reciprocal(ro{n}) ba{n} = Mul({x}, in{n}) {y} = Mul(w{n}, ba{n})"""

HEADS = """{p}a{n} = MatMul(n{n}, {p}w{n}) {p}b{n} = Reshape({p}a{n}, split)
{p}{n} = Transpose<perm = [0, 2, 1, 3]>({p}b{n})"""

ROTARY = """{p}c{n} = Mul({p}{n}, cos) {p}u{n}, {p}v{n} = Split<axis = -1>({p}{n}, halves) {p}o{n} = Neg({p}v{n})
{p}t{n} = Concat<axis = -1>({p}o{n}, {p}u{n}) {p}s{n} = Mul({p}t{n}, sin) {p}r{n} = Add({p}c{n}, {p}s{n})"""

ATTENTION = """tr{n} = Transpose<perm = [0, 1, 3, 2]>(kr{n}) s{n} = MatMul(qr{n}, tr{n}) sc{n} = Mul(s{n}, scale)
sm{n} = Add(sc{n}, mask) pr{n} = Softmax<axis = -1>(sm{n}) at{n} = MatMul(pr{n}, v{n})
tt{n} = Transpose<perm = [0, 2, 1, 3]>(at{n}) jn{n} = Reshape(tt{n}, join) ao{n} = MatMul(jn{n}, ow{n})"""

FEED = """g{n} = MatMul(n{n}b, gw{n}) sg{n} = Sigmoid(g{n}) si{n} = Mul(g{n}, sg{n}) up{n} = MatMul(n{n}b, uw{n})
sw{n} = Mul(si{n}, up{n}) dn{n} = MatMul(sw{n}, dw{n})"""


def llama(layers: int) -> str:
    """The text of the model; its input is embedded already, and its output is normed."""
    steps, weights = list[str](), list[str]()
    for k in range(layers):
        steps += [NORM.format(n=k, x=f"x{k}", y=f"n{k}"), *(HEADS.format(n=k, p=p) for p in "qkv")]
        steps += [*(ROTARY.format(n=k, p=p) for p in "qk"), ATTENTION.format(n=k), f"z{k} = Add(x{k}, ao{k})"]
        steps += [NORM.format(n=f"{k}b", x=f"z{k}", y=f"n{k}b"), FEED.format(n=k), f"x{k + 1} = Add(z{k}, dn{k})"]
        weights += [_weight(f"w{k}", 8), _weight(f"w{k}b", 8), *(_weight(f"{p}w{k}", 8, 8) for p in "qkvogud")]
    steps.append(NORM.format(n="end", x=f"x{layers}", y="y"))
    return f"{HEAD.format(weights=', '.join([*weights, _weight('wend', 8)]))} {{ {' '.join(steps)} }}"


def _weight(name: str, *shape: int) -> str:
    count = 1
    for extent in shape:
        count *= extent
    cells = ", ".join(str(round(((7 * k + len(name)) % 11 - 5) / 12, 4)) for k in range(count))
    return f"float[{', '.join(map(str, shape))}] {name} = {{{cells}}}"
