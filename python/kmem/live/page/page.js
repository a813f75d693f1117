// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page of `kmem serve`. Names of caches and programs are whatever a program chose, so they are
// only ever set as text.
"use strict";

const SHOWN = 8; // caches with a colour of their own; the rest is one series
const COLUMNS = [
  ["cache", "name", (value) => value],
  ["size", "slab_bytes", bytes],
  ["growth", "growth", (value) => (value > 0 ? "+" : value < 0 ? "-" : "") + bytes(Math.abs(value))],
  ["waste", "waste_bytes", bytes],
  ["objects", "objects", count],
  ["active", "active_objects", count],
  ["use", "use", (value) => `${Math.round(100 * value)}%`],
  ["object size", "object_size", count],
  ["slabs", "slabs", count],
  ["partial", "partial", count],
  ["taken", "taken", count],
  ["given back", "given", count],
  ["fast path", "fast_share", (value) => (value === null ? "-" : `≥ ${(100 * value).toFixed(1)}%`)],
];
const find = (name) => document.getElementById(name);
const token = new URLSearchParams(location.hash.slice(1)).get("token");

let chosenProcess = null; // number
let chosenCache = null; // birth
let order = "slab_bytes";
let writable = false;
let editing = null; // birth of the cache whose attributes have been laid out

function bytes(value) {
  let letter = 0;
  while (value >= 1024 && letter < 5) { value /= 1024; letter++; }
  return `${letter && value < 10 ? value.toFixed(1) : Math.round(value)}${["", " KiB", " MiB", " GiB", " TiB", " PiB"][letter]}`;
}

function count(value) {
  return Math.round(value).toLocaleString("en");
}

function percent(value) {
  return `${value.toFixed(1)}%`;
}

function color(number) {
  return `var(--c${Math.min(number, SHOWN)})`;
}

function say(where, text, bad) {
  find(where).textContent = text;
  find(where).classList.toggle("bad", Boolean(bad));
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("kmem serve does not answer: it has ended");
  }
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error);
  return document;
}

// Per second, between one moment and the one before.
function rates(values, times) {
  const own = times.slice(-values.length);
  return values.map((value, at) =>
    at ? Math.max(value - values[at - 1], 0) / Math.max(own[at] - own[at - 1], 0.001) : null);
}

// The least share of calls that the fast path served between two moments, in percent.
function shares(fast, slow) {
  return fast.map((value, at) => {
    if (!at) return null;
    const quick = Math.max(value - fast[at - 1], 0), calls = quick + Math.max(slow[at] - slow[at - 1], 0);
    return calls ? 100 * quick / calls : null;
  });
}

// The largest caches each, and the sum of the others.
function series(caches, history, values) {
  const by = [...caches].sort((a, b) => Math.max(...b.history[history]) - Math.max(...a.history[history]));
  const length = Math.max(0, ...caches.map((cache) => cache.history[history].length));
  const rest = Array(length).fill(0);
  for (const cache of by.slice(SHOWN)) {
    const own = values(cache);
    own.forEach((value, at) => { rest[length - own.length + at] += value; });
  }
  const found = by.slice(0, SHOWN).map((cache, number) =>
    ({ name: cache.name, birth: cache.birth, color: color(number), values: values(cache) }));
  return by.length > SHOWN ? [...found, { name: "others", rest: true, color: color(SHOWN), values: rest }] : found;
}

function sum(caches, history, length) {
  const total = Array(length).fill(0);
  for (const cache of caches) {
    const own = cache.history[history];
    own.forEach((value, at) => { total[length - own.length + at] += value; });
  }
  return total;
}

