"use strict";
// Draws the document of a page. Every text is set as text, never as HTML: names come from model files.

const page = JSON.parse(document.getElementById("document").textContent);
const FORMAT = 1, ROWS = 100, CONTEXT = 3;
const COLOURS = 12;  // of groups, in page.css

// Elements: make("td", {class: "x", onclick: f}, "text", child)
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "text", "path", "circle", "title", "line"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

const whenIdle = window.requestIdleCallback || (act => setTimeout(act, 500));
function whenVisible(element, draw) {  // once; printing draws all, and so does leisure, for pictures of the whole page
  let done = false;
  const once = () => { if (!done) { done = true; watcher.disconnect(); draw(); } };
  const watcher = new IntersectionObserver(entries => entries.some(each => each.isIntersecting) && once(), {rootMargin: "200px"});
  watcher.observe(element);
  window.addEventListener("beforeprint", once);
  window.addEventListener("load", () => whenIdle(once));
}

const PREFIXES = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1], ["m", 1e-3], ["u", 1e-6], ["n", 1e-9]];
function spell(value, unit) {
  if (value === null || value === undefined) return "";
  if (value === 0 || !unit && Math.abs(value) >= 0.001 && Math.abs(value) < 1000) return `${+value.toPrecision(3)} ${unit}`.trim();
  const [prefix, size] = PREFIXES.find(([, each]) => Math.abs(value) >= each * 0.9995) || ["n", 1e-9];
  return `${+(value / size).toPrecision(3)} ${prefix}${unit}`.trim();
}

function spellBytes(value) {  // as caches and memory are counted
  const [unit, size] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find(([, each]) => Math.abs(value) >= each) || ["B", 1];
  return `${+(value / size).toPrecision(Math.abs(value) >= 1000 * size ? 4 : 3)} ${unit}`;
}

// Sections

const DRAW = {summary: drawSummary, table: drawTable, graphs: drawGraphs, sweeps: drawSweeps, findings: drawFindings,
              pictures: drawPictures, lines: drawLines};
const IS_EMPTY = {table: s => !s.rows.length, graphs: s => !s.drawings.some(each => each.nodes.length), lines: s => !s.lines.length, pictures: s => !s.pictures.length,
                  sweeps: s => !s.times.some(each => each[1].length), findings: s => !s.findings.length};

function start() {
  const main = document.getElementById("main");
  document.getElementById("command").textContent = page.command;
  document.getElementById("title").textContent = page.title;
  document.getElementById("footer").textContent = `noyau ${page.version}`;
  if (page.format !== FORMAT) {
    main.append(make("p", {class: "card"}, `This document is of format ${page.format}, and the script draws ${FORMAT}: write the page anew.`));
    return;
  }
  page.sections.filter(section => !(IS_EMPTY[section.kind] && IS_EMPTY[section.kind](section))).forEach(section => {
    DRAW[section.kind](section, addSection(section.title, section.kind, section.note));
  });
  drawErrors();
}

function addSection(title, kind, note) {
  const main = document.getElementById("main"), id = `section-${main.childElementCount}`;
  const element = make("section", {id, class: kind, "aria-labelledby": `${id}-title`}, make("h2", {id: `${id}-title`}, title));
  if (note) element.append(make("p", {class: "note"}, note));
  main.append(element);
  document.getElementById("contents").append(make("a", {href: `#${id}`}, title));
  return element;
}

function drawSummary(section, element) {
  element.append(make("p", {class: `headline ${section.state}`}, section.headline));
  if (section.lines.length) element.append(make("div", {class: "details", tabindex: 0, role: "region", "aria-label": "Details, scrolls"}, make("ul", {}, section.lines.map(line => make("li", {}, line)))));
  if (Object.keys(section.facts).length) element.append(facts(Object.entries(section.facts)));
}

