"""Norms and other composite operators without a body in ONNX's schema, or with a body worse than the specification.

Also operators of onnxruntime's domain: embeddings, which are sums of table rows, rotary embeddings, GELU."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.calculations import swish
from noyau.frontends.onnx.conversions import CONVERSIONS
from noyau.frontends.onnx.creation import CREATION
from noyau.frontends.onnx.positions import lookup
from noyau.frontends.onnx.reductions import mean
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Node


def _layer_normalization(site: OnnxSite) -> list[Node]:
    """LayerNormalization by its specification: the variance is the mean of squared deviations, over the axes from
    `axis` on. The schema's body takes E[x^2] - E[x]^2 of a flattened value, which loses half the digits."""
    value, axes = site.input(), tuple(range(site.axis(site.attribute("axis", -1), site.rank()), site.rank()))
    stash = from_onnx(site.attribute("stash_type", 1))
    if stash is None or not stash.is_float:
        raise UnsupportedError("LayerNormalization computes in a type that is no float")
    wide = value if value.dtype is DType.F64 else site.cast(value, stash)  # onnxruntime rounds no float64 to it
    result, *others = normalize_rows(site, wide, axes, epsilon_of(site, 1e-5))
    return [rescale(site, site.cast(result, value.dtype), 1, 2), *(site.cast(other, stash) for other in others)]


