"""A small tensor library on map, zip, reduce and matmul alone, and a classifier that it trains.

Run it: ``python examples/teaching_tensor.py`` (needs a C compiler or numba; no other package). It prints the loss and
the accuracy of a network with a hidden layer of 100, on the exclusive or and on two moons.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence

import numpy as np

import noyau

# %%
# The backend: ops on arrays of any rank and layout, each made of a function of numbers. Noyau writes their kernels.
negated = noyau.map(operator.neg)
logarithm = noyau.map(math.log)
exponential = noyau.map(math.exp)
rectified = noyau.map(lambda x: max(x, 0.0), name="rectified")
is_positive = noyau.map(lambda x: np.where(x > 0, x * 0 + 1, x * 0), name="is_positive")
softplus = noyau.map(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))), name="softplus")
sigmoid = noyau.map(lambda x: 1 / (1 + math.exp(-x)), name="sigmoid")
added = noyau.zip(operator.add)
multiplied = noyau.zip(operator.mul)
divided = noyau.zip(operator.truediv)
total = noyau.reduce(operator.add, 0.0)


@noyau.op("float[m, k], float[k, n] -> float[m, n]")
def matmul(a, b):
    return a @ b


# %%
# The tensor: an array, what it was made of, and how it hands a gradient back.
Back = Callable[[np.ndarray], Sequence[np.ndarray]]


class Tensor:
    """An array that remembers what it was made of. `back` gives the gradients of `parents` from its own."""

    def __init__(self, array: np.ndarray, parents: Sequence[Tensor] = (), back: Back | None = None) -> None:
        self.array, self.parents, self.back = array, tuple(parents), back
        self.gradient: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(
            added(self.array, other.array),
            (self, other),
            lambda g: (as_before(g, self.shape), as_before(g, other.shape)),
        )

    def __mul__(self, other: Tensor) -> Tensor:
        a, b = self.array, other.array
        return Tensor(
            multiplied(a, b),
            (self, other),
            lambda g: (as_before(multiplied(g, b), a.shape), as_before(multiplied(g, a), b.shape)),
        )

    def __neg__(self) -> Tensor:
        return Tensor(negated(self.array), (self,), lambda g: (negated(g),))

    def __sub__(self, other: Tensor) -> Tensor:
        return self + -other

    def __matmul__(self, other: Tensor) -> Tensor:
        """The gradient of a product needs no transposed copy: kernels read arrays as they lie."""
        a, b = self.array, other.array
        return Tensor(matmul(a, b), (self, other), lambda g: (matmul(g, b.T), matmul(a.T, g)))

    def relu(self) -> Tensor:
        return Tensor(rectified(self.array), (self,), lambda g: (multiplied(g, is_positive(self.array)),))

    def log(self) -> Tensor:
        return Tensor(logarithm(self.array), (self,), lambda g: (divided(g, self.array),))

    def exp(self) -> Tensor:
        made = exponential(self.array)
        return Tensor(made, (self,), lambda g: (multiplied(g, made),))

    def softplus(self) -> Tensor:
        return Tensor(softplus(self.array), (self,), lambda g: (multiplied(g, sigmoid(self.array)),))

    def sum(self, axis: int | None = None) -> Tensor:
        """Along an axis that stays as 1, or of all cells, as an array of one."""
        shape = self.shape
        made = total(self.array, axis=axis, keepdims=True)
        return Tensor(made, (self,), lambda g: (np.broadcast_to(g, shape),))

    def mean(self) -> Tensor:
        return self.sum() * Tensor(np.full((1,) * self.array.ndim, 1 / self.array.size, self.array.dtype))

    def permute(self, *order: int) -> Tensor:
        """The axes in another order: a view."""
        return Tensor(self.array.transpose(order), (self,), lambda g: (g.transpose(np.argsort(order)),))

    def view(self, *shape: int) -> Tensor:
        """The same cells in C order in another shape."""
        before = self.shape
        return Tensor(self.array.reshape(shape), (self,), lambda g: (g.reshape(before),))

    def backward(self) -> None:
        """The gradient of the sum of its cells, at everything that it was made of."""
        self.gradient = np.ones_like(self.array)
        for tensor in reversed(list(in_order(self))):
            if tensor.back is not None and tensor.gradient is not None:
                for parent, given in zip(tensor.parents, tensor.back(tensor.gradient), strict=True):
                    parent.gradient = given if parent.gradient is None else added(parent.gradient, given)


def as_before(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A gradient summed over the axes that a broadcast made longer."""
    for _ in range(gradient.ndim - len(shape)):
        gradient = total(gradient, axis=0)
    for axis, extent in enumerate(shape):
        if extent == 1 and gradient.shape[axis] != 1:
            gradient = total(gradient, axis=axis, keepdims=True)
    return gradient


