// SPDX-License-Identifier: Apache-2.0 OR MIT
// The tables of processes and of caches: their columns, what the columns mean, and their order.
"use strict";

const plain = (value) => String(value);
const known = (format) => (value) => (value === null ? "-" : format(value));
const signed = known((value) => (value > 0 ? "+" : value < 0 ? "-" : "") + bytes(Math.abs(value)));
const part = (value) => `${Math.round(100 * value)}%`;

// Title, key, format, meaning.
const OF_BOTH = [
  ["size", "slab_bytes", bytes, "Memory of the slabs. A slab is a few pages that hold objects of one cache."],
  ["growth", "growth", signed, "Change of size since the time chosen above. What came later grew from nothing; of ended processes and caches nothing is shown."],
  ["waste", "waste_bytes", bytes, "Size less what the program asked for in active objects: free objects, padding, and ends of slabs."],
  ["objects", "objects", count, "Objects that the slabs have room for."],
  ["active", "active_objects", count, "Objects handed out, to the program or to a store of a CPU (a sheaf), where they wait to be handed out again."],
  ["use", "use", part, "Active objects as a share of all objects."],
];
const TABLES = {
  processes: [
    ["process", "command", plain, "The program, for readers with the token with the words that it was started with. Its link shows its caches."],
    ["number", "pid", plain, "The process's number, as ps shows it."],
    ...OF_BOTH,
    ["held", "held_bytes", known(bytes), "Pages of slabs and large blocks, and freed pages that the system does not have back yet."],
    ["resident", "resident_bytes", bytes, "Memory of the whole process as the system counts it, also code, stacks and other allocators."],
    ["caches", "caches", count, "Caches: each holds objects of one size."],
  ],
  caches: [
    ["cache", "name", plain, "A cache holds objects of one size. Its link shows its history and attributes."],
    ...OF_BOTH,
    ["object size", "object_size", (value) => `${count(value)} B`, "Bytes of an object that the program may use."],
    ["slabs", "slabs", count, "Slabs of the cache."],
    ["partial", "partial", count, "Slabs that have free objects and wait in the list of their node."],
    ["taken", "taken", count, "Objects that sheaves took from slabs, since the cache exists."],
    ["given back", "given", count, "Objects that sheaves gave back to slabs, since the cache exists."],
    ["fast path", "fast_share", known((value) => `≥ ${(100 * value).toFixed(1)}%`), "The least share of calls that a sheaf served alone; - where nothing counts them."],
  ],
};
const orders = { processes: "slab_bytes", caches: "slab_bytes" };

function orderBy(key) {
  for (const table of Object.keys(orders)) orders[table] = key;
}

// Follows a link within the page, unless it is to open elsewhere.
function followed(event, action) {
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  action();
}

// The heads of a table, which sort it, and the meaning of its columns.
function layOut(table, changed) {
  const words = document.getElementById("words");
  for (const [title, key, , meaning] of TABLES[table.id]) {
    const head = document.createElement("th"), button = document.createElement("button");
    head.dataset.key = key;
    head.scope = "col";
    button.textContent = title;
    button.title = meaning;
    button.addEventListener("click", () => { orders[table.id] = key; changed(); });
    head.append(button);
    table.querySelector("thead tr").append(head);
    addWord(words, title, meaning);
  }
}

// options: key, href, text and pick of a row; chosen, the key of the marked row.
function fillTable(table, rows, options) {
  const columns = TABLES[table.id], order = orders[table.id], first = columns[0][1];
  const rising = order === first ? 1 : -1;
  const sorted = [...rows].sort((a, b) =>
    (a[order] < b[order] ? -rising : a[order] > b[order] ? rising : 0) || (a[first] < b[first] ? -1 : 1));
  replaceKeepingFocus(table.querySelector("tbody"), sorted.map((one) => {
    const row = document.createElement("tr");
    row.classList.toggle("chosen", options.key(one) === options.chosen);
    for (const [, key, format] of columns) {
      const cell = document.createElement("td");
      if (key === first) {
        const link = document.createElement("a");
        link.href = options.href(one);
        link.dataset.key = options.key(one);
        link.textContent = options.text(one);
        link.addEventListener("click", (event) => followed(event, () => options.pick(one)));
        cell.append(link);
      } else {
        cell.textContent = format(one[key]);
      }
      row.append(cell);
    }
    return row;
  }));
  for (const head of table.querySelectorAll("th"))
    if (head.dataset.key === order) head.setAttribute("aria-sort", rising > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
}
