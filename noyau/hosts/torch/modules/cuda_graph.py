"""A flat function whose launches are recorded once and given to the GPU again as one: a CUDA graph.

A step of one token is some hundred small launches, each of which takes the host longer than the GPU. What is recorded
reads and writes where its arguments lay then: it is used again where they lie there still (parameters, caches), and
those that lie elsewhere in each call (tokens) are copied, where they are small. A few results are copied out of the
memory of the recording. Many large ones, as what a training step saves and its gradients, are lent: they lie in it, and
it is used again when nobody holds them any more; until then the function is launched as before. Where the GPU is at
work for longer than the host, nothing is recorded, for there is nothing to win, until a later look finds it otherwise:
what others gave the GPU to do counts too."""

from __future__ import annotations

import contextlib
import logging
import operator
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from noyau.hosts.torch.cuda.device import beside_captures
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.simplification import KNOWN
from noyau.toolchain.garbage_collection import without_collections

log = logging.getLogger("noyau")
MOST_COPIED = 1 << 20  # bytes of arguments that lie elsewhere in each call
MOST_GIVEN = 1 << 28  # bytes of results that are copied, in a tenth of a millisecond
SMALL, FEW = 1 << 22, 4  # bytes of results that are copied however many they are, and how many of more bytes
MOST_HELD = 1 << 33  # bytes that a recording may hold, its results too; and no more than half of what is free
WARM = 3  # calls before a recording
MOST_TRIES = 8  # recordings of a function: of a backward, some calls go by until its forward is recorded
MOST_MISSED = 8  # calls in a row in which results of the last one are held still
PAUSE = 32  # calls from one look at the GPU to the next
SLOWER = 1.5  # times what the host takes: from there on it is the GPU that takes the time
STEPWISE = "a graph is launched step by step: %s"
Known = Callable[[list[Any]], Any]
Place: TypeAlias = tuple[int, tuple[int, ...]]
ViewLie: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
_SAME: Any = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)  # where torch is built for CUDA
_ONE = Lock()  # of recordings in the process: what collects garbage is one too


def is_repeatable(graph: fx.Graph) -> bool:
    """Whether a graph does the same whenever it is given the same, all of it on one GPU: nothing in it draws numbers,
    keeps a state of its own, or reads what the host has."""
    entries = {device for node in graph.nodes for device in _devices(node)}
    return len(entries) == 1 and entries.pop().type == "cuda" and all(map(_is_recordable, graph.nodes))


def _devices(node: fx.Node) -> Iterator[torch.device]:
    """Devices of the tensors that a node gives; that of the host for an argument that is none."""
    value = node.meta.get("val")
    if node.op == "get_attr" and value is None and node.graph.owning_module is not None:
        value = operator.attrgetter(node.target)(node.graph.owning_module)
    for each in torch.utils._pytree.tree_leaves(value):
        if isinstance(each, Tensor):
            yield each.device
        elif node.op in ("placeholder", "get_attr"):
            yield torch.device("cpu")


def _is_recordable(node: fx.Node) -> bool:
    """Whether a call is of torch's own operators or of noyau's kernels, and gives the same another time."""
    target = node.target
    if node.op != "call_function" or target is operator.getitem or isinstance(target, DeviceCall):
        return node.op not in ("call_method", "call_module")
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in KNOWN:
        return False
    is_apart = target in (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_.default)  # cells of nobody
    return not (is_apart or torch.Tag.cudagraph_unsafe in target.tags or _draws(node))


def _draws(node: fx.Node) -> bool:
    """Whether an operator of torch's draws numbers: attention does where it drops some."""
    target = node.target
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [each.name for each in target._schema.arguments]
    if "dropout_p" not in names:
        return True
    at = names.index("dropout_p")
    return bool(node.args[at] if at < len(node.args) else node.kwargs.get("dropout_p", 0.0))


def lies_at(tensor: Tensor) -> Place:
    """Address of a tensor, and its strides."""
    return tensor.data_ptr(), tensor.stride()


