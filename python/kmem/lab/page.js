"use strict";
/*
 * Sorts the rows of a table by a column: upwards, downwards, then as they were. A column whose cells
 * begin with numbers is sorted by these; cells without a number stay last.
 */
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const text = (row, column) => row.cells[column].textContent.trim();
  const number = (row, column) => {
    const found = /^[-+]?[\d,]*\.?\d+/.exec(text(row, column));
    return found ? Number(found[0].replaceAll(",", "")) : null;
  };
  const compare = (column, numeric, sign) => (one, other) => {
    if (!numeric) return sign * text(one, column).localeCompare(text(other, column), "en");
    const a = number(one, column), b = number(other, column);
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (a - b);
  };
  const sort = (column) => {
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    const way = next[heads[column].getAttribute("aria-sort")];
    for (const head of heads) head.setAttribute("aria-sort", "none");
    heads[column].setAttribute("aria-sort", way);
    table.classList.toggle("sorted", way !== "none");
    const filled = rows.filter((row) => !["", "-"].includes(text(row, column)));
    const numeric = filled.length > 0 && filled.every((row) => number(row, column) !== null);
    const sign = way === "descending" ? -1 : 1;
    const wanted = way === "none" ? rows : [...rows].sort(compare(column, numeric, sign));
    body.append(...wanted);
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent || "row";
    button.title = "sort by this column";
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(column));
  });
}
