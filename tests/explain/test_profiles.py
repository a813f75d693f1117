# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Heap profiles of other allocators: what programs hold that are known, and what damage ends in."""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "command"))
from kmem_command import KMEM, kmem
from test_command import numbers
from test_damaged import INPUTS

from kmem.common.errors import KmemError
from kmem.explain.files import load
from kmem.explain.heap.figures import answer, given_bytes
from kmem.explain.heap.files import is_profile, plain, profile_of, profiles_among
from kmem.explain.heap.profile import DHAT, GO, JEMALLOC, TCMALLOC, HeapProfile, Mapping, Place
from kmem.explain.heap.sites import Namer, sites_of
from kmem.explain.heap.slabs import slabs_of
from kmem.explain.process.shares import FINE_CLASSES, KERNEL_CLASSES
from kmem.live import pprof
from kmem.live.lines import Line
from kmem.live.pprof import Frame, Row
from kmem.live.sites import site_of

PROFILES = Path(__file__).parent / "profiles"
FILES = sorted(file for file in PROFILES.iterdir() if file.suffix in (".heap", ".txt", ".gz"))
HEAPS = [file for file in FILES if file.name != "cpu.pb.gz"]
JEMALLOC_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
TCMALLOC_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4")
PROGRAM = """
#include <stdlib.h>
#include <string.h>
static void *keep[200000]; static int n;
#define APART __attribute__((noinline))
APART void *sessions(int i) { char *p = malloc(100 + (i * 37) % 101); memset(p, 1, 100); return p; }
APART void *buffers(void) { char *p = malloc(5000); memset(p, 1, 5000); return p; }
APART void *names(int i) { char *p = malloc(17 + i % 8); memset(p, 1, 17); return p; }
APART void *table(void) { char *p = malloc(3 << 20); memset(p, 1, 3 << 20); return p; }
int main(void)
{
        for (int i = 0; i < 30000; i++) keep[n++] = sessions(i);
        for (int i = 0; i < 2000; i++) keep[n++] = buffers();
        for (int i = 0; i < 60000; i++) keep[n++] = names(i);
        keep[n++] = table();
        for (int i = 0; i < 15000; i++) free(keep[2 * i]);
        return 0;
}
"""
FLAGS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fno-builtin", "-fno-optimize-sibling-calls")
# What it holds: bytes and objects. jemalloc's sizes are its own classes.
HELD = {
    "buffers": (10_000_000, 2_000),
    "table": (3 << 20, 1),
    "sessions": (2_249_882, 15_000),
    "names": (1_230_000, 60_000),
}
HELD_IN_JEMALLOC = {
    "buffers": (2_000 * 5_120, 2_000),
    "table": (3 << 20, 1),
    "names": (60_000 * 32, 60_000),
}


def read(file: Path) -> HeapProfile:
    (profile,), _ = profiles_among([file])
    return profile


def of_text(text: str) -> HeapProfile:
    return profile_of(Path("file"), text.encode())


# ---- Figures ------------------------------------------------------------------------------------


def test_counted() -> None:
    """tcmalloc's HEAPPROFILE counts every object, so all is exact and adds up to its head."""
    profile = read(PROFILES / "tcmalloc-counted.heap")
    answers = answer(profile)
    assert (profile.form, profile.interval, profile.unread) == (TCMALLOC, 0, [])
    assert profile.printed == (77_001, 16_625_610)
    assert (answers.all.objects, answers.all.bytes) == profile.printed
    assert answers.all.error == 0
    found = sorted((one.bytes, one.objects) for one in answers.all.held)
    assert found == sorted(HELD.values())


# At the moment of most bytes, before the program has freed half of one kind.
HELD_AT_MOST = HELD | {"sessions": (4_499_961, 30_000)}


def by_function(profile: HeapProfile) -> dict[str, tuple[float, float]]:
    sites = sites_of(answer(profile).all.held, profile.mappings)
    return {site.calls[0].split(" ")[0]: (site.sum.bytes, site.sum.objects) for site in sites}


def test_counted_by_dhat() -> None:
    """The moment of most bytes, and not the end, by which programs have freed."""
    profile = read(PROFILES / "dhat-counted.heap")
    assert (profile.form, profile.interval, profile.unread) == (DHAT, 0, [])
    assert by_function(profile) == HELD_AT_MOST


