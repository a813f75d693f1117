#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compare figures in documents with what commands wrote.

    document_figures.py check [FILE...]     name each figure that differs, in all *.md or these
    document_figures.py write [FILE...]     put the kept figures into the documents
    document_figures.py keep [NAME...]      run the commands anew and keep what they write, with
                                            the CPU seconds that they took
    document_figures.py update [NAME...]    keep, then write: all that a changed command needs

A comment behind figures in a document says where they come from:

    the change is -40.3%<!--freeze: rows[1].allocator_percent--> by the allocator's time

The word in front of the colon is a file of docs/figures, or `suite` for the newest result of
bench/results, and behind it stand expressions over the keys of that JSON file; d is all of it. A
comment with several expressions stands behind as many figures. Figures keep their number of
decimals, and a sign where they have one.

Exit status of check: 0, or 1 if a figure differs.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ending

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "figures"
RESULTS = ROOT / "bench" / "results"

# The command of each file. A file without one is of traces that are not in the tree, or of a clock.
COMMANDS: dict[str, list[str]] = {
    **{
        f"ask-{name}": ["lab", "ask", name]
        for name in ("capacity", "rings", "nodes", "forks", "knee", "memory")
    },
    "boots": ["lab", "boots"],
    "heaps": ["lab", "heaps"],
    "kernels": ["lab", "kernels"],
    "scale": ["lab", "scale"],
    "cpu-partial": ["lab", "cpu-partial"],
    "freeze": ["lab", "freeze"],
    "freeze-quick": ["lab", "freeze", "--quick"],
    **{
        f"explain-{name}": ["explain", f"tests/explain/reports/{report}.txt", *options]
        for name, report, options in (
            ("swapping", "over-eager-swapping", []),
            ("memoryless", "memoryless-node", []),
            ("memoryless-patched", "memoryless-node-patched", []),
            ("large-pages", "power-64k-hackbench", ["--cpus", "64", "--online", "16"]),
            ("large-pages-boot", "power-64k-boot", ["--cpus", "64", "--online", "16"]),
        )
    },
    "order": ["lab", "order"],
    "order-long": ["lab", "order", "--loops", "200"],
    "sheaves": ["lab", "sheaves"],
    "slob": ["lab", "slob"],
    "synth": ["lab", "synth", "--check"],
    "workloads": ["lab", "workloads"],
}
# Of the others the CPU seconds alone are kept.
TIMED: dict[str, list[str]] = {
    **COMMANDS,
    "all": ["lab", "all"],
    "all-quick": ["lab", "all", "--quick"],
}
SECONDS = "cpu-seconds"
SERIES = 20  # a list of more numbers is for plots, and not kept

MARKER = re.compile(r"<!--([a-z][a-z0-9-]*): (.*?)-->", re.DOTALL)
FIGURE = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")


class Box(Mapping[str, Any]):
    """An object of JSON, whose keys are attributes as well."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def __getitem__(self, key: str) -> Any:
        return boxed(self.content[key])

    def __getattr__(self, key: str) -> Any:
        if key not in self.content:
            raise KeyError(key)
        return self[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


def boxed(value: Any) -> Any:
    if isinstance(value, dict):
        return Box(value)
    if isinstance(value, list):
        return [boxed(item) for item in value]
    return value


def row(rows: Sequence[Any], **wanted: Any) -> Any:
    """The only row with these values."""
    found = [one for one in rows if all(one[key] == value for key, value in wanted.items())]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows with {wanted}")
    return found[0]


FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    **{f.__name__: f for f in (abs, all, any, len, max, min, range, row, sorted, sum, zip)},
}


def newest_result() -> Path:
    """The suite's result with the highest number."""
    return max(RESULTS.glob("[0-9][0-9][0-9][0-9]-*.json"))


@functools.cache
def read_kept(name: str) -> Any:
    file = newest_result() if name == "suite" else KEPT / f"{name}.json"
    if not file.exists():
        raise LookupError(f"there is no docs/figures/{name}.json")
    return boxed(json.loads(file.read_text()))


