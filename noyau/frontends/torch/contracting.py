"""ATen's products of matrices, as Contract nodes."""

from __future__ import annotations

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.contracting import contracted
from noyau.frontends.torch.elementwise import mapped
from noyau.frontends.torch.sites import ATEN, Handler, Site
from noyau.ir.graph import Node


def product(equation: str, first: int = 0) -> Handler:
    """An einsum of two operands."""

    def handle(site: Site) -> Node:
        left, right = site.value(first), site.value(first + 1)
        return contracted(site.tape, equation, [left, right])

    return handle


def _matmul(site: Site) -> Node:
    """A product of ranks 1 to n, the axes before the last two broadcast."""
    left, right = site.value(0), site.value(1)
    if min(len(left.shape), len(right.shape)) > 2 and len(left.shape) != len(right.shape):
        raise UnsupportedError("aten.matmul of different ranks above 2 is left to torch")
    letters = "cdefgh"[: max(len(left.shape), len(right.shape), 2) - 2]
    rows = letters[len(letters) - max(len(left.shape) - 2, 0) :] + ("i" if len(left.shape) > 1 else "") + "k"
    columns = letters[len(letters) - max(len(right.shape) - 2, 0) :] + "k" + ("j" if len(right.shape) > 1 else "")
    result = letters + ("i" if len(left.shape) > 1 else "") + ("j" if len(right.shape) > 1 else "")
    return contracted(site.tape, f"{rows},{columns}->{result}", [left, right])


def _linear(site: Site) -> Node:
    value, weight = site.value(0), site.value(1)
    letters = "abcdefgh"[: len(value.shape) - 1]
    made = contracted(site.tape, f"{letters}k,jk->{letters}j", [value, weight])
    bias = site.given(2, "bias")
    return made if bias is None else mapped(site, "add", made, site.value(2, "bias"))


def _added(equation: str) -> Handler:
    """beta c + alpha a @ b."""

    def handle(site: Site) -> Node:
        made = contracted(site.tape, equation, [site.value(1), site.value(2)])
        beta, alpha = site.number(3, "beta", 1), site.number(4, "alpha", 1)
        if alpha != 1:
            made = mapped(site, "multiply", made, site.tape.constant(alpha, made.dtype))
        if beta == 0:
            return made
        other = site.operand(site.given(0), made.dtype)
        if beta != 1:
            other = mapped(site, "multiply", other, site.tape.constant(beta, made.dtype))
        return mapped(site, "add", other, made)

    return handle


ATEN.update(
    {
        "mm.default": product("ik,kj->ij"),
        "bmm.default": product("bik,bkj->bij"),
        "mv.default": product("ik,k->i"),
        "dot.default": product("k,k->"),
        "outer.default": product("i,j->ij"),
        "matmul.default": _matmul,
        "linear.default": _linear,
        "addmm.default": _added("ik,kj->ij"),
        "baddbmm.default": _added("bik,bkj->bij"),
        "addmv.default": _added("ik,k->i"),
    }
)
