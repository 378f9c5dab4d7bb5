"""The identifiers of a text of language `triton`: none is a word of Python, or a name that the text itself uses."""

from __future__ import annotations

from noyau.ir.loops import Kernel
from noyau.languages.names import Scopes

# Beyond those that fitting() knows: what the text calls, what it calls its own names, and, in the last two lines, what
# Triton's own function of a kernel's parameters calls its own, and options of a launch.
RESERVED = frozenset(
    """tl triton torch libdevice range min max abs float int sum len tuple match case type print exit item programs
    tiles index_type step_of warps_of warps are_aligned at_once block_of stages_of registers ValueError _
    options params specialization specialize_impl backend JITCallable JITFunction
    num_warps maxnreg enable_fp_fusion debug instrumentation_mode fpsan_homomorphic_casts""".split()
)


class Variables(Scopes):
    """Names of a kernel to identifiers of one Python function: none is used twice in it."""

    def __init__(self, kernel: Kernel) -> None:
        launches = {f"{kernel.name}_{number}" for number in range(len(kernel.launches))}
        self.reserved = RESERVED | launches | {kernel.name}
        super().__init__(kernel)

    def fresh(self, stem: str) -> str:
        """An identifier that nothing in sight has; `n_STEP` is the text's own, of a size `n`."""
        stem = stem.lower() if stem.endswith("_STEP") else stem
        return super().fresh(f"v_{stem}" if stem in self.reserved or stem.startswith("noyau") else stem)

    def alias(self, name: str, text: str) -> None:
        """A name of the kernel for an identifier that is there."""
        self.blocks[-1]["index" if name.startswith("#") else "value", name] = text
