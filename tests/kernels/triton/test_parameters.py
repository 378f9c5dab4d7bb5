from __future__ import annotations

import pytest

from noyau.errors import SignatureError
from noyau.kernels.triton.parameters import (
    bind_parameters,
    configs_of,
    meta_names,
    options_of,
    without_tuner,
)
from noyau.kernels.user_kernel import language_of
from tests.kernels.triton_likes import Autotuner, Config, Heuristics, Jitted
from tests.kernels.written import op_of


def add_blocks(x, y, out, n, BLOCK):
    raise AssertionError("it is never run")


def tuned():
    return Autotuner(Heuristics(Jitted(add_blocks), {"EVEN": len}), [Config({"BLOCK": 32}), Config({"BLOCK": 64}, 8)])


def op():
    return op_of("f32[n], f32[n] -> f32[n]", "x, y, *, eps=1e-5")


def attached(function, **said):
    given = op()
    kernel = function if isinstance(function, Autotuner | Heuristics) else Jitted(function)
    assert given.kernel(kernel, **{"launch": lambda n: n, **said}) is kernel
    return next(iter(given.kernels.values()))


def taken(function, **said):
    kernel = attached(function, **said)
    return bind_parameters(kernel.function, kernel.usage, kernel.target, kernel.title)


def test_its_language_and_its_function_are_told_by_its_type():
    assert language_of(tuned()) == "triton"
    kernel = attached(tuned())
    assert (kernel.language, kernel.name, kernel.usage.returns) == ("triton", "add_blocks", False)
    assert "def add_blocks" in kernel.text
    assert kernel.place.endswith(f":{add_blocks.__code__.co_firstlineno}")


def test_parameters_by_name_and_constants():
    found = taken(add_blocks, constants={"BLOCK": [32, 64]})
    assert found.sources == (("x", "x"), ("y", "y"), ("out", "out"), ("n", "n"))
    assert found.named == ("BLOCK",)


def by_place(a_ptr, b_ptr, c_ptr, n, eps, BLOCK):
    raise AssertionError


def test_parameters_by_position_are_inputs_then_outputs():
    found = taken(by_place, constants={"BLOCK": 32})
    assert found.sources == (("a_ptr", "x"), ("b_ptr", "y"), ("c_ptr", "out"), ("n", "n"))
    assert found.named == ("eps", "BLOCK")


def test_args_say_all_of_it():
    assert taken(by_place, constants={"BLOCK": 32}, args=lambda x, y, out, n: (x, y, out, n, 0.0)).sources == ()


def test_what_a_tuner_and_heuristics_give_is_not_asked_for():
    assert meta_names(tuned()) == ("BLOCK", "EVEN")
    assert len(configs_of(tuned())) == 2
    assert configs_of(Jitted(add_blocks)) == []
    assert taken(tuned(), launch=lambda n, BLOCK: n // BLOCK).named == ()


def test_without_its_tuner_heuristics_stay():
    assert isinstance(without_tuner(tuned()), Heuristics)
    around = Heuristics(Autotuner(Jitted(add_blocks), [Config({"BLOCK": 32})]), {"EVEN": len})
    inner = without_tuner(around)
    assert isinstance(inner, Heuristics)
    assert isinstance(inner.fn, Jitted)
    assert isinstance(around.fn, Autotuner)
    assert isinstance(without_tuner(Jitted(add_blocks)), Jitted)


def test_strides_are_wanted_where_they_are_asked_for():
    assert not attached(add_blocks, constants={"BLOCK": 32}).asks_strides
    strided = attached(add_blocks, constants={"BLOCK": 32}, args=lambda x, y, out, n: (x, y, out, x.stride(0)))
    assert strided.asks_strides


def test_constants_may_be_options_of_a_launch():
    kernel = attached(add_blocks, constants={"BLOCK": 32, "num_warps": [8, 4]}, options={"num_stages": 2})
    assert options_of(kernel.usage) == {"num_stages": 2, "num_warps": 8}


def no_output(x, y, n):
    raise AssertionError


def strange(x, y, out, width):
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "said", "told"),
    [
        (
            add_blocks,
            {"launch": None, "constants": {"BLOCK": 1}},
            "nothing says how many programs it has",
        ),
        (add_blocks, {"returns": True, "constants": {"BLOCK": 1}}, "a kernel in triton returns nothing"),
        (add_blocks, {"options": {"warps": 8}, "constants": {"BLOCK": 1}}, "options= of op.add_blocks. has 'warps'"),
        (add_blocks, {"constants": {"BLOCK": 1, "TILE": 2}}, "gives TILE; it takes x, y, out, n, BLOCK"),
        (tuned(), {"constants": {"BLOCK": 32}}, "gives BLOCK, which its tuner or its heuristics give"),
        (add_blocks, {}, "takes BLOCK, and there are by position x, y, out, by name sizes and constants"),
        (no_output, {}, "does not take the output out; say with args="),
        (strange, {}, "takes width, and there are by position x, y, out"),
        (add_blocks, {"constants": {"BLOCK": 1}, "launch": lambda m: m}, "launch= of op.add_blocks. asks for m"),
    ],
)
def test_what_does_not_fit_is_refused_as_it_is_attached(function, said, told):
    with pytest.raises(SignatureError, match=told):
        attached(function, **said)


def test_a_signature_is_needed():
    import noyau

    with pytest.raises(SignatureError, match="its outputs cannot be allocated without a signature"):
        noyau.op(lambda x: x, name="op").kernel(Jitted(add_blocks), launch=(1,))