function facts(pairs) {
  return make("dl", {}, pairs.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
}

function drawLines(section, element) {
  const isCode = section.lines.some(line => line.startsWith(" "));
  element.append(isCode ? make("pre", {tabindex: 0, role: "region", "aria-label": `${section.title}, scrolls`}, section.lines.join("\n"))
                        : make("ul", {class: "card"}, section.lines.map(line => make("li", {}, line))));
}

function drawPictures(section, element) {
  section.pictures.forEach(({title, svg, text}) => {
    const source = `data:image/svg+xml,${encodeURIComponent(svg)}`;
    element.append(make("h3", {class: "file"}, title),
                   make("div", {class: "scroll paper", tabindex: 0, role: "region", "aria-label": `${title}, scrolls`}, make("img", {src: source, alt: `A square for each cell of ${title}, in the colour of who writes it`})),
                   make("details", {}, make("summary", {}, "In words"), make("pre", {tabindex: 0}, text)));
  });
}

// Tables. How a cell is spelt follows from the unit in its column's name; what columns mean stands here once.

const MEANS = {
  speedup: "time before over time after, with its 95 % interval; 1 is no change",
  before_s: "median time of what it replaces", after_s: "median time of a call", median_s: "of one node", bytes: "what a call must move",
  bytes_per_s: "those bytes over the time", floor_share: "the time that this machine needs for the bytes over the time: 100 % is as fast as can be",
  error: "worst against float64, over the largest value", unfused_error: "the same of the operators as they were",
  allowed_share: "the worst error over the largest that is allowed: 100 % is the limit", places: "how often it is there",
  estimated_speedup: "about what fusing could gain: every kernel at its floor", gain_share: "what fusing gains at most, of a run",
  returns_s: "median time of a call that returns its result", out_s: "median time of a call that fills an array of the caller",
  hot_s: "on inputs that stay in the cache", accesses: "accesses to memory that were watched",
};
const HEADS = {bytes_per_s: "rate", speedup: "speed-up", estimated_speedup: "estimate", gain_share: "gain at most", allowed_share: "of what is allowed", out_s: "out=", calls_per_s: "calls/s"};
const LONGEST = 40;  // texts in one cell
const FOLDED = 480;  // characters of a cell, from which on it opens by a click

const heading = name => HEADS[name] || name.replace(/_(s|share)$/, "").replaceAll("_", " ");
const ratio = value => `${value.toFixed(2)}x`;
const exponential = value => value === 0 ? "0" : value.toExponential(1).replace(".0e", "e");

function spellCell(cell, name) {
  if (cell === null || cell === undefined || cell === "") return typeof cell === "string" ? "" : "-";
  if (Array.isArray(cell) && typeof cell[0] !== "number") {
    if (cell[0] === null) return "-";
    return cell.slice(0, LONGEST).join(", ") + (cell.length > LONGEST ? ` and ${cell.length - LONGEST} more` : "");
  }
  if (Array.isArray(cell)) return cell[1] === null ? ratio(cell[0]) : `${ratio(cell[0])} [${cell[1].toFixed(2)}, ${cell[2].toFixed(2)}]`;
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  if (typeof cell !== "number") return String(cell);
  if (name.endsWith("calls_per_s")) return spell(cell, "");
  if (name.endsWith("_per_s")) return spell(cell, "B/s");
  if (name.endsWith("_s")) return spell(cell, "s");
  if (name.endsWith("bytes")) return spellBytes(cell);
  if (name.endsWith("share")) return `${(100 * cell).toFixed(cell < 0.1 ? 1 : 0)} %`;
  if (name.endsWith("speedup")) return ratio(cell);
  if (name.endsWith("error")) return exponential(cell);
  return cell.toLocaleString("en");
}

const isNumber = cell => typeof cell === "number" || Array.isArray(cell) && typeof cell[0] === "number";
const isInterval = cell => Array.isArray(cell) && typeof cell[0] === "number" && cell[1] !== null;

function drawTable(section, element) {
  const view = {order: null, down: false, words: "", all: false};
  const body = make("tbody"), columns = section.columns, shape = columns.indexOf("shape");
  if (shape >= 0) section.rows.forEach(row => { row[shape] = `[${[row[shape]].flat().join(", ")}]`; });  // numbers, but no interval
  const numeric = columns.map((_, k) => section.rows.some(row => isNumber(row[k])));
  const scales = columns.map((_, k) => {
    const cells = section.rows.map(row => row[k]).filter(isInterval);
    return cells.length ? [Math.min(1, ...cells.map(c => c[1])), Math.max(1, ...cells.map(c => c[2]))] : null;
  });
  const kinds = columns.map((name, k) => scales[k] ? "interval" : numeric[k] ? "number" : /^(verdict|severity)$/.test(name) ? "verdict" : "text");
  const lengths = columns.map((name, k) => Math.max(...section.rows.map(row => spellCell(row[k], name).length)));
  const looks = kinds.map((kind, k) => kind !== "text" ? kind : lengths[k] > 60 ? "text long" : lengths[k] < 30 ? "text short" : "text");
  const headings = columns.map((name, k) => make("th", {scope: "col", class: looks[k]},
    make("button", {type: "button", title: MEANS[name] || null, onclick: () => sort(k)}, heading(name))));
  const more = make("button", {type: "button", class: "more", onclick: () => { view.all = true; fill(); }});
  const status = make("span", {class: "status", role: "status"});
  if (section.rows.length > 8) {
    element.append(make("div", {class: "tools"},
      make("input", {type: "search", placeholder: "Filter", "aria-label": `Filter ${section.title}`,
                     oninput: event => { view.words = event.target.value.toLowerCase(); fill(); }}), status));
  }
  element.append(make("div", {class: "scroll card", tabindex: 0, role: "region", "aria-label": `${section.title}, scrolls`},
    make("table", {}, make("thead", {}, make("tr", {}, headings)), body)), more);
  window.addEventListener("beforeprint", () => { view.all = true; fill(); });

  function sort(k) {
    view.down = view.order === k ? !view.down : numeric[k];
    view.order = k;
    headings.forEach((each, at) => at === k ? each.setAttribute("aria-sort", view.down ? "descending" : "ascending") : each.removeAttribute("aria-sort"));
    fill();
  }
  function fill() {
    let rows = section.rows.filter(row => !view.words || row.some((cell, k) => spellCell(cell, columns[k]).toLowerCase().includes(view.words)));
    if (view.order !== null) rows = [...rows].sort((a, b) => compare(a[view.order], b[view.order], numeric[view.order]) * (view.down ? -1 : 1));
    const shown = view.all ? rows : rows.slice(0, ROWS);
    body.replaceChildren(...shown.map(row => make("tr", {}, row.map((cell, k) => drawCell(cell, columns[k], looks[k], scales[k])))));
    more.textContent = `Show all ${rows.length} rows`;
    more.hidden = shown.length === rows.length;
    status.textContent = view.words ? `${rows.length} of ${section.rows.length}` : "";
  }
  fill();
}

function compare(a, b, asNumbers) {  // what is not known is least
  if (!asNumbers) return String(a ?? "").localeCompare(String(b ?? ""), "en", {numeric: true});
  const [x, y] = [a, b].map(cell => (Array.isArray(cell) ? cell[0] : cell) ?? -Infinity);
  return x === y ? 0 : x < y ? -1 : 1;
}

function drawCell(cell, name, kind, scale) {
  const text = spellCell(cell, name), is_text = kind.startsWith("text");
  if (is_text && page.sources[cell]) return make("td", {class: "source"}, sourceButton(cell));
  if (kind === "verdict") return make("td", {class: "verdict"}, make("span", {class: `badge ${text.toLowerCase()}`}, text));
  if (kind === "interval") return make("td", {class: "interval"}, make("span", {}, text), intervalBar(cell, scale));
  if (is_text && text.length > FOLDED) return make("td", {class: kind}, make("details", {}, make("summary", {}, `${text.slice(0, FOLDED / 4)} ...`), text));
  const parts = is_text && !kind.endsWith("short") ? text.split(/(?<=[_./:])(?=[A-Za-z])/) : [text];  // where a line may end within a name
  return make("td", {class: kind}, parts.flatMap((part, k) => k ? [make("wbr"), part] : [part]));
}

function intervalBar(cell, scale) {
  if (!isInterval(cell) || !(scale[1] > scale[0])) return null;
  const place = value => (2 + 96 * (Math.log(value) - Math.log(scale[0])) / (Math.log(scale[1]) - Math.log(scale[0]))).toFixed(1);
  const [value, low, high] = cell;
  return make("svg", {class: "bar", viewBox: "0 0 100 10", "aria-hidden": "true", preserveAspectRatio: "none"},
    make("line", {class: "one", x1: place(1), x2: place(1), y1: 0, y2: 10}),
    make("rect", {class: low > 1 ? "good" : high < 1 ? "bad" : "doubt", x: place(low), width: Math.max(1.5, place(high) - place(low)), y: 3, height: 4}),
    make("rect", {class: "middle", x: place(value) - 0.75, width: 1.5, y: 1, height: 8}));
}

// Sources

function sourceButton(key) {
  return make("button", {type: "button", class: "link", onclick: () => openSource(key)}, key);
}

function openSource(key) {
  const source = page.sources[key], dialog = document.getElementById("source");
  const close = make("button", {type: "button", class: "close", onclick: () => dialog.close()}, "Close");
  const text = page.sources[source.same].text;
  const copy = make("button", {type: "button", onclick: () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; })}, "Copy");
  const body = make("div", {class: "body", tabindex: 0, role: "region", "aria-label": "Source and certificate"});
  if (source.evidence) body.append(make("p", {class: "evidence"}, source.evidence));
  if (source.about) body.append(make("pre", {class: "facts", tabindex: 0}, source.about));
  body.append(make("h3", {}, "Source"), numbered(text));
  const cases = source.certificate ? source.certificate.cases : [];
  if (cases.length) {
    const element = make("section", {}, make("h3", {}, `The ${cases.length} cases that it was tried on`));
    drawTable({title: "Cases", columns: ["case", "captured", "cells", "allowed_share", "worst_ulp", "unfused_worst_ulp"],
               rows: cases.map(each => [each.case, each.captured ? "yes" : "", each.cells, each.worst_ratio, each.kernel.worst_ulp, each.unfused.worst_ulp])}, element);
    body.append(element);
  }
  dialog.replaceChildren(make("div", {class: "bar"}, make("h2", {id: "source-title"}, key), copy, close), body);
  dialog.showModal();
  close.focus();
}

