"""Rewrite a text, on the same lines, where no C or C++ compiler would read it as it is meant.

`<<<grid, block, shared, stream>>>` becomes a call; `extern __shared__` memory a pointer to what a launch asked for; a
loop of OpenMP whose schedule nobody names is dealt as a plan says, so that neighbouring iterations run on different
threads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from noyau.codegen.language import LANGUAGES
from noyau.errors import UnsupportedError
from noyau.kernels.c.syntax import blanked, syntax

_FOR = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp[ \t]+(?:parallel[ \t]+)?for\b(?:\\\n|[^\n])*", re.MULTILINE)
_UNSEEN = '__attribute__((no_sanitize("thread")))'

# What of CUDA cannot be stood in for, and what to do without it.
_REFUSED = {
    r"\bthis_grid\s*\(|\bgrid_group\b|cudaLaunchCooperativeKernel": "a barrier of the whole grid",
    r"\basm\b\s*(?:volatile)?\s*\(": "PTX",
    r"\bwmma\s*::|\bnvcuda\b": "tensor cores",
    r"\btex[123]D\w*\s*[<(]|\bcudaTextureObject_t\b|\btexture\s*<": "textures",
    r"\bcuda::(?:barrier|pipeline|memcpy_async)\b|\b__pipeline_": "asynchronous copies",
    r"\bcurand\w*\s*\(": "cuRAND",
    r"\bthrust::|\bcub::": "thrust and cub",
}


def rewrite(text: str, language: str, kernel: str) -> str:
    """The text as it is built. UnsupportedError, with the line, for what cannot be stood in for."""
    if not LANGUAGES[language].on_gpu:
        return with_schedules(text)
    require_supported(text, kernel)
    return with_launch_calls(with_dynamic_pointers(text), kernel)


def require_supported(text: str, kernel: str) -> None:
    """UnsupportedError for a construct of CUDA that is not stood in for."""
    clean = blanked(text)
    for pattern, what in _REFUSED.items():
        match = re.search(pattern, clean)
        if match:
            line = clean.count("\n", 0, match.start()) + 1
            place = f"{kernel}: line {line} uses {match[0].strip().rstrip('(')}"
            raise UnsupportedError(f"{place}: {what} cannot be watched without a GPU; check a kernel without it")


def with_dynamic_pointers(text: str) -> str:
    """`extern __shared__ float s[];` as a pointer."""
    spans = [
        (each.start, each.end, f"{each.type} *const {each.name} = ({each.type} *)noyau_dynamic_shared()")
        for each in syntax(text, "cuda").dynamic_arrays
    ]
    return _splice(text, spans)


def with_launch_calls(text: str, kernel: str) -> str:
    """`f<<<1, 64>>>(x, n)` as a call of noyau_grid. UnsupportedError, with the line, for a launch that is not read."""
    tree = syntax(text, "cuda")
    if len(tree.launches) < len(tree.launch_places):
        read = {each.place for each in tree.launches}
        place = next(place for place in tree.launch_places if place not in read)
        reason = f"{kernel}: the launch on line {text.count(chr(10), 0, place) + 1} is not read"
        raise UnsupportedError(f"{reason}; write kernel<<<grid, block>>>(...)")
    spans = []
    for launch in tree.launches:
        name, is_empty = tree.source(launch.callee), launch.arguments.named_child_count == 0
        call = f"[](auto... noyau_given) {_UNSEEN} {{ {name}(noyau_given...); }}{'' if is_empty else ', '}"
        end = launch.arguments.start_byte + 1
        spans.append((launch.callee.start_byte, end, f"noyau_grid({launch.grid}).call({call}"))
    return _splice(text, spans)


def _splice(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    """The text with others in the place of some spans, in order."""
    pieces, place = [], 0
    for start, end, other in spans:
        pieces += [text[place:start], other]
        place = end
    return "".join([*pieces, text[place:]])


def with_schedules(text: str) -> str:
    """Loops of OpenMP whose schedule nobody names get that of the plan; none where threads may rely on theirs."""
    if re.search(r"\bnowait\b", text):
        return text
    spans = []
    for loop in _FOR.finditer(blanked(text)):
        end = loop.start() + len(loop[0].rstrip())
        spans.append((end, end, "" if "schedule" in loop[0] else " schedule(runtime)"))
    return _splice(text, spans)
