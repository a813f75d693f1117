// SPDX-License-Identifier: Apache-2.0 OR MIT
// Figures as text.
"use strict";

function bytes(value) {
  let letter = 0;
  while (value >= 1024 && letter < 5) { value /= 1024; letter++; }
  return `${letter && value < 10 ? value.toFixed(1) : Math.round(value)}${[value ? " B" : "", " KiB", " MiB", " GiB", " TiB", " PiB"][letter]}`;
}

function count(value) {
  return Math.round(value).toLocaleString("en");
}

function percent(value) {
  return `${value.toFixed(1)}%`;
}

function clock(moment) {
  return Number.isFinite(moment) ? new Date(1000 * moment).toLocaleTimeString("en-GB") : "-";
}