function numbered(text) {
  return make("pre", {class: "code", tabindex: 0, role: "region", "aria-label": "Source, scrolls"}, text.split("\n").map(line => make("span", {class: "line"}, `${line}\n`)));
}

// Findings: a table, then each file with the findings under their lines

function drawFindings(section, element) {
  const rows = section.findings.map(each => [each.severity, each.kind, each.place.split(/[/\\]/).pop(), `${each.message}; ${each.remedy}`, each.kernel, each.cell ? `[${each.cell.join(", ")}]` : "", each.owners.join(", "), each.size]);
  const names = ["severity", "kind", "place", "what", "kernel", "cell", "owners", "size"], full = names.map((_, k) => k).filter(k => rows.some(row => row[k]));
  drawTable({title: section.title, columns: full.map(k => names[k]), rows: rows.map(row => full.map(k => row[k]))}, element);
  const notes = {};
  const note = (place, remark) => {
    const [, file, line] = place.match(/^(.*):(\d+)$/) || [null, place, "0"], key = JSON.stringify(remark);
    const known = ((notes[file] ??= {})[line] ??= new Map());
    known.set(key, remark);
  };
  section.findings.forEach(each => {
    note(each.place, {tone: each.severity, drawing: each.drawing, lines: [
      `${each.kind}: ${each.message}${each.size ? ` (for ${each.size})` : ""}`, each.owners.length ? `owners: ${each.owners.join(", ")}` : "", each.cell ? `cell: [${each.cell.join(", ")}]` : "",
      each.witnesses ? `seen by ${each.witnesses.join(" and ")}` : "", `mend: ${each.remedy}`, each.change ? `the line becomes: ${each.change}` : ""].filter(Boolean)});
    if (each.other && each.other !== each.place) note(each.other, {tone: each.severity, drawing: [], lines: [`${each.kind}: the other access, of ${each.kernel}`]});
  });
  Object.entries(notes).filter(([file]) => section.files[file]).forEach(([file, known]) => {
    element.append(make("h3", {class: "file"}, file), listing(file, section.files[file], known));
  });
}

function listing(title, text, notes) {  // the lines around remarks, the others behind a click
  const box = make("div", {class: "listing card scroll", tabindex: 0, role: "region", "aria-label": `${title}, scrolls`});
  const lines = text.replace(/\n$/, "").split("\n"), shown = new Set();
  Object.keys(notes).forEach(line => { for (let k = line - CONTEXT; k <= +line + CONTEXT; k++) shown.add(k); });
  const fold = count => make("button", {type: "button", class: "fold", onclick: () => fill(true)}, count === 1 ? "1 more line" : `${count} more lines`);
  const fill = all => {
    box.replaceChildren();
    let skipped = 0;
    lines.forEach((line, k) => {
      if (!all && !shown.has(k + 1)) { skipped++; return; }
      if (skipped) box.append(fold(skipped));
      skipped = 0;
      const known = [...(notes[k + 1] || new Map()).values()];
      box.append(make("div", {class: `row ${known.length ? known[0].tone : ""}`}, make("span", {class: "number"}, `${k + 1}`), make("code", {}, line || " ")));
      known.forEach(each => box.append(make("div", {class: `remark ${each.tone}`}, make("b", {}, each.tone), make("span", {}, each.lines.join("\n")),
                                            each.drawing.length ? make("pre", {tabindex: 0}, each.drawing.join("\n")) : null)));
    });
    if (skipped) box.append(fold(skipped));
  };
  fill(lines.length <= 30);
  window.addEventListener("beforeprint", () => fill(true));
  return box;
}

