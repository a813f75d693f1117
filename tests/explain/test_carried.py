# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables as terminals, mails, pages, logs and tools carry them, and as people have pasted them.

pasted/ has texts of our own in the shapes in which reports stand in public threads: lines that
begin with `#: ` say what is read of them, the caches of each table, their memory, and the lines
that no form has.
"""

from __future__ import annotations

import gzip
import html
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kmem.common.errors import KmemError
from kmem.common.tree import build
from kmem.explain.answers import Machine, answer
from kmem.explain.clean import clean
from kmem.explain.files import read_files
from kmem.explain.lines import lines_of, parts_of
from kmem.explain.show import unread_report
from kmem.explain.table import Cache, Reading, Unread
from kmem.explain.tool_forms import SLABTOP
from kmem.lab import orders

PASTED = sorted((Path(__file__).parent / "pasted").glob("*.txt"))
MARK = "#: "
ROW = "{:<17} {:>7} {} {:>6} {:>4} {:>4} : tunables {:>4} {:>4} {:>4} : slabdata {} {} {:>6}\n"
SLABINFO = (
    "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize> <objperslab>"
    " <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs>"
    " <num_slabs> <sharedavail>\n"
    + ROW.format("dentry", 8245651, 30399520, 192, 20, 1, 120, 60, 8, 1519976, 1519976, 19)
    + ROW.format("vm_area_struct", 4344, 6867, 184, 21, 1, 120, 60, 8, 327, 327, 143)
    + ROW.format("zio_buf_32768", 4, 4, 32768, 1, 8, 8, 4, 0, 4, 4, 0)
)
TOP = """\
 Active / Total Objects (% used)    : 739390584 / 740008326 (99.9%)
 Active / Total Slabs (% used)      : 11594275 / 11594275 (100.0%)
 Active / Total Caches (% used)     : 105 / 129 (81.4%)
 Active / Total Size (% used)       : 47121380.33K / 47376581.93K (99.5%)
 Minimum / Average / Maximum Object : 0.01K / 0.06K / 8.00K

  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME
