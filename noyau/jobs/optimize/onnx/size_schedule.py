"""The sizes of each round of a model, and what flows through it at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from noyau.codegen.plan import Planned
from noyau.errors import InputError, ModelError
from noyau.hosts.onnxruntime import inputs as model_inputs
from noyau.hosts.onnxruntime.activations import ActivationCapture, Activations, capture_at
from noyau.hosts.onnxruntime.inputs import MOST_BYTES, Dims, ModelInputs, model_names, spell
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.jobs.optimize.candidate import Candidate, right
from noyau.timing.comparison import is_brief


@dataclass(frozen=True, slots=True)
class SizeSchedule:
    """The sizes of each round of a model, by `dims` or by itself, with its inputs and what flows through it at them.

    `usual`: what flows with the first; `capturing` may have a session that shows what does with others."""

    original: SourceModel
    feeds: ModelInputs
    usual: Activations
    dims: Dims
    seed: int = 0
    capturing: ActivationCapture | None = None
    notes: list[str] = field(default_factory=list)

    def bindings(self) -> list[dict[str, int]]:
        """The sizes of each round; a user's arrays have theirs, and so have those that were searched for. The first
        alone where clocks are to be brief."""
        fixed = not self.feeds.made_up or not self.feeds.full.arrays or self.feeds.searched or bool(self.usual.fault)
        imported = self.original.called
        own = [dict(each.sizes) for each in (self.feeds.full, *self.feeds.others)]
        own = [sizes for at, sizes in enumerate(own) if sizes not in own[:at]]
        first, *others = own if fixed else model_inputs.bindings(imported, self.dims)
        assert fixed or first == dict(self.feeds.full.sizes)
        return [first, *(sizes for sizes in others if not is_brief() and self._fits(sizes))]

    def _fits(self, sizes: dict[str, int]) -> bool:
        """Whether the largest value has room at sizes that nobody asked for; if not, that is noted."""
        imported = self.original.called
        largest = 0 if self.dims or self.feeds.others else model_inputs.largest_bytes(imported.graph, sizes)
        if largest > MOST_BYTES:
            at = spell(model_names(imported, sizes))
            self.note(f"not timed at {at}: a value takes {largest / 2**30:.1f} GiB; --dim asks for that")
        return largest <= MOST_BYTES

    def activations(self, candidates: Sequence[Candidate], sizes: dict[str, int]) -> Activations | None:
        """The values that right kernels read at some sizes; None, and a note, where the model does not run."""
        if sizes == dict(self.feeds.full.sizes):
            return self.usual
        try:
            inputs = next((each for each in self.feeds.others if each.sizes == sizes), None)
            inputs = inputs or model_inputs.inputs_at(self.original.called, sizes, self.feeds.missing, self.seed)
            return capture_at(self.original, right(candidates), inputs, self.feeds.made_up, self.capturing)
        except (InputError, ModelError) as error:
            self.note(f"not timed at {spell(model_names(self.original.imported, sizes))}: {error}")
            return None

    def with_samples(self, kernels: Sequence[Planned], small: Activations) -> Activations:
        """Add to what flows with small inputs what does with each of a user's other samples, as far as it has room."""
        flows, held_bytes = list[Activations](), 0
        for number, inputs in enumerate(self.feeds.others, 2):
            if held_bytes > MOST_BYTES:
                self.note(f"no kernel is checked on sample {number} and later ones: what flows takes over 1 GiB")
                break
            try:
                flows.append(capture_at(self.original, kernels, inputs, self.feeds.made_up, self.capturing))
            except (InputError, ModelError) as error:
                raise InputError(f"the model does not run with sample {number}: {error}") from error
            held_bytes += sum(array.nbytes for array in flows[-1].arrays.values())
        return replace(small, others=tuple(flows))

    def note(self, text: str) -> None:
        """Note something for the report, once."""
        if text not in self.notes:
            self.notes.append(text)
