"""The process of a reference: the inputs of each trial, their right results in float64, and runs with moved inputs."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noyau.hosts.torch.tensors import tensor_of
from noyau.jobs.check.submissions import torch_formats as formats
from noyau.jobs.check.submissions.problem import POISONS
from noyau.jobs.check.submissions.process import read_results, write_results
from noyau.sanitizer.scripts.torch_extensions import stood_in
from noyau.sanitizer.scripts.triton_host import is_marked, mark_tensors, torch_stood_in

_CELL_BYTES = 128  # memory per cell of an input or a result while a submission is watched: mostly its shadow
_MOVED_RUNS = 4
SEEDS = {"a": 1, "b": 2}


def write_truth(wish: Mapping[str, Any], folder: Path) -> None:
    """Write the truth of each trial into a folder, while there is time; the last file has the error, if any."""
    torch.set_num_threads(1)
    pace = formats.Pace(wish["time_s"])
    fault = ""
    with torch_stood_in(lambda *_: None), stood_in(None):
        try:
            format_of = formats.FORMATS[wish["format"]](wish, folder)
            for number, trial in enumerate(wish["trials"]):
                if not pace.allows(0):
                    break
                if trial["arguments"].get("is_spare") and pace.costs_s:  # another trial ran
                    continue
                # The first trial may have twice the cells: accesses to weights need less memory.
                most_cells = wish["memory_bytes"] // (_CELL_BYTES if pace.costs_s else _CELL_BYTES // 2)
                if wish["format"] == "definitions" and trial["cells"] > most_cells:
                    continue  # known beforehand
                try:
                    _write_trial(format_of, trial, number, folder, pace, most_cells)
                except Exception as error:  # noqa: BLE001  sizes that the reference refuses are left out
                    fault = fault or f"{trial['label']}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        except (Exception, SystemExit) as error:  # noqa: BLE001  loading a user's text may raise anything
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    (folder / "ending.json").write_text(json.dumps({"fault": fault}), "utf-8")


def _write_trial(
    format_of: formats.Format, trial: Mapping[str, Any], number: int, folder: Path, pace: formats.Pace, most_cells: int
) -> None:
    """Write the inputs and the truth of a trial, for each seed; nothing if it has too many cells, or time is short."""
    for name, seed in SEEDS.items():
        with formats.Poison(POISONS[name]):
            data = format_of.inputs(trial["arguments"], seed)
            cells = sum(each.numel() for each in formats.tensors_in(data))
            if cells > most_cells or (name == "a" and not pace.allows(cells)):
                (folder / f"large-{number}").touch()
                return
            before = formats.clone_tensors(data)
            results = format_of.reference(data)
            native = formats.plain_arrays(results)
            again = formats.plain_arrays(format_of.reference(formats.clone_tensors(before)))
        held = formats.bytes_of(before)
        changed = [at for at, (one, other) in enumerate(zip(formats.bytes_of(data), held, strict=True)) if one != other]
        unset = [at for at, each in enumerate(held) if each and each == bytes([POISONS[name]]) * len(each)]
        facts: dict[str, Any] = {"changed": changed, "unset": unset}
        facts["aliases"] = formats.aliases(formats.tensors_in(results), formats.tensors_in(data))
        facts["is_random"] = any(one.tobytes() != other.tobytes() for one, other in zip(native, again, strict=True))
        is_task = isinstance(format_of, formats.GpuMode)
        facts["unread"] = formats.unread(format_of, before, native) if name == "a" and is_task else []
        truth, facts["is_wide"] = _truth(format_of, before, native)
        move, runs = partial(formats.move_floats, rng=np.random.default_rng(seed)), []
        for _ in range(_MOVED_RUNS):
            run = formats.plain_arrays(format_of.reference(formats.map_tensors(before, move)))
            runs += run if [each.shape for each in run] == [each.shape for each in native] else []
        torch.save(formats.map_tensors(before, lambda each: each.clone()), folder / f"in-{number}-{name}.pt")
        marks = [is_marked(each) for each in formats.tensors_in(before)]
        (folder / f"marks-{number}").write_text(json.dumps(marks), "ascii")
        write_results(folder / f"truth-{number}-{name}", [*native, *truth, *runs], facts | {"count": len(native)})
        write_results(folder / f"inputs-{number}-{name}", formats.plain_arrays(formats.tensors_in(before)), {})
    pace.note(cells)


def _truth(format_of: formats.Format, data: Any, native: Sequence[np.ndarray]) -> tuple[list[np.ndarray], bool]:
    """The results in float64, and True; or, if the reference fails at that width, its own results, and False."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with suppress(Exception), formats.WideFloats():  # a reference need not be written for wider floats
            wide = formats.map_tensors(
                data, lambda each: each.to(torch.float64) if each.dtype in formats.NARROW else each.clone()
            )
            results = formats.plain_arrays(format_of.reference(wide, wide=True))
            if [each.shape for each in results] == [each.shape for each in native]:
                return results, True
    finally:
        torch.set_default_dtype(before)
    return [each.astype(np.float64) if each.dtype.kind not in "iub" else each for each in native], False


def write_verdicts(wish: Mapping[str, Any], folder: Path) -> None:
    """Write the verdicts of the task's own check on the results in a folder."""
    torch.set_num_threads(1)
    verdicts: dict[str, str] = {}
    with torch_stood_in(lambda *_: None), stood_in(None):
        format_of = formats.GpuMode(wish, folder)
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
            except Exception as error:  # noqa: BLE001  the check need not accept any result
                sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
    (folder / "verdicts.json").write_text(json.dumps(verdicts), "utf-8")