734506368 734506368 100%    0.06K 11476662       64  45906648K ebitmap_node
328160  80830  24%    0.50K  10255       32    164080K kmalloc-512
"""
OUT_OF_MEMORY = """\
Unreclaimable slab info:
Name                      Used          Total
kmalloc-64           2144823KB    2144896KB
task_struct             6124KB       7616KB
"""


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


def read_bytes(folder: Path, content: bytes) -> Reading:
    file = folder / "report"
    file.write_bytes(content)
    return read_files([file])


def of_lines(write: Callable[[str], str]) -> Callable[[str], bytes]:
    return lambda text: "".join(write(line) + "\n" for line in text.splitlines()).encode()


def folded(text: str, width: int, before: str = "") -> bytes:
    """As a terminal of some width cuts lines, in the middle of words, too."""
    lines = [
        before + line[at : at + width]
        for line in text.splitlines()
        for at in range(0, max(1, len(line)), width)
    ]
    return "\n".join(lines).encode()


CARRIERS: dict[str, Callable[[str], bytes]] = {
    "UTF-8 with a mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, the high byte first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "the same, the high byte first": lambda text: text.encode("utf-16-be"),
    "ends of lines of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "ends of lines of old Macs": lambda text: text.replace("\n", "\r").encode(),
    "tabs": of_lines(lambda line: "\t".join(line.split())),
    "blanks that do not break": lambda text: text.replace(" ", "\u00a0").encode(),
    "invisible letters": lambda text: ("\u200b" + text.replace("\n", "\u200b\n")).encode(),
    "a page": lambda text: f"<pre><code>{html.escape(text)}</code></pre>\n".encode(),
    "a page of one line": lambda text: html.escape(text).replace("\n", "<br/>").encode(),
    "a page with numbers for letters": lambda text: (
        text.replace("<", "&#60;").replace(">", "&#x3e;").replace("  ", " &nbsp;").encode()
    ),
    "rows of a page": of_lines(
        lambda line: "<tr><td>" + html.escape(line).replace(" ", "</td><td>") + "</td></tr>"
    ),
    "three quotes": of_lines(lambda line: ">>> " + line),
    "a quote with initials": of_lines(lambda line: "JD> " + line),
    "a quote with colons": of_lines(lambda line: ": " + line),
    "signs of a diff": of_lines(lambda line: "+" + line),
    "numbers of lines": lambda text: "".join(
        f"{number:6}\t{line}\n" for number, line in enumerate(text.splitlines(), 1)
    ).encode(),
    "numbers and colons": lambda text: "".join(
        f"{number}: {line}\n" for number, line in enumerate(text.splitlines(), 1)
    ).encode(),
    "a screen": of_lines(lambda line: f"\x1b[1m\x1b(B{line}\x1b[m\x1b[K"),
    "a screen without ends of lines": lambda text: "".join(
        f"\x1b[{number};1H{line}" for number, line in enumerate(text.splitlines(), 1)
    ).encode(),
    "colours that syslog spells out": of_lines(lambda line: f"#033[1m{line}#033[0m"),
    "a title of a terminal": lambda text: b"\x1b]0;root@host\x07" + text.encode(),
    "a fence": lambda text: f"~~~text\n{text}~~~\n".encode(),
    "Jira": lambda text: f"{{noformat}}\n{text}{{noformat}}\n".encode(),
    "Jira with a language": lambda text: f"{{code:java}}{text}{{code}}".encode(),
    "a forum": lambda text: f"[code]{text}[/code]".encode(),
    "a program `script`": lambda text: (
        f'Script started on 2024-05-01 10:00:00+00:00 [TERM="xterm"]\n{text}Script done on 2024\n'
    ).encode(),
    "pods": of_lines(lambda line: "node-1 | " + line),
    "many hosts": of_lines(lambda line: "host1: " + line),
    "files of grep": of_lines(lambda line: "logs/node1.txt:17:" + line),
    "containers": of_lines(lambda line: "2024-05-01T10:00:00.123456789Z stdout F " + line),
    "a string of JSON": lambda text: json.dumps({"out": text}).encode(),
    "strings of JSON": lambda text: json.dumps({"lines": text.splitlines()}, indent=1).encode(),
    "a container's log in JSON": of_lines(
        lambda line: json.dumps({"log": line + "\n", "stream": "stdout", "time": "2024"})
    ),
    "a string of Python": lambda text: repr(text).encode(),
}
LEFT = {"strings of JSON": 1}  # lines that are not read: the name of the list


@pytest.mark.parametrize("name", CARRIERS)
@pytest.mark.parametrize("text", [SLABINFO, TOP, OUT_OF_MEMORY], ids=["slabinfo", "slabtop", "oom"])
def test_carriers(name: str, text: str, tmp_path: Path) -> None:
    (plain,) = read_bytes(tmp_path, text.encode()).tables
    reading = read_bytes(tmp_path, CARRIERS[name](text))
    (found,) = reading.tables
    assert found.form == plain.form
    assert [as_read(cache) for cache in found.caches] == [as_read(cache) for cache in plain.caches]
    assert found.printed == plain.printed
    # An empty line behind a host's name is a word, and none of a table.
    empty = {number for number, line in enumerate(text.splitlines(), 1) if not line}
    left = {fault.line for fault in reading.unread} - empty
    assert len(left) == LEFT.get(name, 0), reading.unread


def as_read(cache: Cache) -> tuple[object, ...]:
    return (
        *(cache.name, cache.objects, cache.active, cache.stride_bytes, cache.slabs),
        *(cache.used_bytes, cache.total_bytes, cache.per_slab),
    )


STAMPS = (
    "2024-05-01T10:00:00.123456+02:00 host1 kernel: [ 8231.412301] ",
    "May  1 10:00:00 host1 kernel: [ 8231.412301] ",
    "May 01 10:00:00.123456 host1 kernel: ",
    "2024-05-01T10:00:00+0200 host1 kernel: ",
    "[ 8231.412301] host1 kernel: ",
    "2024-05-01T10:00:00,123456+02:00 ",
    "[  +0.000012] ",
    "kern  :info  : [ 8231.412301] ",
    "kern  :warn  : [Wed May  1 10:00:00 2024] ",
    "[May 1 10:00] ",
    "<4>[ 8231.412301] (0)[123:kworker/0:1] ",
    "[ 8231.412301] c0 123 ",
    "<6>[ 8231.412301][  T123] ",
    "05-01 10:00:00.123     0     0 I         : ",
    "05-01 10:00:00.123  root     0     0 I kernel: ",
    "[Wed May  1 10:00:00 2024][ 8231.412301] ",
    "/var/log/messages:May  1 10:00:00 host1 kernel: ",
    "1234:[ 8231.412301] ",
    "4,1234,8231412301,-;",
    "6,1234,8231412301,-,caller=T1;",
    "Wed May  1 10:00:00 2024 kern.info kernel: [ 8231.412301] ",
    "May  1 10:00:00 host1 kern.warn kernel: [ 8231.412301] ",
    "<4>1 2024-05-01T10:00:00.123456+02:00 host1 kernel - - - [ 8231.412301] ",
    "I0501 10:00:00.123456    1234 kmsg.go:1] [ 8231.412301] ",
)


@pytest.mark.parametrize("before", STAMPS)
@pytest.mark.parametrize("text", [SLABINFO, OUT_OF_MEMORY], ids=["slabinfo", "oom"])
def test_stamps(before: str, text: str, tmp_path: Path) -> None:
    (plain,) = read_bytes(tmp_path, text.encode()).tables
    reading = read_bytes(tmp_path, of_lines(lambda line: before + line)(text))
    assert reading.unread == []
    (found,) = reading.tables
    assert [as_read(cache) for cache in found.caches] == [as_read(cache) for cache in plain.caches]


@pytest.mark.parametrize("width", [60, 72, 80, 100])
@pytest.mark.parametrize("before", ["", "> "])
def test_rows_that_a_terminal_cut(width: int, before: str, tmp_path: Path) -> None:
    (plain,) = read_bytes(tmp_path, SLABINFO.encode()).tables
    reading = read_bytes(tmp_path, folded(SLABINFO, width, before))
    (found,) = reading.tables
    assert [as_read(cache) for cache in found.caches] == [as_read(cache) for cache in plain.caches]
    assert reading.unread == []


def test_rows_of_slabtop_that_a_terminal_cut(tmp_path: Path) -> None:
    (plain,) = read_bytes(tmp_path, TOP.encode()).tables
    (found,) = read_bytes(tmp_path, folded(TOP, 52)).tables
    assert [as_read(cache) for cache in found.caches] == [as_read(cache) for cache in plain.caches]
    assert found.printed == plain.printed


def pasted(file: Path) -> tuple[dict[str, str], str]:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    heads = [line.removeprefix(MARK).rstrip("\n") for line in lines if line.startswith(MARK)]
    text = "".join(line for line in lines if not line.startswith(MARK))
    return {key: value for key, _, value in (head.partition(": ") for head in heads)}, text


def ranges_of(numbers: list[int]) -> str:
    """1 3-5 of 1, 3, 4 and 5; lines without a letter between them count."""
    groups = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return " ".join(f"{one[0]}-{one[-1]}" if one[0] < one[-1] else f"{one[0]}" for one in runs)


@pytest.mark.parametrize("file", PASTED, ids=lambda file: file.stem)
def test_pasted(file: Path, tmp_path: Path) -> None:
    head, text = pasted(file)
    reading = read_bytes(tmp_path, text.encode())
    assert {table.form for table in reading.tables} == {head["form"]}
    names = [" ".join(cache.name for cache in table.caches) for table in reading.tables]
    assert "; ".join(names) == head["tables"]
    assert ranges_of([fault.line for fault in reading.unread]) == head["unread"].strip()
    if "slab_kib" in head:
        totals = [answer(table, Machine()).total for table in reading.tables]
        wanted = list(map(int, head["slab_kib"].split("; ")))
        assert [total and total.value / 1024 for total in totals] == pytest.approx(wanted, rel=0.01)


def test_slabs_without_a_sign(tmp_path: Path) -> None:
    """92 on CPUs taken from 59, in 64 bits: 59 slabs of a page are the 241.6K that it prints."""
    _, text = pasted(Path(__file__).parent / "pasted" / "slabs-below-zero.txt")
    (table,) = read_bytes(tmp_path, text.encode()).tables
    assert [cache.slabs for cache in table.caches] == [4, 59, 287]
    assert 59 * 4096 // 100 == 2416


def test_a_line_of_a_page_keeps_its_number(tmp_path: Path) -> None:
    numbers, texts = lines_of(b"one\rtwo\nthree<br>four\n\x1b[1;1Hfive\x1b[2;1Hsix")
    assert list(zip(numbers, map(str.strip, texts), strict=True)) == [
        *((1, "one"), (1, "two"), (2, "three"), (2, "four"), (3, ""), (3, "five"), (3, "six"))
    ]
    reading = read_bytes(tmp_path, html.escape(SLABINFO + "x y\n").replace("\n", "<br>").encode())
    assert [fault.line for fault in reading.unread] == [1]


def test_json_that_is_no_message() -> None:
    assert parts_of('{"a": ["b", {"c": "d\\ne"}], "f": 1}') == ["b", "d", "e"]
    assert parts_of("{not json}") == ["{not json}"]
    assert parts_of("{" * 50_000 + "}") == ["{" * 50_000 + "}"]
    assert parts_of('{"msg": "x", "host": "y"}') == ["x"]


def test_names_with_their_signs() -> None:
    """What looks like marks of a carrier, and is of a name or of a head."""
    for line in ("a&b 1", "kmalloc-64(12:a.service) 1", ":t-0000064 1", "a&copy 1", "slab-[16] 1"):
        assert clean(line) == line


def test_a_sentence_with_a_figure_is_no_figure(tmp_path: Path) -> None:
    reading = read_bytes(tmp_path, (SLABINFO + "I had Slab: 12 kB before\n").encode())
    assert reading.tables[0].memory == {}
    reading = read_bytes(tmp_path, (SLABINFO + "host1: Slab: 12 kB\n").encode())
    assert reading.tables[0].memory == {"Slab": 12}


def test_unread_lines_in_a_row_are_one_line() -> None:
    reading = Reading()
    reading.unread = [
        Unread("a", 3, "x"),
        Unread("a", 4, "x", follows=True),
        Unread("a", 7, "x", follows=True),
        Unread("a", 8, "y", follows=True),
        Unread("a", 9, "x"),
        Unread("b", 10, "x", follows=True),
    ]
    report = unread_report(reading, 3)
    assert report.title == "6 lines not read"
    assert report.parts == [
        *("a:3-7: x (3 lines)", "a:8: y", "a:9: x"),
        "and 1 more, which --json has",
    ]


def test_packed_text_of_windows(tmp_path: Path) -> None:
    (table,) = read_bytes(tmp_path, gzip.compress(SLABINFO.encode("utf-16"))).tables
    assert len(table.caches) == 3


def test_addresses_of_a_memory_image(tmp_path: Path) -> None:
    """Each has a head and its cache; they are of a moment, and a cache again is there once."""
    head = "crash> kmem ffff888700068000\nCACHE  OBJSIZE  ALLOCATED  TOTAL  SLABS  SSIZE  NAME\n"
    rows = [f"ffff88870000a{n}00 512 {n} 64 1 32k cache-{n}\n" for n in (1, 2, 3)]
    text = "".join(head + rows[n] for n in (0, 1, 0, 2, 1))
    (table,) = read_bytes(tmp_path, text.encode()).tables
    assert [cache.name for cache in table.caches] == ["cache-1", "cache-2", "cache-3"]
    # With other figures, the list is of a later time.
    later = text + head + rows[1].replace(" 2 64", " 9 64")
    assert [len(table.caches) for table in read_bytes(tmp_path, later.encode()).tables] == [3, 1]


def test_rows_in_comments(tmp_path: Path) -> None:
    with pytest.raises(KmemError, match="only comments in it, lines that begin with #; expected"):
        read_bytes(tmp_path, b"# kmalloc-64 1 2 64 1 1 : tunables 0 0 0 : slabdata 1 1 0\n")


def test_attributes_by_cat(tmp_path: Path) -> None:
    """A prompt with a file of sysfs, and its value below."""
    text = """\