// Plots: of sweeps over sizes, and of the errors in certificates

function drawSweeps(section, element) {
  const {times, machine, size} = section, ceiling = (name, points) => ({name, style: "ceiling", points});
  const series = (style, point) => times.map(([name, every]) => ({name, style, points: every.map(point).filter(p => p && p.every(n => n === null || n > 0)).sort((a, b) => a[0] - b[0])}));
  const rate = (each, time) => time ? each.bytes_moved / time : null;
  if (size) drawPlot({title: `Time against ${size}`, x: {label: size}, y: {label: "time of a call", unit: "s"}, series: series("line", each => [each.size, each.time_s, each.low_s, each.high_s])}, element);
  const ofMachine = machine ? [ceiling("copy, measured", machine.copy), ceiling("read, measured", machine.read)] : [];
  const rates = series("points", each => each.bytes_moved && [each.bytes_moved, rate(each, each.time_s), rate(each, each.high_s), rate(each, each.low_s)]);
  if (rates.some(each => each.points.length)) drawPlot({title: "Rate against the bytes that move", x: {label: "bytes that move", unit: "B", marks: Object.entries(machine ? machine.caches : {})}, y: {label: "rate", unit: "B/s"},
            series: [...rates, ...ofMachine]}, element);
  const points = series("points", each => each.flops && each.bytes_moved && [each.flops / each.bytes_moved, each.flops / each.time_s, each.high_s && each.flops / each.high_s, each.low_s && each.flops / each.low_s]);
  const xs = points.flatMap(each => each.points.map(p => p[0]));
  if (xs.length) {
    const [low, high] = [Math.min(...xs) / 4, Math.max(...xs) * 4], roofs = [];
    if (machine) {
      const [name, most] = machine.arithmetic;
      Object.entries(machine.levels).forEach(([level, rate]) => { if (low * rate < most) roofs.push(ceiling(level, [[low, low * rate], [Math.min(high, most / rate), Math.min(high * rate, most)]])); });
      roofs.push(ceiling(`arithmetic of ${name}`, [[low, most], [high, most]]));
    }
    drawPlot({title: "Roofline", x: {label: "flops per byte"}, y: {label: "flops per second", unit: "FLOP/s"}, series: [...points, ...roofs]}, element);
  }
  element.append(make("p", {class: "note"}, "Bars reach from the 10th to the 90th percentile. " + (!rates.some(each => each.points.length) ? "" : machine
    ? "Dashed: what this machine reaches with one thread, as noyau machine measured it." : "The ceilings of this machine are not known: noyau machine measures them.")));
}

function drawErrors() {  // of each kernel, the share of its cases whose worst error is at most so much of what is allowed
  const series = Object.entries(page.sources).filter(([, source]) => source.certificate && source.certificate.cases.length).map(([name, source]) => {
    const ratios = source.certificate.cases.filter(each => each.cells).map(each => Number.isFinite(each.worst_ratio) ? Math.min(each.worst_ratio, 2) : 2).sort((a, b) => a - b);
    return {name, style: "line", points: ratios.flatMap((each, k) => [[each, k / ratios.length], [each, (k + 1) / ratios.length]])};
  }).filter(each => each.points.length);
  if (!series.length) return;
  const element = addSection("How exact the kernels are", "sweeps");
  drawPlot({title: "", linear: true, x: {label: "worst error of a case over what is allowed", marks: [["allowed", 1]]}, y: {label: "share of the cases"}, series}, element);
  element.append(make("p", {class: "note"}, "Each step is a case that a kernel was tried on. Right of 1 it is wrong, and what is more than 2 stands at 2; at 0 every cell is as near to the truth as can be."));
}

function drawPlot(section, element) {
  const box = make("div", {class: "plot card", role: "img", "aria-label": `${section.title}: ${section.y.label} against ${section.x.label}`});
  const legend = make("ul", {class: "legend"}), hidden = new Set();
  const names = section.series.map(each => each.name);
  let plot = null;
  if (section.title) element.append(make("h3", {class: "file"}, section.title));
  element.append(box, legend, plotData(section));
  section.series.forEach((each, k) => {
    if (!each.points.length) return;
    const toggle = make("button", {type: "button", "aria-pressed": "true", class: each.style, onclick: () => {
      hidden.has(k) ? hidden.delete(k) : hidden.add(k);
      toggle.setAttribute("aria-pressed", String(!hidden.has(k)));
      redraw();
    }}, make("i", {"aria-hidden": "true"}), names[k]);
    toggle.firstChild.style.background = `var(${colourName(k, each)})`;
    legend.append(make("li", {}, toggle));
  });
  function redraw() {
    if (plot) plot.destroy();
    box.replaceChildren();
    const shown = section.series.map((each, k) => ({...each, k})).filter(each => each.points.length && !hidden.has(each.k));
    if (shown.length) plot = plotOf(section, shown, box);
    else plot = null;
  }
  whenVisible(box, () => {
    redraw();
    new ResizeObserver(() => plot && plot.setSize(sizeOf(box))).observe(box);
    window.addEventListener("theme", redraw);
  });
}

const sizeOf = box => ({width: Math.max(260, box.clientWidth - 8), height: Math.max(260, Math.min(420, box.clientWidth * 0.6))});
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourName = (k, series) => series.style === "ceiling" ? "--faint" : `--group-${k % COLOURS}`;
const colourOf = (k, series) => style(colourName(k, series));

