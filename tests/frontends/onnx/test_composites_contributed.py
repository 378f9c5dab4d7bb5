"""Operators of onnxruntime's own, against onnxruntime itself."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from noyau.frontends.onnx import ImportedModel
from noyau.ir.graph import Select
from tests.frontends.onnx.models import imported, model, results

RNG = np.random.default_rng(0)
DOMAIN = ', "com.microsoft" : 1, "ai.onnx.ml" : 3'
TOLERANCE = {np.float32: 2e-6, np.float16: 2e-3}
DTYPES = {"float": np.float32, "float16": np.float16}


def proto_of(text: str) -> onnx.ModelProto:
    return model(text, 18, DOMAIN)


def agree(text: str, feeds: dict[str, np.ndarray], tolerance: float) -> ImportedModel:
    """The import, whose graph has no boundary and gives what onnxruntime gives."""
    proto = proto_of(text)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = imported(proto)
    assert not found.opaque, found.opaque
    for got, want in zip(results(found, feeds), session.run(None, feeds), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)
    return found


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("op", ["Gelu", "QuickGelu", "QuickGelu<alpha = 1.0>", "QuickGelu<alpha = -0.5>", "FastGelu"])
def test_activations(op, dtype):
    if dtype == "float16" and op == "Gelu":
        pytest.skip("onnxruntime has no kernel for it on a CPU")
    name, _, rest = op.partition("<")
    x = np.concatenate([drawn(dtype, 3, 8), 8 * drawn(dtype, 1, 8)])
    text = f"({dtype}[n, m] x) => ({dtype}[n, m] y) {{ y = com.microsoft.{name}{'<' + rest if rest else ''}(x) }}"
    agree(text, {"x": x}, TOLERANCE[DTYPES[dtype]])


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16"])
def test_quantisation_with_one_scale_and_along_an_axis(kind):
    """onnxruntime's quantizer writes these for 16 bits, and what lay between them had no type."""
    text = f"""(float[n, 6] x, float s, {kind} z, float[6] t, {kind}[6] k)
        => ({kind}[n, 6] q, float[n, 6] y, float[n, 6] v) {{
        q = com.microsoft.QuantizeLinear(x, s, z)  y = com.microsoft.DequantizeLinear(q, s, z)
        v = com.microsoft.DequantizeLinear<axis = 1>(q, t, k) }}"""
    zero, several = np.array(7, kind), np.arange(6).astype(kind)
    feeds = {"x": 9 * drawn("float", 5, 6), "s": np.float32(0.25), "z": zero, "t": drawn("float", 6), "k": several}
    agree(text, {name: np.asarray(array) for name, array in feeds.items()}, 0)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_of_a_table_over_their_norm(norm):
    """onnxruntime's maximum is of signed cells and passes over NaN; a row whose divisor is 0 stays as it is."""
    rows = [[1, 2, 2], [0, 0, 0], [-0.0, 0, -0.0], [-1, -2, -3], [np.nan, 1, 2], [1, 2, np.nan], [np.nan] * 3]
    rows += [[-np.inf] * 3, [np.inf, 1, -np.inf], [-1, 0, -1], [1e-30, 0, 0], [1e30, 1, -1e30], [3, 3, -3]]
    text = f'{{ y = ai.onnx.ml.Normalizer <norm = "{norm}"> (x) }}'
    agree(f"(float[n, 3] x) => (float[n, 3] y) {text}", {"x": np.array(rows, np.float32)}, 2e-7)
    agree(f"(float[n] x) => (float[n] y) {text}", {"x": drawn("float", 9)}, 1e-6)
    refused = imported(proto_of(f"(int32[n, 3] x) => (float[n, 3] y) {text}"))
    assert refused.opaque[0] == f"Normalizer '{norm}' of i32 of rank 2 has no meaning here"
    assert refused.graph["y"].dtype.value == "f32" and refused.graph["y"].shape == refused.graph["x"].shape


@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_columns_of_tables_are_taken_and_put_side_by_side(dtype):
    vectorizer = "ai.onnx.ml.FeatureVectorizer <inputdimensions = [{}, 2]>"
    text = f"""({dtype}[n, 5] x, {dtype}[n, 2] k) => (float[n, 5] y) {{
        c = Constant <value = int64[1, 3] {{3, 0, 3}}> ()  t = ai.onnx.ml.ArrayFeatureExtractor (x, c)
        y = {vectorizer.format(3)} (t, k) }}"""
    feeds = {"x": 9 * RNG.standard_normal((4, 5)), "k": 9 * RNG.standard_normal((4, 2))}
    agree(text, {name: array.astype(dtype.replace("float", "float32")) for name, array in feeds.items()}, 0)
    text = f"({dtype}[n, 4] x, {dtype}[n, 2] k) => (float[n, 5] y) {{ y = {vectorizer.format(3)} (x, k) }}"
    refused = imported(proto_of(text))
    assert refused.opaque == {0: "FeatureVectorizer cuts tables, or fills them up"}


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu"])
def test_activations_with_a_bias(op):
    text = f"(float[n, s, 6] x, float[6] b) => (float[n, s, 6] y) {{ y = com.microsoft.{op}(x, b) }}"
    agree(text, {"x": drawn("float", 2, 3, 6), "b": drawn("float", 6)}, 2e-6)


