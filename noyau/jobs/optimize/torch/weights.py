"""Weights in few bits for a graph that dynamo captured, on a GPU: products of few rows. Each family is tried as one
noyau kernel in several forms, the fastest forms are chosen, and the worst undone until the outputs are within a budget.
Unpacked weights are a form too, which needs no budget.

Calls with more than 16 rows use the original weights, which stay in memory beside the packed ones. A choice is judged
by torch's own run of the graph with its products replaced, on copies of the arguments that the graph changes."""

import contextlib
import itertools
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves

from noyau.codegen.triton.row_attention import RowAttention
from noyau.codegen.triton.row_products import FORMS, MOST_ROWS, RowProducts, WeightForm
from noyau.dtypes import DType
from noyau.errors import CheckError, InputError, NoyauError, first_line
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.cuda.device import beside_captures, guard
from noyau.hosts.torch.cuda.guarded_memory import Room, answers
from noyau.hosts.torch.cuda.launch_records import TAPE, foretell
from noyau.hosts.torch.cuda.tensor_rotation import alike, shares_memory
from noyau.hosts.torch.modules import row_products
from noyau.hosts.torch.modules.graph_corrections import arguments_of
from noyau.hosts.torch.modules.row_attention import AttentionSite, attention_sites
from noyau.hosts.torch.modules.row_products import PackedProducts, ProductFamily, attention_call
from noyau.hosts.torch.modules.sites import CPU
from noyau.hosts.torch.tensors import type_text
from noyau.jobs.optimize import weight_choice
from noyau.jobs.optimize.pipeline import BindingTiming
from noyau.jobs.optimize.record import WeightRecord
from noyau.text import free_name, several
from noyau.timing.verdict import Comparison
from noyau.toolchain.triton.module import interprets
from noyau.toolchain.triton.parallel_compile import COMPILER

log = logging.getLogger("noyau")


def try_kernel(call: PackedProducts, rows: Tensor, operands: Sequence[Tensor], bounds: Callable[[Tensor], Any]) -> None:
    """Try a kernel on `rows`, random rows, large cells, zeros and NaN, its results between guard zones. CheckError if a
    cell is further from float64 than its allowance and rounding; `bounds` returns exact results and allowances."""
    info, noise = torch.finfo(rows.dtype), torch.Generator().manual_seed(0)
    odd, large = rows.clone(), rows.clone()
    odd[:, -1], large[:, 0] = torch.nan, rows.abs().amax() * weight_choice.LARGE[-1]
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
            loss = weight_choice.trial_loss((BindingTiming({"rows": own.queries}, timing),))
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


MOST_RUNS = 128  # the most runs with random tokens
ROUNDS = 20  # rounds of a timing
JUDGED_ROWS = 64
_CHANNELS = 4096  # channels in float64 at a time: float64 takes four times the memory
Flow = Mapping[fx.Node, Tensor]