function plotOf(section, shown, box) {
  const tables = shown.map(each => [each.points.map(p => p[0]), each.points.map(p => p[1])]);
  // Points of one series at one x would hide each other: they are moved apart by what nobody sees.
  tables.forEach(([xs]) => { for (let k = 1; k < xs.length; k++) if (xs[k] <= xs[k - 1]) xs[k] = xs[k - 1] * (1 + 1e-9) + (xs[k - 1] === 0 ? 1e-12 : 0); });
  const data = uPlot.join(tables);
  const every = shown.flatMap(each => each.points), xs = every.map(p => p[0]), ys = every.flatMap(p => p.slice(1)).filter(y => y !== null && y !== undefined);
  const axis = (side, is_x) => ({
    stroke: style("--text"), grid: {stroke: style("--line"), width: 1}, ticks: {stroke: style("--line")},
    label: side.label, labelSize: 26, size: is_x ? 42 : 94, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    values: (_, splits) => splits.map(value => value === null ? "" : spell(value, side.unit || "")),
    space: is_x ? 70 : 30,
  });
  const options = {
    ...sizeOf(box), legend: {show: false}, cursor: {drag: {x: false, y: false}},
    scales: {x: {time: false, ...range(xs, section.x, section.linear)}, y: range(ys, section.y, section.linear)},
    axes: [axis(section.x, true), axis(section.y, false)],
    series: [{}, ...shown.map(each => ({
      stroke: colourOf(each.k, each), width: each.style === "points" ? 0 : each.style === "ceiling" ? 1.5 : 2,
      dash: each.style === "ceiling" ? [6, 4] : [], spanGaps: true, points: {show: !section.linear && each.style !== "ceiling" && (each.style === "points" || each.points.length < 40), size: 7, fill: colourOf(each.k, each)},
    }))],
    hooks: {draw: [chart => { drawBars(chart, shown); drawMarks(chart, section.x, shown); }],
            setCursor: [chart => hover(chart, shown, section, tip)]},
  };
  const tip = make("div", {class: "tip", hidden: ""});
  const chart = new uPlot(options, data, box);
  chart.over.append(tip);
  return chart;
}

function range(values, axis, isLinear) {
  if (!isLinear) return {distr: 3, range: uPlot.rangeLog(Math.min(...values), Math.max(...values), 10, false)};
  const high = Math.max(...values, ...(axis.marks || []).map(mark => mark[1] * 1.05));
  return {distr: 1, range: [0, 1.02 * high]};
}

function drawBars(chart, shown) {  // the interval of each point
  const context = chart.ctx;
  context.save();
  context.lineWidth = 1.5 * devicePixelRatio;
  context.setLineDash([]);
  shown.forEach(each => {
    context.strokeStyle = colourOf(each.k, each);
    each.points.forEach(([x, , low, high]) => {
      if (!low || !high) return;
      const at = chart.valToPos(x, "x", true), [bottom, top] = [chart.valToPos(low, "y", true), chart.valToPos(high, "y", true)];
      const cap = 4 * devicePixelRatio;
      context.beginPath();
      for (const [x0, y0, x1, y1] of [[at, bottom, at, top], [at - cap, bottom, at + cap, bottom], [at - cap, top, at + cap, top]]) { context.moveTo(x0, y0); context.lineTo(x1, y1); }
      context.stroke();
    });
  });
  context.restore();
}

function drawMarks(chart, axis, shown) {  // lines across the axis: sizes of caches, what is allowed; names of ceilings
  const context = chart.ctx, box = chart.bbox;
  context.save();
  context.strokeStyle = context.fillStyle = style("--faint");
  context.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  context.textAlign = "left";
  shown.filter(each => each.style === "ceiling").forEach((each, k) => {
    const [x, y] = each.points[0], above = k % 2 ? -14 : 6;
    context.fillText(each.name, chart.valToPos(x, "x", true) + 4 * devicePixelRatio, chart.valToPos(y, "y", true) - above * devicePixelRatio);
  });
  (axis.marks || []).forEach(([name, value]) => {
    const x = chart.valToPos(value, "x", true);
    if (x < box.left || x > box.left + box.width) return;
    context.beginPath();
    context.setLineDash([2, 4]);
    context.moveTo(x, box.top);
    context.lineTo(x, box.top + box.height);
    context.stroke();
    const wide = context.measureText(name).width + 6 * devicePixelRatio;
    context.fillText(name, x + wide > box.left + box.width ? x - wide : x + 3 * devicePixelRatio, box.top + 12 * devicePixelRatio);
  });
  context.restore();
}

function hover(chart, shown, section, tip) {  // the nearest point
  const {left, top} = chart.cursor;
  let best = null;
  if (left >= 0) shown.forEach(each => each.points.forEach(point => {
    const away = Math.hypot(chart.valToPos(point[0], "x") - left, chart.valToPos(point[1], "y") - top);
    if (away < 24 && (!best || away < best.away)) best = {away, each, point};
  }));
  tip.hidden = !best;
  if (!best) return;
  const [x, y, low, high] = best.point, unit = section.y.unit || "";
  tip.textContent = `${best.each.name}: ${spell(x, section.x.unit || "")}, ${spell(y, unit)}${!low ? "" : ` [${spell(low, unit)}, ${spell(high, unit)}]`}`;
  tip.style.left = `${Math.max(0, Math.min(left + 10, chart.over.clientWidth - 200))}px`;
  tip.style.top = `${Math.max(0, top - 34)}px`;
}

