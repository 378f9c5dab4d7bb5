"""The HTML around a document: nothing of it is markup, nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser

from noyau.jobs.page.html import embed_json, frame_page, html_of
from tests.jobs.page.samples import EVIL, page

SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


def test_hostile_texts_are_no_markup_and_come_back_as_they_were():
    text = embed_json({"name": EVIL})
    assert not set(text) & set("<>&") and text.isascii()
    assert json.loads(text) == {"name": EVIL}


def test_a_page_has_its_own_scripts_and_no_other():
    text = page().html()
    kinds = [(attributes.strip(), len(body) > 1000) for attributes, body in SCRIPT.findall(text)]
    assert [attributes for attributes, _ in kinds] == ['type="application/json" id="document"', 'id="dagre"', "", ""]
    assert (
        "<img" not in text.replace("&lt;img", "") and "onerror=alert" not in text.split("<body>")[0].split("<title>")[0]
    )


def test_the_title_is_escaped():
    text = html_of({}, EVIL)
    assert unescape(re.findall("<title>(.*?)</title>", text, re.DOTALL)[0]).startswith("</script>")


def test_the_policy_admits_the_scripts_of_the_page_by_digest_and_no_network():
    text = page().html()
    policy = unescape(re.findall('Content-Security-Policy" content="([^"]*)"', text)[0])
    assert policy.startswith("default-src 'none'") and "connect-src" not in policy and "unsafe" not in policy
    for attributes, body in SCRIPT.findall(text):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert ("json" in attributes) is not (f"'sha256-{digest}'" in policy)


class Places(HTMLParser):
    """The places that elements of a page name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.places += [value for name, value in attrs if name in ("src", "href", "action", "data", "poster", "srcset")]


def test_no_element_names_a_place_outside():
    text = page().html()
    assert Places(text).places == ["#main"]
    styles = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert styles and not any("url(" in style or "@import" in style for style in styles)


def test_a_page_is_small():
    assert len(page().html()) < 250_000


def test_a_frame_of_a_notebook_holds_the_page():
    frame = frame_page(page().html())
    assert frame.startswith('<iframe sandbox="allow-scripts"') and frame.count("<") == 2
    assert unescape(re.findall('srcdoc="([^"]*)"', frame)[0]) == page().html()
