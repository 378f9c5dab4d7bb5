from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch

from noyau.frontends.torch.calculations import BINARY, COMPARISONS, UNARY
from tests.frontends.torch.exports import compare, imported, together

F = torch.nn.functional
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


def numbers(*shape, dtype=torch.float32, low=0.1, high=0.9):
    generator = torch.Generator().manual_seed(3)
    drawn = torch.rand(shape, generator=generator) * (high - low) + low
    if dtype is torch.bool:
        return drawn > (low + high) / 2
    return (drawn if dtype.is_floating_point else drawn * 9 + 1).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_functions_of_one_tensor(dtype):
    x = numbers(3, 4, dtype=dtype)
    above = {"acosh": x + 1} if dtype.is_floating_point else {}  # where it is a number
    given = {name: above.get(name, x) for name in sorted(UNARY) if has(getattr(torch, name), x)}
    assert {"abs", "neg", "exp"} & {*given} if dtype is not torch.bool else "exp" in given

    def each(*args):
        return tuple(getattr(torch, name)(arg) for name, arg in zip(given, args, strict=True))

    compare(each, *given.values(), rtol=TOLERANCES.get(dtype, 1e-5))


def has(function, x):
    """Whether torch has a function for such tensors."""
    try:
        function(x)
    except (RuntimeError, TypeError):
        return False
    return True


def test_functions_of_two_tensors():
    names = sorted({*BINARY} - {"__lshift__", "__rshift__"})
    x, y, whole = numbers(3, 4), numbers(4) + 0.5, [numbers(*shape, dtype=torch.int64) for shape in ((3, 4), (4,))]

    def each(x, y, *whole):
        return tuple(getattr(torch, name)(*(whole if "bitwise" in name else (x, y))) for name in names)

    compare(each, x, y, *whole)


def test_comparisons():
    def each(x, y, i, z):
        functions = [getattr(torch, name) for name in sorted(COMPARISONS)]
        return tuple(made for f in functions for made in (f(x, y), f(x, 0.5), f(i, z)))

    third = numbers(3, dtype=torch.int32), numbers(3, dtype=torch.float32) * 9
    compare(each, numbers(3, 4), numbers(4), *third)


SCALARS = (torch.float64, torch.float16, torch.int64, torch.bool)
KINDS = [*((dtype, 1) for dtype in DTYPES), *((dtype, 0) for dtype in SCALARS)]


@pytest.mark.parametrize("operation", ["mul", "div", "lt"])
def test_promotion_of_tensors_and_numbers_is_torchs(operation):
    function = getattr(torch, operation)
    tensors = [numbers(*[3] * rank, dtype=dtype) for dtype, rank in KINDS]

    def every_pair(*given):
        """Each pair once, every second one turned round."""
        pairs = enumerate(itertools.combinations_with_replacement(given, 2))
        results = [function(*(pair if number % 2 else pair[::-1])) for number, pair in pairs]
        return (*results, *(function(one, number) for one in given for number in (2, 0.5, True)))

    compare(every_pair, *tensors, rtol=2e-2)


# What the place of a wrong result among all of them says.
OTHERS = [
    lambda x, y: torch.add(x, y, alpha=2),
    lambda x, y: torch.sub(x, y, alpha=0.5),
    lambda x, y: torch.rsub(x, y, alpha=3),
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
    lambda x, y: torch.div(x - 0.7, y, rounding_mode="trunc"),
    lambda x, y: torch.floor_divide(x, y / 3),
    lambda x, y: torch.where(x > y, x, 2.0),
    lambda x, y: x.masked_fill(y > 0.5, float("-inf")),
    lambda x, y: torch.clamp(x, 0.3, 0.6) + torch.clamp(y, min=x) + x.clamp(max=0.5),
    lambda x, y: x**y + x**2 + 2**x + x**0.5,
    lambda x, y: F.relu(x - 0.5) + F.silu(y) + F.leaky_relu(x - 0.5, 0.2) + F.elu(y - 0.5, 1.5),
    lambda x, y: F.gelu(x - 0.5) + F.gelu(y - 0.5, approximate="tanh"),
    lambda x, y: F.hardtanh(x * 4 - 2, -0.5, 0.7) + F.relu6(y * 9),
    lambda x, y: F.softplus(x) + F.mish(y) + F.logsigmoid(x) + F.hardswish(y),
    lambda x, y: torch.lerp(x, y, 0.3) + torch.addcmul(x, x, y, value=2),
    lambda x, y: (x > 0.5).to(torch.float16) * y.to(torch.float16),
    lambda x, y: (x.to(torch.int32), y.double(), x.to(torch.bool), y.half().float()),
    lambda x, y: (torch.isnan(x / 0 - y / 0), torch.isinf(x / 0), torch.isfinite(y)),
    lambda x, y: (x > 0.5).logical_and(y).logical_or(~(y > 0.3)).logical_xor(x > 0.1),
    lambda x, y: x.clone() + y.detach().contiguous(),
    lambda x, y: torch.sign(x - 0.5) * torch.sign(y > 0.5) * torch.square(y) + torch.round(x * 5 + 0.5),
]


@pytest.mark.parametrize("dynamic", [False, True])
def test_other_functions(dynamic):
    def each(x, y):
        return together([(function, 2) for function in OTHERS])(*[x, y] * len(OTHERS))

    compare(each, numbers(3, 4), numbers(3, 1) if dynamic else numbers(4), dynamic=dynamic, rtol=1e-4)


def test_integers_divide_as_torch_says():
    x, y = torch.tensor([7, -7, 7, -7, 9, -128]), torch.tensor([2, 2, -2, -2, 3, 3])
    modes = [partial(torch.div, rounding_mode=mode) for mode in ("floor", "trunc", None)]
    functions = [*modes, torch.remainder, torch.fmod, torch.floor_divide]
    compare(lambda a: tuple(function(a, b) for function in functions for b in (2, -2, 3)), x)
    whole = [partial(torch.div, rounding_mode="floor"), torch.div, *functions[3:]]
    compare(lambda a, b: tuple(function(a, b) for function in whole), x, y, opaque=True)


def test_counts_of_a_shift_to_the_right_may_be_beyond_the_width():
    x, count = torch.tensor([-9, -9, -9, -9, 9, 9]), torch.tensor([1, 63, 64, -1, 70, 2])
    compare(lambda a, b: (a >> b, a.to(torch.int8) >> b.to(torch.int8), a.to(torch.uint8) >> 9), x, count)


def test_what_torch_refuses_when_it_runs_is_left_to_it():
    def divided_by(a, b):
        size = a.shape[0]
        return a // b, a % 0, a // size, a // (size - 2), a / b, a % torch.arange(size), 2 ** (a - a), a**-1

    made = imported(divided_by, [torch.arange(6), torch.arange(6)], dynamic=True)
    divided = "integers divided by what is not known now are left to torch, which refuses 0"
    power = "an integer to a power below 0 is left to torch, which refuses it"
    assert sorted(made.opaque.values()) == [power, *[divided] * 4]


def test_nan_and_ties():
    x = torch.tensor([1.0, float("nan"), 2.0, float("inf"), -0.0])
    y = torch.tensor([float("nan"), 1.0, 2.0, float("-inf"), 0.0])
    compare(lambda a, b: (torch.maximum(a, b), torch.minimum(a, b), torch.fmax(a, b), torch.fmin(a, b)), x, y)
    compare(lambda a, b: (a.clamp(0, 1), F.relu(b), torch.sign(a)), x, y)