function plotData(section) {
  const details = make("details", {}, make("summary", {}, "The numbers"));
  const unit = {s: "_s", B: "_bytes", "B/s": "_per_s"}, name = (side, more = "") => `${side.label}${more}${unit[side.unit] || ""}`;
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const rows = section.series.flatMap(each => each.points.map(([x, y, low = null, high = null]) => [each.name, x, y, low, high]));
    drawTable({title: `${section.title || "Errors"}: the numbers`, rows, columns: ["series", name(section.x), name(section.y), name(section.y, ", low"), name(section.y, ", high")]}, details);
  });
  return details;
}

// Graphs

function drawGraphs(section, element) {
  section.drawings.forEach(drawing => {
    drawing.nodes = drawing.nodes.map(node => ({name: "", group: "", twin: "", tone: "", source: "", facts: {}, holds: 1, ...node}));
    drawing.edges = drawing.edges.map(([start, end, value, reason]) => ({start, end, value, reason}));
  });
  const groups = [...new Set(section.drawings.flatMap(each => each.nodes.map(node => node.group).filter(Boolean)))];
  const colour = new Map(groups.map((group, k) => [group, k % COLOURS]));
  const status = make("span", {class: "status", role: "status"});
  const search = make("input", {type: "search", placeholder: "Find a node", "aria-label": `Find a node in ${section.title}`,
    oninput: event => find(event.target.value), onkeydown: event => { if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey ? -1 : 1); } }});
  const details = make("div", {class: "chosen card", "aria-live": "polite"}, make("p", {class: "hint"},
    "Choose a node to see what is known of it. Arrow keys walk from node to node, Enter opens its source; + and - zoom, 0 shows all, a pinch or Ctrl and the wheel too."));
  const views = [];
  element.append(make("div", {class: "tools"}, search, make("button", {type: "button", onclick: () => next(1)}, "Next"), status));
  const panes = make("div", {class: `panes of-${section.drawings.length}`});
  element.append(panes, details);
  let hits = [], hit = -1;
  section.drawings.forEach(drawing => {
    const pane = make("div", {class: "pane"}), state = make("p", {class: "wait", role: "status"}, "Laying out ...");
    const tools = make("div", {class: "zoom"});
    pane.append(make("div", {class: "pane-head"}, make("h3", {}, `${drawing.title}: ${counted(drawing)}`), tools), make("div", {class: "stage"}, state));
    if (drawing.note) pane.append(make("p", {class: "note"}, drawing.note));
    panes.append(pane);
    whenVisible(pane, () => layOut(drawing).then(places => {
      const view = graphView(drawing, places, colour, choose);
      views.push(view);
      pane.querySelector(".stage").replaceChildren(view.svg);
      [["+", "Zoom in", () => view.zoom(1.3)], ["-", "Zoom out", () => view.zoom(1 / 1.3)], ["All", "Show all", view.fit]].forEach(([text, label, act]) =>
        tools.append(make("button", {type: "button", "aria-label": `${label}: ${drawing.title}`, onclick: act}, text)));
      view.begin();
      pane.dataset.ready = "yes";
    }, error => { state.textContent = `It cannot be laid out: ${error.message}`; }));
  });

  function choose(drawing, k) {
    const node = drawing.nodes[k];
    views.forEach(view => view.mark(view.drawing === drawing ? k : -1, node.twin || node.group));
    const around = drawing.edges.filter(edge => edge.start === k || edge.end === k);
    const reasons = around.filter(edge => edge.reason).map(edge => `${edge.start === k ? "to" : "from"} ${drawing.nodes[edge.start === k ? edge.end : edge.start].lines[0]}: ${edge.reason}`);
    details.replaceChildren(make("h3", {}, node.lines.join("  ")), facts([...Object.entries(node.facts),
      ["reads", around.filter(edge => edge.end === k).map(edge => edge.value).join(", ")],
      ["makes", [...new Set(around.filter(edge => edge.start === k).map(edge => edge.value))].join(", ")],
      ["cuts", [...new Set(reasons)].join("; ")]].filter(([, text]) => text)));
    if (page.sources[node.source]) details.append(make("p", {}, make("button", {type: "button", class: "open", onclick: () => openSource(node.source)}, "Source and certificate")));
  }
  function find(words) {
    words = words.trim().toLowerCase();
    hits = !words ? [] : views.flatMap(view => view.drawing.nodes.flatMap((node, k) =>
      [node.name, node.group, ...node.lines].some(text => text.toLowerCase().includes(words)) ? [[view, k]] : []));
    hit = -1;
    views.forEach(view => view.show(new Set(hits.filter(each => each[0] === view).map(each => each[1])), Boolean(words)));
    status.textContent = words ? `${hits.length} found` : "";
    if (hits.length) next(1);
  }
  function next(step) {
    if (!hits.length) return;
    hit = (hit + step + hits.length) % hits.length;
    const [view, k] = hits[hit];
    status.textContent = `${hit + 1} of ${hits.length}`;
    view.centre(k);
    choose(view.drawing, k);
  }
}

const counted = drawing => {
  const count = drawing.nodes.filter(node => node.tone !== "end").reduce((sum, node) => sum + node.holds, 0);
  return count === 1 ? "1 node" : `${count} nodes`;
};
const LINE = 15, BOLD = 7.7, LETTER = 6.6;
const short = text => text.length > 30 ? `${text.slice(0, 17)}...${text.slice(-10)}` : text;
const extent = node => ({width: Math.max(60, 20 + Math.max(...node.lines.map((line, n) => (n ? LETTER : BOLD) * short(line).length))), height: 12 + LINE * node.lines.length});