def test_a_program_under_dhat(tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("needs valgrind")
    source, program, out = tmp_path / "program.c", tmp_path / "program", tmp_path / "dhat.out"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", *FLAGS, "-o", program, source], check=True)
    subprocess.run(
        ["valgrind", "--tool=dhat", f"--dhat-out-file={out}", program],
        capture_output=True,
        check=True,
    )
    assert by_function(read(out)) == HELD_AT_MOST


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('"mode":"heap"', '"mode":"copy"'), "of mode copy, not of a heap"),
        (('"mode":"heap"', '"mode":"h\\neap"'), r"of mode h\?eap, not of a heap"),
        (('"dhatFileVersion":2', '"dhatFileVersion":9'), "of version 9; expected 1 or 2"),
        (('"dhatFileVersion":2', '"dhatFileVersion":"\\n"'), r"of version \?; expected 1 or 2"),
        (('"ftbl"', '"table"'), "without pps and ftbl"),
        (('"pps"', "pps"), "not whole"),
    ],
)
def test_a_damaged_file_of_dhat(change: tuple[str, str], reason: str) -> None:
    content = (PROFILES / "dhat-counted.heap").read_text().replace(*change)
    with pytest.raises(KmemError, match=reason):
        profile_of(Path("file"), content.encode())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('"gbk":2000', '"gbk":-1'), "no counts gb and gbk"),
        (('"gbk":60000', '"gbk":0'), "0 objects of 1,230,000 bytes"),
        (('"fs":[1,6,7]', '"fs":[1,6,70]'), "a stack with calls that the table of 10 does not"),
    ],
)
def test_a_damaged_stack_of_dhat_is_left_out(change: tuple[str, str], reason: str) -> None:
    content = (PROFILES / "dhat-counted.heap").read_text().replace(*change)
    profile = profile_of(Path("file"), content.encode())
    assert len(profile.stacks) == 3
    assert reason in profile.unread[0].reason


def off(estimate: float, truth: float, samples: float) -> float:
    """In standard errors."""
    return abs(estimate / truth - 1) * math.sqrt(samples)


def test_sampled_by_jemalloc() -> None:
    profile = read(PROFILES / "jemalloc-sampled.heap")
    assert (profile.form, profile.interval, profile.unread) == (JEMALLOC, 16384, [])
    held = {round(one.mean): one for one in answer(profile).all.held}
    for size, objects, samples in ((32, 60_000, 118), (5_083, 2_000, 550)):
        one = held[size]
        assert one.stack.objects == samples
        assert off(one.objects, objects, samples) < 3
        chance = 1 - math.exp(-one.mean / 16384)
        assert one.objects == pytest.approx(samples / chance)
        assert one.error == pytest.approx(1.96 * math.sqrt((1 - chance) / samples))
    # Nothing above the interval by far is missed, so its count needs no correction.
    assert held[3 << 20].objects == pytest.approx(1)
    assert held[3 << 20].error == pytest.approx(0, abs=1e-6)


def test_sampled_by_tcmalloc() -> None:
    profile = read(PROFILES / "tcmalloc-sampled.heap")
    assert (profile.form, profile.interval, profile.unread) == (TCMALLOC, 262144, [])
    held = answer(profile).all
    buffers = [one for one in held.held if one.mean == 5000]
    assert off(sum(one.bytes for one in buffers), 10_000_000, len(buffers)) < 3


@pytest.mark.parametrize("name", ["go.pb.gz", "go-text.txt"])
def test_go(name: str) -> None:
    """Both forms are of a moment: the text has samples, the other is scaled up by Go."""
    profile = read(PROFILES / name)
    answers = answer(profile)
    assert profile.interval == 16384
    assert profile.is_scaled == (name == "go.pb.gz")
    assert answers.how == ("read" if profile.is_scaled else "modelled")
    assert answers.all.objects == pytest.approx(31_777, abs=3)
    sites = {site.calls[0].split(" ")[0]: site.sum for site in sites_of(answers.all.held, [])}
    assert off(sites["main.buffers"].bytes, 2_000 * 5_376, 500) < 4
    # A count that was cut to a whole number does not push objects into the next class.
    assert 160 in dict(answers.sizes)


def test_names_in_go_belong_to_the_stack_in_front() -> None:
    profile = of_text(
        "heap profile: 2: 20 [3: 30] @ heap/2048\n"
        "1: 10 [1: 10] @ 0x10\n#\t0xf\tmain.one+0x1\t/a.go:1\n\n"
        "0: 0 [1: 10] @ 0x20\n#\t0x1f\tmain.freed+0x1\t/a.go:2\n\n"
        "1: 10 [1: 10] @ 0x30\n"
    )
    assert profile.form == GO
    assert [stack.places for stack in profile.stacks] == [
        (Place(0xF, "main.one (/a.go:1)"),),
        (Place(0x30),),
    ]


