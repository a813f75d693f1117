#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Damaged inputs for the readers that are Python, many in a process.

    tests/fuzz/readers.py [FORM...] [--inputs N] [--seed N] [--jobs N] [--keep DIR]

An input is a report of tests/explain, or another file of its form, of which a few bytes are
changed, lost, doubled or taken from another; some are packed or carried as mails, pages and logs
carry them. It must end in figures, or in one line that says why not: anything else, or more than
SECONDS_MOST of CPU time, is a fault. The input of a fault is written to DIR, and is that of
its number, form and seed again.

What a program in C computes of the tables, orders of slabs, is made up here, but for one input in
TOOL_EVERY. Text and traces of other tools are read in C (tests/fuzz/import.c and its neighbours).

Exit status: 0, or 1 after a fault.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import html
import io
import json
import lzma
import math
import os
import random
import resource
import signal
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from java_machine import Picture, make
from rich.console import Console

from kmem.common.errors import KmemError
from kmem.common.text import printable
from kmem.explain import shapes
from kmem.explain.answers import Answers, Machine, answer
from kmem.explain.document import document
from kmem.explain.files import read_file
from kmem.explain.heap.dhat import is_dhat
from kmem.explain.heap.figures import answer as profile_answer
from kmem.explain.heap.files import is_profile, plain, profile_of
from kmem.explain.heap.sites import sites_of
from kmem.explain.leaks import growths
from kmem.explain.reader import Collector
from kmem.explain.show import drawing, growth_report, moments_of, table_report, unread_report
from kmem.explain.table import Reading
from kmem.lab import orders
from kmem.lab.boots import BOOTS
from kmem.lab.report import print_report
from kmem.live import java_methods, perf_maps, pprof
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.recorded import read_table
from kmem.traces import file as tr
from kmem.traces.attribute_tree import PARSERS, AttributeFormatError, parse_attribute

EXPLAIN = Path(__file__).resolve().parents[1] / "explain"
LONGEST = 4000  # bytes of a text that is a seed
SECONDS_MOST = 20  # of CPU time for an input
MEMORY_MOST = 4 << 30
TOOL_EVERY = 2000  # inputs, of which one has its orders from the tool
SHOWN_EVERY = 40  # inputs, of which one is printed as text, too
CHUNK = 250  # inputs of a worker's task
PIECES = (b"\n", b" ", b"-", b"9" * 25, b"\0", b"\xff", b"%", b"?", b"\\n", b"&#10;", b"<br>", b"{")
MARK = b"#: "


def short(text: bytes) -> bytes:
    """Whole lines of it."""
    return text if len(text) <= LONGEST else text[: text.rfind(b"\n", 0, LONGEST) + 1]


def without_marks(content: bytes) -> bytes:
    """A report of tests/explain as it was."""
    return short(b"\n".join(line for line in content.split(b"\n") if not line.startswith(MARK)))


def mutated(content: bytes, seeds: Sequence[bytes], source: random.Random) -> bytes:
    data = bytearray(content)
    # Lengths stand in front of parts of a message, so that most cuts of it end at once.
    stays_long = b"\0" in content and source.random() < 0.7
    for _ in range(source.randint(1, source.choice((1, 2, 8)))):
        at = source.randrange(len(data) + 1)
        match 0 if stays_long else source.randrange(6):
            case 0 if at < len(data):
                data[at] = source.randrange(256)
            case 1:
                del data[at : at + source.randint(1, 20)]
            case 2:
                data[at:at] = data[at : at + source.randint(1, 60)]
            case 3:
                other = source.choice(seeds)
                begin = source.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + source.randint(1, 120)]
            case 4:
                data[at:at] = source.choice(PIECES)
            case 5:
                data = data[:at] or data
    return bytes(data)


