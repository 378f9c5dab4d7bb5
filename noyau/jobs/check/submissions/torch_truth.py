"""The process of a reference: inputs of each trial, what is right of them in float64, and runs rounded otherwise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from noyau.hosts.torch.tensors import array_of, from_torch, tensor_of
from noyau.jobs.check.submissions.problem import POISONS
from noyau.jobs.check.submissions.process import read_results, write_results
from noyau.jobs.check.submissions.torch_formats import (
    FORMATS,
    Format,
    GpuMode,
    Pace,
    Poison,
    aliases,
    plain_arrays,
    tensors_in,
    with_tensors,
)
from noyau.sanitizer.scripts.torch_extensions import stood_in
from noyau.sanitizer.scripts.triton_host import is_marked, mark_tensors, torch_stood_in
from noyau.verify.floats import move_ulps

_NARROW = (torch.float16, torch.bfloat16, torch.float32)
_TO_NARROW = frozenset({"float", "half", "bfloat16"})  # methods that cast
_CELL_BYTES = 128  # of a cell of an input or a result while a submission is watched: mostly of its shadow
_MOVED_RUNS = 4
SEEDS = {"a": 1, "b": 2}


class WideFloats(TorchFunctionMode):  # type: ignore[misc]
    """Within, floats are of 64 bits, whatever is written: but those of 8 bits, which values are quantised to."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _TO_NARROW and args and isinstance(args[0], torch.Tensor):
            return args[0].double()
        result = func(*map(_wide, args), **{key: _wide(each) for key, each in (kwargs or {}).items()})
        return result.double() if isinstance(result, torch.Tensor) and result.dtype in _NARROW else result


def _wide(each: Any) -> Any:
    return torch.float64 if isinstance(each, torch.dtype) and each in _NARROW else each


def write_truth(wish: Mapping[str, Any], folder: Path) -> None:
    """Write what is right of each trial into a folder, as long as there is time; the last file says what went wrong."""
    torch.set_num_threads(1)
    pace = Pace(wish["time_s"])
    fault = ""
    with torch_stood_in(lambda *_: None), stood_in(None):
        try:
            format_of = FORMATS[wish["format"]](wish, folder)
            for number, trial in enumerate(wish["trials"]):
                if not pace.allows(0):
                    break
                if trial["arguments"].get("is_spare") and pace.costs_s:  # another one was allowed
                    continue
                # As long as there is none, one is tried that may lack room: the accesses to weights take less.
                most_cells = wish["memory_bytes"] // (_CELL_BYTES if pace.costs_s else _CELL_BYTES // 2)
                if wish["format"] == "definitions" and trial["cells"] > most_cells:
                    continue  # known beforehand
                try:
                    _write_trial(format_of, trial, number, folder, pace, most_cells)
                except Exception as error:  # noqa: BLE001  a size that the reference refuses is none of the problem's
                    fault = fault or f"{trial['label']}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a text of a user does as it is loaded
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    (folder / "ending.json").write_text(json.dumps({"fault": fault}), "utf-8")


def _write_trial(
    format_of: Format, trial: Mapping[str, Any], number: int, folder: Path, pace: Pace, most_cells: int
) -> None:
    """The inputs and the truth of a trial, for each seed; nothing where there are too many cells, or no time for it."""
    for name, seed in SEEDS.items():
        with Poison(POISONS[name]):
            data = format_of.inputs(trial["arguments"], seed)
            cells = sum(each.numel() for each in tensors_in(data))
            if cells > most_cells or (name == "a" and not pace.allows(cells)):
                (folder / f"large-{number}").touch()
                return
            before = _clone(data)
            results = format_of.reference(data)
            native = plain_arrays(results)
            again = plain_arrays(format_of.reference(_clone(before)))
        held = _bytes(before)
        changed = [at for at, (one, other) in enumerate(zip(_bytes(data), held, strict=True)) if one != other]
        unset = [at for at, each in enumerate(held) if each and each == bytes([POISONS[name]]) * len(each)]
        facts: dict[str, Any] = {"changed": changed, "unset": unset}
        facts["aliases"] = aliases(tensors_in(results), tensors_in(data))
        facts["is_random"] = any(one.tobytes() != other.tobytes() for one, other in zip(native, again, strict=True))
        facts["unread"] = _unread(format_of, before, native) if name == "a" and isinstance(format_of, GpuMode) else []
        truth, facts["is_wide"] = _truth(format_of, before, native)
        move, runs = partial(_move_floats, rng=np.random.default_rng(seed)), []
        for _ in range(_MOVED_RUNS):
            run = plain_arrays(format_of.reference(_map_tensors(before, move)))
            runs += run if [each.shape for each in run] == [each.shape for each in native] else []
        torch.save(_map_tensors(before, lambda each: each.clone()), folder / f"in-{number}-{name}.pt")
        (folder / f"marks-{number}").write_text(json.dumps([is_marked(each) for each in tensors_in(before)]), "ascii")
        write_results(folder / f"truth-{number}-{name}", [*native, *truth, *runs], facts | {"count": len(native)})
        write_results(folder / f"inputs-{number}-{name}", plain_arrays(tensors_in(before)), {})
    pace.note(cells)