def normalize_rows(site: OnnxSite, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """Deviations from the mean over axes, divided by their spread; the mean; 1 over the spread."""
    centre, deviation, variance = _moments(site, value, axes)
    spread = site.call("sqrt", site.call("add", variance, site.like(epsilon, variance)))
    return site.call("divide", deviation, spread), centre, site.call("reciprocal", spread)


def _moments(site: OnnxSite, value: Node, axes: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """The mean over axes, the deviations from it, and the mean of their squares."""
    centre = mean(site, value, axes)
    deviation = site.call("subtract", value, centre)
    return centre, deviation, mean(site, site.call("multiply", deviation, deviation), axes)


def root_mean_square(site: OnnxSite, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """The value divided by the root of its mean square over axes; and 1 over that root."""
    square = mean(site, site.call("multiply", value, value), axes)
    spread = site.call("sqrt", site.call("add", square, site.like(epsilon, square)))
    return site.call("divide", value, spread), site.call("reciprocal", spread)


def _batch_normalization(site: OnnxSite) -> Node:
    if site.attribute("training_mode", 0):
        raise UnsupportedError("BatchNormalization in training mode gives running statistics")
    value = site.input()
    scale, shift, centre, variance = (_by_channel(site, value, site.input(k)) for k in range(1, 5))
    return _normalize(site, value, centre, variance, scale, shift)


def _normalize(site: OnnxSite, value: Node, centre: Node, variance: Node, scale: Node, shift: Node) -> Node:
    spread = site.call("sqrt", site.call("add", variance, site.like(site.attribute("epsilon", 1e-5), variance)))
    deviation = site.call("subtract", value, site.cast(centre, value.dtype))
    quotient = site.call("divide", deviation, site.cast(spread, value.dtype))
    scaled = site.call("multiply", quotient, site.cast(scale, value.dtype))
    return site.call("add", scaled, site.cast(shift, value.dtype))


def _by_channel(site: OnnxSite, value: Node, channel: Node) -> Node:
    """A vector along axis 1, aligned for broadcasting."""
    if len(channel.shape) != 1 or len(value.shape) < 2:
        raise UnsupportedError(f"{site.op} needs vectors over axis 1 of a value of rank 2 or more")
    return site.restore_axes(channel, range(1, len(value.shape) - 1))


def _instance_normalization(site: OnnxSite) -> Node:
    value = site.input()
    scale, shift = (_by_channel(site, value, site.input(k)) for k in (1, 2))
    centre, _, variance = _moments(site, value, tuple(range(2, len(value.shape))))
    return _normalize(site, value, centre, variance, scale, shift)


def _lp_normalization(site: OnnxSite) -> Node:
    """x / norm along an axis, and 0 where the norm is 0."""
    value, order = site.input(), site.attribute("p", 2)
    if order not in (1, 2):
        raise UnsupportedError(f"LpNormalization of order {order} has no meaning")
    each = site.call("multiply", value, value) if order == 2 else site.call("abs", value)
    norm = site.reduce("sum", each, [site.axis(site.attribute("axis", -1), site.rank())], keep=True)
    norm = site.call("sqrt", norm) if order == 2 else norm
    zero = site.like(0, value)
    return site.call("where", site.call("equal", norm, zero), zero, site.call("divide", value, norm))


def _normalizer(site: OnnxSite) -> Node:
    """Rows over their maximum, NaN aside, the sum of their magnitudes or their length; rows where that is 0 stay."""
    value, norm, last = site.input(), site.attribute("norm", "MAX"), site.rank() - 1
    if value.dtype is not DType.F32 or last not in (0, 1) or norm not in ("MAX", "L1", "L2"):
        raise UnsupportedError(f"Normalizer {norm!r} of {value.dtype.value} of rank {last + 1} has no meaning here")
    least, square = site.like(float(np.finfo(np.float32).min), value), site.call("multiply", value, value)
    cells = {"L1": site.call("abs", value), "L2": square, "MAX": site.call("fmax", value, least)}
    whole = site.reduce("max" if norm == "MAX" else "sum", cells[norm], [last], keep=True)
    part, zero = site.call("divide", square if norm == "L2" else value, whole), site.like(0, value)
    if norm == "L2":
        root = site.call("sqrt", part)
        part = site.call("where", site.call("less", value, zero), site.call("negative", root), root)
    return site.call("where", site.call("equal", whole, zero), value, part)


def _columns_of(site: OnnxSite, position: int, value: Node) -> Node:
    """A tensor of a number for each column of a table, or of one for all."""
    columns = site.input(position)
    if columns.shape not in (value.shape[-1:], (Dim.of(1),)) or len(value.shape) not in (1, 2):
        raise UnsupportedError(f"{site.op} has not one number for each column of a table")
    return site.cast(columns, value.dtype)


def _scaler(site: OnnxSite) -> Node:
    """(x - offset) * scale; whole numbers are float32 before."""
    value = site.input() if site.input().dtype is DType.F64 else site.cast(site.input(), DType.F32)
    shifted = site.call("subtract", value, _columns_of(site, 1, value))
    return site.cast(site.call("multiply", shifted, _columns_of(site, 2, value)), DType.F32)


def _imputer(site: OnnxSite) -> Node:
    """A number of its column in the place of a number, or of NaN."""
    value, wrong = site.input(), float(site.attribute("replaced_value_float", 0.0))
    if not value.dtype.is_float:
        raise UnsupportedError(f"Imputer of {value.dtype.value} has no meaning here")
    relation, other = ("not_equal", value) if math.isnan(wrong) else ("equal", site.like(wrong, value))
    return site.call("where", site.call(relation, value, other), _columns_of(site, 1, value), value)


def _one_hot_encoder(site: OnnxSite) -> Node:
    """1 where a whole number is a category, along a new axis."""
    value, categories = site.input(0), site.input(1)
    if value.dtype is not DType.I64 or not site.attribute("zeros", 1):
        raise UnsupportedError("OneHotEncoder refuses what is no category, or takes its numbers apart")
    return site.cast(site.call("equal", site.restore_axes(value, [len(value.shape)]), categories), DType.F32)


def _feature_vectorizer(site: OnnxSite) -> Node:
    """Columns of several tables side by side."""
    tables, widths = site.all_inputs(), site.attribute("inputdimensions", [])
    if [each.shape[1:] for each in tables] != [(Dim.of(width),) for width in widths]:
        raise UnsupportedError("FeatureVectorizer cuts tables, or fills them up")
    return site.concat([site.cast(each, DType.F32) for each in tables], 1)


def _feature_extractor(site: OnnxSite) -> Node:
    """Some columns of a table."""
    table, columns = site.input(0), site.array(1, "what columns to take")
    if len(table.shape) != 2 or columns.min(initial=0) < 0 or not columns.size:
        raise UnsupportedError("ArrayFeatureExtractor of another rank than 2, or without columns, has no meaning here")
    own, places = indices(2), site.reshape(site.input(1), (Dim.of(columns.size),))
    return lookup(site, table, [own[0], (places, own[1:])], (table.shape[0], places.shape[0]))


def _global_pool(monoid: str, site: OnnxSite) -> Node:
    value, axes = site.input(), tuple(range(2, site.rank()))
    if not axes:
        raise UnsupportedError(f"{site.op} needs a rank of 3 or more")
    return mean(site, value, axes) if monoid == "mean" else site.reduce(monoid, value, axes, keep=True)


def _hardmax(site: OnnxSite) -> Node:
    """1 at the first maximum along an axis, 0 elsewhere."""
    value, axis = site.input(), site.axis(site.attribute("axis", -1), site.rank())
    best = site.reduce("argmax", value, [axis], keep=True)
    return site.cast(site.call("equal", site.iota(f"#{axis}", value.shape), best), value.dtype)


def with_attributes(importer: Importer, *attributes: str) -> Importer:
    """The importer for nodes without other attributes than these; UnsupportedError for others."""

    def checked(site: OnnxSite) -> Node | Sequence[Node]:
        unknown = sorted(site.attributes.keys() - set(attributes))
        if unknown:
            raise UnsupportedError(f"{site.op} has an attribute {unknown[0]!r} that noyau does not know")
        return importer(site)

    return checked


def _rms_normalization(site: OnnxSite) -> list[Node]:
    """RMSNormalization; the result has the dtype of the scale."""
    value, scale = site.input(0), site.input(1)
    if site.attribute("stash_type", 1) != DType.F32.onnx:
        raise UnsupportedError(f"{site.op} computes in a type that is not float32")
    first = site.axis(site.attribute("axis", -1), len(value.shape))
    wide = site.cast(value, value.dtype.compute)
    result, inverse = root_mean_square(site, wide, tuple(range(first, len(value.shape))), epsilon_of(site, 1e-5))
    return [site.call("multiply", site.cast(result, scale.dtype), scale), inverse]


def epsilon_of(site: OnnxSite, default: float = 1e-12) -> float:
    return float(site.attribute("epsilon", default))


def rescale(site: OnnxSite, value: Node, scale: int, shift: int | None = None) -> Node:
    value = site.call("multiply", value, site.input(scale))
    return site.call("add", value, site.input(shift)) if shift is not None and site.has(shift) else value


COMPOSITES: dict[str, Importer] = {
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": partial(_global_pool, "mean"),
    "GlobalMaxPool": partial(_global_pool, "max"),
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    # onnxruntime's operator in the default domain, where ONNX has none of this name, or only in a later opset
    "SimplifiedLayerNormalization": with_attributes(_rms_normalization, "axis", "epsilon", "stash_type"),
}
OF_COLUMNS: dict[str, Importer] = {"Imputer": _imputer, "OneHotEncoder": _one_hot_encoder, "Scaler": _scaler}
TABLE_OPERATORS: dict[str, Importer] = {  # of ai.onnx.ml
    "ArrayFeatureExtractor": with_attributes(_feature_extractor),
    "FeatureVectorizer": with_attributes(_feature_vectorizer, "inputdimensions"),
    "Normalizer": with_attributes(_normalizer, "norm"),
}


def embed_layer_normalization(site: OnnxSite) -> list[Node]:
    """Rows of tables for words, positions and segments, summed and normalised; the ones in each mask row; the sum."""
    ids, rows = site.input(0), site.input(2)
    if len(ids.shape) != 2:
        raise UnsupportedError(f"{site.op} needs ids of rank 2")
    total = site.cast(_row_of(site, rows, ids), rows.dtype.compute)
    places = site.input(8) if site.has(8) else site.expand(site.iota("#0", (ids.shape[1],)), ids.shape)
    total = site.call("add", total, site.cast(_row_of(site, site.input(3), places), total.dtype))
    if site.has(1) and site.has(4):
        total = site.call("add", total, site.cast(_row_of(site, site.input(4), site.input(1)), total.dtype))
    result, _, _ = normalize_rows(site, total, (2,), epsilon_of(site))
    result = rescale(site, site.cast(result, rows.dtype), 5, 6)
    return [result, _mask_index(site, ids), site.cast(site.call("identity", total), rows.dtype)]


def _row_of(site: OnnxSite, table: Node, places: Node) -> Node:
    """table[places[b, s]] for each b and s."""
    if len(table.shape) != 2 or len(places.shape) != 2:
        raise UnsupportedError(f"{site.op} needs tables and ids of rank 2")
    at = indices(3)
    return lookup(site, table, [(places, at[:2]), at[2]], (*places.shape, table.shape[1]))


def _mask_index(site: OnnxSite, ids: Node) -> Node:
    if not site.has(7):
        return site.full(0, DType.I32, ids.shape[:1])
    mask = site.input(7)
    if site.attribute("mask_index_type", 0):
        raise UnsupportedError(f"{site.op} has a mask_index_type that is not 0")
    return site.reduce("sum", site.cast(site.call("equal", mask, site.like(1, mask)), DType.I32), [1])


def rotary_embedding(site: OnnxSite) -> Node:
    """Pairs of cells turned by the angle of their position: (a, b) becomes (a cos - b sin, a sin + b cos)."""
    value, tables = site.input(0), [site.input(2), site.input(3)]
    if site.attribute("scale", 1.0) != 1 or site.attribute("is_packed_batching", 0):
        raise UnsupportedError(f"{site.op} has a scale or packed batches")
    if len(value.shape) not in (3, 4) or any(len(table.shape) != 2 for table in tables):
        raise UnsupportedError(f"{site.op} needs a value of rank 3 or 4, and tables of rank 2")
    heads = _heads(site, value, tables[0].shape[1] * 2)
    places = _places(site, heads.shape[0], heads.shape[2])
    cos, sin = (site.restore_axes(_row_of(site, table, places), [1]) for table in tables)
    turned = _rotate(site, heads, cos, sin)
    return turned if len(value.shape) == 4 else site.reshape(site.transpose(turned, (0, 2, 1, 3)), value.shape)


def _heads(site: OnnxSite, value: Node, width: Dim) -> Node:
    """The value as [batch, heads, length, width of a head]."""
    if len(value.shape) == 4:
        return value
    count, part = site.attribute("num_heads", 0), site.attribute("rotary_embedding_dim", 0)
    if part and not count:
        raise UnsupportedError(f"{site.op} turns a part of each head, and does not say how many heads there are")
    each = value.shape[2] // count if part else width
    return site.transpose(site.reshape(value, (*value.shape[:2], value.shape[2] // each, each)), (0, 2, 1, 3))


def _places(site: OnnxSite, batch: Dim, length: Dim) -> Node:
    """The position of each cell, as [batch, length]: the input itself, or counted from a start."""
    positions = site.input(1)
    if len(positions.shape) == 2:
        site.demand_equal(positions.shape[0], batch)
        site.demand_equal(positions.shape[1], length)
        return positions
    start = site.drop_axes(positions, range(len(positions.shape)))
    return site.expand(site.call("add", start, site.iota("#0", (length,))), (batch, length))


def _rotate(site: OnnxSite, heads: Node, cos: Node, sin: Node) -> Node:
    """Rotate pairs: a cell and the cell half a width behind it, or neighbours if interleaved. Other cells stay."""
    half, near = cos.shape[3], bool(site.attribute("interleaved", 0))
    low = site.slice(heads, 3, 0, half, 2 if near else 1)
    high = site.slice(heads, 3, 1 if near else half, half, 2 if near else 1)
    real = site.call("subtract", site.call("multiply", low, cos), site.call("multiply", high, sin))
    imaginary = site.call("add", site.call("multiply", low, sin), site.call("multiply", high, cos))
    rest = heads.shape[3] - half * 2
    tail = [site.slice(heads, 3, half * 2, rest)] if rest != Dim.of(0) else []
    if near:
        pairs = site.concat([site.restore_axes(real, [4]), site.restore_axes(imaginary, [4])], 4)
        return site.concat([site.reshape(pairs, (*heads.shape[:3], half * 2)), *tail], 3)
    return site.concat([real, imaginary, *tail], 3)


def _gelu(site: OnnxSite) -> Node:
    """x / 2 * (1 + erf(x / sqrt(2))) with x the sum of the inputs."""
    value = _add_bias(site)
    return _gate(site, value, site.call("erf", site.call("multiply", value, site.like(math.sqrt(0.5), value))))


def _fast_gelu(site: OnnxSite) -> Node:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) with x the sum of the inputs."""
    value = _add_bias(site)
    square = site.call("multiply", site.call("multiply", value, value), site.like(0.044715, value))
    cubic = site.call("multiply", value, site.call("add", square, site.like(1, value)))
    return _gate(site, value, site.call("tanh", site.call("multiply", cubic, site.like(math.sqrt(2 / math.pi), value))))


def _add_bias(site: OnnxSite) -> Node:
    if not site.has(1):
        return site.input()
    if site.rank(1) != 1:
        raise UnsupportedError(f"{site.op} is given a bias that is no vector")
    return site.call("add", site.input(), site.input(1))


def _gate(site: OnnxSite, value: Node, inner: Node) -> Node:
    half = site.call("multiply", value, site.like(0.5, value))
    return site.call("multiply", half, site.call("add", inner, site.like(1, value)))


def _add_skip(site: OnnxSite, bias: int) -> tuple[Node, Node]:
    """The sum of input, skip and bias, in the dtype that sums are computed in and in that of the input."""
    value = site.input(0)
    total = site.call("add", *(site.cast(site.input(k), value.dtype.compute) for k in (0, 1)))
    if total.shape != value.shape:
        raise UnsupportedError(f"{site.op} is given a skip whose shape is not that of its input")
    if site.has(bias):
        total = site.call("add", total, site.cast(site.input(bias), total.dtype))
    return total, site.cast(total, value.dtype)


def _skip_layer_normalization(site: OnnxSite) -> list[Node]:
    """LayerNormalization of input + skip + bias over the last axis; outputs: the result, mean, 1 / spread, the sum."""
    total, summed = _add_skip(site, 4)
    result, centre, inverse = normalize_rows(site, total, (site.rank() - 1,), epsilon_of(site))
    result = rescale(site, site.cast(result, summed.dtype), 2, 3)
    return [result, centre, inverse, site.call("identity", summed)]


def _skip_simplified(site: OnnxSite) -> list[Node]:
    """RMSNormalization of input + skip + bias over the last axis; UnsupportedError for a second output."""
    total, summed = _add_skip(site, 3)
    result, inverse = root_mean_square(site, total, (site.rank() - 1,), epsilon_of(site))
    if len(site.outputs) > 1 and site.outputs[1]:
        raise UnsupportedError(f"{site.op} has a mean as its second output, which noyau does not make")
    result = rescale(site, site.cast(result, summed.dtype), 2)
    return [result, inverse, inverse, site.call("identity", summed)]


CONTRIBUTED: dict[str, Importer] = {
    "BiasGelu": with_attributes(_gelu),
    "DequantizeLinear": with_attributes(CONVERSIONS["DequantizeLinear"], "axis", "block_size"),
    "QuantizeLinear": with_attributes(CONVERSIONS["QuantizeLinear"], "axis", "block_size"),  # as ONNX's of opset 21
    "EmbedLayerNormalization": with_attributes(embed_layer_normalization, "epsilon", "mask_index_type"),
    "FastGelu": with_attributes(_fast_gelu),
    "Gelu": with_attributes(_gelu),
    "QuickGelu": with_attributes(partial(swish, 1.702), "alpha"),
    "RotaryEmbedding": with_attributes(
        rotary_embedding, "interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"
    ),
    "SkipLayerNormalization": with_attributes(_skip_layer_normalization, "epsilon"),
    "SkipSimplifiedLayerNormalization": with_attributes(_skip_simplified, "epsilon"),
    "Trilu": with_attributes(CREATION["Trilu"], "upper"),
}
