// SPDX-License-Identifier: Apache-2.0 OR MIT
// Draws lines, or areas one on the other, over time into an SVG element.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const EDGE = { left: 56, right: 8, top: 8, bottom: 20 };

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Puts children in the place of others; a button or link that has the focus keeps it.
function replaceKeepingFocus(place, children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children);
  if (key === undefined) return;
  [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({ preventScroll: true });
}

// The least of 1, 2, 2.5 or 5 times a power of ten (of 1024 and two, for bytes) above value / 4; whole, as all
// axes are of whole numbers.
function step(value, binary) {
  const wanted = Math.max(value / 4, 1);
  if (binary) return 2 ** Math.ceil(Math.log2(wanted));
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 2.5, 5, 10].find((times) => times * power >= wanted && Number.isInteger(times * power)) * power;
}

// series: [{name, color, values}], values as many as times or fewer (then of the last times);
// null is a gap. options: stacked, format, binary, most (the end of the axis; else the largest value's), pick (called
// with a series' name).
function drawChart(svg, times, series, options) {
  const width = svg.clientWidth || 400, height = svg.clientHeight || 190;
  const bottom = height - EDGE.bottom, right = width - EDGE.right;
  const full = series.map((one) => {
    const missing = Math.max(times.length - one.values.length, 0);
    return [...Array(missing).fill(null), ...one.values.slice(-times.length || Infinity)];
  });
  const base = times.map(() => 0);
  const tops = full.map((values) => values.map((value, at) => {
    if (!options.stacked) return value;
    base[at] += value ?? 0;
    return base[at];
  }));
  const most = options.most ?? Math.max(1, ...tops.flat().filter((value) => value !== null));
  const tick = step(most, options.binary);
  const top = Math.ceil(most / tick) * tick;
  const first = times[0] ?? 0, last = times.at(-1) ?? 1;
  const x = (time) => EDGE.left + (right - EDGE.left) * (last > first ? (time - first) / (last - first) : 1);
  const y = (value) => bottom - (bottom - EDGE.top) * value / top;

  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (let value = 0; value <= top * 1.0001; value += tick) {
    svg.append(shape("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, options.format(value)));
  }
  const ago = Math.round(last - first);
  svg.append(shape("text", { x: EDGE.left, y: height - 5 }, ago ? `${ago} s ago` : ""));
  svg.append(shape("text", { x: right, y: height - 5, "text-anchor": "end" }, "now"));

  tops.forEach((values, number) => {
    const known = values.map((value, at) => [x(times[at]), value]).filter(([, value]) => value !== null);
    if (!known.length) return;
    const path = known.map(([px, value]) => `${px.toFixed(1)},${y(value).toFixed(1)}`);
    if (options.stacked) {
      const below = number ? tops[number - 1] : times.map(() => 0);
      const back = times.map((time, at) => `${x(time).toFixed(1)},${y(below[at]).toFixed(1)}`).reverse();
      svg.append(shape("polygon", {
        points: [...path, ...back].join(" "), fill: series[number].color, "fill-opacity": 0.75,
      }));
    } else {
      svg.append(shape("polyline", { class: "line", points: path.join(" "), stroke: series[number].color }));
    }
  });

  const legend = svg.parentElement.querySelector(".legend");
  const writeLegend = (at) => replaceKeepingFocus(legend, series.map((one, number) => {
    const value = full[number][at];
    const entry = document.createElement(options.pick && !one.rest ? "button" : "span");
    const mark = document.createElement("i"), figure = document.createElement("b");
    mark.style.background = one.color;
    figure.textContent = ` ${value === null || value === undefined ? "-" : options.format(value)}`;
    entry.append(mark, one.name, figure);
    if (options.pick && !one.rest) {
      entry.dataset.key = one.birth;
      entry.addEventListener("click", () => options.pick(one));
    }
    return entry;
  }));
  const cursor = shape("line", { class: "cursor", y1: EDGE.top, y2: bottom, visibility: "hidden" });
  svg.append(cursor);
  // The pointer's place is kept by the element, so a chart that is drawn anew still shows it.
  const show = (event) => {
    svg.pointed = event?.clientX;
    const pointed = svg.pointed !== undefined && times.length > 0;
    cursor.setAttribute("visibility", pointed ? "visible" : "hidden");
    if (!pointed) {
      writeLegend(times.length - 1);
      return;
    }
    const place = svg.pointed - svg.getBoundingClientRect().left;
    const at = times.reduce((best, time, index) =>
      Math.abs(x(time) - place) < Math.abs(x(times[best]) - place) ? index : best, 0);
    cursor.setAttribute("x1", x(times[at]));
    cursor.setAttribute("x2", x(times[at]));
    writeLegend(at);
  };
  svg.onpointermove = show;
  svg.onpointerleave = () => show();
  show(svg.pointed === undefined ? undefined : { clientX: svg.pointed });
}
