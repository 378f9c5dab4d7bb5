"""A flat function whose launches are recorded once and replayed as one: a CUDA graph.

A step of one token is some hundred small launches, each of which takes the host longer than the GPU. A recording
reads and writes at the addresses of its arguments: it is replayed if they are the same (parameters, caches), and small
arguments with another address in each call (tokens) are copied. A few results are copied out of the memory of the
recording. Many, such as the saved values and gradients of a training step, are lent: they lie in that memory, and the
recording is replayed when nothing holds them any more; until then the function is launched as before. Where some are
held in every call, such as a loss until the next one is there, they are copied in a second recording.
Where the GPU works for longer than the host, nothing is recorded, since nothing would be gained, until a later
measurement says otherwise: other work of the GPU counts too."""

import contextlib
import logging
import operator
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from noyau.errors import first_line
from noyau.hosts.torch.cuda.device import beside_captures
from noyau.hosts.torch.cuda.device_call import DeviceCall
from noyau.hosts.torch.modules.simplification import KNOWN
from noyau.hosts.torch.tensors import reads_alike
from noyau.toolchain.garbage_collection import without_collections

log = logging.getLogger("noyau")
MOST_COPIED = 1 << 20  # bytes of arguments that lie elsewhere in each call
MOST_GIVEN = 1 << 28  # bytes of results that are copied, in a tenth of a millisecond
SMALL, FEW = 1 << 22, 4  # total bytes up to which any number of results is copied, and the most results of more bytes
MOST_HELD = 1 << 33  # bytes that a recording may hold, its results too; and no more than half of what is free
WARM = 3  # calls before a recording; twice as many of a backward, whose forward is recorded first
MOST_TRIES = 8  # recordings of a function: a backward needs some calls until its forward is recorded
MOST_MISSED = 8  # calls during which results of the last replay are still held, until these are copied
PAUSE = 32  # calls from one measurement of the GPU to the next
SLOWER = 1.5  # times the seconds of the host: from there on it is the GPU that takes the time
STEPWISE = "a graph is launched step by step: %s"
Known = Callable[[list[Any]], Any]
Place: TypeAlias = tuple[int, tuple[int, ...]]
ViewLie: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
_SAME: Any = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)  # where torch is built for CUDA
_ONE = Lock()  # of recordings in the process, which has one garbage collector


def is_repeatable(graph: fx.Graph) -> bool:
    """Whether a graph does the same for the same arguments, all of it on one GPU: no node draws random numbers, keeps
    a state of its own, or reads memory of the host."""
    entries = {device for node in graph.nodes for device in _devices(node)}
    return len(entries) == 1 and entries.pop().type == "cuda" and all(map(_is_recordable, graph.nodes))


def _devices(node: fx.Node) -> Iterator[torch.device]:
    """The devices of the tensors of a node; the CPU for an argument that is no tensor."""
    value = node.meta.get("val")
    if node.op == "get_attr" and value is None and node.graph.owning_module is not None:
        value = operator.attrgetter(node.target)(node.graph.owning_module)
    for each in torch.utils._pytree.tree_leaves(value):
        if isinstance(each, Tensor):
            yield each.device
        elif node.op in ("placeholder", "get_attr"):
            yield torch.device("cpu")


def _is_recordable(node: fx.Node) -> bool:
    """Whether a node calls one of torch's own operators or of noyau's kernels, with the same results each time."""
    target = node.target
    if node.op != "call_function" or target is operator.getitem or isinstance(target, DeviceCall):
        return node.op not in ("call_method", "call_module")
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in KNOWN:
        return False
    is_apart = target in (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_.default)  # cells of no tensor
    return not (is_apart or torch.Tag.cudagraph_unsafe in target.tags or _draws(node))