def test_classes() -> None:
    assert given_bytes(20, FINE_CLASSES) == 32
    assert given_bytes(100.2, FINE_CLASSES) == 112
    assert given_bytes(5000, KERNEL_CLASSES) == 8192
    assert given_bytes(8193, KERNEL_CLASSES) == 3 * 4096
    answers = answer(read(PROFILES / "tcmalloc-counted.heap"))
    assert answers.all.rounding("fine") == pytest.approx(
        60_000 * (32 - 20.5) + 2_000 * 120 + 15_000 * 160 - 2_249_882
    )


def test_slabs_of_a_replay() -> None:
    """Objects fill their slabs, whatever share of them is replayed."""
    held = answer(read(PROFILES / "tcmalloc-counted.heap")).all.held
    fine, kernel = slabs_of(held)
    caches = {cache.name: cache for cache in fine.caches}
    assert caches["kmalloc-32"].objects == 60_000
    assert caches["kmalloc-32"].slabs == math.ceil(60_000 / 254)  # in two pages
    assert fine.large_bytes == kernel.large_bytes == 3 << 20
    assert {cache.name for cache in kernel.caches} == {"kmalloc-8k", "kmalloc-192", "kmalloc-32"}
    million = of_text("heap profile: 2: 2 [2: 2] @ heapprofile\n1000000: 64000000 [0: 0] @ 0x1\n")
    (half, _) = slabs_of(answer(million).all.held)
    assert half.share == pytest.approx(0.3)
    assert half.bytes == pytest.approx(64_000_000, rel=0.001)


# ---- Sites --------------------------------------------------------------------------------------


def test_allocators_are_left_out(tmp_path: Path) -> None:
    mappings = [
        Mapping(0x1000, 0x2000, 0, 0, "/usr/lib/libjemalloc.so.2"),
        Mapping(0x2000, 0x3000, 0x500, 0, "/usr/bin/program"),
    ]
    namer = Namer(mappings)
    places = [Place(0x1101), Place(0x2101), Place(0x9001), Place(0x1201)]
    assert namer.site(places) == ("[program]+0x600", "0x9001", "[libjemalloc.so.2]+0x200")
    assert namer.site([Place(0x1101)]) == ("[libjemalloc.so.2]+0x100",)
    rust = [Place(1, "_rjem_je_prof_backtrace"), Place(2, "calloc"), Place(3, "callocate (a.c:1)")]
    assert namer.site(rust) == ("callocate (a.c:1)",)
    assert namer.site([]) == ("unknown",)


def row_of(*frames: tuple[str, str, bool]) -> Row:
    """A stack of functions, each with its file and whether it is machine code."""
    mapping = pprof.Mapping(0x1000, 0x9000, 0, "/usr/bin/python3")
    return Row(
        tuple(
            Frame(0x1100 + at if code else 0, (Line(name, file, 7),), mapping if code else None)
            for at, (name, file, code) in enumerate(frames)
        ),
        (1, 64),
    )


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        ([("dict_new", "dict.c", True), ("fill", "/a/x.py", False)], ("fill (x.py:7)",)),
        ([("main.fill", "/a/main.go", False)], ("main.fill (main.go:7)",)),
        ([("dict_new", "dict.c", True)], ("dict_new (dict.c:7)",)),
        (
            [("new", "a.c", True), ("send", "node:net", False), ("f", "/a/x.js", False)],
            ("f (x.js:7)",),
        ),
    ],
    ids=["python", "go", "c", "node"],
)
def test_functions_of_an_interpreter(
    tmp_path: Path, frames: list[tuple[str, str, bool]], site: tuple[str, ...]
) -> None:
    """Those of the program stand for the interpreter's own, as in `kmem profile`."""
    file = tmp_path / "heap.pb.gz"
    message = pprof.encode(
        [row_of(*frames)],
        [("inuse_objects", "count"), ("inuse_space", "bytes")],
        default_type="inuse_space",
        period=1,
        time_ns=0,
        duration_ns=0,
        comment="",
    )
    file.write_bytes(pprof.compressed(message))
    profile = read(file)
    assert Namer(profile.mappings).site(profile.stacks[0].places) == site
    assert site_of(row_of(*frames))[0] == site[0]


