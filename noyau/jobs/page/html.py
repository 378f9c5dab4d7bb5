"""The HTML of a page: the template with embedded style, scripts and document; nothing is loaded from elsewhere.

Names in the document come from model files. So its JSON contains no HTML special characters, the script only sets text
nodes, and the page's content security policy admits only noyau's scripts, by their digests, and no network."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

_STYLES, _SCRIPTS = ("uplot.min.css", "page.css"), ("dagre.min.js", "uplot.min.js", "page.js")
_ESCAPES = {letter: f"\\u{ord(letter):04x}" for letter in "<>&"}  # json escapes letters beyond ASCII
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def html_of(document: Mapping[str, Any], title: str) -> str:
    name = escape(title).encode("utf-8", "replace").decode()
    parts = {"title": name, "document": embed_json(document), **_parts()}
    return _PLACE.sub(lambda place: parts[place[1]], _file("page.html"))  # one pass: no replacement within parts


def embed_json(document: Mapping[str, Any]) -> str:
    """The document as JSON that is safe within a script element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda letter: _ESCAPES[letter[0]], text)


def frame_page(page: str) -> str:
    """A page in a frame that can neither reach the network nor the notebook around it."""
    style = "width:100%;height:38em;border:1px solid #8884;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" title="noyau" style="{style}" srcdoc="{escape(page)}"></iframe>'


@cache
def _parts() -> dict[str, str]:
    style = "\n".join(map(_file, _STYLES))
    texts = {name.partition(".")[0]: _file(name) for name in _SCRIPTS}
    own = " ".join([*map(_digest, texts.values()), "blob:"])  # the layout runs in a worker of a blob
    rules = {"default-src": "'none'", "script-src": own, "worker-src": "blob:", "style-src": _digest(style)}
    rules |= {"img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    return {**texts, "style": style, "policy": "; ".join(f"{name} {rule}" for name, rule in rules.items())}


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _file(name: str) -> str:
    return files("noyau.jobs.page").joinpath("data", name).read_text(encoding="utf-8")
