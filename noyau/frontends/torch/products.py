"""ATen's products of matrices, as Contract nodes."""

from __future__ import annotations

from noyau.errors import UnsupportedError
from noyau.frontends.torch.calculations import apply, times
from noyau.frontends.torch.sites import ATEN, AtenSite, Handler
from noyau.ir.graph import Node


def einsum_of(equation: str) -> Handler:
    """An einsum of two operands."""
    return lambda site: site.builder.contract(equation, [site.value(0), site.value(1)])


def _matmul(site: AtenSite) -> Node:
    """A product of ranks 1 to n, the axes before the last two broadcast."""
    left, right = site.value(0), site.value(1)
    if min(len(left.shape), len(right.shape)) > 2 and len(left.shape) != len(right.shape):
        raise UnsupportedError("aten.matmul of different ranks above 2 is left to torch")
    letters = "cdefgh"[: max(len(left.shape), len(right.shape), 2) - 2]
    rows = letters[len(letters) - max(len(left.shape) - 2, 0) :] + ("i" if len(left.shape) > 1 else "") + "k"
    columns = letters[len(letters) - max(len(right.shape) - 2, 0) :] + "k" + ("j" if len(right.shape) > 1 else "")
    result = letters + ("i" if len(left.shape) > 1 else "") + ("j" if len(right.shape) > 1 else "")
    return site.builder.contract(f"{rows},{columns}->{result}", [left, right])


def _linear(site: AtenSite) -> Node:
    value, weight = site.value(0), site.value(1)
    letters = "abcdefgh"[: len(value.shape) - 1]
    product = site.builder.contract(f"{letters}k,jk->{letters}j", [value, weight])
    bias = site.argument(2, "bias")
    return product if bias is None else apply(site, "add", product, site.value(2, "bias"))


def _product_plus(equation: str) -> Handler:
    """beta c + alpha a @ b."""

    def handle(site: AtenSite) -> Node:
        product = site.builder.contract(equation, [site.value(1), site.value(2)])
        beta, alpha = site.number(3, "beta", 1), site.number(4, "alpha", 1)
        product = times(site, product, alpha)
        if beta == 0:
            return product
        return apply(site, "add", times(site, site.operand(site.argument(0), product.dtype), beta), product)

    return handle


ATEN |= {
    "mm.default": einsum_of("ik,kj->ij"),
    "bmm.default": einsum_of("bik,bkj->bij"),
    "mv.default": einsum_of("ik,k->i"),
    "dot.default": einsum_of("k,k->"),
    "outer.default": einsum_of("i,j->ij"),
    "matmul.default": _matmul,
    "linear.default": _linear,
    "addmm.default": _product_plus("ik,kj->ij"),
    "baddbmm.default": _product_plus("bik,bkj->bij"),
    "addmv.default": _product_plus("ik,k->i"),
}
