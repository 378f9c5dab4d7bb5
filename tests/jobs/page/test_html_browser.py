"""Pages in a browser: they draw themselves without an error, sort, search, zoom, open a source, and obey the keyboard.

A page around the page does what a reader does, and sends what it saw to the test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import pytest

from noyau.jobs.page.document import Page, graphs, summary
from tests.jobs.page.samples import EVIL, chain, page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.long, pytest.mark.skipif(BROWSER is None, reason="no Chromium")]

READER = """<!doctype html><body><iframe id="f" style="width:WIDTHpx;height:900px"></iframe><script>
const frame = document.getElementById("f"), seen = {errors: []};
const wait = ms => new Promise(done => setTimeout(done, ms));
const until = async ready => { for (let k = 0; k < 300 && !ready(); k++) await wait(100); return ready(); };
const begin = performance.now();
frame.onload = async () => {
  const w = frame.contentWindow, d = w.document, all = s => [...d.querySelectorAll(s)], one = s => d.querySelector(s);
  try { BODY } catch (error) { seen.errors.push(String(error.stack || error)); }
  fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
};
frame.src = "/page";
</script>"""

USE = """
  seen.opened_ms = performance.now() - begin;
  w.addEventListener("error", event => seen.errors.push(event.message));
  d.addEventListener("securitypolicyviolation", event => seen.errors.push(event.violatedDirective));
  seen.sections = all("main > section h2").map(each => each.textContent);
  seen.wide = d.documentElement.scrollWidth <= WIDTH;
  one(".panes").scrollIntoView();
  seen.ready = await until(() => all(".pane").every(each => each.dataset.ready === "yes"));
  seen.nodes = all("svg.graph").map(each => each.querySelectorAll(".node").length);
  const column = () => all("section.table tbody tr").map(row => row.cells[1].textContent);
  const head = all("section.table th button")[2];
  head.click(); seen.down = column(); head.click(); seen.up = column();
  seen.aria = head.parentElement.getAttribute("aria-sort");
  seen.evil = one("section.table tbody").textContent;
  const search = one(".graphs input"); search.value = "before7"; search.dispatchEvent(new w.Event("input"));
  seen.found = [one(".graphs .status").textContent, all(".node.found").length, one(".chosen h3").textContent];
  const world = one("svg.graph > g"), before = world.getAttribute("transform");
  all(".zoom button")[0].click(); seen.zoomed = world.getAttribute("transform") !== before;
  const pressed = name => new w.KeyboardEvent("keydown", {key: name, bubbles: true, cancelable: true});
  const key = (target, name) => target.dispatchEvent(pressed(name));
  one("svg.graph").focus(); key(one("svg.graph"), "ArrowDown");
  key(d.activeElement, "ArrowDown"); seen.walked = d.activeElement.getAttribute("aria-label");
  key(d.activeElement, "ArrowUp"); key(d.activeElement, "ArrowUp");
  all(".node")[0].dispatchEvent(new w.MouseEvent("click", {bubbles: true}));
  one(".chosen button.open").click();
  seen.dialog = [one("dialog").open, one("dialog .code").textContent, all("dialog tbody tr").length];
  one("dialog .close").click(); seen.closed = !one("dialog").open;
  seen.theme = d.documentElement.dataset.theme; one("#theme").click(); seen.other = d.documentElement.dataset.theme;
  for (const each of all(".plot")) { each.scrollIntoView(); await until(() => each.querySelector("canvas")); }
  seen.plots = all(".plot canvas").length;
  seen.remarks = all(".remark").length; seen.images = all("img").length; seen.scripts = all("script").length;
"""


@contextmanager
def served(text: str, reader: str, seen: Queue):
    """The address of a server of a page and of its reader, whose reports go to `seen`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = (text if self.path == "/page" else reader).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def read(document: Page, body: str, folder, width: int = 1440) -> dict:
    """What a reader saw of a page."""
    seen: Queue = Queue()
    reader = READER.replace("BODY", body).replace("WIDTH", str(width))
    with served(document.html(), reader, seen) as address:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder}/profile",
            "--remote-debugging-port=0",
        ]
        browser = subprocess.Popen([BROWSER, *options, address], stderr=subprocess.DEVNULL)
        try:
            return seen.get(timeout=120)
        finally:
            browser.kill()
            browser.wait()


@pytest.mark.parametrize("width", [1440, 390])
def test_a_page_draws_itself_and_does_what_a_reader_asks(width, tmp_path):
    seen = read(page(), USE, tmp_path, width)
    assert seen["errors"] == []
    assert seen["sections"] == [
        "Summary",
        "Graphs",
        "Kernels",
        "Times",
        "Findings",
        "Cells",
        "Notes",
        "How exact the kernels are",
    ]
    assert seen["wide"], "it is no wider than the screen"
    assert seen["ready"] and seen["nodes"] == [24, 12]
    assert seen["down"] == ["FASTER", "SAME", "SLOWER"] and seen["up"] == seen["down"][::-1]
    assert seen["aria"] == "ascending"
    assert EVIL.rstrip("\ud800") in seen["evil"]
    assert seen["found"] == ["1 of 1", 1, "Op7  7 us"]
    assert seen["zoomed"] and seen["walked"].startswith("Op")
    assert seen["dialog"][0] and seen["dialog"][1].startswith("int main;") and seen["dialog"][2] == 1 and seen["closed"]
    assert {seen["theme"], seen["other"]} == {"light", "dark"}
    assert seen["plots"] == 4 and seen["remarks"] == 2 and seen["images"] == 1 and seen["scripts"] == 4


def test_a_thousand_nodes_are_laid_out(tmp_path):
    document = Page("large", "show", [summary("s", "plain"), graphs("G", [chain(1_000)])])
    body = """seen.opened_ms = performance.now() - begin; one(".panes").scrollIntoView();
    seen.ready = await until(() => all(".pane").every(each => each.dataset.ready === "yes"));
    seen.nodes = all(".node").length;"""
    seen = read(document, body, tmp_path)
    assert seen["errors"] == [] and seen["ready"] and seen["nodes"] == 1_000


def test_a_document_of_another_format_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.jobs.page.document.FORMAT", 99)
    seen = read(Page("newer", "show", [summary("s", "plain")]), 'seen.text = one("main").textContent;', tmp_path)
    assert seen["errors"] == [] and "format 99" in seen["text"]