@dataclass(frozen=True, slots=True)
class FewBits:
    """A graph with some products of few rows in noyau kernels, `module`, of the arguments at `places`; None if all are
    unchanged. `weights`: indices of the packed parameters, and in `states` their addresses and version counters at
    packing time; `kept` holds the kernels with their packed weights, which gain `gain_s` seconds a call."""

    record: WeightRecord
    module: fx.GraphModule | None = None
    places: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    states: Sequence[tuple[int, int]] = ()
    kept: tuple[PackedProducts, ...] = ()
    gain_s: float = 0.0

    def pick(self, arguments: Sequence[Any]) -> list[Any]:
        return [arguments[at] for at in self.places]

    def around(self, run: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        """A run of the module, of all arguments; `plain` if a parameter was changed since it was packed."""

        def call(*arguments: Any) -> Any:
            is_same = states_of(arguments, self.weights) == self.states
            return run(*self.pick(arguments)) if is_same else plain(*arguments)

        return call


def states_of(arguments: Sequence[Any], places: Sequence[int]) -> list[tuple[int, int]]:
    return [(arguments[at].data_ptr(), arguments[at]._version) for at in places]


def time_cold(before: Callable[[], Any], after: Callable[[], Any]) -> Comparison:
    """Compare two calls on a device's clock, its cache overwritten before: a model reads each weight once a call."""
    from noyau.hosts.torch.cuda.clock import compare_calls

    return compare_calls(before, after, rounds=ROUNDS, cold=True)


@dataclass(slots=True)
class TorchWeightStage:
    """The stage of one captured graph. `weights` and `budget` as in CompileOptions; `calibration`: other arguments of
    the graph; `clock` compares two calls; `own`: families that are faster in a noyau kernel with unpacked weights;
    `attention`: kernels of its sites, which gain `gain_s`; `before`: outputs of the original graph."""

    module: fx.GraphModule
    arguments: Sequence[Any]
    weights: str
    budget: str | float | None
    calibration: Sequence[Sequence[Any]] = ()
    clock: Callable[[Callable[[], Any], Callable[[], Any]], Comparison] = time_cold
    tried: weight_choice.ProductTrials = field(default_factory=weight_choice.ProductTrials)
    families: dict[str, ProductFamily] = field(default_factory=dict)
    packed: dict[Any, PackedProducts] = field(default_factory=dict)
    own: dict[str, weight_choice.Trial] = field(default_factory=dict)
    attention: dict[AttentionSite, PackedProducts] = field(default_factory=dict)
    gain_s: float = 0.0
    before: list[weight_choice.Outputs] = field(default_factory=list)

    def run(self) -> FewBits:
        """The graph with the weights that stay in few bits, and a record of each product."""
        if reason := self.refusal():
            return self._result({}, reason)
        gpus = [each.device for each in self.arguments if isinstance(each, Tensor) and each.is_cuda][:1]
        try:
            with torch.no_grad(), guard(*gpus or [CPU]), beside_captures(), torch.random.fork_rng(devices=gpus):
                return self._run()
        except (NoyauError, torch.OutOfMemoryError) as error:
            return self._result({}, first_line(error))

    def _run(self) -> FewBits:
        device = next((each.device for each in self.arguments if isinstance(each, Tensor) and each.is_cuda), CPU)
        self.attention, self.gain_s = attention_kernels(attention_sites(self.module.graph), device, self.clock)
        families, self.tried.reasons = row_products.families_of(self.module.graph, self.arguments)
        for each in families:  # names repeat if a layer is called twice
            self.families[free_name(each.name, self.families)] = each
        if not families:
            return self._result({}, f"no product of {MOST_ROWS} rows or fewer has a parameter of 64 KiB or more")
        products = {name: each.products(WeightForm()) for name, each in self.families.items()}
        self.tried.shapes = {name: (each.depth, sum(each.widths)) for name, each in products.items()}
        scenes = [] if self.weights == "none" else [self.arguments, *self.calibration]
        self._try([flow_of(self.module, {each.source for each in families}, each) for each in scenes])
        cases = self._cases() if any(self.tried.options().values()) else []
        tried = self.tried
        choice, reason = tried.choose(lambda each: tried.fault(each, self.budget, partial(self._runs, each, cases)))
        return self._result(choice, "" if choice else reason)

    def refusal(self) -> str:
        """Why no product of the graph is tried, or an empty text."""
        tensors = [each for each in self.arguments if isinstance(each, Tensor)]
        gpus = {each.device for each in tensors if each.is_cuda}
        if not interprets() and not gpus:
            return "its tensors are not on a GPU"
        if len(gpus) > 1:
            return "its tensors are on several GPUs"
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            return "gradients are wanted: kernels of few rows are for inference, under torch.no_grad()"
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is being captured"
        if any(isinstance(each, torch.SymInt) for each in self.arguments):
            return "its sizes are names: give torch.compile dynamic=False"
        own = [each for each in tensors if not isinstance(each, torch.nn.Parameter)]
        if self.weights != "none" and any(shares_memory(a, b) for a, b in itertools.combinations(own, 2)):
            return "an argument shares memory with another one, and is not copied"
        return ""

    def _try(self, flows: Sequence[Flow]) -> None:
        """Time the forms of equal families, and judge each family in the winning ones."""
        groups = defaultdict[RowProducts, list[ProductFamily]](list)
        for family in self.families.values():
            groups[family.products(WeightForm())].append(family)
        forms = [WeightForm(), *(each for each in FORMS if each.bits in weight_choice.WEIGHTS[self.weights])]
        self._compile([group[0] for group in groups.values()], forms)
        for products, group in (work := [*groups.items()]):
            log.info("timing products of few rows: %s", several(len(group), "launch"))
            own, *trials = (self._time(group[0], form, flows[:1]) for form in forms)
            if products.gated and all(each.reason for each in (own, *trials)):
                plain = {each: replace(each, gate=()) for each in group}
                self.families = {name: plain.get(each, each) for name, each in self.families.items()}
                work.append((replace(products, gated=False), [*plain.values()]))
                continue
            for family in group:
                self.own |= {} if own.reason else {family.name: own}
                if trials:
                    rows = torch.cat([flow[family.source].reshape(products.rows, -1) for flow in flows])
                    self.tried.add(family.name, trials, partial(judge, family, rows))

    def _compile(self, families: Sequence[ProductFamily], forms: Sequence[WeightForm]) -> None:
        """Compile the kernels of families beside this process, all at once."""
        events = list[Any]()
        COMPILER.start()
        for family, form in itertools.product(families, forms if torch.cuda.is_available() else ()):
            packed = self._pack(family, form)
            tensors = packed.arguments(family.members[0].values[0], family.operands(form), packed.packed)
            with contextlib.suppress(Exception):  # the call reports an error
                launches = foretell(packed.call.launcher.function, tensors)
                events += filter(None, [COMPILER.begin(*each) for each in launches])
        COMPILER.wait(events)

    def _pack(self, family: ProductFamily, form: WeightForm) -> PackedProducts:
        if (family, form) not in self.packed:
            self.packed[family, form] = family.pack(form)
        return self.packed[family, form]

    def _kernels(self, choice: weight_choice.Choice) -> dict[ProductFamily, PackedProducts]:
        return {self.families[name]: self._pack(self.families[name], form) for name, form in choice.items()}

    def _time(self, family: ProductFamily, form: WeightForm, flows: Sequence[Flow]) -> weight_choice.Trial:
        """A form, certified and timed on the rows of a call, or on random numbers without a flow."""
        first = family.members[0].values
        if not form.bits and not all(each.values.is_contiguous() for each in family.members):
            return weight_choice.Trial(form, reason="its weights are [inputs, channels]")
        try:
            packed, operands = self._pack(family, form), family.operands(form)
            rows = flows[0][family.source] if flows else torch.randn(packed.products.rows, first.shape[1])
            rows = rows.reshape(packed.products.rows, -1).contiguous().to(first)
            certify(packed, rows, family)
            timing = self.clock(lambda: family.plain(rows), lambda: packed(rows, operands))
        except Exception as error:  # noqa: BLE001  errors of Triton's compiler share no other class
            fault = "is wrong" if isinstance(error, CheckError) else "does not run"
            return weight_choice.Trial(form, reason=f"{fault}: {first_line(error)}")
        timings = (BindingTiming({"rows": packed.products.rows}, timing),)
        return weight_choice.Trial(form, timings, (timing.before_median_s,), reason=weight_choice.trial_loss(timings))

    def _cases(self) -> list[Sequence[Any]]:
        """Arguments for comparing outputs: the calibration, or the call's own plus random tokens until there are enough
        rows of logits. The original outputs of each are kept in `before`."""
        cases = [*self.calibration] or [self.arguments]
        self.before = [outputs_of(self.module, each) for each in cases]
        rows, tables = weight_choice.agreement([(self.before[0],) * 2]).rows, dict(tables_of(self.module.graph))
        if not self.calibration and rows and tables:
            for seed in range(1, min(MOST_RUNS, -(-weight_choice.TOKENS // rows))):
                cases.append(with_tokens(self.arguments, tables, seed))
                self.before.append(outputs_of(self.module, cases[-1]))
        return cases

    def _runs(self, choice: weight_choice.Choice, cases: Sequence[Sequence[Any]]) -> weight_choice.Runs:
        """Pairs of outputs, of the original and with a choice, for each case."""
        log.info("running the graph with weights of %s in few bits", several(len(choice), "launch"))
        module, places = row_products.with_products(self.module, self._kernels(choice))
        return zip(self.before, (outputs_of(module, [each[at] for at in places]) for each in cases), strict=True)

    def _result(self, choice: weight_choice.Choice, reason: str) -> FewBits:
        record = self.tried.record(self.weights, self.budget, choice, reason)
        few = {name: each for name in choice for each in self.tried.trials[name] if each.variant == choice[name]}
        if not (chosen := self.own | few) and not self.attention:
            return FewBits(record)
        packed = {each.weight for name in choice for each in self.families[name].members}
        weights = tuple(at for at, each in enumerate(self.module.graph.find_nodes(op="placeholder")) if each in packed)
        states, gain_s = states_of(self.arguments, weights), sum(each.gains_s[0] for each in chosen.values())
        kernels: dict[Any, PackedProducts] = {**self.attention}
        kernels |= self._kernels({name: each.variant for name, each in chosen.items()})
        graph = row_products.with_products(self.module, kernels)
        return FewBits(record, *graph, weights, states, tuple(kernels.values()), gain_s + self.gain_s)


def key_of_graph(module: fx.GraphModule, arguments: Sequence[Any]) -> Any:
    return module.code, tuple(id(each) for each in arguments if isinstance(each, torch.nn.Parameter))


def calibrate(
    module: Callable[..., Any], inputs: Sequence[Any], calibration: Sequence[Sequence[Any]], dynamic: bool | None
) -> dict[Any, list[list[Any]]]:
    """The arguments of each graph that dynamo captures of a module, for the inputs of a calibration, run by torch.
    InputError if these have other shapes or dtypes than `inputs`, or the module is not on a GPU."""
    own = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    if not (interprets() or any(getattr(each, "is_cuda", False) for each in (*own, *tree_leaves(inputs)))):
        message = "weights in few bits of a torch module are for a GPU, and this one is on the CPU"
        raise InputError(f"{message}: move it there, or export it and run noyau optimize MODEL.onnx --weights auto")
    for at, each in enumerate(calibration):
        kinds = [[type_text(leaf) for leaf in tree_leaves(nested)] for nested in (each, inputs)]
        if kinds[0] != kinds[1]:
            one, other = next((pair for pair in zip(*kinds, strict=False) if pair[0] != pair[1]), map(len, kinds))
            raise InputError(f"calibration {at} has {one} where the inputs have {other}: give it the same shapes")
    graphs = dict[Any, list[list[Any]]]()

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        flows = graphs.setdefault(key_of_graph(graph, examples), [])

        def call(*arguments: Any) -> Any:
            flows.append(copies(arguments))
            return graph.forward(*arguments)

        return torch._dynamo.disable(call)  # type: ignore[no-any-return]

    run = torch.compile(module, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for each in calibration:
            run(*each)
    return graphs


def flow_of(module: fx.GraphModule, wanted: set[fx.Node], arguments: Sequence[Any]) -> Flow:
    """The values of some nodes of a graph, run by torch on copies of its arguments."""
    graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.graph_copy(module.graph, new)
    graph.output([new[each] for each in wanted])
    return dict(zip(wanted, fx.GraphModule(module, graph)(*copies(arguments)), strict=True))


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Copies of the arguments, so that a run changes none; parameters are not copied."""
    own = [isinstance(each, Tensor) and not isinstance(each, torch.nn.Parameter) for each in arguments]
    return [alike(each) if is_own else each for each, is_own in zip(arguments, own, strict=True)]


def outputs_of(module: fx.GraphModule, arguments: Sequence[Any]) -> weight_choice.Outputs:
    """The outputs of a graph on copies of its arguments."""
    leaves = tree_leaves(module(*copies(arguments)))
    tensors = ((at, each.detach().cpu()) for at, each in enumerate(leaves) if isinstance(each, Tensor))
    return {str(at): (each.float() if each.is_floating_point() else each).numpy() for at, each in tensors}


def tables_of(graph: fx.Graph) -> Iterator[tuple[int, int]]:
    """The indices of arguments that hold tokens, with the number of tokens: the rows of an embedding."""
    holders = list(graph.find_nodes(op="placeholder"))
    for node in graph.find_nodes(op="call_function", target=torch.nn.functional.embedding):
        words = arguments_of(node, ("input", "weight"))
        tokens, fake = words["input"], words["weight"].meta.get("example_value")
        while tokens.op == "call_method" and tokens.target in ("view", "reshape", "to", "long", "contiguous"):
            tokens = tokens.args[0]
        if tokens in holders and isinstance(fake, Tensor):
            yield holders.index(tokens), int(fake.shape[0])


def with_tokens(arguments: Sequence[Any], tables: Mapping[int, int], seed: int) -> list[Any]:
    result, noise = list(arguments), torch.Generator().manual_seed(seed)
    for at, count in tables.items():
        old = result[at]
        result[at] = torch.randint(0, count, old.shape, generator=noise, dtype=old.dtype).to(old.device)
    return result


def _exact(rows: Tensor, packed: Sequence[Tensor], form: WeightForm, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The product in float64 of rows with packed weights; `change` is applied to both operands."""
    parts = zip(*(each.split(_CHANNELS) for each in packed), strict=True)
    wide = change(rows.double())
    return torch.cat([wide @ change(row_products.unpack(each, form, rows.shape[1])).T for each in parts], dim=1)


def certify(packed: PackedProducts, rows: Tensor, family: ProductFamily) -> None:
    """Try the kernel of a family (`try_kernel`), with biases of a half. A product may differ from float64 with the
    packed weights as float32 sums do: by 2**-24 of its terms' sizes for each, and by a gate's effect on that."""
    products, form = packed.products, packed.products.form

    def bounds(case: Tensor) -> list[tuple[Tensor, Tensor]]:
        exacts, moves = list[Tensor](), list[Tensor]()
        for each, own, has_bias in zip(family.members, packed.packed, products.biased, strict=True):
            parts, bias = own or (each.values,), 0.5 * has_bias
            exacts.append(_exact(case, parts, form, lambda value: value) + bias)
            moves.append((products.depth + 8) * 2.0**-24 * (_exact(case, parts, form, torch.abs) + bias))
        return gate_bounds(exacts, moves) if family.gate else [*zip(exacts, moves, strict=True)]

    try_kernel(packed, rows, [each + 0.5 if each.ndim == 1 else each for each in family.operands(form)], bounds)


def gate_bounds(exacts: Sequence[Tensor], moves: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """The gate of two products in float64, and its allowance if theirs are `moves`: silu is no steeper than 1.1, its
    roundings are at most 32 of float32, and below 2**-126 a sigmoid in float32 is 0."""
    (first, second), (one, other) = exacts, moves
    silu = torch.nn.functional.silu(first)
    off = 1.1 * one * (second.abs() + other) + silu.abs() * other + (2.0**-126 * first * second).abs()
    return [(silu * second, off + 2.0**-19 * (silu * second).abs())]


def judge(family: ProductFamily, rows: Tensor, forms: Sequence[WeightForm]) -> list[tuple[float, ...]]:
    """The errors of a family, as in `Trial.errors`: of torch's own products, then with weights of each form; on finite
    rows of its operand, evenly spaced over all."""
    if not len(rows := rows[rows.isfinite().all(dim=1)]):
        raise CheckError(f"{family.name} reads rows that are not finite")
    rows = rows[:: max(len(rows) // JUDGED_ROWS, 1)][:JUDGED_ROWS]
    operands, most = [rows.clone() for _ in weight_choice.LARGE], torch.finfo(rows.dtype).max / 16
    for times, each in zip(weight_choice.LARGE, operands, strict=True):
        each[::2, rows.abs().amax(dim=0).argmax()] *= times
        each.clamp_(-most, most)  # float16 overflows early
    together, worst = torch.cat(operands), list[Any]()
    for each in family.members:
        exact = _exact(together, (each.values,), WeightForm(), lambda value: value)
        largest = exact.abs().amax(dim=1)
        largest = torch.where(largest > 0, largest, torch.inf)
        results = [torch.nn.functional.linear(together, each.values)]
        results += [_exact(together, row_products.pack(each.values, form), form, lambda value: value) for form in forms]
        apart = [(result.to(rows.dtype).double() - exact).abs().amax(dim=1) / largest for result in results]
        worst.append([[float(part.amax()) for part in one.split(len(rows))] for one in apart])
    return [tuple(each) for each in np.max(worst, axis=0).tolist()]