SKIP = "({t}[n, s, 8] x, {t}[{skip}] k, {t}[8] g, {t}[8] b, {t}[8] c) => ({t}[n, s, 8] y{more}) {{ {made} }}"


def skip_feeds(dtype: str, *shape: int) -> dict[str, np.ndarray]:
    vectors = {name: drawn(dtype, 8) for name in "gbc"}
    return {"x": drawn(dtype, 2, 3, 8), "k": drawn(dtype, *shape), **vectors}


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("y = com.microsoft.SkipLayerNormalization(x, k, g)", ""),
        ("y = com.microsoft.SkipLayerNormalization(x, k, g, b)", ""),
        ("y = com.microsoft.SkipLayerNormalization<epsilon = 0.1>(x, k, g, b, c)", ""),
        ("y, , , z = com.microsoft.SkipLayerNormalization(x, k, g, b, c)", ", {t}[n, s, 8] z"),
        ("y = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g)", ""),
        ("y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.1>(x, k, g, c)", ""),
        ("y, , , z = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g, c)", ", {t}[n, s, 8] z"),
    ],
)
def test_norms_of_a_sum(call, more, dtype):
    text = SKIP.format(t=dtype, skip="n, s, 8", more=more.format(t=dtype), made=call)
    agree(text, skip_feeds(dtype, 2, 3, 8), TOLERANCE[DTYPES[dtype]] * 4)


@pytest.mark.parametrize("skip", [(1, 3, 8), (3, 8)])
def test_a_skip_is_repeated_for_each_of_a_batch(skip):
    made = "y = com.microsoft.SkipLayerNormalization(x, k, g, b)"
    dims = ", ".join(["1", "s", "8"][-len(skip) :])
    agree(SKIP.format(t="float", skip=dims, more="", made=made), skip_feeds("float", *skip), 1e-5)


@pytest.mark.parametrize(("dtype", "scale"), [("float", "float"), ("float16", "float16"), ("float16", "float")])
@pytest.mark.parametrize("axis", [-1, 1])
def test_the_root_mean_square_norm_of_the_default_domain(axis, dtype, scale):
    dims, shape = ("6, 8", (6, 8)) if axis == 1 else ("8", (8,))
    text = (
        f"({dtype}[n, 6, 8] x, {scale}[{dims}] g) => ({scale}[n, 6, 8] y) "
        f"{{ y = SimplifiedLayerNormalization<axis = {axis}, epsilon = 0.001>(x, g) }}"
    )
    agree(text, {"x": drawn(dtype, 2, 6, 8), "g": drawn(scale, *shape)}, TOLERANCE[DTYPES[dtype]] * 4)


ROTARY = (
    "(float[{x}] x, int64[{p}] p, float[9, {half}] c, float[9, {half}] s) => (float[{x}] y) {{ y = {op}(x, p, c, s) }}"
)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [(2, 4), (1,)])
@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (2, 4, 24)])
def test_rotary_embedding(shape, places, interleaved):
    dims = "n, 3, t, 8" if len(shape) == 4 else "n, t, 24"
    text = ROTARY.format(
        x=dims,
        p="n, t" if len(places) == 2 else "1",
        half=4,
        op=f"com.microsoft.RotaryEmbedding<interleaved = {interleaved}>",
    )
    angles = RNG.standard_normal((9, 4)).astype(np.float32)
    at = RNG.integers(0, 9, places) if len(places) == 2 else np.array([5])
    agree(text, {"x": drawn("float", *shape), "p": at, "c": np.cos(angles), "s": np.sin(angles)}, 2e-6)


def test_a_part_of_each_head_may_be_turned():
    op = "com.microsoft.RotaryEmbedding<num_heads = 3, rotary_embedding_dim = 4>"
    angles = RNG.standard_normal((9, 2)).astype(np.float32)
    feeds = {"x": drawn("float", 2, 4, 24), "p": np.array([2]), "c": np.cos(angles), "s": np.sin(angles)}
    found = agree(ROTARY.format(x="n, t, 24", p="1", half=2, op=op), feeds, 2e-6)
    assert any(isinstance(node.kind, Select) for node in found.graph.nodes)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("mask", [True, False])