// In a worker, so that the page stays alive. A deep graph is laid out in bands one below the other: dagre recurses along
// chains, and a worker's stack holds some hundreds of calls. The edges between bands, and those of a chain, are straight.
const BAND = 200;  // ranks
const LAYOUT = `const GAP = 24;
function places(task, most) {
  const ranks = task.nodes.map(() => 0), after = task.nodes.map(() => []);
  task.edges.forEach(([start, end]) => after[start].push(end));
  const waiting = task.nodes.map(() => 0), ready = [];
  task.edges.forEach(([, end]) => waiting[end]++);
  waiting.forEach((count, k) => count || ready.push(k));
  while (ready.length) {
    const k = ready.pop();
    after[k].forEach(end => { ranks[end] = Math.max(ranks[end], ranks[k] + 1); if (!--waiting[end]) ready.push(end); });
  }
  const bands = ranks.map(rank => Math.floor(rank / most)), points = task.edges.map(() => null), at = [];
  let top = 0, width = 0;
  for (let band = 0; band <= bands.reduce((a, b) => Math.max(a, b), 0); band++) {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ranksep: 34, nodesep: 22, marginx: 12, marginy: 12});
    graph.setDefaultEdgeLabel(() => ({}));
    const own = task.nodes.map((node, k) => k).filter(k => bands[k] === band);
    const inside = task.edges.map((edge, n) => [...edge, n]).filter(([start, end]) => bands[start] === band && bands[end] === band);
    // A chain, in which each node has one edge from the one before and that no other, is one tall node to dagre.
    const outs = {}, ins = {}, follows = {}, head = {}, chains = new Map();
    inside.forEach(([start, end]) => { outs[start] = (outs[start] || 0) + 1; ins[end] = (ins[end] || 0) + 1; });
    inside.forEach(([start, end]) => { if (outs[start] === 1 && ins[end] === 1) follows[end] = start; });
    own.sort((a, b) => ranks[a] - ranks[b]).forEach(k => {
      head[k] = k in follows ? head[follows[k]] : k;
      chains.has(head[k]) ? chains.get(head[k]).push(k) : chains.set(head[k], [k]);
    });
    chains.forEach((chain, k) => graph.setNode(String(k), {
      width: Math.max(...chain.map(each => task.nodes[each].width)),
      height: chain.reduce((sum, each) => sum + task.nodes[each].height + GAP, -GAP),
    }));
    inside.forEach(([start, end]) => head[start] === head[end] || graph.setEdge(String(head[start]), String(head[end])));
    dagre.layout(graph);
    chains.forEach((chain, k) => {
      const {x, y, height} = graph.node(String(k));
      let from = y - height / 2 + top;
      chain.forEach(each => { at[each] = [x, from + task.nodes[each].height / 2]; from += task.nodes[each].height + GAP; });
    });
    // Its ends lie on the border of a whole chain, which is as wide as the widest of its nodes.
    const end_at = (k, x, side) => [Math.min(Math.max(x, at[k][0] - task.nodes[k].width / 2 + 5), at[k][0] + task.nodes[k].width / 2 - 5), at[k][1] + side * task.nodes[k].height / 2];
    inside.forEach(([start, end, n]) => {
      if (head[start] === head[end]) return;
      const bends = graph.edge(String(head[start]), String(head[end])).points.map(p => [p.x, p.y + top]);
      points[n] = [end_at(start, bends[0][0], 1), ...bends.slice(1, -1), end_at(end, bends[bends.length - 1][0], -1)];
    });
    width = Math.max(width, graph.graph().width);
    top += graph.graph().height;
  }
  task.edges.forEach(([start, end], n) => { points[n] ??= [[at[start][0], at[start][1] + task.nodes[start].height / 2], [at[end][0], at[end][1] - task.nodes[end].height / 2]]; });
  return {nodes: at, edges: points, width, height: top};
}`;

