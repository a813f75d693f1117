// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page of `kmem serve`. Names of caches and programs are whatever a program chose, so they are
// only ever set as text.
"use strict";

const SHOWN = 8; // caches with a colour of their own; the rest is one series
const NAME_MOST = 80; // letters
const find = (name) => document.getElementById(name);

let chosenProcess = null; // text of its number; null: all processes
let chosenCache = null; // birth
let since = ""; // as the server takes it; growth counts from there
let paused = false;
let writable = false;
let editing = null; // birth of the cache whose attributes have been laid out
const held = { all: null, process: null }; // the figures that are shown

// The token leaves the address, so that an address can be shared without it.
let token = new URLSearchParams(location.hash.slice(1)).get("token");
try {
  if (token) sessionStorage.setItem("token", token);
  token ??= sessionStorage.getItem("token");
} catch {
  // A browser that keeps nothing: the token lasts as long as the page.
}
if (location.hash) history.replaceState(null, "", location.pathname + location.search);

function readAddress() {
  const words = new URLSearchParams(location.search);
  chosenProcess = words.get("process");
  chosenCache = words.get("cache");
  since = words.get("since") ?? "";
}

function address(process, cache) {
  const words = new URLSearchParams();
  if (process !== null) words.set("process", process);
  if (cache !== null) words.set("cache", cache);
  if (since) words.set("since", since);
  return `/${words.size ? "?" : ""}${words}`;
}

// Shows a process, one of its caches, or with nulls all processes; the address says which.
function go(process, cache) {
  const other = process !== chosenProcess;
  [chosenProcess, chosenCache] = [process, cache];
  if (other) {
    for (const name of ["sites-found", "suspects", "threads"]) find(name).hidden = true;
    say("sites-state", "");
  }
  history.pushState(null, "", address(process, cache));
  render();
  if (other) refresh();
}

// The words that a process was started with are told to those who have the token.
function nameOf(process) {
  const name = process.command_line ?? process.command;
  return name.length > NAME_MOST ? `${name.slice(0, NAME_MOST - 1)}…` : name;
}

function share(one) {
  return one.objects ? one.active_objects / one.objects : 0;
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
    answer = await fetch(path, { ...options, headers: { ...options?.headers, ...(token && { "X-Kmem-Token": token }) } });
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
  go(chosenProcess, cache.birth);
  find("cache").scrollIntoView({ block: "nearest" });
  find("cache").focus({ preventScroll: true });
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
  find("fast").parentElement.hidden = process.fast_path.share === null;
  const total = (history) => sum(process.caches, history, times.length);
  drawChart(find("fast"), times, [
    { name: "at least", color: color(2), values: shares(total("fast"), total("slow")) },
  ], { format: percent, most: 100 });
  const share = document.createElement("b");
  share.textContent = "Fast-path share. ";
  find("share").replaceChildren(share, process.fast_path.share === null ? process.fast_path.why
    : `At least ${percent(100 * process.fast_path.share)} of all calls so far.`);
}

// One attribute: its name, its value, and a field to change it where that is allowed.
function attributeRow(cache, name) {
  const row = document.createElement("div"), label = document.createElement("span");
  const value = document.createElement("output"), most = cache.attributes.writable[name];
  row.dataset.name = name;
  label.textContent = name;
  if (name in ATTRIBUTES) label.title = ATTRIBUTES[name];
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
      headers: { "Content-Type": "application/json" },
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
    for (const name of names) if (name in ATTRIBUTES) addWord(find("attribute-words"), name, ATTRIBUTES[name]);
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
  find("cache-fast").parentElement.hidden = cache.fast_share === null;
  drawChart(find("cache-fast"), process.times, [
    { name: "at least", color: color(2), values: shares(cache.history.fast, cache.history.slow) },
  ], { format: percent, most: 100 });
}