def test_another_file_gives_no_names(tmp_path: Path) -> None:
    """A file that is not the profile's, by its number, would give wrong names."""
    file = Path(sys.executable).resolve()
    inode = file.stat().st_ino
    address = 0x7000_0000_0000
    for number, same in ((inode, True), (inode + 1, False), (0, False)):
        namer = Namer([Mapping(address, address + (64 << 20), 0, number, str(file))])
        assert bool(namer.image(namer.mappings[0]).parts) == same


@pytest.mark.parametrize(
    ("library", "environment", "held"),
    [
        (JEMALLOC_LIBRARY, {"MALLOC_CONF": "{}"}, HELD_IN_JEMALLOC),
        (TCMALLOC_LIBRARY, {"HEAPPROFILE": "{}"}, HELD),
    ],
    ids=["jemalloc", "tcmalloc"],
)
def test_a_program(
    tmp_path: Path, library: Path, environment: dict[str, str], held: dict[str, tuple[int, int]]
) -> None:
    """The allocator's own file of a run: functions are named, and what they hold is true."""
    if not library.exists():
        pytest.skip(f"needs {library}")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", *FLAGS, "-o", program, source], check=True)
    options = f"prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:{tmp_path}/out"
    (name, value) = next(iter(environment.items()))
    value = value.format(options if name == "MALLOC_CONF" else tmp_path / "out")
    done = subprocess.run(
        [program],
        env={"LD_PRELOAD": str(library), name: value},
        capture_output=True,
        text=True,
        check=True,
    )
    if "Invalid conf" in done.stderr:
        pytest.skip(f"{library} was built without profiling")
    (file,) = tmp_path.glob("out*.heap")
    result = kmem("explain", file, "--json", tmp_path / "out.json")
    assert result.returncode == 0, result.stderr
    (profile,) = json.loads((tmp_path / "out.json").read_text())["profiles"]
    sites = {site["calls"][0].split(" ")[0]: site for site in profile["sites"]}
    for function, (size, objects) in held.items():
        assert sites[function]["bytes"]["value"] == pytest.approx(size, rel=0.001)
        assert sites[function]["objects"]["value"] == pytest.approx(objects, rel=0.001)
        assert sites[function]["calls"][1].startswith("main ")
        assert function in result.stdout


# ---- The command --------------------------------------------------------------------------------