def as_view(tensor: Tensor, size: Sequence[int], stride: Sequence[int], begins: int) -> Tensor:
    """A view that begins some cells after a tensor does."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + begins)


# A tensor over memory of another, which is no view to autograd.
SHOWS = getattr(getattr(torch._C._dynamo, "guards", None), "_reinterpret_tensor", as_view)


def is_on_gpu(results: Any) -> bool:
    """Whether there are results that are tensors, all of them on a GPU."""
    tensors = tensors_in(results)
    return bool(tensors) and all(each.is_cuda for each in tensors)


def is_small(results: Any) -> bool:
    """Whether results are copied in no time."""
    sizes = [each.nbytes for each in tensors_in(results)]
    return sum(sizes) <= SMALL or (sum(sizes) <= MOST_GIVEN and len(sizes) <= FEW)


def tensors_in(results: Any) -> list[Tensor]:
    """The tensors among the results of a function."""
    return [each for each in (results if isinstance(results, tuple | list) else (results,)) if isinstance(each, Tensor)]


class GraphReplay:
    """A function of a list of tensors on a GPU, which is recorded when it was called a few times. `changed`: the
    places of arguments that it changes, which are never copied; `is_guarded`: whether the caller has looked at strides,
    as dynamo does but for what a backward is given."""

    def __init__(
        self, known: Known, arguments: Sequence[Any], changed: frozenset[int] = frozenset(), is_guarded: bool = False
    ) -> None:
        self.known, self.changed, self.is_guarded = known, changed, is_guarded
        self.places = [at for at, each in enumerate(arguments) if isinstance(each, Tensor)]
        self.before: list[Place] = []
        self.moving: set[int] = set()
        self.calls, self.tries, self.missed, self.is_over = 0, 0, 0, not self.places
        self.clock, self.pause = LaunchClock(), -1
        self.recorded: GraphRecording | None = None
        self.lock = Lock()

    def __call__(self, arguments: list[Any]) -> Any:
        """As `known`."""
        if self.is_over or not self.lock.acquire(blocking=False):  # what another thread replays is its own
            return self.known(arguments)
        try:
            return self.try_replay(arguments)
        finally:
            self.lock.release()

    def try_replay(self, arguments: list[Any]) -> Any:
        """A call, from the recording where it fits."""
        if is_capturing():
            return self.known(arguments)
        if self.pause > 0:
            self.pause -= 1
            return self.known(arguments)
        recorded = self.recorded
        if recorded is not None and recorded.fits(arguments, self.is_guarded):
            self.missed = 0 if recorded.is_free() else self.missed + 1
            if not self.missed:
                return recorded.again(arguments)
            if self.missed > MOST_MISSED:
                self.drop("its results are held until after the next call")
            return self.known(arguments)
        lies = [lies_at(arguments[at]) for at in self.places]
        if not self.count(lies, arguments):
            return self.clock.time(self.known, arguments)
        self.record(lies, arguments)
        return self.known(arguments) if self.recorded is None else self.recorded.again(arguments)

    def count(self, lies: list[Place], arguments: Sequence[Any]) -> bool:
        """Whether it is time to record."""
        pairs = zip(self.places, lies, self.before or lies, strict=True)
        self.moving |= {at for at, now, before in pairs if now != before}
        self.before, self.calls = lies, self.calls + 1
        if self.moving & self.changed or sum(arguments[at].nbytes for at in self.moving) > MOST_COPIED:
            self.moving, self.calls = set(), 0
            self.tries += 1
        elif self.calls <= WARM:
            return False
        if self.tries >= MOST_TRIES:
            self.drop("its arguments lie at new addresses too often")
        elif self.calls and self.clock.waits_for_the_gpu():
            log.log(
                logging.INFO if self.pause < 0 else logging.DEBUG, STEPWISE, "the GPU takes longer than its launches"
            )
            self.before, self.clock, self.calls, self.pause = [], LaunchClock(), 0, PAUSE
        return self.calls > WARM and not self.is_over and self.clock.is_decided()

    def record(self, lies: list[Place], arguments: Sequence[Any]) -> None:
        """Record the function; where that fails, it is launched as before."""
        self.forget()
        self.tries += 1
        fixed = {at: now for at, now in zip(self.places, lies, strict=True) if at not in self.moving}
        try:
            with beside_captures():
                self.recorded = record_graph(self.known, arguments, sorted(self.moving), fixed, self.places)
        except Exception as error:  # noqa: BLE001  of the driver, or of a function that is not for recordings
            self.drop(next(iter(str(error).splitlines()), type(error).__name__))

    def drop(self, reason: str) -> None:
        """Record nothing any more, and give back what a recording held."""
        log.info(STEPWISE, reason)
        self.forget()
        self.is_over = True
        self.before, self.clock = [], LaunchClock()

    def forget(self) -> None:
        """Let go of what was recorded, and of its memory, which torch would keep for other recordings alone."""
        recorded, self.recorded = self.recorded, None
        if recorded is not None:
            recorded.close()


class LaunchClock:
    """Seconds that the launches of a function take the host, and the GPU: of the first calls."""

    def __init__(self) -> None:
        self.host_s = float("inf")
        self.marks: list[tuple[Any, Any]] = []

    def time(self, known: Known, arguments: list[Any]) -> Any:
        """A call, between two marks where it is one of the first."""
        if len(self.marks) > WARM:
            return known(arguments)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start_s = time.perf_counter()
        start.record()
        result = known(arguments)
        end.record()
        self.host_s = min(self.host_s, time.perf_counter() - start_s)
        self.marks.append((start, end))
        return result

    def spans_s(self) -> list[float]:
        """Seconds of the GPU between marks that it has passed."""
        return [start.elapsed_time(end) / 1e3 for start, end in self.marks if end.query()]

    def is_decided(self) -> bool:
        """Whether the GPU has passed the marks of two calls: one may have waited for what others gave it to do."""
        return len(self.spans_s()) > 1

    def waits_for_the_gpu(self) -> bool:
        """Whether the GPU was at work for longer than the host: then launches are not what takes the time."""
        return self.is_decided() and min(self.spans_s()) > SLOWER * self.host_s


class GraphRecording:
    """A recording. `rooms`: by the place of an argument, where it is copied to; `fixed`: where each other one lay."""

    def __init__(self, graph: Any, rooms: dict[int, Tensor], fixed: dict[int, Place], places: list[int]) -> None:
        self.graph, self.rooms = graph, rooms
        self.at = [at for at in places if at in fixed]
        self.lay = [fixed[at] for at in self.at]
        self.addresses = [fixed[at][0] if at in fixed else None for at in range(max(places, default=-1) + 1)]
        self.stream = stream_now()
        self.results: Any = ()
        self.shown: dict[int, tuple[int, ViewLie]] = {}  # results that lie in arguments: which one, and how
        self.lent: list[tuple[Any, int]] = []  # memory of results that are not copied, and how many hold it at least

    def lend(self, inputs: Sequence[Any]) -> None:
        """Copy no result: those that lie in arguments are shown there, the others where they lie."""
        owners = {each.untyped_storage().data_ptr(): at for at, each in enumerate(inputs) if isinstance(each, Tensor)}
        memory: dict[int, Any] = {}
        self.results = list(self.results) if isinstance(self.results, tuple | list) else self.results
        for number, each in enumerate(tensors_in(self.results)):
            storage = each.untyped_storage()
            if each.numel() and storage.data_ptr() in owners:
                at = owners[storage.data_ptr()]
                begins = each.storage_offset() - inputs[at].storage_offset()
                if each.dtype != inputs[at].dtype:
                    raise RuntimeError("a result is a view of an argument in another dtype")
                self.shown[number] = at, (tuple(each.shape), tuple(each.stride()), begins)
            else:
                memory.setdefault(storage.data_ptr(), storage)
        self.lent = [(storage, _holders(storage)) for storage in memory.values()]

    def is_free(self) -> bool:
        """Whether nobody holds what was lent in the last call."""
        return all(_holders(storage) <= count for storage, count in self.lent)

    def lies(self, arguments: Sequence[Any]) -> Any:
        """The results where they lie, none of them copied."""
        numbers, result = iter(range(len(self.results))), list[Any]()
        for each in self.results:
            if not isinstance(each, Tensor):
                result.append(each)
            elif (number := next(numbers)) in self.shown:
                at, lies = self.shown[number]
                result.append(SHOWS(arguments[at], *lies))
            else:
                result.append(SHOWS(each, tuple(each.shape), tuple(each.stride()), 0))
        return tuple(result)

    def fits(self, arguments: Sequence[Any], is_guarded: bool = False) -> bool:
        """Whether all that is not copied lies where it lay, on the stream on which it was recorded. `is_guarded`: the
        strides are known to be the same."""
        if is_guarded and _SAME is not None:  # one call, where a hundred arguments take as long as five launches
            same = bool(_SAME(arguments, self.addresses, self.at))
        else:
            same = [lies_at(arguments[at]) for at in self.at] == self.lay
        return same and stream_now() == self.stream

    def close(self) -> None:
        """Give the memory of the recording back to the device: no other recording has a part in it. While another
        thread captures, torch gives back none, and this with what is given back next."""
        graph, self.graph, self.results, self.rooms, self.lent = self.graph, None, (), {}, []
        if graph is not None:
            with beside_captures(), contextlib.suppress(RuntimeError):
                graph.reset()
                torch.cuda.empty_cache()

    def __del__(self) -> None:
        """As `close`: who held it has let go of it. Not while this very thread captures."""
        with contextlib.suppress(Exception):
            if not sys.is_finalizing() and not is_capturing():
                self.close()

    def again(self, arguments: list[Any]) -> Any:
        """Replay the recording for these arguments."""
        for at, room in self.rooms.items():
            room.copy_(arguments[at])
        self.graph.replay()
        lent = self.lies(arguments) if self.lent else None
        arguments.clear()  # not before: another thread might be given their memory
        if lent is not None:
            return lent
        if isinstance(self.results, tuple | list):
            return tuple([each.clone() if isinstance(each, Tensor) else each for each in self.results])
        return self.results.clone()


def record_graph(
    known: Known, arguments: Sequence[Any], moving: Sequence[int], fixed: dict[int, Place], places: list[int]
) -> GraphRecording:
    """A function as it was recorded with these arguments, those of `moving` copied. RuntimeError where they are not on
    the current GPU, where it gives memory of its arguments, or where it holds too much."""
    (device, *others) = {arguments[at].device for at in places}
    if others or (device.type, device.index) != ("cuda", stream_now()[0]):
        raise RuntimeError("not all of its arguments are on the current GPU")
    with torch.inference_mode(False), torch.no_grad():
        rooms = {at: room_of(arguments[at]) for at in moving}
    inputs = [rooms.get(at, each) for at, each in enumerate(arguments)]
    own = {each.untyped_storage().data_ptr() for each in inputs if isinstance(each, Tensor)}
    result = GraphRecording(torch.cuda.CUDAGraph(), rooms, fixed, places)
    most = min(MOST_HELD, torch.cuda.mem_get_info(device)[0] // 2)
    held = torch.cuda.memory_reserved(device)  # what other threads take meanwhile is counted too: then it is dropped
    try:
        result.results = capture_graph(result.graph, known, list(inputs), device)  # it empties what it is given
        if is_small(result.results) or not isinstance(result.results, tuple | list):
            require_apart(tensors_in(result.results), own)
        else:
            result.lend(inputs)
        held = torch.cuda.memory_reserved(device) - held
        if held > most:
            raise RuntimeError(f"its recording holds {held} bytes")
    except BaseException:
        result.close()
        raise
    return result


def _holders(storage: Any) -> int:
    """Number of those who hold memory: tensors over it, and what stands for it in Python."""
    return int(torch._C._storage_Use_Count(storage._cdata))


def room_of(tensor: Tensor) -> Tensor:
    """A copy of a tensor that lies as it does, gaps too: the strides of arguments are numbers in what is recorded.
    RuntimeError where cells lie upon each other, or far apart."""
    cells = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride < cells:
            raise RuntimeError("cells of an argument whose address changes overlap")
        cells += max(extent - 1, 0) * stride
    if cells * tensor.element_size() > MOST_COPIED:
        raise RuntimeError("cells of an argument whose address changes lie far apart")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def require_apart(results: Sequence[Tensor], own: set[int]) -> None:
    """RuntimeError where copies of results would be others: of shared memory, or of cells that are not side by side."""
    taken = [each.untyped_storage().data_ptr() for each in results]
    if own & set(taken) or len(set(taken)) < len(taken):
        raise RuntimeError("a result shares memory with an argument or another result")
    if any(torch.empty_like(each, device="meta").stride() != each.stride() for each in results):
        raise RuntimeError("the cells of a result are not side by side in memory")


def capture_graph(graph: Any, known: Known, inputs: list[Any], device: torch.device) -> Any:
    """Results of a function while a CUDA graph records it: nothing is run."""
    with _ONE:
        current, side = torch.cuda.current_stream(device), _side(device)
        torch.cuda.synchronize(device)
        side.wait_stream(current)
        try:
            with without_collections(), torch.cuda.stream(side):  # what is let go of meanwhile may be of the driver
                _forget_memory_of_blas()  # so that it is taken anew, where this recording has its memory
                return capture_body(graph, known, inputs)
        finally:
            _forget_memory_of_blas()  # so that no other recording writes there
            current.wait_stream(side)


def capture_body(graph: Any, known: Known, inputs: list[Any]) -> Any:
    """Results of a function between the beginning and the end of a recording. Its error is the one that is raised: the
    end of what went wrong is one more."""
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        result = known(inputs)
    except BaseException:
        with contextlib.suppress(RuntimeError):
            graph.capture_end()
        raise
    graph.capture_end()
    return result


def _forget_memory_of_blas() -> None:
    """Let go of what BLAS keeps to work in, as torch's own recordings do: it goes back to where it was taken from."""
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()


@cache
def _side(device: torch.device) -> Any:
    """The stream of a GPU on which all recordings are made, one after another."""
    return torch.cuda.Stream(device)


def stream_now() -> tuple[int, int]:
    """The current device, and its current stream."""
    device = torch._C._cuda_getDevice()  # torch.cuda's own takes as long as two launches
    return device, torch._C._cuda_getCurrentRawStream(device)


def is_capturing() -> bool:
    """Whether launches are recorded now: then nothing is recorded beside."""
    return bool(torch.cuda.is_current_stream_capturing())
