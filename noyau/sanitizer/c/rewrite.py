"""What of a text no C or C++ compiler reads as it is meant: written anew, on the same lines.

`<<<grid, block, shared, stream>>>` becomes a call; `extern __shared__` memory a pointer to what a launch asked for; a
loop of OpenMP whose schedule nobody names is dealt as a plan says, so that neighbouring iterations run on different
threads.
"""

from __future__ import annotations

import re

from noyau.codegen.language import LANGUAGES
from noyau.errors import UnsupportedError
from noyau.kernels.c.prototypes import blanked

_DYNAMIC = re.compile(
    r"\bextern\s+(?P<a>__align__\s*\(\s*\d+\s*\)\s*)?__shared__\s+(?P<b>__align__\s*\(\s*\d+\s*\)\s*)?"
    r"(?P<type>(?:const\s+)?[\w:<>\s]+?)\s+(?P<name>\w+)\s*\[\s*\]"
)
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


def rewritten(text: str, language: str, called: str) -> str:
    """The text as it is built. UnsupportedError, with the line, for what cannot be stood in for."""
    if not LANGUAGES[language].on_gpu:
        return dealt(text)
    require_known(text, called)
    return with_calls(with_pointers(text), called)


def require_known(text: str, called: str) -> None:
    """UnsupportedError for a construct of CUDA that is not stood in for."""
    clean = blanked(text)
    for pattern, what in _REFUSED.items():
        found = re.search(pattern, clean)
        if found:
            line = clean.count("\n", 0, found.start()) + 1
            told = f"{called}: line {line} uses {found[0].strip().rstrip('(')}"
            raise UnsupportedError(f"{told}: {what} cannot be watched without a GPU; check a kernel without it")


def with_pointers(text: str) -> str:
    """`extern __shared__ float s[];` as a pointer."""
    return _DYNAMIC.sub(
        lambda found: f"{found['type']} *const {found['name']} = ({found['type']} *)noyau_dynamic_shared()", text
    )


def with_calls(text: str, called: str) -> str:
    """`f<<<1, 64>>>(x, n)` as a call of noyau_grid."""
    clean = blanked(text)
    pieces, at = [], 0
    for opening in re.finditer("<<<", clean):
        start = _name_before(clean, opening.start())
        closing = clean.find(">>>", opening.end())
        paren = re.compile(r"\s*\(").match(clean, closing + 3) if closing >= 0 else None
        if start is None or paren is None:
            line = clean.count("\n", 0, opening.start()) + 1
            told = f"{called}: the launch on line {line} is not read"
            raise UnsupportedError(f"{told}; write kernel<<<grid, block>>>(...)")
        name, config = text[start : opening.start()].strip(), text[opening.end() : closing]
        empty = clean[paren.end() :].lstrip().startswith(")")
        call = f"[](auto... noyau_given) {_UNSEEN} {{ {name}(noyau_given...); }}{'' if empty else ', '}"
        pieces += [text[at:start], f"noyau_grid({config}).call({call}"]
        at = paren.end()
    return "".join([*pieces, text[at:]])


def _name_before(clean: str, at: int) -> int | None:
    """Where the name of a kernel begins that ends before a place, with its template arguments."""
    place = len(clean[:at].rstrip())
    if clean[place - 1 : place] == ">":
        depth = 0
        while place > 0:
            place -= 1
            depth += (clean[place] == ">") - (clean[place] == "<")
            if depth == 0:
                break
    found = re.search(r"[A-Za-z_][\w:]*\s*$", clean[:place])
    return found.start() if found else None


def dealt(text: str) -> str:
    """Loops of OpenMP whose schedule nobody names get that of the plan; none where threads may rely on theirs."""
    if re.search(r"\bnowait\b", text):
        return text
    pieces, at = [], 0
    for found in _FOR.finditer(blanked(text)):
        end = found.start() + len(found[0].rstrip())
        pieces += [text[at:end], "" if "schedule" in found[0] else " schedule(runtime)"]
        at = end
    return "".join([*pieces, text[at:]])