@pytest.mark.parametrize("file", HEAPS, ids=lambda file: file.name)
def test_text_json_and_page(tmp_path: Path, file: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    result = kmem("explain", file, "--json", out, "--html", page)
    assert (result.returncode, result.stderr) == (0, "")
    assert "by call site" in result.stdout
    assert "by size class of libkmem" in result.stdout
    assert "slabs on libkmem, classes=kernel" in result.stdout
    document = json.loads(out.read_text())
    assert numbers(document) == []
    assert document["unread"] == []
    (profile,) = document["profiles"]
    for part in ("sizes", "sites"):
        parts = sum(one["bytes"]["value"] for one in profile[part])
        assert parts == pytest.approx(profile["all"]["bytes"]["value"], rel=1e-6)
    assert "memory of each call site" in page.read_text()


def test_marks() -> None:
    """Counts that were scaled up are modelled, and others are read."""
    counted = kmem("explain", PROFILES / "tcmalloc-counted.heap").stdout
    sampled = kmem("explain", PROFILES / "jemalloc-sampled.heap").stdout
    assert "in use: 16,236 c KiB in 77,001 c objects" in counted
    assert "sampling: none, every object was counted; 4 r stacks" in counted
    assert "of which these stacks are 100.0 c %" in counted
    assert "in use: 17,159 m KiB in 74,398 m objects" in sampled
    assert "sampling: a sample every 16,384 r bytes; 787 c samples" in sampled
    assert "jemalloc writes what it gave" in sampled


def test_standard_input_and_packed(tmp_path: Path) -> None:
    content = load(PROFILES / "tcmalloc-counted.heap")
    for text in (content, gzip.compress(content)):
        done = subprocess.run([KMEM, "explain", "-"], input=text, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert b"77,001 c objects" in done.stdout


TABLE = "kmalloc-64 100 128 64 64 1 : tunables 0 0 0 : slabdata 2 2 0\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("heap_v2/\n", "a head without"),
        ("heap profile: x\n", "a head without"),
        ("heap profile: 1: 1 [1: 1] @ growthz\n", "a profile of kind growthz"),
        ("heap profile: 1: 1 [1: 1] @ heap_v2/0\n", "a profile of kind heap_v2/0"),
        ("heap_v2/512\n", "no MAPPED_LIBRARIES: behind"),
        ("heap_v2/512\n@ 0x1\n t*: one\nMAPPED_LIBRARIES:\n", "line 3: expected a stack"),
        ("heap_v2/512\n@ 0x1\n  t*: 0: 0 [0: 0]\nMAPPED_LIBRARIES:\n", "no object in it"),
        (
            "heap profile: 1: 1 [1: 1] @ heapprofile\n9: 3 [1: 1] @ 0x1\nMAPPED_LIBRARIES:\n",
            "line 2: 9 objects of 3 bytes",
        ),
        (
            f"heap profile: 1: 1 [1: 1] @ heapprofile\n1: {10**18 * 2} [1: 1] @\n",
            "line 2: expected objects",
        ),
        ("\n\x04\x08\x01\x10\x02" + "\xff" * 9, "no whole profile in pprof's format"),
    ],
)
def test_damaged_is_a_line(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "damaged.heap"
    file.write_bytes(text.encode("latin-1"))
    result = kmem("explain", file)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert reason in line
    assert "expected a heap profile" in line


def test_other_files_are_a_line(tmp_path: Path) -> None:
    table = tmp_path / "slabinfo.txt"
    table.write_text(TABLE)
    heap = PROFILES / "tcmalloc-counted.heap"
    both = kmem("explain", heap, table)
    assert (both.returncode, len(both.stderr.splitlines())) == (2, 1)
    assert "slabinfo.txt: no heap profile" in both.stderr
    cut = tmp_path / "cut.pb.gz"
    cut.write_bytes((PROFILES / "go.pb.gz").read_bytes()[:300])
    for file, reason in (
        (cut, "is cut off; expected a whole"),
        (PROFILES / "cpu.pb.gz", "samples/"),
    ):
        result = kmem("explain", file)
        assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
        assert reason in result.stderr


def test_a_cut_file_says_so(tmp_path: Path) -> None:
    """The stacks that are whole are explained, and each other line is named."""
    text = (PROFILES / "tcmalloc-counted.heap").read_text()
    cut = tmp_path / "cut.heap"
    cut.write_text(text[: text.index("15000: ") + 20])
    result = kmem("explain", cut)
    assert result.returncode == 0
    assert "2 lines not read" in result.stdout
    assert "the file may be cut off" in result.stdout
    assert "of which these stacks are 79.1 c %" in result.stdout


def look_at(content: bytes) -> None:
    """All but slabs, which a program computes; a KmemError has a line."""
    text = plain(content)
    if not is_profile(content, text):
        return
    try:
        profile = profile_of(Path("file"), text)
    except KmemError as error:
        assert "\n" not in str(error)
        return
    answers = answer(profile)
    assert answers.all.bytes > 0
    for figure in (answers.all.objects, answers.all.error, answers.all.rounding("kernel")):
        assert math.isfinite(figure)
        assert figure >= 0
    # Without the files' numbers, nobody looks for names in them, which takes its time.
    mappings = [replace(mapping, inode=0) for mapping in profile.mappings]
    assert sites_of(answers.all.held, mappings)
    assert all(fault.reason and "\n" not in fault.reason for fault in profile.unread)


def mutated(content: bytes, source: random.Random) -> bytes:
    """Behind the first bytes, by which profiles are known, a few are changed, lost or doubled."""
    data = bytearray(content[:6000])
    for _ in range(source.randint(1, 6)):
        at = source.randrange(8, len(data) + 1) if len(data) > 8 else len(data)
        match source.randrange(5):
            case 0 if at < len(data):
                data[at] = source.randrange(256)
            case 1:
                del data[at : at + source.randint(1, 30)]
            case 2:
                data[at:at] = data[at : at + source.randint(1, 60)]
            case 3:
                data[at:at] = source.choice((b"\n", b"9" * 30, b"@", b"0", b"\xff", b": ", b"-"))
            case _:
                data = data[:at]
    return bytes(data)


def test_mutated_files() -> None:
    """Each form as often as the others; packed ones are damaged inside, and then outside too."""
    source = random.Random(11)
    texts = [plain(file.read_bytes()) for file in FILES]
    for number in range(INPUTS):
        content = mutated(texts[number % len(texts)], source)
        if number % 20 == 0:
            content = mutated(gzip.compress(content, 1), source)
        try:
            look_at(content)
        except Exception as error:
            raise AssertionError(f"input {number}: {content!r}") from error
