#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What searches of the explorer have exhausted, and the table of it in docs/checked.md.

    results.py check     name the document if its table is not of docs/figures/explored.json
    results.py write     put the table into the document

`run.py --keep docs/figures/explored.json` writes the file. For each search (search_name) and
scenario it has the last bound that was searched to its end, with executions, points passed and
seconds of the processor; `late`: after so many seconds one preemption more was given up;
`earlier`: of a search that left out schedules which it would run now, or of other sources.
Exit status of check: 0, or 1 if the table differs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "figures" / "explored.json"
DOCUMENT = ROOT / "docs" / "checked.md"
BEGIN, END = "<!-- explored: tests/explore/results.py write -->", "<!-- explored -->"


@dataclass
class Figures:
    """Of a search with a bound."""

    preemptions: int | None  # None: no bound
    executions: int
    points: int
    seconds: float
    exhausted: bool


def search_name(kind: str, memory: str, delays: int) -> str:
    """sc and all are searches without most equal schedules; a memory model has one delay."""
    if kind == "all":
        return "all"
    if memory == "sc":
        return "sc" if kind == "reduced" else "sc-plain"
    return memory if delays == 1 else f"{memory}-{delays}-delays"


class Kept:
    """The figures of one search in a file, which several processes may write at once."""

    def __init__(self, file: Path, search: str) -> None:
        self.file = file
        self.search = search
        self.anew = False  # whether what is known of a scenario is forgotten when it is searched
        self.known: dict[str, Any] = self.read().get(search, {})

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return found

    def is_exhausted(self, name: str, preemptions: int | None) -> bool:
        one = self.known.get(name, {})
        if "earlier" in one:
            return False
        if preemptions is None:
            return "executions" in one
        return bool(one.get("preemptions", -1) >= preemptions)

    def is_late(self, name: str) -> bool:
        return "late" in self.known.get(name, {})

    def seconds(self, name: str) -> float:
        one = self.known.get(name, {})
        return float(one.get("late", one.get("seconds", 0)))

    def add(self, name: str, rows: list[Figures]) -> None:
        """Keeps the last exhausted bound, if it is above the kept one."""
        folder = os.open(self.file.absolute().parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            document = self.read()
            self.known = document.setdefault(self.search, {})
            self.known[name] = merged({} if self.anew else self.known.get(name, {}), rows)
            draft = self.file.with_suffix(".draft")
            draft.write_text(as_text(document))
            draft.replace(self.file)
        finally:
            os.close(folder)


def merged(old: dict[str, Any], rows: list[Figures]) -> dict[str, Any]:
    """A scenario's figures with those of one more search."""
    last = max((row.preemptions or 0 for row in rows if row.exhausted), default=-1)
    new = {} if "earlier" in old and last >= old["preemptions"] else dict(old)
    for row in rows:
        if not row.exhausted:
            if row.preemptions is None or row.preemptions > new.get("preemptions", -1):
                new["late"] = max(row.seconds, new.get("late", 0))
        elif row.preemptions is None or row.preemptions >= new.get("preemptions", -1):
            bound = {} if row.preemptions is None else {"preemptions": row.preemptions}
            new = {
                **bound,
                "executions": row.executions,
                "points": row.points,
                "seconds": row.seconds,
            }
    return new


def as_text(document: dict[str, Any]) -> str:
    """JSON with a line for each scenario."""
    searches = (
        f"{json.dumps(search)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(rows.items()))
        + "\n}"
        for search, rows in sorted(document.items())
    )
    return "{\n" + ",\n".join(searches) + "\n}\n"


def cell(one: dict[str, Any]) -> list[str]:
    return [f"{one[key]:,}" if key in one else "" for key in ("executions", "points")]


def seconds(one: dict[str, Any]) -> str:
    """Empty where a bound was exhausted before seconds were kept."""
    return f"{one['seconds']:.1f}" if "seconds" in one else ""


def table(document: dict[str, Any]) -> str:
    """A row for each scenario: the last bound, executions and points of each search."""
    titles = [
        *("scenario", "preemptions", "executions", "points passed", "seconds"),
        "every schedule: executions",
        *("store buffers: preemptions", "executions"),
        *("stale reads: preemptions", "executions"),
    ]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, one in sorted(document["sc"].items()):
        other = [document.get(search, {}).get(name, {}) for search in ("all", "tso", "ra")]
        mark = " (earlier)" if "earlier" in one else ""
        cells = [f"{one['preemptions']}{mark}", *cell(one), seconds(one), cell(other[0])[0]]
        for weak in other[1:]:
            cells += [str(weak.get("preemptions", "")), cell(weak)[0]]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_table(text: str, document: dict[str, Any]) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"results.py: {DOCUMENT}: expected '{BEGIN}' and behind it '{END}'")
    return f"{before}{begin}\n\n{table(document)}\n\n{end}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("action", choices=("check", "write"))
    given = parser.parse_args()
    text = DOCUMENT.read_text()
    wanted = with_table(text, json.loads(FILE.read_text()))
    if given.action == "write":
        DOCUMENT.write_text(wanted)
    elif text != wanted:
        print(f"{DOCUMENT}: its table is not of {FILE}: run tests/explore/results.py write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