def _map_tensors(data: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The nest with each tensor changed; it lies where it lay."""
    pairs = [(change(each), is_marked(each)) for each in tensors_in(data)]
    return with_tensors(data, [mark_tensors(each) if is_on_gpu else each for each, is_on_gpu in pairs])


def _clone(data: Any) -> Any:
    return _map_tensors(data, lambda each: each.detach().clone())


def _bytes(data: Any) -> list[bytes]:
    return [array_of(each).tobytes() for each in tensors_in(data)]


def _unread(format_of: Format, data: Any, native: Sequence[np.ndarray]) -> list[int]:
    """The tensors whose values do not matter to the reference: a submission may write there."""
    places = []
    for at, tensor in enumerate(tensors_in(data)):
        tensors = tensors_in(_clone(data))
        tensors[at] = mark_tensors(torch.zeros_like(tensor) if tensor.any() else torch.ones_like(tensor))
        try:
            results = plain_arrays(format_of.reference(with_tensors(data, tensors)))
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            continue
        if [each.tobytes() for each in results] == [each.tobytes() for each in native]:
            places.append(at)
    return places


def _truth(format_of: Format, data: Any, native: Sequence[np.ndarray]) -> tuple[list[np.ndarray], bool]:
    """The results in float64, and whether they are: else the reference as it is stands for them."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with WideFloats():
            wide = _map_tensors(data, lambda each: each.to(torch.float64) if each.dtype in _NARROW else each.clone())
            results = plain_arrays(format_of.reference(wide, wide=True))
        if [each.shape for each in results] == [each.shape for each in native]:
            return results, True
    except Exception as error:  # noqa: BLE001  a reference need not be written for wider floats
        del error
    finally:
        torch.set_default_dtype(before)
    return [each.astype(np.float64) if each.dtype.kind not in "iub" else each for each in native], False


def _move_floats(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """The tensor with each float moved by an ulp or none."""
    dtype = from_torch(tensor.dtype)
    if dtype is None or not dtype.is_float:
        return tensor.clone()
    return tensor_of(move_ulps(np.asarray(array_of(tensor), order="C"), rng))


def write_verdicts(wish: Mapping[str, Any], folder: Path) -> None:
    """Write what the task's own check says of the results that lie in a folder."""
    torch.set_num_threads(1)
    verdicts: dict[str, str] = {}
    with torch_stood_in(lambda *_: None), stood_in(None):
        format_of = GpuMode(wish, folder)
        for path in sorted(folder.glob("out-*")):
            results, name = read_results(path), path.name.removeprefix("out-")
            number, _, call = name.partition("-")
            source = folder / f"in-{number}-{'b' if call == 'b' else 'a'}.pt"
            if results is None or not source.is_file():
                continue
            data = torch.load(source, weights_only=False)
            tensors = [mark_tensors(tensor_of(np.array(each))) for each in results[0]]
            try:
                verdicts[name] = format_of.verdict(data, tensors[0] if len(tensors) == 1 else tuple(tensors))
            except Exception as error:  # noqa: BLE001  it need not be written for what a submission gave
                sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
    (folder / "verdicts.json").write_text(json.dumps(verdicts), "utf-8")