// Asks for a profile of the process that is shown, which takes `seconds`, and says how it went.
async function sample(path, seconds, show) {
  const process = chosenProcess, buttons = find("sites").querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  say("sites-state", `sampling process ${process} for ${seconds} seconds`);
  try {
    const answer = await fetch(path, { headers: { "X-Kmem-Token": token } });
    if (!answer.ok) throw new Error((await answer.json()).error);
    if (process === chosenProcess) say("sites-state", await show(answer));
  } catch (error) {
    say("sites-state", error.message, true);
  }
  buttons.forEach((button) => { button.disabled = false; });
}

function fillRows(table, rows) {
  table.tBodies[0].replaceChildren(...rows.map((texts) => {
    const row = document.createElement("tr");
    for (const text of texts) row.insertCell().textContent = text;
    return row;
  }));
}

// The heads of bytes by age stand before the call site, as many as there are bytes for.
function headAges(names) {
  const head = find("sites-found").tHead.rows[0];
  while (head.cells.length > 3) head.deleteCell(2);
  for (const name of names) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    head.insertBefore(cell, head.lastElementChild);
  }
}

// Ages are shown if something is older than the youngest bytes.
function agesShown(ages, sites) {
  const shown = (ages ?? []).map((_, age) => age).filter((age) => sites.some((one) => one.ages[age]));
  return shown.some((age) => age > 0) ? shown : [];
}

async function showSites(answer) {
  const { growth, sites, ages, suspects, threads, ...found } = await answer.json();
  const shown = agesShown(ages, sites);
  find("sites-found").hidden = !sites.length;
  headAges(shown.map((age) => ages[age]));
  fillRows(find("sites-found"), sites.map((one) => [(growth ? "+" : "") + bytes(one.bytes), count(one.objects),
    ...shown.map((age) => bytes(one.ages[age])), one.site]));
  find("suspects").hidden = !suspects?.length;
  fillRows(find("suspects").querySelector("table"), (suspects ?? []).map((one) =>
    ["+" + bytes(one.bytes_a_minute), bytes(one.old_bytes), percent(100 * one.kept), one.site]));
  find("threads").hidden = !threads?.length;
  fillRows(find("threads").querySelector("table"), (threads ?? []).map((one) =>
    [bytes(one.bytes), count(one.objects), one.thread, one.site]));
  if (!sites.length) return growth ? "Nothing grew that was sampled." : "Nothing was sampled.";
  if (growth) return "Bytes in use that came in the second half of the time, largest first.";
  const young = ages && !found.can_tell ? ` Leak suspects need samples of ${2 * found.old_seconds} seconds.` : "";
  return `Bytes in use of what was sampled, largest first.${young}`;
}

async function saveFile(answer) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `kmem-${chosenProcess}.pb.gz`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  return `written: ${link.download}`;
}

function fillSelect(select, wanted, chosen) {
  while (select.length > wanted.length) select.remove(select.length - 1);
  wanted.forEach(([value, text], at) => {
    const option = select.options[at] ?? select.appendChild(document.createElement("option"));
    if (option.value !== value || option.textContent !== text) Object.assign(option, { value, textContent: text });
  });
  select.value = chosen;
}

function showChoices(list) {
  const processes = [["", "all processes"], ...list.map((process) =>
    [String(process.pid), `${process.pid} ${nameOf(process)}, ${bytes(process.slab_bytes)}`])];
  if (chosenProcess !== null && !processes.some(([value]) => value === chosenProcess))
    processes.push([chosenProcess, `${chosenProcess}, ended`]);
  fillSelect(find("process"), processes, chosenProcess ?? "");
  const times = [["", "the first look shown"], ["-600", "10 minutes ago"], ["-3600", "an hour ago"]];
  if (!times.some(([value]) => value === since)) times.push([since, `mark ${clock(Number(since))}`]);
  fillSelect(find("since"), times, since);
}

function showAll(processes) {
  fillTable(find("processes"), processes.map((process) => ({
    ...process, use: share(process), held_bytes: process.heap ? process.heap.held_bytes : null,
  })), {
    key: (process) => String(process.pid), href: (process) => address(String(process.pid), null),
    pick: (process) => go(String(process.pid), null), text: nameOf,
  });
}

