// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the words beside the tables mean: of the totals, the charts and the call sites, and of a cache's attributes.
"use strict";

const WORDS = [
  ["slab", "A few pages that hold objects of one cache."],
  ["large blocks", "Blocks above the sizes that caches have, up to 32 MiB, in the heap."],
  ["huge blocks", "Larger blocks; each has a mapping of its own."],
  ["free pages", "Pages that were freed and that the system does not have back yet."],
  ["sheaf", "A store of free objects, one for each CPU and cache. It serves a call without a look at the slabs."],
  ["fast path", "What serves a call of malloc or free by the sheaf alone. Nothing counts these calls, so their share is the least that it can be."],
  ["call site", "The line of the program that allocated; the functions behind < called it."],
  ["sample", "An allocation that is noted with its call site. It stands for as many bytes as lie between two samples on average."],
  ["leak suspect", "A call site whose bytes older than a minute grow, and of which at least half are kept."],
];

const ATTRIBUTES = {
  slab_size: "Bytes from one object to the next.",
  object_size: "Bytes of an object that the program may use.",
  objs_per_slab: "Objects of a slab of the preferred order.",
  order: "The preferred size of a slab: 0 is a page, 1 two pages, 2 four pages.",
  align: "Bytes that the address of each object is a multiple of.",
  min_partial: "Empty slabs are kept while there are fewer partial slabs than this.",
  cpu_partial: "Free objects that the list of partial slabs of a CPU is meant to hold.",
  usersize: "Bytes of an object that kernel code may copy from and to user space.",
  aliases: "Other names of the cache.",
  failslab: "1: requests fail on purpose, as option failslab says.",
  remote_node_defrag_ratio: "In how many of 100 requests slabs of other NUMA nodes are looked for before a new slab is made.",
  skip_kfence: "1: the objects are kept out of samples, and without guards.",
  guard_sampling: "One in so many allocations lies between unreadable pages, which finds wrong accesses; 0: none.",
  sheaf_capacity: "Objects that a sheaf holds; 0: there are no sheaves.",
  engine: "The slab allocator that serves the cache: slub, slab or slob.",
  hwcache_align: "Objects begin at cache lines of the CPU.",
  reclaim_account: "The kernel would count the slabs as memory that it can reclaim.",
  destroy_by_rcu: "Slabs are given back only when no reader can hold an object any more.",
  cache_dma: "The kernel would take the slabs from memory that old devices reach.",
  sanity_checks: "Debugging: slabs and calls are checked.",
  red_zone: "Debugging: bytes around objects find writes beyond their ends.",
  poison: "Debugging: freed objects are filled, which finds writes after the free.",
  store_user: "Debugging: the callers that took and freed each object are kept.",
  trace: "Debugging: each call is written to standard error.",
  shrink: "Setting 1 gives back empty slabs, and sorts the others.",
};

// Adds a term with its meaning, unless it is there already.
function addWord(list, term, meaning) {
  if ([...list.querySelectorAll("dt")].some((one) => one.textContent === term)) return;
  const head = document.createElement("dt"), text = document.createElement("dd");
  head.textContent = term;
  text.textContent = meaning;
  list.append(head, text);
}