function layOut(drawing) {
  const task = {nodes: drawing.nodes.map(extent), edges: drawing.edges.map(edge => [edge.start, edge.end])};
  return new Promise((resolve, reject) => {
    const text = `${document.getElementById("dagre").textContent}\n${LAYOUT}\nonmessage = event => postMessage(places(event.data, ${BAND}));`;
    let worker;
    try {
      worker = new Worker(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
    } catch (error) {
      reject(error);
      return;
    }
    worker.onmessage = event => { worker.terminate(); resolve(event.data); };
    worker.onerror = event => { worker.terminate(); reject(new Error(event.message || "the browser starts no worker")); };
    worker.postMessage(task);
  });
}

function graphView(drawing, places, colour, choose) {
  const world = make("g"), at = {scale: 1, x: 0, y: 0};
  const svg = make("svg", {class: "graph", tabindex: 0, role: "group", "aria-label": `${drawing.title}, a graph of ${counted(drawing)}`}, world);
  const after = drawing.nodes.map(() => []), before = drawing.nodes.map(() => []);
  const lines = drawing.edges.map((edge, k) => {
    after[edge.start].push(edge.end);
    before[edge.end].push(edge.start);
    const points = places.edges[k], path = points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
    const line = make("path", {d: path, class: edge.reason ? "edge cut" : "edge", }, make("title", {}, [edge.value, edge.reason].filter(Boolean).join(" - cut: ")));
    world.append(line);
    if (edge.reason) {
      const [x, y] = points[Math.floor(points.length / 2)];
      world.append(make("circle", {class: "cut", cx: x, cy: y, r: 4, onclick: () => choose(drawing, edge.end)}, make("title", {}, edge.reason)));
    }
    return line;
  });
  const boxes = drawing.nodes.map((node, k) => {
    const {width, height} = extent(node), [x, y] = places.nodes[k];
    const shade = node.group ? `group-${colour.get(node.group)}` : "";
    const box = make("g", {class: `node ${node.tone} ${shade}`, role: "button", tabindex: -1, transform: `translate(${(x - width / 2).toFixed(1)},${(y - height / 2).toFixed(1)})`,
      "aria-label": [...node.lines.map(short), node.name].filter(Boolean).join(" "),
      onclick: event => { event.stopPropagation(); select(k); }, onfocus: () => reveal(k)},
      make("rect", {width: width.toFixed(1), height, rx: 5}),
      node.lines.map((line, n) => make("text", {x: 9, y: 6 + LINE * (n + 0.75), class: n ? "more" : "first"}, `${short(line)} `)));
    world.append(box);
    return box;
  });
  let current = 0;

  const view = {drawing, svg, zoom, fit, begin, centre, mark, show};
  function place() {
    world.setAttribute("transform", `translate(${at.x},${at.y}) scale(${at.scale})`);
    svg.classList.toggle("far", at.scale < 0.35);
  }
  function size() { return {width: svg.clientWidth || 600, height: svg.clientHeight || 400}; }
  function zoom(factor, x = size().width / 2, y = size().height / 2) {
    const scale = Math.min(4, Math.max(0.01, at.scale * factor)), change = scale / at.scale;
    Object.assign(at, {scale, x: x - change * (x - at.x), y: y - change * (y - at.y)});
    place();
  }
  function fit() {
    const {width, height} = size(), scale = Math.min(1.5, width / places.width, height / places.height);
    Object.assign(at, {scale, x: (width - scale * places.width) / 2, y: (height - scale * places.height) / 2});
    place();
  }
  function begin() {  // readable, from the first node
    const {width} = size(), first = places.nodes.length ? places.nodes.reduce((a, b) => b[1] < a[1] ? b : a) : [0, 0];
    at.scale = Math.min(1, Math.max(0.6, width / places.width));
    const wide = at.scale * places.width;
    Object.assign(at, {x: wide <= width ? (width - wide) / 2 : width / 2 - at.scale * first[0], y: 0});
    if (places.height * at.scale < size().height) fit();
    place();
  }
  function centre(k) {
    const {width, height} = size(), [x, y] = places.nodes[k];
    if (at.scale < 0.6) at.scale = 0.8;
    Object.assign(at, {x: width / 2 - at.scale * x, y: height / 2 - at.scale * y});
    place();
  }
  function reveal(k) {
    const {width, height} = size(), x = at.x + at.scale * places.nodes[k][0], y = at.y + at.scale * places.nodes[k][1];
    if (x < 40 || y < 30 || x > width - 40 || y > height - 30) centre(k);
  }
  function mark(k, link) {  // a node, and those of its group or its twin in the other drawing
    const isKin = node => Boolean(link) && (node.twin || node.group) === link;
    boxes.forEach((box, n) => {
      box.classList.toggle("chosen", n === k);
      box.classList.toggle("kin", isKin(drawing.nodes[n]));
    });
    lines.forEach((line, n) => line.classList.toggle("near", drawing.edges[n].start === k || drawing.edges[n].end === k));
    if (k < 0) {
      const twin = drawing.nodes.findIndex(isKin);
      if (twin >= 0) centre(twin);
    }
  }
  function show(those, some) { boxes.forEach((box, k) => { box.classList.toggle("found", those.has(k)); box.classList.toggle("dim", some && !those.has(k)); }); }
  function select(k) {
    boxes[current].setAttribute("tabindex", -1);
    current = k;
    boxes[k].setAttribute("tabindex", 0);
    boxes[k].focus({preventScroll: true});
    choose(drawing, k);
  }
  function walk(key) {  // to a reader, to a maker, or to a neighbour at the same height
    const [x, y] = places.nodes[current];
    if (key === "ArrowDown" || key === "ArrowUp") return (key === "ArrowDown" ? after : before)[current][0];
    const side = key === "ArrowRight" ? 1 : -1;
    const near = places.nodes.map(([u, v], k) => [Math.abs(v - y) * 4 + Math.abs(u - x), k, (u - x) * side]).filter(each => each[2] > 1);
    return near.length ? near.reduce((a, b) => b[0] < a[0] ? b : a)[1] : undefined;
  }
  svg.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {"+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), "0": fit};
    if (event.key.startsWith("Arrow")) {
      const target = event.target === svg ? current : walk(event.key);
      if (target !== undefined) select(target);
    } else if (event.key === "Enter" || event.key === " ") {
      if (event.target === svg) select(current);
      else if (page.sources[drawing.nodes[current].source]) openSource(drawing.nodes[current].source);
    } else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  });
  svg.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;  // else the page would not scroll
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 200), event.clientX - box.left, event.clientY - box.top);
  }, {passive: false});
  const fingers = new Map();
  svg.addEventListener("pointerdown", event => { fingers.set(event.pointerId, event); });
  svg.addEventListener("pointermove", event => {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const others = [...fingers.values()].filter(each => each.pointerId !== event.pointerId);
    if (others.length) {
      const apart = each => Math.hypot(each.clientX - others[0].clientX, each.clientY - others[0].clientY), box = svg.getBoundingClientRect();
      zoom(apart(event) / Math.max(1, apart(last)), (event.clientX + others[0].clientX) / 2 - box.left, (event.clientY + others[0].clientY) / 2 - box.top);
    } else {
      if (Math.hypot(event.clientX - last.clientX, event.clientY - last.clientY) > 3 && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
      Object.assign(at, {x: at.x + event.clientX - last.clientX, y: at.y + event.clientY - last.clientY});
      place();
    }
    fingers.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) svg.addEventListener(name, event => fingers.delete(event.pointerId));
  let screen = {};
  window.addEventListener("beforeprint", () => { screen = {...at}; fit(); });
  window.addEventListener("afterprint", () => { Object.assign(at, screen); place(); });
  return view;
}

// Light and dark

const theme = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = name === "dark" ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Change to ${name === "dark" ? "light" : "dark"} colours`);
  window.dispatchEvent(new Event("theme"));
}
theme.addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
window.addEventListener("beforeprint", () => { window.themeBefore = document.documentElement.dataset.theme; setTheme("light"); });
window.addEventListener("afterprint", () => setTheme(window.themeBefore));
setTheme(dark.matches ? "dark" : "light");
start();