def in_order(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor and all that it was made of, each after its parents."""
    seen: set[int] = set()
    waiting = [(tensor, False)]
    while waiting:
        each, done = waiting.pop()
        if done:
            yield each
        elif id(each) not in seen:
            seen.add(id(each))
            waiting += [(each, True), *((parent, False) for parent in each.parents)]


# %%
# The network, its loss, and the descent.
class Network:
    """Two numbers to one, through a hidden layer."""

    def __init__(self, hidden: int = 100, seed: int = 0) -> None:
        noise = np.random.default_rng(seed)

        def drawn(*shape: int) -> Tensor:
            return Tensor((noise.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32))

        self.first, self.first_bias = drawn(2, hidden), drawn(1, hidden)
        self.last, self.last_bias = drawn(hidden, 1), drawn(1, 1)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.first, self.first_bias, self.last, self.last_bias]

    def __call__(self, points: Tensor) -> Tensor:
        """The logits: above 0 for the second class."""
        return (points @ self.first + self.first_bias).relu() @ self.last + self.last_bias


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of log(1 + exp(z)) - y z."""
    return (logits.softplus() - logits * labels).mean()


def train(points: np.ndarray, labels: np.ndarray, *, steps: int = 300, rate: float = 0.3, seed: int = 0) -> Network:
    """Gradient descent with momentum on all points at once."""
    network = Network(seed=seed)
    x, y = Tensor(points), Tensor(labels)
    speeds = [np.zeros_like(each.array) for each in network.parameters]
    for step in range(steps):
        loss = cross_entropy(network(x), y)
        loss.backward()
        for at, each in enumerate(network.parameters):
            assert each.gradient is not None
            speeds[at] = added(multiplied(speeds[at], 0.9), multiplied(each.gradient, -rate))
            each.array, each.gradient = added(each.array, speeds[at]), None
        if step % 100 == 99:
            print(f"step {step + 1:4}: loss {loss.array.item():.4f}, accuracy {accuracy(network, points, labels):.3f}")
    return network


def accuracy(network: Network, points: np.ndarray, labels: np.ndarray) -> float:
    """The share of points whose class is found."""
    return float(np.mean((network(Tensor(points)).array > 0) == (labels > 0.5)))


# %%
# Two tasks that no line separates.
def exclusive_or(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points of a square; those of two opposite quarters are one class."""
    points = np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)
    return points, ((points[:, :1] > 0) != (points[:, 1:] > 0)).astype(np.float32)


def two_moons(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles, one within the other's bow."""
    noise = np.random.default_rng(seed)
    labels = (np.arange(count) % 2).reshape(-1, 1)
    turn = noise.uniform(0, math.pi, (count, 1))
    moon = np.where(
        labels == 0, np.hstack([np.cos(turn), np.sin(turn)]), np.hstack([1 - np.cos(turn), 0.5 - np.sin(turn)])
    )
    return (moon + noise.normal(scale=0.1, size=moon.shape)).astype(np.float32), labels.astype(np.float32)


TASKS = {"exclusive or": exclusive_or, "two moons": two_moons}


def main() -> None:
    for name, task in TASKS.items():
        print(name)
        network = train(*task(400))
        print(f"on points that it has not seen: accuracy {accuracy(network, *task(1000, seed=1)):.3f}")


if __name__ == "__main__":
    main()