def test_embeddings(mask, segments):
    text = """(int32[n, s] ids, int32[n, s] kinds, int32[n, s] m, float[9, 8] w, float[7, 8] p, float[2, 8] k,
        float[8] g, float[8] b) => (float[n, s, 8] y, int32[n] count, float[n, s, 8] total)
        { y, count, total = com.microsoft.EmbedLayerNormalization<epsilon = 1e-5>(ids, KINDS, w, p, TABLE, g, b, M) }"""
    text = text.replace("KINDS", "kinds" if segments else "").replace("TABLE", "k" if segments else "")
    text = text.replace(", M)", ", m)" if mask else ")")
    ids, kinds, m = (RNG.integers(0, most, (2, 5)).astype(np.int32) for most in (9, 2, 2))
    tables = {"w": drawn("float", 9, 8), "p": drawn("float", 7, 8), "k": drawn("float", 2, 8)}
    agree(text, {"ids": ids, "kinds": kinds, "m": m, **tables, "g": drawn("float", 8), "b": drawn("float", 8)}, 4e-6)


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(upper):
    text = f"(float[n, n] x) => (float[n, n] y) {{ y = com.microsoft.Trilu<upper = {upper}>(x) }}"
    agree(text, {"x": drawn("float", 5, 5)}, 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y = com.microsoft.FusedMatMul<transB = 1>(x, x)", "FusedMatMul is a library call with what surrounds it"),
        ("y = com.microsoft.MatMulNBits<K = 8, N = 8, block_size = 16>(x, x, x)", "MatMulNBits is a library call"),
        ("y = com.microsoft.BiasSoftmax<is_inner_broadcast = 1>(x, x)", "already fused by onnxruntime: BiasSoftmax"),
        ("y = com.microsoft.nchwc.ReorderInput(x)", "ReorderInput in the memory layout of its convolutions"),
        ("y = com.microsoft.Unheard(x)", "no meaning for operator Unheard of domain com.microsoft"),
        ("y = com.microsoft.QuickGelu<beta = 1.0>(x)", "QuickGelu has an attribute 'beta' that noyau does not know"),
        ("y = com.microsoft.FastGelu(x, x)", "FastGelu is given a bias that is no vector"),
        (
            "y = com.microsoft.SkipLayerNormalization(x, w, w)",
            "SkipLayerNormalization is given a skip whose shape is not",
        ),
        ("y, z = com.microsoft.SkipSimplifiedLayerNormalization(x, x, w)", "has a mean as its second output"),
        ("y = SimplifiedLayerNormalization<stash_type = 10>(x, w)", "computes in a type that is not float32"),
        ("y = com.microsoft.RotaryEmbedding<scale = 2.0>(x, p, x, x)", "RotaryEmbedding has a scale or packed"),
        ("y = com.microsoft.RotaryEmbedding(x, p, x, x)", "needs a value of rank 3 or 4, and tables of rank 2"),
        ("y = com.microsoft.EmbedLayerNormalization(p, , x, x, , w, w)", "EmbedLayerNormalization needs ids of rank 2"),
    ],
)
def test_what_is_left_is_a_boundary_with_its_reason(text, reason):
    found = imported(
        model(
            f"(float[n, 8] x, float[k, m, 8] w, int64[1] p) => (float y) {{ {text} }}",
            18,
            f'{DOMAIN}, "com.microsoft.nchwc" : 1',
        )
    )
    assert reason in found.opaque[0]


def test_a_function_of_the_model_comes_before_the_operator():
    proto = proto_of("(float[n] x) => (float[n] y) { y = com.microsoft.Gelu(x) }")
    body = onnx.parser.parse_function(
        '<domain: "com.microsoft", opset_import: ["" : 18]> Gelu (x) => (y) { y = Neg(x) }'
    )
    proto.functions.append(body)
    x = drawn("float", 4)
    np.testing.assert_array_equal(results(imported(proto), {"x": x})[0], -x)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("FusedMatMul(a, b)", "[n, 4, 6]"),
        ("FusedMatMul<transA = 1>(b, b)", "[n, 6, 6]"),
        ("FusedMatMul<transB = 1>(a, w)", "[n, 4, 3]"),
        ("FusedMatMul<transB = 1, alpha = 0.5>(b, b)", "[n, 5, 5]"),
        ("MatMulNBits<K = 5, N = 7, block_size = 16>(a, w, w)", "[n, 4, 7]"),
        ("DynamicQuantizeMatMul(b, q, w)", "[n, 5, 18]"),
        ("Attention<num_heads = 1>(b, q)", "[n, 5, 6]"),
        ("Attention<num_heads = 1, qkv_hidden_sizes = [6, 6, 4]>(b, q)", "[n, 5, 4]"),
        ("MultiHeadAttention<num_heads = 1>(b, b, a)", "[n, 5, 5]"),
        ("GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(b, a, a)", "[n, 5, 6]"),
        ("FusedGemm<transB = 1>(w, w)", "[3, 3]"),
    ],
)
def test_what_boundaries_give(call, shape):
    """Models that onnxruntime saved tell no shapes where the exporter did not."""
    text = "(float[n, 4, 5] a, float[n, 5, 6] b, float[3, 5] w, float[6, 18] q) => (float y) "
    found = imported(proto_of(f"{text} {{ y = com.microsoft.{call} }}"))
    assert f"[{', '.join(map(str, found.graph['y'].shape))}]" == shape


def test_half_types_are_summed_wide():
    """In bfloat16, 256 + 1 is 256: a norm that summed so would lose every cell but the first."""
    text = "(bfloat16[n, 512] x, bfloat16[512] g) => (bfloat16[n, 512] y) { y = SimplifiedLayerNormalization(x, g) }"
    x = np.ones((1, 512), ml_dtypes.bfloat16)
    (got,) = results(imported(proto_of(text)), {"x": x, "g": x[0]})
    np.testing.assert_array_equal(got.astype(float), 1)