# cat /sys/kernel/slab/kmalloc-512/total_objects
1472 N0=1472
# cat /sys/kernel/slab/kmalloc-512/objects
1311 N0=1311
[root@host ~]# cat /sys/kernel/slab/kmalloc-512/slab_size
512
$ sudo cat /sys/kernel/slab/kmalloc-512/order
# cat /sys/kernel/slab/kmalloc-512/partial
kmalloc
"""
    reading = read_bytes(tmp_path, text.encode())
    ((cache,),) = (table.caches for table in reading.tables)
    assert (cache.name, cache.objects, cache.active) == ("kmalloc-512", 1472, 1311)
    assert (cache.stride_bytes, cache.pages_per_slab) == (512, None)
    assert [(fault.line, fault.reason) for fault in reading.unread] == [
        (9, "attribute partial: cannot read 'kmalloc'")
    ]


def test_a_diff_of_two_tables(tmp_path: Path) -> None:
    rows = [
        "a 100 128 64 64 1 : tunables 0 0 0 : slabdata 2 2 0",
        "a 190 192 64 64 1 : tunables 0 0 0 : slabdata 3 3 0",
    ]
    for signs in ("<>", "-+"):
        text = "".join(f"{sign} {row}\n" for sign, row in zip(signs, rows, strict=True))
        reading = read_bytes(tmp_path, ("17c17\n" + text.replace("\n>", "\n---\n>")).encode())
        assert [table.caches[0].active for table in reading.tables] == [100, 190]
        assert {cache.name for table in reading.tables for cache in table.caches} == {"a"}


def test_a_head_alone_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(KmemError) as error:
        read_bytes(tmp_path, TOP[: TOP.index("Minimum")].encode())
    assert "\n" not in str(error.value)
    reading = read_bytes(tmp_path, (TOP[TOP.index("  OBJS") :]).encode())
    assert [table.form for table in reading.tables] == [SLABTOP]
    assert reading.tables[0].printed == {}