@functools.cache
def values_of(name: str, expressions: str) -> list[float]:
    document = read_kept(name)
    # Documents of the tree are trusted like its programs.
    names = {**FUNCTIONS, **dict(document), "d": document}
    found: list[float] = eval(f"[{expressions}]", names)
    if not found or not all(isinstance(value, int | float) for value in found):
        raise LookupError(f"expected numbers, found {found}")
    return found


def as_printed(value: float, like: str) -> str:
    """A value in the form of a figure: its decimals, and a sign where that has one."""
    decimals = len(like.partition(".")[2])
    text = f"{value:+,.{decimals}f}"
    if not re.search("[1-9]", text):
        text = "+" + text[1:]  # no minus in front of zero
    return text if like[0] in "+-" or text[0] == "-" else text[1:]


class Differs(Exception):
    """A marker that cannot be followed."""


def rewritten(text: str) -> tuple[str, list[str]]:
    """The text with the kept figures, and a line for each figure that was another one."""
    output, lines, end = [], [], 0
    for marker in MARKER.finditer(text):
        before = text[end : marker.start()]
        place = f"line {text.count(chr(10), 0, marker.start()) + 1}: {marker[0]}"
        try:
            values = values_of(marker[1], marker[2])
        except (LookupError, TypeError, SyntaxError, NameError) as error:
            raise Differs(f"{place}: {error}") from None
        figures = list(FIGURE.finditer(before))[-len(values) :]
        if len(figures) != len(values):
            raise Differs(f"{place}: {len(figures)} figures stand there, not {len(values)}")
        for figure, value in reversed(list(zip(figures, values, strict=True))):
            wanted = as_printed(value, figure[0])
            if wanted != figure[0]:
                lines.append(f"{place}: {figure[0]} stands there, expected {wanted}")
                before = before[: figure.start()] + wanted + before[figure.end() :]
        output += [before, marker[0]]
        end = marker.end()
    return "".join([*output, text[end:]]), lines


def documents() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).exists()]


def compare(files: list[Path], *, write: bool) -> int:
    well = True
    for file in files or documents():
        try:
            text, lines = rewritten(file.read_text())
        except Differs as error:
            text, lines = "", [str(error)]
        for line in lines:
            print(f"{file}: {line}")
        well = well and (not lines or (write and text != ""))
        if write and text and lines:
            file.write_text(text)
    return 0 if well else 1


def without_series(value: Any) -> Any:
    """Without long lists of numbers, which are for plots."""
    if isinstance(value, dict):
        kept = {key: without_series(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, list):
        if len(value) > SERIES and not any(isinstance(item, dict | list) for item in value):
            return None
        return [without_series(item) for item in value]
    return value


def as_lines(value: Any, depth: int = 3) -> str:
    """JSON with a line for each row, so that a difference is a few lines."""
    if depth == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(as_lines(item, depth - 1) for item in value) + "\n]"
    items = (f"{json.dumps(key)}: {as_lines(item, depth - 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + "\n}"


def as_kept(document: Any) -> str:
    return as_lines(without_series(document)) + "\n"


def cpu_seconds() -> float:
    """Of the programs that have ended, and of all that these waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str) -> tuple[str, float]:
    """What the command writes, and the CPU seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [str(ROOT / "kmem"), *TIMED[name], "--json", str(result)]
        before = cpu_seconds()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return as_kept(json.loads(result.read_text())), round(cpu_seconds() - before, 1)


def keep(names: list[str]) -> None:
    file = KEPT / f"{SECONDS}.json"
    seconds = json.loads(file.read_text()) if file.exists() else {}
    for name in names or TIMED:
        text, seconds[name] = run(name)
        if name in COMMANDS:
            (KEPT / f"{name}.json").write_text(text)
    file.write_text(as_kept(dict(sorted(seconds.items()))))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare figures in documents with results.")
    parser.add_argument("action", choices=("check", "write", "keep", "update"))
    parser.add_argument("names", nargs="*", metavar="FILE|NAME")
    chosen = parser.parse_args()
    if chosen.action in ("keep", "update"):
        if unknown := set(chosen.names) - set(TIMED):
            parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(TIMED)}")
        keep(chosen.names)
        return 0 if chosen.action == "keep" else compare([], write=True)
    return compare([Path(name).absolute() for name in chosen.names], write=chosen.action == "write")


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
