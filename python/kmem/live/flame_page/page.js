// SPDX-License-Identifier: Apache-2.0 OR MIT
// A flame graph, the root at the top. Its data: functions as [name, place, library], and stacks as
// [value, functions], the innermost function first. Names are of any program, so they are text only.
"use strict";
const ROW = 24; // pixels
const LEAST = 0.0008; // of the width; narrower boxes are left out
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
let inverted = false, root, zoomed, focused, shown = [], words = "";

function short(bytes, signed = data.signed) {
  const sign = bytes < 0 ? "−" : signed && bytes > 0 ? "+" : "";
  let size = Math.abs(bytes), unit = 0;
  while (size >= 1024 && unit < 6) { size /= 1024; unit += 1; }
  const digits = unit && size < 100 ? (size < 10 ? 2 : 1) : 0;
  return `${sign}${size.toFixed(digits)} ${["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit]}`;
}

const percent = (value) => `${(100 * value / (root.size || 1)).toFixed(1)}%`;

function make(parent, name, text, before = null) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  parent.insertBefore(element, before);
  return element;
}

// ---- the tree ------------------------------------------------------------------------------------

function node(of, parent) {
  return { of, parent, value: 0, size: 0, depth: parent ? parent.depth + 1 : 0, children: new Map() };
}

function grow() {
  root = node(-1, null);
  for (const [value, functions] of data.stacks) {
    let box = root;
    root.value += value;
    root.size += Math.abs(value);
    for (const of of inverted ? functions : [...functions].reverse()) {
      if (!box.children.has(of)) box.children.set(of, node(of, box));
      box = box.children.get(of);
      box.value += value;
      box.size += Math.abs(value);
    }
  }
  zoomed = focused = root;
}

const name = (box) => box.of < 0 ? "all" : data.functions[box.of][0];
const sorted = (box) => [...box.children.values()].sort((a, b) => b.size - a.size);
const label = (box) => `${name(box)}, ${short(box.value)}, ${percent(box.value)}`;

function isWithin(box, other) {
  for (; box; box = box.parent) if (box === other) return true;
  return false;
}

// ---- colours -------------------------------------------------------------------------------------

function hue(text) {
  let mixed = 7;
  for (const letter of text) mixed = (Math.imul(mixed, 31) + letter.codePointAt(0)) >>> 0;
  return mixed * 137.508 % 360;
}

// By library; of a difference red for growth and blue for the opposite, pale where both are alike.
function colour(box) {
  if (box.of < 0) return "var(--none)";
  if (!data.signed) return `hsl(${hue(data.libraries[data.functions[box.of][2]])} var(--rich) var(--light))`;
  const share = Math.abs(box.value) / box.size;
  return `hsl(${box.value > 0 ? 4 : 216} ${Math.round(85 * share)}% var(--light))`;
}

function legend() {
  const list = at("legend");
  list.replaceChildren();
  const entry = (fill, text) => {
    const item = make(list, "li");
    make(item, "i").style.background = fill;
    item.append(text);
  };
  if (data.signed) {
    entry("hsl(4 85% var(--light))", "grew");
    entry("hsl(216 85% var(--light))", "shrank");
    return;
  }
  const sizes = new Map();
  for (const [value, functions] of data.stacks)
    for (const library of new Set(functions.map((of) => data.functions[of][2])))
      sizes.set(library, (sizes.get(library) ?? 0) + value);
  for (const [library] of [...sizes].sort((a, b) => b[1] - a[1]).slice(0, 16))
    entry(`hsl(${hue(data.libraries[library])} var(--rich) var(--light))`, data.libraries[library]);
}

// ---- drawing -------------------------------------------------------------------------------------

const matches = (of) => words !== "" && of >= 0
  && data.functions[of].slice(0, 2).join(" ").toLowerCase().includes(words);

function draw() {
  const graph = at("graph"), width = graph.clientWidth || 1;
  const held = graph.contains(document.activeElement);
  shown = [];
  graph.replaceChildren();
  let deepest = 0;
  const put = (box, left, wide) => {
    const element = make(graph, "div", wide * width > 30 ? name(box) : "");
    element.className = "box";
    element.classList.toggle("narrow", wide * width <= 30);
    element.classList.toggle("outside", box !== zoomed && isWithin(zoomed, box));
    element.classList.toggle("matched", matches(box.of));
    element.style.cssText = `left:${100 * left}%;width:${100 * wide}%;top:${ROW * box.depth}px`;
    element.style.background = colour(box);
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", box.depth + 1);
    element.setAttribute("aria-label", label(box));
    element.setAttribute("aria-selected", box === zoomed);
    element.tabIndex = -1;
    element.title = `${label(box)}${box.of < 0 ? "" : `\n${data.functions[box.of][1]}`}`;
    element.box = box;
    box.element = element;
    shown.push(box);
    deepest = Math.max(deepest, box.depth);
  };
  const down = (box, left, wide) => {
    if (wide < LEAST) return;
    put(box, left, wide);
    for (const child of sorted(box)) {
      const part = wide * child.size / box.size;
      down(child, left, part);
      left += part;
    }
  };
  const path = [];
  for (let box = zoomed.parent; box; box = box.parent) path.unshift(box);
  for (const box of path) put(box, 0, 1);
  if (root.size) down(zoomed, 0, 1);
  else graph.textContent = data.signed ? "Nothing grew and nothing shrank in what was sampled." : "Nothing was sampled.";
  graph.style.height = `${ROW * (deepest + 1)}px`;
  graph.classList.toggle("searching", words !== "");
  at("whole").disabled = zoomed === root;
  if (!shown.includes(focused)) focused = zoomed;
  if (focused.element) {
    focused.element.tabIndex = 0;
    if (held) focused.element.focus();
  }
}