function showCaches(process) {
  find("counted").textContent = `Growth counts from ${clock(process.grown_since)} on.`;
  fillTable(find("caches"), process.caches.map((cache) => ({ ...cache, use: share(cache) })), {
    key: (cache) => cache.birth, href: (cache) => address(chosenProcess, cache.birth),
    pick, text: (cache) => cache.name, chosen: chosenCache,
  });
}

function render() {
  if (!held.all) return;
  showChoices(held.all.processes);
  const same = held.process !== null && String(held.process.pid) === chosenProcess;
  const process = same ? held.process : null;
  document.title = process ? `${process.command} ${process.pid} - kmem` : "kmem";
  find("all").hidden = chosenProcess !== null;
  find("one").hidden = process === null;
  if (chosenProcess === null) showAll(held.all.processes);
  if (!process) return;
  showTiles(process);
  find("sites").hidden = !writable || !token;
  showCharts(process);
  showCache(process);
  showCaches(process);
}

function stateOf() {
  const process = held.process;
  if (chosenProcess === null)
    return held.all.processes.length ? "" : "There is no process on libkmem that can be seen.";
  if (chosenCache !== null && !process.caches.some((cache) => cache.birth === chosenCache))
    return `process ${process.pid}: the cache of this address has been destroyed`;
  return process.missing ? `${process.missing} caches or slots found no room in the registry` : "";
}

let refreshing = false, again = false;
// Reads the figures of what is chosen, anew if another thing was chosen meanwhile.
async function refresh() {
  again = true;
  if (refreshing) return;
  refreshing = true;
  while (again) {
    again = false;
    try {
      await load();
      say("state", paused ? `paused at ${clock(held.all.now)}` : stateOf());
    } catch (error) {
      say("state", error.message, true);
    }
  }
  refreshing = false;
  render();
}

async function load() {
  const query = since ? `?since=${encodeURIComponent(since)}` : "";
  held.all = await ask(`api/processes${query}`);
  writable = held.all.writable;
  if (chosenProcess === null) return;
  showChoices(held.all.processes);
  held.process = await ask(`api/processes/${encodeURIComponent(chosenProcess)}${query}`);
}

async function run() {
  if (!paused) await refresh();
  setTimeout(run, 1000 * Math.max(held.all?.interval ?? 1, 0.25));
}

function growFrom(moment) {
  since = moment;
  history.pushState(null, "", address(chosenProcess, chosenCache));
  if (moment) orderBy("growth");
  refresh();
}

find("home").addEventListener("click", (event) => followed(event, () => go(null, null)));
find("process").addEventListener("change", (event) => go(event.target.value || null, null));
find("since").addEventListener("change", (event) => growFrom(event.target.value));
find("mark").addEventListener("click", () => { if (held.all) growFrom(held.all.now.toFixed(3)); });
find("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.currentTarget.setAttribute("aria-pressed", String(paused));
  event.currentTarget.textContent = paused ? "go on" : "pause";
  if (!paused) refresh();
  else if (held.all) say("state", `paused at ${clock(held.all.now)}`);
});
find("sites-held").addEventListener("click", () => sample(`api/processes/${chosenProcess}/sites`, 10, showSites));
find("sites-grown").addEventListener("click", () => sample(`api/processes/${chosenProcess}/sites?growth=1`, 20, showSites));
find("sites-file").addEventListener("click", () => sample(`processes/${chosenProcess}/debug/pprof/heap`, 10, saveFile));
find("close").addEventListener("click", () => go(chosenProcess, null));
window.addEventListener("popstate", () => { readAddress(); render(); refresh(); });
readAddress();
if (since) orderBy("growth");
layOut(find("processes"), render);
layOut(find("caches"), render);
for (const [term, meaning] of WORDS) addWord(find("words"), term, meaning);
run();
