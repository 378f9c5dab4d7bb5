# ruff: noqa: PLW0108  an example names its arguments by those of a lambda
"""Examples of NumPy: docs/numpy.md lists those that give, when traced, what NumPy gives, and why others do not.

`a` and `b` are f32[3, 4], `v` is f32[4], `k` is i64[5] of places, `m` is f32[4, 4]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Example = Callable[..., Any]

REDUCTIONS: Mapping[str, Example] = {
    "np.sum": lambda a: np.sum(a, axis=1, keepdims=True),
    "np.prod": lambda a: np.prod(a, axis=(0, 1)),
    "np.mean": lambda a: np.mean(a, axis=0, where=a > 0),
    "np.var": lambda a: np.var(a, axis=-1, ddof=1),
    "np.std": lambda a: np.std(a),
    "np.max": lambda a: np.max(a, axis=0, initial=0),
    "np.min": lambda a: np.min(a, axis=1),
    "np.amax": lambda a: np.amax(a),
    "np.amin": lambda a: np.amin(a),
    "np.argmax": lambda a: np.argmax(a, axis=1, keepdims=True),
    "np.argmin": lambda a: np.argmin(a),
    "np.any": lambda a: np.any(a > 1, axis=0),
    "np.all": lambda a: np.all(a, axis=None),
    "np.count_nonzero": lambda a: np.count_nonzero(a > 0, axis=1),
    "np.ptp": lambda a: np.ptp(a, axis=1),
    "np.average": lambda a, v: np.average(a, axis=1, weights=np.abs(v)),
    "np.cumsum": lambda a: np.cumsum(a, axis=1),
    "np.cumprod": lambda a: np.cumprod(a),
    "np.linalg.norm": lambda a: np.linalg.norm(a, axis=1),
    "np.trapezoid": lambda a: np.trapezoid(a, dx=0.5),
    "np.gradient": lambda a, v: np.gradient(a, np.cumsum(np.abs(v)), axis=1),
    "np.trace": np.trace,
    "np.nansum": lambda a: np.nansum(np.sqrt(a), axis=0),
    "np.nanprod": lambda a: np.nanprod(np.sqrt(a)),
    "np.nanmean": lambda a: np.nanmean(np.sqrt(a), axis=1),
    "np.nanvar": lambda a: np.nanvar(np.sqrt(a), ddof=1),
    "np.nanstd": lambda a: np.nanstd(np.sqrt(a), axis=1),
    "np.nanmax": lambda a: np.nanmax(np.sqrt(a), axis=1),
    "np.nanmin": lambda a: np.nanmin(np.sqrt(a)),
    "np.nanargmax": lambda a: np.nanargmax(np.sqrt(a)),
    "np.nanargmin": lambda a: np.nanargmin(np.sqrt(a)),
    "np.nancumsum": lambda a: np.nancumsum(np.sqrt(a), axis=1),
    "np.cumulative_sum": lambda a: np.cumulative_sum(a, axis=1, include_initial=True),
    "np.cumulative_prod": lambda a: np.cumulative_prod(a, axis=0),
    "np.cov": lambda a: np.cov(a),
    "np.corrcoef": lambda a: np.corrcoef(a),
    "np.histogram": lambda a: np.histogram(a, bins=4)[0],
    "np.linalg.vector_norm": lambda a: np.linalg.vector_norm(a, axis=1),
    "np.linalg.matrix_norm": lambda m: np.linalg.matrix_norm(m, ord=1),
    "np.linalg.trace": lambda m: np.linalg.trace(m),
    "np.apply_over_axes": lambda a: np.apply_over_axes(np.sum, a, [0, 1]),
    "np.apply_along_axis": lambda a: np.apply_along_axis(np.ptp, 1, a),
    "np.nancumprod": lambda a: np.nancumprod(np.sqrt(a)),
}
CHOICES: Mapping[str, Example] = {
    "np.where": lambda a, b: np.where(a > b, a, 0),
    "np.select": lambda a, b: np.select([a > 1, b > 1], [a, b], -1),
    "np.choose": lambda a, k: np.choose(k, [0.5, 1.5, 2.5], mode="clip"),
    "np.clip": lambda a: np.clip(a, -1, 1),
    "np.round": lambda a: np.round(a, 1),
    "np.around": lambda a: np.around(a),
    "np.fix": lambda a: np.fix(a),
    "np.sinc": lambda a: np.sinc(a),
    "np.nan_to_num": lambda a: np.nan_to_num(np.log(a)),
    "np.piecewise": lambda a: np.piecewise(a, [a < 0, a > 1], [lambda x: -x, 1, np.square]),
    "np.isin": lambda k: np.isin(k, [1, 2]),
    "np.unwrap": lambda a: np.unwrap(3 * a),
    "np.angle": lambda a: np.angle(a),
    "np.i0": lambda a: np.i0(a),
    "np.isreal": lambda a: np.isreal(a),
    "np.iscomplex": lambda a: np.iscomplex(a),
    "np.imag": lambda a: np.imag(a),
    "np.array_equiv": lambda a, v: np.array_equiv(a, v),
    "np.isclose": lambda a, b: np.isclose(a, b),
    "np.allclose": lambda a, b: np.allclose(a, b),
    "np.array_equal": lambda a, b: np.array_equal(a, b),
    "np.isposinf": lambda a: np.isposinf(a / 0),
    "np.isneginf": lambda a: np.isneginf(a / 0),
    "np.astype": lambda a: np.astype(a, np.int32),
    "np.copy": lambda a: np.copy(a),
    "np.copyto": lambda a: _copied(a),
    "np.putmask": lambda a: _put(a),
    "np.extract": lambda a: np.extract(a > 0, a).sum(),
}
SHAPES: Mapping[str, Example] = {
    "np.reshape": lambda a: np.reshape(a, (2, -1)),
    "np.ravel": lambda a: np.ravel(a),
    "np.transpose": lambda a: np.transpose(a),
    "np.matrix_transpose": lambda a: np.matrix_transpose(a),
    "np.permute_dims": lambda a: np.permute_dims(a, (1, 0)),
    "np.swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "np.moveaxis": lambda a: np.moveaxis(a[None], [0, 1], [2, 0]),
    "np.rollaxis": lambda a: np.rollaxis(a[None], 2),
    "np.squeeze": lambda a: np.squeeze(a[None]),
    "np.expand_dims": lambda a: np.expand_dims(a, (0, 2)),
    "np.broadcast_to": lambda v: np.broadcast_to(v, (3, 4)),
    "np.broadcast_arrays": lambda a, v: np.broadcast_arrays(a, v)[1],
    "np.atleast_1d": lambda v: np.atleast_1d(v[0]),
    "np.atleast_2d": lambda v: np.atleast_2d(v),
    "np.atleast_3d": lambda v: np.atleast_3d(v),
    "np.flip": lambda a: np.flip(a, 1),
    "np.flipud": lambda a: np.flipud(a),
    "np.fliplr": lambda a: np.fliplr(a),
    "np.rot90": lambda a: np.rot90(a, 3),
    "np.diagonal": lambda a: np.diagonal(a, 1),
    "np.concatenate": lambda a, b: np.concatenate([a, b], axis=1),
    "np.stack": lambda a, b: np.stack([a, b], axis=1),
    "np.vstack": lambda a, v: np.vstack([a, v]),
    "np.hstack": lambda a, b: np.hstack([a, b]),
    "np.dstack": lambda a, b: np.dstack([a, b]),
    "np.column_stack": lambda v: np.column_stack([v, v]),
    "np.append": lambda a, v: np.append(a, v),
    "np.split": lambda a: np.split(a, 2, axis=1)[1],
    "np.array_split": lambda a: np.array_split(a, 3, axis=1)[0],
    "np.hsplit": lambda a: np.hsplit(a, 2)[0],
    "np.vsplit": lambda a: np.vsplit(a, [1])[1],
    "np.dsplit": lambda a: np.dsplit(a[None], 2)[1],
    "np.unstack": lambda a: np.unstack(a, axis=0)[0],
    "np.tile": lambda a: np.tile(a, (2, 1, 3)),
    "np.repeat": lambda a: np.repeat(a, 2, axis=1),
    "np.roll": lambda a: np.roll(a, 1, axis=1),
    "np.pad": lambda a: np.pad(a, ((1, 2), (0, 1)), mode="edge"),
    "np.diff": lambda a: np.diff(a, n=2, axis=1, prepend=0),
    "np.ediff1d": lambda a: np.ediff1d(a, to_begin=0),
    "np.block": lambda a, b: np.block([[a, b], [b, a]]),
    "np.concat": lambda a, b: np.concat([a, b], axis=1),
    "np.r_": lambda a, v: np.r_[v, 0, a[0], 1:3],
    "np.c_": lambda v: np.c_[v, v],
    "np.resize": lambda a: np.resize(a, (5, 3)),
    "np.insert": lambda a: np.insert(a, 1, 7, axis=1),
    "np.delete": lambda a: np.delete(a, -1, axis=0),
    "np.diag": lambda v: np.diag(v, 1),
    "np.diagflat": lambda a: np.diagflat(a),
    "np.fill_diagonal": lambda m: _diagonal_filled(m),
    "np.tril": lambda a: np.tril(a, 1),
    "np.triu": lambda a: np.triu(a),
    "np.take": lambda a, k: np.take(a, k % 4, axis=1),
    "np.take_along_axis": lambda a: np.take_along_axis(a, np.argmax(a, axis=1, keepdims=True), axis=1),
    "np.put_along_axis": lambda a: _put_along(a),
    "np.put": lambda a: _put_flat(a),
    "np.searchsorted": lambda a, v: np.searchsorted(np.cumsum(np.abs(v)), a),
    "np.digitize": lambda a: np.digitize(a, [-1, 0, 1]),
    "np.bincount": lambda k: np.bincount(np.ravel(k) % 9, minlength=9),
    "np.interp": lambda a, v: np.interp(a, np.cumsum(np.abs(v)), v),
    "np.lib.stride_tricks.sliding_window_view": lambda a: sliding_window_view(a, 2, axis=1).max(-1),
    "np.tril_indices": lambda m: m[np.tril_indices(m.shape[0])],
    "np.triu_indices_from": lambda m: m[np.triu_indices_from(m)],
    "np.diag_indices_from": lambda m: m[np.diag_indices_from(m)],
    "np.unravel_index": lambda k: np.unravel_index(np.abs(k), (2, 3))[0],
    "np.ravel_multi_index": lambda k: np.ravel_multi_index((np.abs(k), np.abs(k)), (3, 3)),
    "np.ix_": lambda a: a[np.ix_(np.arange(a.shape[0]), np.array([0, 2]))],
    "np.meshgrid": lambda v: np.meshgrid(v, v[:2])[1],
    "np.shape": lambda a: np.zeros(np.shape(a)),
    "np.size": lambda a: a * np.size(a),
    "np.ndim": lambda a: a * np.ndim(a),
}
PRODUCTS: Mapping[str, Example] = {
    "np.matmul": lambda a, m: np.matmul(a, m),
    "np.dot": lambda a, v: np.dot(a, v),
    "np.vdot": lambda a, b: np.vdot(a, b),
    "np.vecdot": lambda a, v: np.vecdot(a, v),
    "np.inner": lambda a, b: np.inner(a, b),
    "np.outer": lambda v: np.outer(v, v),
    "np.tensordot": lambda a, b: np.tensordot(a, b, axes=([1], [1])),
    "np.einsum": lambda a, m: np.einsum("ij,jk,jj->ik", a, m, m),
    "np.kron": lambda a, v: np.kron(a, v),
    "np.convolve": lambda a, v: np.convolve(v, a[0], mode="same"),
    "np.correlate": lambda a, v: np.correlate(v, a[0], mode="full"),
    "np.polyval": lambda a, v: np.polyval(v, a),
    "np.polyadd": lambda a, v: np.polyadd(v, a[0, 1:]),
    "np.polyder": lambda v: np.polyder(v),
    "np.polyint": lambda v: np.polyint(v),
    "np.vander": lambda v: np.vander(v, 3),
    "np.linalg.multi_dot": lambda a, m, v: np.linalg.multi_dot([a, m, v]),
    "np.linalg.matrix_power": lambda m: np.linalg.matrix_power(m, 3),
    "np.cross": lambda a: np.cross(a[:, :3], a[:, 1:]),
}
CREATION: Mapping[str, Example] = {
    "np.arange": lambda a: np.arange(a.shape[1]) + a,
    "np.linspace": lambda a: np.linspace(0, 1, a.shape[1]) * a,
    "np.logspace": lambda a: np.logspace(0, 1, a.shape[1]) * a,
    "np.mgrid": lambda a: np.mgrid[: a.shape[0], : a.shape[1]],
    "np.ogrid": lambda a: np.ogrid[: a.shape[0], : a.shape[1]][1] * a,
    "np.zeros": lambda a: np.zeros(a.shape, np.int32),
    "np.ones": lambda a: np.ones(a.shape[0]),
    "np.empty": lambda a: _filled(a),
    "np.full": lambda a: np.full(a.shape, 2.5),
    "np.zeros_like": lambda a: np.zeros_like(a),
    "np.ones_like": lambda a: np.ones_like(a, dtype=int),
    "np.empty_like": lambda a: _copied(a),
    "np.full_like": lambda a: np.full_like(a, 3),
    "np.eye": lambda a: np.eye(a.shape[0]) @ a,
    "np.identity": lambda a: np.identity(a.shape[0]),
    "np.tri": lambda a: np.tri(a.shape[0], a.shape[1], -1),
    "np.indices": lambda a: np.indices(a.shape),
    "np.fromfunction": lambda a: np.fromfunction(_place, a.shape),
    "np.array": lambda a: np.array((a[0].sum(), a[1].max())),
    "np.asarray": lambda a: np.asarray(a, np.float64),
    "np.ascontiguousarray": lambda a: np.ascontiguousarray(a.T),
}


def _method(name: str) -> Example:
    return lambda a: getattr(a, name)()


_PLAIN = """sum prod mean var std max min argmax argmin any all cumsum cumprod ravel flatten squeeze copy transpose
round conj conjugate trace diagonal""".split()
METHODS: Mapping[str, Example] = {f".{name}()": _method(name) for name in _PLAIN} | {
    ".clip()": lambda a: a.clip(0, 1),
    ".astype()": lambda a: a.astype("i4"),
    ".reshape()": lambda a: a.reshape(4, 3),
    ".swapaxes()": lambda a: a.swapaxes(0, 1),
    ".repeat()": lambda a: a.repeat(2),
    ".take()": lambda a, k: a.take(k),
    ".dot()": lambda a, v: a.dot(v),
    ".fill()": lambda a: _zeroed(a),
    ".searchsorted()": lambda a, v: np.cumsum(np.abs(v)).searchsorted(a),
    ".put()": lambda a: _put_flat(a),
    ".flat": lambda a: _put_flat(a).flat[1::2],
    ".T": lambda a: a.T,
    ".mT": lambda a: a.mT,
    ".real": lambda a: a.real,
    ".shape": lambda a: a.reshape(a.shape[1], a.shape[0]),
    ".size": lambda a: a / a.size,
    ".ndim": lambda a: a * a.ndim,
    ".dtype": lambda a: np.ones(3, a.dtype),
    ".itemsize, .nbytes": lambda a: a * a.itemsize + a.nbytes,
}
INDEXING: Mapping[str, Example] = {
    "a[0], a[-1, 2]": lambda a: a[0] + a[-1, 2],
    "a[:, 1:-1], a[::-1, ::2]": lambda a: a[:, 1:-1] + a[::-1, ::2],
    "a[:100], clamped": lambda a: a[:100, 1:50],
    "a[..., None, :]": lambda a: a[..., None, :],
    "a[: a.shape[0] // 2]": lambda a: a[: a.shape[0] // 2],
    "a[[0, 2]], a[k]": lambda a, k: a[[0, 2]].sum() + a[k],
    "a[k, j], several broadcast together": lambda a, k: a[k, k[:, None] % 4],
    "a[:, k, None]": lambda a, k: a[:, k, None],
    "np.eye(5)[k], TABLE[k]": lambda k: np.eye(5)[k],
    "a[v > 0].sum() and mean, max, any...": lambda a: a[a > 0].sum() + a[a > 0].mean(),
    "out[1:] = a[:-1]": lambda a: _shifted(a),
    "out[::2, 1] += 1": lambda a: _stepped(a),
    "out[k] = v": lambda a, v, k: _scattered(a, v, k),
    "out[out < 0] = 0": lambda a: _masked(a),
    "out[a > 0] = np.log(a[a > 0])": lambda a: _logged(a),
    "row = out[0]; row += 1": lambda a: _through_a_view(a),
    "out.reshape(-1)[:k] = v": lambda a, v: _through_a_reshape(a, v),
    "np.add.at(out, k, v)": lambda v, k: _counted(v, k),
}
SIZES: Mapping[str, Example] = {
    "a.shape[0] * a": lambda a: a.shape[0] * a,
    "len(a)": lambda a: a / len(a),
    "np.prod(a.shape)": lambda a: a.reshape(np.prod(a.shape)),
    "math.sqrt(a.shape[1])": lambda a: a / math.sqrt(a.shape[1]),
    "max(a.shape)": lambda a: np.arange(max(a.shape)),
    "if a.shape[0] > 2": lambda a: a if a.shape[0] > 2 else -a,
    "for i in range(a.shape[0])": lambda a: sum(a[i] for i in range(a.shape[0])),
    "for row in a": lambda a: sum(row.sum() for row in a),
    "int(n), float(n)": lambda a: a * int(a.shape[0]) + float(a.shape[1]),
}


def _place(i: Any, j: Any) -> Any:
    return i * 10 + j


def _copied(a: Any) -> Any:
    out = np.empty_like(a)
    np.copyto(out, a)
    np.copyto(out, 0, where=a < 0)
    return out


def _put(a: Any) -> Any:
    out = a.copy()
    np.putmask(out, out < 0, -1)
    return out


def _diagonal_filled(m: Any) -> Any:
    out = m.copy()
    np.fill_diagonal(out, 0)
    return out


def _put_along(a: Any) -> Any:
    out = a.copy()
    np.put_along_axis(out, np.argmax(out, axis=1, keepdims=True), 0, axis=1)
    return out


def _put_flat(a: Any) -> Any:
    out = a.copy()
    np.put(out, [0, 5], 1)
    out.flat[::4] = 2
    return out


def _through_a_reshape(a: Any, v: Any) -> Any:
    out = np.zeros(a.shape, a.dtype)
    out.reshape(-1)[: v.shape[0]] = v
    return out


def _filled(a: Any) -> Any:
    out = np.empty(a.shape, a.dtype)
    out[...] = a
    return out


def _zeroed(a: Any) -> Any:
    out = a * 2
    out.fill(7)
    return out


def _shifted(a: Any) -> Any:
    out = np.zeros_like(a)
    out[1:] = a[:-1]
    return out


def _stepped(a: Any) -> Any:
    out = a.copy()
    out[::2, 1] += 1
    return out


def _scattered(a: Any, v: Any, k: Any) -> Any:
    out = a.copy()
    out[k] = v
    return out


def _masked(a: Any) -> Any:
    out = a.copy()
    out[out < 0] = 0
    return out


def _logged(a: Any) -> Any:
    out = np.zeros_like(a)
    out[a > 0] = np.log(a[a > 0])
    return out


def _through_a_view(a: Any) -> Any:
    out = a.copy()
    row = out[0]
    row += 1
    return out * row


def _counted(v: Any, k: Any) -> Any:
    out = np.zeros(7, v.dtype)
    np.add.at(out, k, v[0])
    return out


REFUSED: Mapping[str, Example] = {
    "if a.sum() > 0": lambda a: a if a.sum() > 0 else -a,
    "float(a[0, 0]), a.item()": lambda a: a * float(a[0, 0]),
    "a[a > 0]": lambda a: a[a > 0],
    "a[0] = 1, of an argument": lambda a: a.__setitem__(0, 1),
    "np.sort": lambda a: np.sort(a),
    "np.argsort": lambda a: np.argsort(a),
    "np.median": lambda a: np.median(a),
    "np.quantile": lambda a: np.quantile(a, 0.5),
    "np.unique": lambda a: np.unique(a),
    "np.nonzero": lambda a: np.nonzero(a),
    "np.polyfit": lambda v: np.polyfit(v, v, 1),
    "np.vectorize": lambda a: np.vectorize(math.exp)(a),
    "np.float32(a)": lambda a: np.float32(a),
    "a.strides, a.flags": lambda a: a * a.strides[0],
    "np.bincount without minlength": lambda k: np.bincount(np.ravel(k)),
    "np.linalg.solve": lambda m, v: np.linalg.solve(m, v),
    "np.fft.fft": lambda a: np.fft.fft(a),
    "np.random": lambda a: a + np.random.default_rng(0).random(4),
    "complex numbers": lambda a: a * 1j,
    "print": lambda a: print(a) or a,
}