def _draws(node: fx.Node) -> bool:
    """Whether an operator of torch's draws random numbers: attention does so with dropout only."""
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
    """A view that begins some cells behind the begin of a tensor."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + begins)


# A tensor over memory of another, which is no view to autograd.
SHOWS = getattr(getattr(torch._C._dynamo, "guards", None), "_reinterpret_tensor", as_view)


def is_on_gpu(results: Any) -> bool:
    """Whether there are results that are tensors, all of them on a GPU."""
    tensors = tensors_in(results)
    return bool(tensors) and all(each.is_cuda for each in tensors)


def is_small(results: Any, own: Container[int] = ()) -> bool:
    """Whether results can be copied in no time, with all their memory; of arguments, at `own`, none is copied."""
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors_in(results)}
    sizes = [size for place, size in storages.items() if place not in own]
    return sum(sizes) <= SMALL or (sum(sizes) <= MOST_GIVEN and len(sizes) <= FEW)


def tensors_in(results: Any) -> list[Tensor]:
    """The tensors among the results of a function."""
    return [each for each in (results if isinstance(results, tuple | list) else (results,)) if isinstance(each, Tensor)]


class GraphReplay:
    """A function of a list of tensors on a GPU, which is recorded after a few calls. `changed`: the positions of
    arguments that it changes, which are never copied; `is_guarded`: whether the caller has checked strides, as dynamo
    does, except those of the arguments of a backward; `warm`: the calls before it is recorded."""

    def __init__(
        self,
        known: Known,
        arguments: Sequence[Any],
        changed: frozenset[int] = frozenset(),
        is_guarded: bool = False,
        warm: int = WARM,
    ) -> None:
        self.known, self.changed, self.is_guarded, self.warm = known, changed, is_guarded, warm
        self.places = [at for at, each in enumerate(arguments) if isinstance(each, Tensor)]
        self.before: list[Place] = []
        self.moving, self.moved = set[int](), set[int]()  # so far, and in the last call
        self.calls, self.tries, self.missed, self.misses, self.is_over = 0, 0, 0, 0, not self.places
        self.clock, self.pause = LaunchClock(), -1
        self.recorded: GraphRecording | None = None
        self.copied: frozenset[int] = frozenset()  # results that were held until after the next call
        self.lock = Lock()

    def __call__(self, arguments: list[Any]) -> Any:
        """Call `known`, or replay its recording."""
        if self.is_over or not self.lock.acquire(blocking=False):  # another thread may use the recording
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
            if not (numbers := recorded.holds()):
                self.missed = 0
                return recorded.again(arguments)
            self.missed, self.misses = self.missed + 1, self.misses + 1
            if self.misses > MOST_MISSED:
                self.copy_held(numbers)
            return self.known(arguments)
        lies = [lies_at(arguments[at]) for at in self.places]
        if not self.count(lies, arguments):
            return self.clock.time(self.known, arguments)
        self.record(lies, arguments)
        return self.known(arguments) if self.recorded is None else self.recorded.again(arguments)

    def count(self, lies: list[Place], arguments: Sequence[Any]) -> bool:
        """Count a call; whether it is time to record."""
        pairs = zip(self.places, lies, self.before or lies, strict=True)
        last, self.moved = self.moved, {at for at, now, before in pairs if now != before}
        self.moving = self.moved | (self.moving if self.tries else last)  # what is saved lies still from some call on
        self.before, self.calls = lies, self.calls + 1
        if self.moving & self.changed or sum(arguments[at].nbytes for at in self.moving) > MOST_COPIED:
            self.moving, self.calls = set(), 0
            self.tries += 1
        elif self.calls <= self.warm:
            return False
        if self.tries >= MOST_TRIES:
            self.drop("its arguments lie at new addresses too often")
        elif self.calls and self.clock.waits_for_the_gpu():
            log.log(
                logging.INFO if self.pause < 0 else logging.DEBUG, STEPWISE, "the GPU takes longer than its launches"
            )
            self.before, self.clock, self.calls, self.pause = [], LaunchClock(), 0, PAUSE
        return self.calls > self.warm and not self.is_over and self.clock.is_decided()

    def record(self, lies: list[Place], arguments: Sequence[Any]) -> None:
        """Record the function; where that fails, it is launched as before."""
        self.forget()
        self.tries += 1
        fixed = {at: now for at, now in zip(self.places, lies, strict=True) if at not in self.moving}
        try:
            with beside_captures():
                self.recorded = record_graph(self.known, arguments, sorted(self.moving), fixed, self.copied)
        except Exception as error:  # noqa: BLE001  of the driver, or of a function that is not for recordings
            self.drop(first_line(error))

    def copy_held(self, numbers: frozenset[int]) -> None:
        """Have the function recorded anew, with copies of the results that are held, or drop it if these are large."""
        copied = self.copied | numbers
        sizes = enumerate(tensors_in(self.recorded.results if self.recorded else ()))
        if copied != self.copied and self.tries < MOST_TRIES and is_small([each for at, each in sizes if at in copied]):
            self.copied, self.misses = copied, 0
            self.forget()
        elif self.missed > MOST_MISSED:
            self.drop("its results are held until after the next call")

    def drop(self, reason: str) -> None:
        """Record nothing any more, and free the memory of the recording."""
        log.info(STEPWISE, reason)
        self.forget()
        self.is_over = True
        self.before, self.clock = [], LaunchClock()

    def forget(self) -> None:
        """Drop the recording, and free its memory, which torch would keep for other recordings alone."""
        recorded, self.recorded = self.recorded, None
        if recorded is not None:
            recorded.close()


class LaunchClock:
    """Seconds of the first calls of a function: of its launches on the host, and of its work on the GPU."""

    def __init__(self) -> None:
        self.host_s = float("inf")
        self.marks: list[tuple[Any, Any]] = []

    def time(self, known: Known, arguments: list[Any]) -> Any:
        """Call the function; one of the first calls is timed between two marks."""
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
        """Whether the GPU has passed the marks of two calls: one may have waited for other work."""
        return len(self.spans_s()) > 1

    def waits_for_the_gpu(self) -> bool:
        """Whether the GPU worked for longer than the host, so that launches are not the bottleneck."""
        return self.is_decided() and min(self.spans_s()) > SLOWER * self.host_s


class GraphRecording:
    """A recording. `rooms`: by argument, the tensor that it is copied to; `fixed`: the places of all others."""

    def __init__(self, graph: Any, rooms: dict[int, Tensor], fixed: dict[int, Place], places: list[int]) -> None:
        self.graph, self.rooms = graph, rooms
        self.at = [at for at in places if at in fixed]
        self.lay = [fixed[at] for at in self.at]
        self.addresses = [fixed[at][0] if at in fixed else None for at in range(max(places, default=-1) + 1)]
        self.stream = stream_now()
        self.results: Any = ()
        self.shown: dict[int, tuple[int, ViewLie]] = {}  # results in memory of arguments, or of what is copied
        self.lent: list[tuple[Any, int, list[int]]] = []  # memory that is not copied, its least holders, its results
        self.memory: list[Tensor] = []  # what is copied

    def lend(self, inputs: Sequence[Any], copied: frozenset[int] = frozenset()) -> None:
        """Results in memory of arguments become views of those. Others are `copied`, by their numbers, with all
        their memory, so that they share it as before; the rest become views of the recording."""
        owners = {each.untyped_storage().data_ptr(): at for at, each in enumerate(inputs) if isinstance(each, Tensor)}
        lent: dict[int, tuple[Any, list[int]]] = {}
        self.results = list(self.results) if isinstance(self.results, tuple | list) else self.results
        for number, each in enumerate(tensors_in(self.results)):
            storage, sources = each.untyped_storage(), [*inputs, *self.memory]
            place = storage.data_ptr()
            if number in copied and not ((each.numel() and place in owners) or each.is_conj() or each.is_neg()):
                cells = storage.nbytes() // each.element_size()
                self.memory.append(SHOWS(each, (cells,), (1,), -each.storage_offset()))
                owners[place], sources = len(sources), [*sources, self.memory[-1]]
            if place in owners and (each.numel() or number in copied):
                source = sources[owners[place]]
                if each.dtype != source.dtype or not reads_alike(each, source):
                    raise RuntimeError("a result shares memory in another dtype, negated or conjugated")
                begins = each.storage_offset() - source.storage_offset()
                self.shown[number] = owners[place], (tuple(each.shape), tuple(each.stride()), begins)
            else:
                lent.setdefault(place, (storage, []))[1].append(number)
        self.lent = [(storage, _holders(storage), numbers) for storage, numbers in lent.values()]

    def holds(self) -> frozenset[int]:
        """The numbers of the results that were lent in the last call, and that something holds."""
        return frozenset(at for storage, count, numbers in self.lent if _holders(storage) > count for at in numbers)

    def lies(self, arguments: Sequence[Any]) -> Any:
        """The results: copies, and those that are lent."""
        sources = [*arguments, *(each.clone() for each in self.memory)]
        many = self.results if isinstance(self.results, list) else [self.results]
        numbers, result = iter(range(len(many))), list[Any]()
        for each in many:
            if not isinstance(each, Tensor):
                result.append(each)
            elif (number := next(numbers)) in self.shown:
                at, lies = self.shown[number]
                result.append(SHOWS(sources[at], *lies))
            else:
                result.append(SHOWS(each, tuple(each.shape), tuple(each.stride()), 0))
        return tuple(result) if many is self.results else result[0]

    def fits(self, arguments: Sequence[Any], is_guarded: bool = False) -> bool:
        """Whether the arguments that are not copied lie where they lay at the recording, on the same stream.
        `is_guarded`: the strides are known to be the same."""
        if is_guarded and _SAME is not None:  # one call, where a hundred arguments take as long as five launches
            same = bool(_SAME(arguments, self.addresses, self.at))
        else:
            same = [lies_at(arguments[at]) for at in self.at] == self.lay
        return same and stream_now() == self.stream

    def close(self) -> None:
        """Free the memory of the recording, which no other recording shares. While another thread captures, torch frees
        nothing, and this memory with the next."""
        graph, self.graph, self.results, self.rooms, self.lent, self.memory = self.graph, None, (), {}, [], []
        if graph is not None:
            with beside_captures(), contextlib.suppress(RuntimeError):
                graph.reset()
                torch.cuda.empty_cache()

    def __del__(self) -> None:
        """Close the recording when nothing holds it any more. Not while this very thread captures."""
        with contextlib.suppress(Exception):
            if not sys.is_finalizing() and not is_capturing():
                self.close()

    def again(self, arguments: list[Any]) -> Any:
        """Replay the recording for these arguments."""
        for at, room in self.rooms.items():
            room.copy_(arguments[at])
        self.graph.replay()
        results = self.lies(arguments)
        arguments.clear()  # not before: another thread might be given their memory
        return results


def record_graph(
    known: Known, arguments: Sequence[Any], moving: Sequence[int], fixed: dict[int, Place], copied: frozenset[int]
) -> GraphRecording:
    """Record a function with these arguments, those of `moving` copied, and the results `copied`; all where they are
    few. RuntimeError where they are not on the current GPU, or where the recording holds too much."""
    places = sorted([*moving, *fixed])
    (device, *others) = {arguments[at].device for at in places}
    if others or (device.type, device.index) != ("cuda", stream_now()[0]):
        raise RuntimeError("not all of its arguments are on the current GPU")
    with torch.inference_mode(False), torch.no_grad():
        rooms = {at: room_of(arguments[at]) for at in moving}
    inputs = [rooms.get(at, each) for at, each in enumerate(arguments)]
    result = GraphRecording(torch.cuda.CUDAGraph(), rooms, fixed, places)
    most = min(MOST_HELD, torch.cuda.mem_get_info(device)[0] // 2)
    held = torch.cuda.memory_reserved(device)  # allocations of other threads count too: then it is dropped
    try:
        result.results = capture_graph(result.graph, known, list(inputs), device)  # it empties its list
        results, own = tensors_in(result.results), {each.untyped_storage().data_ptr() for each in tensors_in(inputs)}
        result.lend(inputs, frozenset(range(FEW)) if len(results) <= FEW and is_small(results, own) else copied)
        held = torch.cuda.memory_reserved(device) - held
        if held > most:
            raise RuntimeError(f"its recording holds {held} bytes")
    except BaseException:
        result.close()
        raise
    return result


def _holders(storage: Any) -> int:
    """The number of holders of a storage: tensors on it, and objects for it in Python."""
    return int(torch._C._storage_Use_Count(storage._cdata))


def room_of(tensor: Tensor) -> Tensor:
    """A copy of a tensor with the same strides, gaps too: the strides of arguments are numbers in a recording.
    RuntimeError where cells overlap, or lie far apart."""
    cells = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride < cells:
            raise RuntimeError("cells of an argument whose address changes overlap")
        cells += max(extent - 1, 0) * stride
    if cells * tensor.element_size() > MOST_COPIED:
        raise RuntimeError("cells of an argument whose address changes lie far apart")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def capture_graph(graph: Any, known: Known, inputs: list[Any], device: torch.device) -> Any:
    """Results of a function while a CUDA graph records it: nothing is run."""
    with _ONE:
        current, side = torch.cuda.current_stream(device), _side(device)
        torch.cuda.synchronize(device)
        side.wait_stream(current)
        try:
            with without_collections(), torch.cuda.stream(side):  # a collection might free objects of the driver
                _forget_memory_of_blas()  # so that it is allocated anew, in the memory of this recording
                return capture_body(graph, known, inputs)
        finally:
            _forget_memory_of_blas()  # so that no other recording writes there
            current.wait_stream(side)


def capture_body(graph: Any, known: Known, inputs: list[Any]) -> Any:
    """Results of a function between the begin and the end of a capture. The function's error is raised, not the further
    error at the end of a failed capture."""
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
    """Free the workspaces of BLAS, as torch's own recordings do; they return to the allocator that they came from."""
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
    """Whether launches are captured now: then nothing else is recorded."""
    return bool(torch.cuda.is_current_stream_capturing())
