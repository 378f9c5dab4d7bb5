"""Kernels of few rows: their certificate; and kernels for attention of few rows, where these are faster."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from noyau.codegen.triton.row_attention import RowAttention
from noyau.dtypes import DType
from noyau.errors import CheckError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.cuda.guarded_memory import Room, answers
from noyau.hosts.torch.cuda.launch_records import TAPE
from noyau.hosts.torch.modules.row_attention import AttentionSite
from noyau.hosts.torch.modules.row_products import PackedProducts, attention_call
from noyau.jobs.optimize.pipeline import BindingTiming
from noyau.jobs.optimize.weight_choice import LARGE, trial_loss
from noyau.timing.verdict import Comparison

log = logging.getLogger("noyau")


def try_kernel(call: PackedProducts, rows: Tensor, operands: Sequence[Tensor], bounds: Callable[[Tensor], Any]) -> None:
    """Try a kernel on `rows`, random rows, large cells, zeros and NaN, its results between guard zones. CheckError if a
    cell is further from float64 than its allowance and rounding; `bounds` returns exact results and allowances."""
    info, noise = torch.finfo(rows.dtype), torch.Generator().manual_seed(0)
    odd, large = rows.clone(), rows.clone()
    odd[:, -1], large[:, 0] = torch.nan, rows.abs().amax() * LARGE[-1]
    for case in (rows, torch.randn(rows.shape, generator=noise).to(rows), large, torch.zeros_like(rows), odd):
        room = Room(0)
        with TAPE.holding(empty=room.empty):
            results = call(case, operands)
        if faults := answers(list(room.flags())):
            raise CheckError(f"its kernel {faults[0].note}", faults[0].kind)
        for at, (result, (exact, moved)) in enumerate(zip(results, bounds(case), strict=True)):
            allowed = moved + info.eps * exact.abs() + info.tiny
            right = ((result.double() - exact).abs() <= allowed) | (result.isnan() & exact.isnan())
            right |= result.isinf() & (exact.abs() >= info.max)
            if not bool(right.all()):
                cell = tuple((~right).nonzero()[0].tolist())
                got, want = float(result[cell]), float(exact[cell])
                raise CheckError(f"at {cell} of product {at} got {got:.8g}, want {want:.8g} (float64)")


def attention_kernels(
    sites: Sequence[AttentionSite], device: torch.device, clock: Callable[..., Comparison]
) -> tuple[dict[AttentionSite, PackedProducts], float]:
    """Kernels for the sites where they are right and faster than torch's, and the seconds that they gain in all."""
    known, gain_s = dict[RowAttention, PackedProducts](), 0.0
    for own, count in Counter(each.attention for each in sites).items():
        try:
            call, query, *others = certify_attention(own, device)
            key, value = (each.repeat_interleave(own.share, 1) for each in others[:2])  # copied outside of the timing
            heads, mask = query.view(own.batch, own.heads, own.queries, own.depth), [*others, None][2]
            before = partial(scaled_dot_product_attention, heads, key, value, mask, scale=own.scale)
            timing = clock(before, partial(call, query, others))
            loss = trial_loss((BindingTiming({"rows": own.queries}, timing),))
        except Exception as error:  # noqa: BLE001  errors of Triton's compiler share no other class
            loss = str(error) or type(error).__name__
        if not loss:
            known[own] = call
            gain_s += (timing.before_median_s - timing.after_median_s) * count
        log.info("attention of few rows, %s: %s", own, loss or "in a kernel of ours")
    return {each: known[each.attention] for each in sites if each.attention in known}, gain_s


def certify_attention(own: RowAttention, device: torch.device) -> tuple[PackedProducts, *tuple[Tensor, ...]]:
    """A kernel that passed its trials, and its operands: random ones; the mask hides parts, and all from one row."""
    noise, dtype, call = torch.Generator().manual_seed(0), TO_TORCH[own.dtype], attention_call(own)
    shapes = [(own.rows, own.depth), *((own.batch, own.heads // own.share, own.length, own.depth),) * 2]
    query, *others = (torch.randn(shape, generator=noise).to(device, dtype) for shape in shapes)
    if own.mask is not None:
        sizes = [n if step else 1 for n, step in zip((own.batch, own.heads, own.queries), own.steps, strict=True)]
        seen = torch.rand(*sizes, own.length, generator=noise) < 0.75
        seen[..., own.length * 2 // 3 :], seen[-1, -1, -1] = False, False
        mask = torch.where(seen, torch.randn(seen.shape, generator=noise), -torch.inf)
        others.append((seen if own.mask is DType.BOOL else mask).to(device, TO_TORCH[own.mask]))
    try_kernel(call, query, others, lambda rows: [attention_bounds(own, rows, *others)])
    return call, query, *others


def attention_bounds(own: RowAttention, query: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Attention in float64, 0 where no key is seen, and the allowance for float32 sums and weights of their scores."""
    (key, value), masks = (each.double().repeat_interleave(own.share, 1) for each in others[:2]), others[2:]
    rows = query.double().view(own.batch, own.heads, own.queries, own.depth)
    scores, sizes = rows @ key.mT * own.scale, rows.abs() @ key.abs().mT * own.scale
    for mask in masks:
        bias = torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask.double()
        hides = bias == -torch.inf
        scores, sizes = torch.where(hides, bias, scores + bias), sizes + torch.where(hides, 0, bias.abs())
    weights = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
    apart = torch.expm1((own.depth + 64) * 2.0**-23 * (sizes + sizes.amax(-1, keepdim=True)))
    result, moves = weights @ value, torch.where(weights == 0, weights, weights * apart)
    off = moves @ value.abs() + moves.sum(-1, keepdim=True) * result.abs()
    off += (own.length + 64) * 2.0**-24 * (weights @ value.abs())
    result, off = (each.transpose(1, 2).reshape(own.rows, own.depth) for each in (result, off))
    return result, off