function showTiles(process) {
  const heap = process.heap;
  const tiles = [
    ["slabs", bytes(process.slab_bytes)],
    ["waste", bytes(process.waste_bytes)],
    ["objects in use", `${process.objects ? Math.floor(100 * process.active_objects / process.objects) : 0}%`],
    ["large blocks", heap ? bytes(heap.large_bytes) : "-"],
    ["huge blocks", heap ? bytes(heap.huge_bytes) : "-"],
    ["free pages", heap ? bytes(heap.free_bytes) : "-"],
    ["resident", bytes(process.resident_bytes)],
  ];
  find("tiles").replaceChildren(...tiles.map(([name, value]) => {
    const tile = document.createElement("div"), figure = document.createElement("b"), label = document.createElement("span");
    tile.className = "tile";
    figure.textContent = value;
    label.textContent = name;
    tile.append(figure, label);
    return tile;
  }));
}

function pick(cache) {
  chosenCache = cache.birth;
  refresh();
}

function showCharts(process) {
  const times = process.times;
  const memory = { stacked: true, binary: true, format: bytes, pick };
  drawChart(find("memory"), times, series(process.caches, "slab", (cache) => cache.history.slab), memory);
  drawChart(find("waste"), times, series(process.caches, "waste", (cache) => cache.history.waste), memory);
  drawChart(find("totals"), times, [
    { name: "process, resident", color: color(1), values: process.history.resident },
    ...(process.heap ? [{ name: "heap, held", color: color(2), values: process.history.held }] : []),
    { name: "slabs", color: color(0), values: process.history.slab },
    { name: "waste", color: color(6), values: process.history.waste },
  ], { binary: true, format: bytes });
  const moved = (history) => process.caches.map((cache) => rates(cache.history[history], times))
    .reduce((total, own) => {
      own.forEach((value, at) => { total[times.length - own.length + at] += value ?? 0; });
      return total;
    }, Array(times.length).fill(0)).slice(1);
  drawChart(find("moved"), times, [
    { name: "taken", color: color(0), values: moved("taken") },
    { name: "given back", color: color(1), values: moved("given") },
  ], { format: count });
  const total = (history) => sum(process.caches, history, times.length);
  drawChart(find("fast"), times, [
    { name: "at least", color: color(2), values: shares(total("fast"), total("slow")) },
  ], { format: percent });
  const share = document.createElement("b");
  share.textContent = "Fast-path share. ";
  find("share").replaceChildren(share, process.fast_path.share === null ? process.fast_path.why
    : `At least ${percent(100 * process.fast_path.share)} of all calls so far.`);
}

function showTable(process) {
  for (const cache of process.caches) {
    cache.use = cache.objects ? cache.active_objects / cache.objects : 0;
    cache.growth = cache.history.slab.at(-1) - cache.history.slab[0];
  }
  const rising = order === "name" ? 1 : -1;
  const rows = [...process.caches].sort((a, b) =>
    (a[order] < b[order] ? -rising : a[order] > b[order] ? rising : 0) || (a.name < b.name ? -1 : 1));
  find("caches").querySelector("tbody").replaceChildren(...rows.map((cache) => {
    const row = document.createElement("tr");
    row.classList.toggle("chosen", cache.birth === chosenCache);
    for (const [, key, format] of COLUMNS) {
      const cell = document.createElement("td");
      if (key === "name") {
        const button = document.createElement("button");
        button.textContent = cache.name;
        button.addEventListener("click", () => pick(cache));
        cell.append(button);
      } else {
        cell.textContent = format(cache[key]);
      }
      row.append(cell);
    }
    return row;
  }));
  for (const head of find("caches").querySelectorAll("th"))
    if (head.dataset.key === order) head.setAttribute("aria-sort", rising > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
}

// One attribute: its name, its value, and a field to change it where that is allowed.
function attributeRow(cache, name) {
  const row = document.createElement("div"), label = document.createElement("span");
  const value = document.createElement("output"), most = cache.attributes.writable[name];
  row.dataset.name = name;
  label.textContent = name;
  row.append(label, value);
  if (most === undefined || !writable || !token) return row;
  const form = document.createElement("form"), field = document.createElement("input"), button = document.createElement("button");
  field.setAttribute("aria-label", `new ${name}`);
  field.placeholder = most < 1e6 ? `0 to ${most}` : "a number";
  if (name === "shrink") field.value = "1";
  button.textContent = "set";
  form.append(field, button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change(name, field.value.trim());
  });
  row.append(form);
  return row;
}