function tell(box) {
  const place = box.of < 0 ? "" : data.functions[box.of].slice(1, 2).concat(data.libraries[data.functions[box.of][2]])
    .filter(Boolean).join(", ");
  at("chosen").textContent = `${label(box)}${place ? ` (${place})` : ""}`;
}

function focus(box) {
  if (!box || !box.element || !box.element.isConnected) return;
  if (focused.element) focused.element.tabIndex = -1;
  focused = box;
  box.element.tabIndex = 0;
  box.element.focus();
}

function zoom(box) {
  zoomed = focused = box;
  draw();
  tell(box);
}

// The matched total counts each stack once, however often its functions match.
function search() {
  words = at("search").value.trim().toLowerCase();
  draw();
  if (words === "") {
    at("matched").textContent = "";
    return;
  }
  let value = 0, stacks = 0;
  for (const [size, functions] of data.stacks)
    if (functions.some(matches)) { value += size; stacks += 1; }
  at("matched").textContent = `${short(value)}, ${percent(value)} in ${stacks} stacks`;
}

function siblings(box) {
  return box.parent ? sorted(box.parent).filter((other) => shown.includes(other)) : [box];
}

const MOVES = {
  ArrowDown: (box) => sorted(box).find((child) => shown.includes(child)),
  ArrowUp: (box) => box.parent,
  ArrowRight: (box) => siblings(box)[siblings(box).indexOf(box) + 1],
  ArrowLeft: (box) => siblings(box)[siblings(box).indexOf(box) - 1],
  Home: () => root,
};

function listen() {
  const graph = at("graph");
  graph.addEventListener("click", (event) => {
    const box = event.target.closest(".box")?.box;
    if (box) zoom(box);
  });
  graph.addEventListener("mouseover", (event) => event.target.box && tell(event.target.box));
  graph.addEventListener("focusin", (event) => event.target.box && tell(event.target.box));
  graph.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in MOVES) focus(MOVES[event.key](focused));
    else if (event.key === "Enter" || event.key === " ") { zoom(focused); focus(zoomed); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== at("search")) {
      event.preventDefault();
      at("search").focus();
    }
    if (event.key === "Escape") {
      at("search").value = "";
      search();
      zoom(root);
    }
  });
  at("tools").addEventListener("submit", (event) => event.preventDefault());
  at("search").addEventListener("input", search);
  at("whole").addEventListener("click", () => zoom(root));
  at("invert").addEventListener("click", () => {
    inverted = !inverted;
    at("invert").setAttribute("aria-pressed", inverted);
    grow();
    search();
  });
  window.addEventListener("resize", draw);
}

// ---- head and table ------------------------------------------------------------------------------

function head() {
  at("title").textContent = document.title = data.title;
  at("command").textContent = data.comment;
  const units = { bytes: short, size: (value) => short(value, false), "bytes a second": (value) => `${short(value)}/s` };
  for (const [word, figure, unit] of data.facts) {
    const fact = make(at("facts"), "div");
    make(fact, "dt", word);
    make(fact, "dd", unit in units ? units[unit](figure) : figure);
  }
}

function table() {
  const own = new Map(), whole = new Map();
  for (const [value, functions] of data.stacks) {
    if (functions.length) own.set(functions[0], (own.get(functions[0]) ?? 0) + value);
    for (const of of new Set(functions)) whole.set(of, (whole.get(of) ?? 0) + value);
  }
  const rank = (of) => Math.max(Math.abs(own.get(of) ?? 0), Math.abs(whole.get(of)) / 1e6);
  for (const of of [...whole.keys()].sort((a, b) => rank(b) - rank(a)).slice(0, 40)) {
    const row = make(at("functions").tBodies[0], "tr");
    make(row, "td", short(own.get(of) ?? 0));
    make(row, "td", short(whole.get(of)));
    const button = make(make(row, "td"), "button", data.functions[of][0]);
    button.type = "button";
    button.title = data.functions[of][1];
    button.addEventListener("click", () => {
      at("search").value = data.functions[of][0];
      search();
      at("search").scrollIntoView({ block: "nearest" });
    });
  }
}

grow();
head();
legend();
table();
listen();
draw();