def as_tar(content: bytes) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in ("a/slab/kmalloc-64/order", "a/slab/kmalloc-64/slabs", "proc/slabinfo"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def by_lines(write: Callable[[str], str]) -> Callable[[bytes], bytes]:
    def carry(content: bytes) -> bytes:
        lines = content.decode("utf-8", "replace").split("\n")
        return "\n".join(map(write, lines)).encode("utf-8", "replace")

    return carry


CARRIERS: tuple[Callable[[bytes], bytes], ...] = (
    lambda content: gzip.compress(content, 1, mtime=0),
    lambda content: bz2.compress(content, 1),
    lambda content: lzma.compress(content, preset=0),
    as_tar,
    lambda content: gzip.compress(as_tar(content), 1, mtime=0),
    lambda content: content.decode("utf-8", "replace").encode("utf-16"),
    lambda content: b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"),
    lambda content: b"<pre>" + html.escape(content.decode("utf-8", "replace")).encode() + b"</pre>",
    lambda content: b"Content-Transfer-Encoding: quoted-printable\n\n" + content,
    lambda content: json.dumps({"out": content.decode("utf-8", "replace")}).encode(),
    by_lines(lambda line: json.dumps({"MESSAGE": line})),
    by_lines(lambda line: "> " + line),
    by_lines(lambda line: f"\x1b[1;1H{line}\x1b[K"),
    by_lines(lambda line: f"May  1 10:00:00 host1 kernel: [    1.5] {line}"),
    by_lines(lambda line: "\n> ".join(line[at : at + 60] for at in range(0, len(line), 60))),
)


def made_up_slabs(cases: Sequence[orders.Case]) -> list[orders.Slab]:
    """In place of the tool: some slab that holds an object."""
    found = []
    for case in cases:
        order = max(0, math.ceil(math.log2(max(1, case.size) / case.page_size)))
        pages = 1 << min(order, 10)
        found.append(orders.Slab(pages * case.page_size // max(1, case.size), pages, order))
    return found


@dataclass
class Place:
    """Where a worker writes files for readers that take a path."""

    folder: Path
    computes: Callable[[Sequence[orders.Case]], list[orders.Slab]] = orders.compute


def show_all(reports: Sequence[Any]) -> None:
    console = Console(file=io.StringIO(), width=200)
    for report in reports:
        print_report(report, console)


def explain(content: bytes, number: int, place: Place) -> None:
    """All of `kmem explain` but the files that it writes."""
    file = Path("file")
    reading = Reading()
    collector = Collector(reading)
    memories = list(read_file(collector, file, {file: content}))
    assert reading.tables or memories
    is_exact = number % TOOL_EVERY == 0
    shapes.compute = place.computes if is_exact else made_up_slabs
    machine = Machine(*((None, None) if number % 3 else (4, 2)), 1 + number % 2, None)
    answers: list[Answers] = [answer(table, machine) for table in reading.tables]
    moments = moments_of(answers) if answers else []
    found = growths([{fact.name: fact for fact in one.facts} for one in moments])
    json.dumps(document(answers, found, reading), allow_nan=False)
    if number % SHOWN_EVERY == 0:
        show_all([table_report(one, at, 20) for at, one in enumerate(answers, 1)])
        show_all([growth_report(found, len(moments)), unread_report(reading, 40)])
    for one in answers:
        drawing(one)
    assert all(fault.reason and "\n" not in fault.reason for fault in reading.unread)


def profile(content: bytes, number: int, place: Place) -> None:
    text = plain(content)
    if not is_profile(content, text):
        raise KmemError("no profile")
    read = profile_of(Path("file"), text)
    answers = profile_answer(read)
    for figure in (answers.all.objects, answers.all.error, answers.all.rounding("kernel")):
        assert math.isfinite(figure)
        assert figure >= 0
    for mapping in read.mappings:
        object.__setattr__(mapping, "inode", 0)  # nobody looks for the files
    assert sites_of(answers.all.held, read.mappings)
    assert all(fault.reason and "\n" not in fault.reason for fault in read.unread)


def saved_profile(content: bytes, number: int, place: Place) -> None:
    pprof.parse(content, Path("file"))


def written(content: bytes, place: Place) -> Path:
    file = place.folder / "input"
    file.write_bytes(content)
    return file


def slabinfo(content: bytes, number: int, place: Place) -> None:
    read_table(written(content, place))


def costs(content: bytes, number: int, place: Place) -> None:
    assert all(math.isfinite(cost) for cost in read_costs(written(content, place)).values())


def attribute(content: bytes, number: int, place: Place) -> None:
    name, _, text = content.decode("utf-8", "replace").partition(":")
    if name not in PARSERS:
        name = sorted(PARSERS)[number % len(PARSERS)]
    try:
        parse_attribute(name, text)
    except AttributeFormatError as error:
        raise KmemError(printable(str(error))) from None


def perf_map(content: bytes, number: int, place: Place) -> None:
    for _, name in perf_maps.parse(content.decode("utf-8", "replace")).values():
        assert "\n" not in name
        perf_maps.made_line(name)


def java_machine(content: bytes, number: int, place: Place) -> None:
    made = make(is_newer=number % 2 == 1)
    try:
        machine = java_methods.Machine(Picture(content), made.structs, made.types)
    except java_methods.Unreadable:
        raise KmemError("no machine") from None
    for address in made.calls.values():
        assert all("\n" not in line.function for line in machine.lines_at(address))


Reader = Callable[[bytes, int, Place], None]


@dataclass
class Form:
    """What reads it, whole examples, and whether it may be packed and carried."""

    read: Reader
    seeds: list[bytes]
    carried: bool = False


def word_of(form: str) -> str:
    words = {"/proc/slabinfo 1.1": "slabinfo-1.1", "/proc/slabinfo": "slabinfo"}
    return words.get(form, "".join(letter if letter.isalnum() else "-" for letter in form.lower()))


def forms() -> dict[str, Form]:
    found: dict[str, Form] = {}
    for file in sorted([*(EXPLAIN / "reports").glob("*.txt"), *(EXPLAIN / "forms").glob("*.txt")]):
        content = file.read_bytes()
        (head,) = [line for line in content.split(b"\n") if line.startswith(MARK + b"form: ")]
        name = word_of(head.removeprefix(MARK + b"form: ").decode().strip())
        one = found.setdefault(f"explain {name}", Form(explain, [], carried=True))
        one.seeds.append(without_marks(content))
    attributes = BOOTS[0].attributes()
    lines = [
        f"{cache}/{name}:{text}"
        for cache, values in list(attributes.items())[:8]
        for name, text in values.items()
    ]
    found["explain sysfs"] = Form(explain, [short("\n".join(lines).encode())], carried=True)
    for file in sorted((EXPLAIN / "pasted").glob("*")):
        one = found.setdefault("explain pasted", Form(explain, [], carried=True))
        one.seeds.append(without_marks(file.read_bytes()))
    profiles = [
        plain(file.read_bytes())
        for file in sorted((EXPLAIN / "profiles").iterdir())
        if file.suffix != ".md"
    ]
    found["heap profile, text"] = Form(profile, [one for one in profiles if b"@ 0x" in one])
    counted = [one for one in profiles if is_dhat(one)]
    found["heap profile, DHAT"] = Form(profile, counted)
    lists = [file.read_bytes() for file in sorted((EXPLAIN / "lists").iterdir())]
    found["list of live objects"] = Form(profile, lists)
    messages = [one for one in profiles if b"@ 0x" not in one and not is_dhat(one)]
    found["heap profile, pprof"] = Form(profile, messages, carried=True)
    found["profile of kmem profile"] = Form(saved_profile, messages)
    table = next(iter(sorted(Path(tr.__file__).parent.glob("*.slabinfo.txt")))).read_bytes()
    table = short(table)
    found["replay --slabinfo"] = Form(slabinfo, [table])
    found["costs"] = Form(costs, [ASSUMED.read_bytes()])
    found["attribute"] = Form(
        attribute,
        [
            f"{name}:{text}\n".encode()
            for values in list(attributes.values())[:8]
            for name, text in values.items()
            if name in PARSERS
        ],
    )
    names = ("LazyCompile:*f /srv/a.js:4:1", "void a.B$C.put(int, a.D)", "py::f:/srv/a.py", "stub")
    text = "".join(f"{0x7F00 + 64 * at:x} 40 {name}\n" for at, name in enumerate(names))
    found["perf map"] = Form(perf_map, [text.encode()])
    machines = [bytes(make(is_newer=newer).content) for newer in (False, True)]
    found["java machine"] = Form(java_machine, machines)
    return found


@dataclass
class Counts:
    """Of inputs of a form."""

    read: int = 0
    refused: int = 0
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.read += other.read
        self.refused += other.refused
        self.faults += other.faults


def input_of(name: str, form: Form, seed: int, number: int) -> bytes:
    source = random.Random(f"{seed} {name} {number}")
    content = mutated(source.choice(form.seeds), form.seeds, source)
    if form.carried and source.random() < 0.4:
        content = source.choice(CARRIERS)(content)
        if source.random() < 0.3:
            content = mutated(content, [content], source)
    return content


class TooLong(Exception):
    """An input took SECONDS_MOST."""


def out_of_time(*_: object) -> None:
    raise TooLong


def look_at(form: Form, content: bytes, number: int, place: Place) -> str:
    """Empty if the input was read, the line of a refusal, or a fault with its traceback."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MOST)
    try:
        form.read(content, number, place)
    except KmemError as error:
        line = str(error)
        return line if line and "\n" not in line else f"\n{line!r} is no line"
    except BaseException:
        return "\n" + traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


FORMS: dict[str, Form] = {}
PLACE = Place(Path("/dev/null"))


def begin(folder: Path) -> None:
    """In each worker."""
    signal.signal(signal.SIGPROF, out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))
    PLACE.folder = folder / str(os.getpid())
    PLACE.folder.mkdir(exist_ok=True)
    FORMS.update(forms())


def chunk(task: tuple[str, int, int, int]) -> tuple[str, Counts]:
    name, seed, first, end = task
    counts = Counts()
    for number in range(first, end):
        said = look_at(FORMS[name], input_of(name, FORMS[name], seed, number), number, PLACE)
        if said.startswith("\n"):
            counts.faults.append((number, said))
        elif said:
            counts.refused += 1
        else:
            counts.read += 1
    return name, counts


def run(names: Sequence[str], inputs: int, seed: int, jobs: int) -> dict[str, Counts]:
    """Counts by form, of as many inputs each."""
    each = -(-inputs // len(names))
    tasks = [
        (name, seed, first, min(first + CHUNK, each))
        for first in range(0, each, CHUNK)
        for name in names
    ]
    found = {name: Counts() for name in names}
    with tempfile.TemporaryDirectory(prefix="kmem-readers-") as folder:
        context = get_context("spawn")
        with context.Pool(jobs, begin, (Path(folder),)) as pool:
            for name, counts in pool.imap_unordered(chunk, tasks):
                found[name].add(counts)
    return found


def keep_counts(file: Path, seed: int, found: dict[str, Counts]) -> None:
    """The counts of several seeds in one file; those of a seed are added once."""
    document = {"seeds": [], "inputs": 0, "rows": []}
    if file.exists():
        document = json.loads(file.read_text(encoding="utf-8"))
    if seed in document["seeds"]:
        return
    rows = {row["form"]: row for row in document["rows"]}
    for name, one in found.items():
        row = rows.setdefault(name, {"form": name, "read": 0, "refused": 0, "faults": 0})
        row["read"] += one.read
        row["refused"] += one.refused
        row["faults"] += len(one.faults)
    kept = list(rows.values())
    inputs = sum(row["read"] + row["refused"] + row["faults"] for row in kept)
    document = {"seeds": [*document["seeds"], seed], "inputs": inputs, "rows": kept}
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    known = forms()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("forms", nargs="*", metavar="FORM", help="; ".join(known))
    parser.add_argument("--inputs", type=int, default=20_000, help="of all forms together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for inputs of faults")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="for the counts, added to those of other seeds"
    )
    words = parser.parse_args()
    for name in words.forms:
        if name not in known:
            parser.error(f"{name}: expected one of {', '.join(known)}")
    found = run(words.forms or list(known), words.inputs, words.seed, words.jobs)
    for name, counts in found.items():
        print(f"{name}: {counts.read:,} read, {counts.refused:,} refused in a line, ", end="")
        print(f"{len(counts.faults):,} faults")
        for number, said in counts.faults[:5]:
            print(f"input {number}:{said}")
        for number, _ in counts.faults if words.keep else ():
            words.keep.mkdir(parents=True, exist_ok=True)
            file = words.keep / f"{name.replace(' ', '-').replace('/', '-')}-{number}"
            file.write_bytes(input_of(name, known[name], words.seed, number))
    total = sum(one.read + one.refused + len(one.faults) for one in found.values())
    faults = sum(len(one.faults) for one in found.values())
    print(f"{total:,} inputs of {len(found)} forms, {faults:,} faults")
    if words.json:
        keep_counts(words.json, words.seed, found)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