async function change(name, value) {
  try {
    await ask(`api/processes/${chosenProcess}/attributes`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Kmem-Token": token },
      body: JSON.stringify({ birth: chosenCache, name, value }),
    });
    say("answer", `${name} ${value}: asked for; in force at the process's next refill or drain`);
  } catch (error) {
    say("answer", error.message, true);
  }
}

function showCache(process) {
  const cache = process.caches.find((one) => one.birth === chosenCache);
  find("cache").hidden = !cache;
  if (!cache) {
    editing = null;
    return;
  }
  find("cache-name").textContent = cache.name;
  const names = [...new Set([...Object.keys(cache.attributes.values), ...Object.keys(cache.attributes.writable)])];
  if (editing !== cache.birth) {
    editing = cache.birth;
    say("answer", writable && !token ? "Changes need the address that kmem serve printed, with its token." : "");
    find("attributes").replaceChildren(...names.map((name) => attributeRow(cache, name)));
  }
  for (const row of find("attributes").children)
    row.querySelector("output").textContent = cache.attributes.values[row.dataset.name] ?? "";
  drawChart(find("cache-memory"), process.times, [
    { name: "slabs", color: color(0), values: cache.history.slab },
    { name: "waste", color: color(6), values: cache.history.waste },
  ], { binary: true, format: bytes });
  drawChart(find("cache-moved"), process.times, [
    { name: "taken", color: color(0), values: rates(cache.history.taken, process.times) },
    { name: "given back", color: color(1), values: rates(cache.history.given, process.times) },
  ], { format: count });
  drawChart(find("cache-fast"), process.times, [
    { name: "at least", color: color(2), values: shares(cache.history.fast, cache.history.slow) },
  ], { format: percent });
}

function showProcesses(list) {
  const select = find("process");
  const wanted = list.map((process) => [String(process.pid), `${process.pid} ${process.command}, ${bytes(process.slab_bytes)}`]);
  if (chosenProcess !== null && !list.some((process) => process.pid === chosenProcess))
    wanted.push([String(chosenProcess), `${chosenProcess}, ended`]);
  while (select.length > wanted.length) select.remove(select.length - 1);
  wanted.forEach(([value, text], at) => {
    const option = select.options[at] ?? select.appendChild(document.createElement("option"));
    if (option.value !== value || option.textContent !== text) Object.assign(option, { value, textContent: text });
  });
  if (chosenProcess === null && list.length) chosenProcess = list[0].pid;
  if (chosenProcess !== null) select.value = String(chosenProcess);
}

let refreshing = false;
async function refresh() {
  if (refreshing) return 1;
  refreshing = true;
  let interval = 1;
  try {
    const all = await ask("api/processes");
    interval = all.interval;
    writable = all.writable;
    showProcesses(all.processes);
    if (chosenProcess === null) {
      say("state", "There is no process on libkmem that can be seen.");
    } else {
      const process = await ask(`api/processes/${chosenProcess}`);
      say("state", process.missing ? `${process.missing} caches or slots found no room in the registry` : "");
      showTiles(process);
      showCharts(process);
      showCache(process);
      showTable(process);
    }
  } catch (error) {
    say("state", error.message, true);
  } finally {
    refreshing = false;
  }
  return interval;
}

async function run() {
  const interval = await refresh();
  setTimeout(run, 1000 * Math.max(interval, 0.25));
}

find("process").addEventListener("change", (event) => {
  chosenProcess = Number(event.target.value);
  chosenCache = null;
  refresh();
});
find("close").addEventListener("click", () => { chosenCache = null; refresh(); });
for (const [title, key] of COLUMNS) {
  const head = document.createElement("th"), button = document.createElement("button");
  head.dataset.key = key;
  button.textContent = title;
  button.addEventListener("click", () => { order = key; refresh(); });
  head.append(button);
  find("caches").querySelector("thead tr").append(head);
}
run();
