# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What grew between two profiles, and profiles that are read from files."""

from __future__ import annotations

import contextlib
import gzip
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiled import KMEM, on_library, profile, wait_for_registry

from kmem.common.errors import KmemError
from kmem.live.differences import subtract
from kmem.live.flame import draw
from kmem.live.lines import Line
from kmem.live.pprof import Frame, Mapping, Row, compressed, encode, read
from kmem.live.profile_files import TYPES
from kmem.live.profile_tables import sites_table
from kmem.live.registry.find import open_process
from kmem.live.sites import site_of, top_sites

pytestmark = pytest.mark.alone

LEAK = """#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { PLACES = 1 << 13, LEAKS_BEFORE = 1 << 10 };
static void *volatile kept;
static void *ring[PLACES];
static volatile sig_atomic_t told;
static void tell(int number) { told = number; }
/* Full when each place had its turn. It takes much more than the leak does until the signal. */
__attribute__((noinline)) void churn(unsigned int turn)
{
        void **place = &ring[turn * 7919 % PLACES];
        free(*place);
        *place = malloc(4000);
        memset(*place, 1, 4000);
        __asm__ volatile("" : : : "memory");
}
__attribute__((noinline)) void leak(void)
{
        void **block = malloc(2000);
        *block = kept;
        kept = block;
        __asm__ volatile("" : : : "memory");
}
int main(void)
{
        signal(SIGUSR1, tell);
        for (unsigned int turn = 0;; turn++) {
                churn(turn);
                if (turn % 4 == 0 && (turn / 4 < LEAKS_BEFORE || told))
                        leak();
                if (turn == PLACES) {
                        puts("full");
                        fflush(stdout);
                }
                if (turn % 64 == 0)
                        usleep(2000);
        }
}
"""
# A sample for two objects or so: what is in use of the ring is then known to half a MiB, and a busy
# machine may slow the leak down to a twentieth before that hides it.
INTERVAL = "8192"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("leak") / "leaking"
    source = program.with_suffix(".c")
    source.write_text(LEAK)
    subprocess.run(["gcc", "-O1", "-g", "-fno-builtin", source, "-o", program], check=True)
    return program


@contextlib.contextmanager
def filled(program: Path) -> Iterator[subprocess.Popen[str]]:
    """A program sampled from its start, which leaks once it gets SIGUSR1."""
    with on_library(f"registry=on,profile_interval={INTERVAL}", program) as process:
        assert process.stdout is not None and process.stdout.readline() == "full\n"
        wait_for_registry(process.pid)
        yield process


@pytest.fixture(scope="module")
def leaking(program: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with a planted leak of some MiB a second."""
    with filled(program) as process:
        process.send_signal(signal.SIGUSR1)
        yield process


def sites_of(text: str) -> list[str]:
    """The first words of the table's last column."""
    return re.findall(r"^ +(?:\S+ +){2,6}?(\w+) \(", text, re.M)


def changes(picture: Path) -> dict[str, tuple[int, str]]:
    """Value and colour of each function in a flame graph."""
    found = {}
    for group in ElementTree.fromstring(picture.read_text()):
        parts = {element.tag.rpartition("}")[2]: element for element in group}
        if "title" in parts:
            name, _, figure = str(parts["title"].text).partition(": ")
            found[name] = int(figure.split()[0].replace(",", "")), parts["rect"].get("fill", "")
    return found


def rgb(colour: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", colour)]


def test_growth_of_a_process(program: Path) -> None:
    """The leak comes first, though the program holds more memory elsewhere."""
    with filled(program) as process:
        words = (str(process.pid), "--interval", INTERVAL)
        held = profile(*words, "--seconds", "1")
        assert held.returncode == 0, held.stderr
        assert sites_of(held.stdout)[0] == "churn", held.stdout
        process.send_signal(signal.SIGUSR1)
        grown = profile(*words, "--seconds", "2", "--growth")
    assert grown.returncode == 0, grown.stderr
    assert "growth of bytes in use" in grown.stdout
    assert sites_of(grown.stdout)[0] == "leak", grown.stdout


def test_growth_between_two_files(leaking: subprocess.Popen[str], tmp_path: Path) -> None:
    early, late = tmp_path / "early.pb.gz", tmp_path / "late.pb.gz"
    picture, packed = tmp_path / "grown.svg", tmp_path / "grown.pb.gz"
    for path in (early, late):
        done = profile(*(str(leaking.pid), "--interval", INTERVAL, "--seconds", "2", "-o", path))
        assert done.returncode == 0, done.stderr
        assert not sites_of(done.stdout)
    printed = profile(late, "--base", early)
    assert printed.returncode == 0, printed.stderr
    assert sites_of(printed.stdout)[0] == "leak"
    written = profile(late, "--base", early, "-o", picture, "-o", packed)
    assert written.returncode == 0, written.stderr
    value, fill = changes(picture)["leak"]
    red, _, blue = rgb(fill)
    assert value > 0 and red > blue
    assert value == sum(
        row.values[3]
        for row in read(packed).rows
        if any(line.function == "leak" for frame in row.frames for line in frame.lines)
    )
    # The other way round the leak is what shrank.
    back = profile(early, "--base", late, "-o", picture, "-o", packed)
    assert back.returncode == 0, back.stderr
    shrunk, fill = changes(picture)["leak"]
    red, _, blue = rgb(fill)
    assert shrunk == -value and blue > red
    assert "leak" not in sites_of(profile(early, "--base", late).stdout)


def test_of_a_process_against_a_file(leaking: subprocess.Popen[str], tmp_path: Path) -> None:
    base = tmp_path / "base.pb.gz"
    words = (str(leaking.pid), "--interval", INTERVAL, "--seconds", "2")
    assert profile(*words, "-o", base).returncode == 0
    done = profile(*words, "--base", base)
    assert done.returncode == 0, done.stderr
    assert sites_of(done.stdout)[0] == "leak", done.stdout


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_growth_that_was_ended(program: Path, tmp_path: Path, *, is_interrupted: bool) -> None:
    """A single profile is no growth, so none is shown as growth."""
    picture = tmp_path / "grown.svg"
    words = ("--interval", "32768", "--seconds", "600", "--growth")
    with (
        filled(program) as process,
        subprocess.Popen(
            [KMEM, "profile", str(process.pid), *words, "-o", picture],
            stderr=subprocess.PIPE,
            text=True,
        ) as command,
    ):
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 60
        with open_process(process.pid) as registry:
            while registry.number("head", "profile_interval") != 32768:
                assert time.monotonic() < deadline and command.poll() is None
                time.sleep(0.05)
        # The look that begins the first profile follows the setting.
        time.sleep(1)
        if is_interrupted:
            command.send_signal(signal.SIGINT)
        else:
            process.kill()
        _, said = command.communicate(timeout=60)
    assert command.returncode == 1
    why = "interrupted in" if is_interrupted else f"process {process.pid} ended in"
    assert said == (
        f"kmem: --growth: {why} the first of two profiles, so there is nothing to compare with\n"
    )
    assert not picture.exists()


BINARY = Mapping(0x1000, 0x2000, 0, "/bin/x", "ab01", True)
LIBC = Mapping(0x5000, 0x6000, 0, "/lib/x86_64-linux-gnu/libc.so.6")


def row(names: str, *values: int, at: int = 0, mapping: Mapping | None = BINARY) -> Row:
    """A stack of these functions; @at: where the program lies in memory."""
    frames = (Frame(at + place, (Line(name),), mapping) for place, name in enumerate(names.split()))
    return Row(tuple(frames), values)


def save(path: Path, rows: list[Row], types: list[tuple[str, str]] = TYPES) -> None:
    message = encode(
        rows, types, default_type=types[0][0], period=7, time_ns=8, duration_ns=9, comment="c"
    )
    path.write_bytes(compressed(message))


def test_subtract() -> None:
    """Stacks are equal by their functions, wherever the program lay in memory."""
    after = [row("f main", 1, 10, at=50), row("g main", 2, 20), row("f main", 3, 30, at=70)]
    before = [row("f main", 1, 15), row("g main", 2, 20), row("h main", 0, 9)]
    found = {one.frames[0].lines[0].function: one for one in subtract(after, before)}
    assert {name: one.values for name, one in found.items()} == {"f": (3, 25), "h": (0, -9)}
    assert found["f"].frames == after[0].frames


STACKS = st.lists(st.tuples(st.sampled_from(["f", "f g", "g f", "h f g"]), st.integers(-9, 9)))


@given(STACKS, STACKS)
def test_subtract_adds_up(after: list[tuple[str, int]], before: list[tuple[str, int]]) -> None:
    rows = [[row(names, value) for names, value in part] for part in (after, before)]
    found = subtract(*rows)
    total = sum(value for _, value in after) - sum(value for _, value in before)
    assert sum(one.values[0] for one in found) == total
    assert subtract(rows[0], rows[0]) == []
    keys = [tuple(frame.lines for frame in one.frames) for one in found]
    assert len(keys) == len(set(keys)) and all(one.values[0] for one in found)


def test_read_what_was_written(tmp_path: Path) -> None:
    inlined = Frame(0x1234, (Line("g", "g.h", 7), Line("f<&>", "f.cpp", 3000)), BINARY)
    made = Frame(0x77, (Line("made"),), None)
    rows = [Row((inlined, made), (1, -(1 << 40), 3, -4)), Row((made,), (0, 0, 0, 1))]
    path = tmp_path / "x.pb.gz"
    save(path, rows)
    saved = read(path)
    assert (saved.rows, saved.types) == (rows, TYPES)
    assert (saved.period, saved.time_ns, saved.duration_ns, saved.comment) == (7, 8, 9, "c")


def test_a_table_without_rows_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.pb.gz"
    save(path, [Row((Frame(0x1234, (), BINARY),), (1, 2, 3, 4))])
    same = profile(str(path), "--base", str(path))
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout == "no growth of bytes in use in what was sampled\n"


def test_a_difference_that_was_saved(tmp_path: Path) -> None:
    """It is one still where it is read again, so what shrank is not lost."""
    path, picture = tmp_path / "x.pb.gz", tmp_path / "x.svg"
    frames = [(Frame(at, (Line(name),), BINARY),) for at, name in ((1, "grew"), (2, "shrank"))]
    save(path, [Row(frames[0], (1, 2, 3, 4096)), Row(frames[1], (0, 0, -3, -8192))])
    done = profile(str(path))
    assert "growth of bytes in use" in done.stdout and "+4.0K" in done.stdout
    assert profile(str(path), "-o", picture).returncode == 0
    assert changes(picture)["all"][0] == -4096
    assert "growth" in picture.read_text()
    refused = profile(str(path), "-o", tmp_path / "x.collapsed")
    assert refused.returncode == 2
    assert "expected a name that ends with .pb.gz, .html or .svg for a diff" in refused.stderr


def test_a_profile_without_names(tmp_path: Path) -> None:
    path = tmp_path / "x.pb.gz"
    save(path, [Row((Frame(0x1234, (), BINARY),), (1, 2, 3, 4))])
    (found,) = read(path).rows
    assert found.frames[0].lines == (Line("0x1234"),)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is cut off; expected a whole file"),
        (b"text", "expected a profile, compressed by gzip"),
        (gzip.compress(b"text"), "expected a profile in pprof's format"),
        (gzip.compress(b"\x12\x04\x0a\x02\x07\x08"), "expected a profile in pprof's format"),
        (gzip.compress(bytes(300 << 20), 1), "expected at most 256 MiB"),
        (None, "No such file or directory"),
    ],
    ids=["empty", "text", "compressed", "cut", "large", "none"],
)
def test_files_that_are_no_profiles(content: bytes | None, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pb.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(KmemError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: {expected}"


def test_streams_behind_each_other(tmp_path: Path) -> None:
    """They are a profile that was packed in pieces, or several profiles, and never half of it."""
    path = tmp_path / "x.pb.gz"
    save(path, [Row((Frame(0x1234, (), BINARY),), (1, 2, 3, 4))])
    packed, expected = path.read_bytes(), read(path)
    message = gzip.decompress(packed)
    path.write_bytes(gzip.compress(message[:20]) + gzip.compress(message[20:]) + bytes(512))
    assert read(path) == expected
    for behind, reason in (
        (packed, "has several profiles in it; expected one"),
        (packed[:-9], "is cut off; expected a whole file"),
        (b"text", "expected a profile, compressed by gzip"),
    ):
        path.write_bytes(packed + behind)
        with pytest.raises(KmemError) as caught:
            read(path)
        assert str(caught.value) == f"{path}: {reason}"


def test_damaged_files(tmp_path: Path) -> None:
    """Whatever is in a file, it is a profile or an error of one line."""
    path = tmp_path / "x.pb.gz"
    save(path, [row("f main", 1, 2, 3, 4), row("g main", 5, 6, 7, 8)])
    whole = gzip.decompress(path.read_bytes())
    draw_number = random.Random(1)
    good = 0
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(draw_number.choice((1, 3, 20))):
            content[draw_number.randrange(len(content))] = draw_number.randrange(256)
        path.write_bytes(gzip.compress(content[: draw_number.randrange(len(content) + 300)], 1))
        try:
            saved = read(path)
            good += 1
            subtract(saved.rows, saved.rows)
        except KmemError as error:
            assert len(str(error).splitlines()) == 1
    assert 0 < good < 3000


def test_figures_of_another_program(tmp_path: Path) -> None:
    """A profile of processor time has no bytes to subtract."""
    path = tmp_path / "x.pb.gz"
    save(path, [row("f", 1)], [("cpu", "nanoseconds")])
    done = profile(path)
    assert done.returncode == 1
    assert "expected the figures alloc_objects, alloc_space, inuse_objects" in done.stderr
    assert "it has cpu" in done.stderr


def test_sites() -> None:
    """Functions of the C and C++ libraries are not where a program allocates."""
    string = Frame(1, (Line("std::string::reserve(unsigned long)"),), BINARY)
    copy = Frame(2, (Line("strdup"),), LIBC)
    own = Frame(3, (Line("add", "/src/a.c", 7), Line("load")), BINARY)
    main = Frame(4, (Line("main"),), BINARY)
    assert site_of(Row((string, own, main), (1,))) == ("add (a.c:7)", "load", "main")
    assert site_of(Row((copy, main), (1,))) == ("main",)
    assert site_of(Row((copy,), (1,))) == ("strdup",)
    assert site_of(Row((), (1,))) == ("unknown",)
    rows = [row("f a", 1, 10), row("g b", 1, 25), row("f c", 2, 20), row("h d", -3, -90)]
    assert top_sites(rows, 1) == [
        (30, 3, ("f", "c")),
        (25, 1, ("g", "b")),
        (-90, -3, ("h", "d")),
    ]
    assert sites_table(rows, 1, "growth", signed=True).row_count == 2


def test_colours_of_a_difference() -> None:
    stacks = [(["f", "main"], 60), (["g", "main"], -30), (["h", "g", "main"], 10)]
    graph = ElementTree.fromstring(draw(stacks, "t", "bytes", is_difference=True))
    shown = {}
    for group in graph:
        parts = {element.tag.rpartition("}")[2]: element for element in group}
        if "title" in parts:
            name, _, text = str(parts["title"].text).partition(": ")
            shown[name] = text.split(" ")[0], rgb(parts["rect"].get("fill", "")), parts["rect"]
    assert {name: text for name, (text, _, _) in shown.items()} == {
        "all": "+40", "main": "+40", "f": "+60", "g": "-20", "h": "+10",
    }  # fmt: skip
    assert shown["f"][1] == [235, 0, 0] and shown["main"][1][0] == 235
    assert shown["g"][1][2] == 250 and shown["g"][1][0] > 0
    assert float(shown["g"][2].get("width", "")) == pytest.approx(1200 * 40 / 100, abs=0.1)


def test_a_picture_of_a_deep_stack() -> None:
    """128 frames, of which each may have many inlined functions, and 64 in Python."""
    names = [f"f{at}" for at in range(3000)]
    graph = draw([(names, 60)], "t", "bytes")
    assert all(f"<title>{name}: 60 bytes, 100.0%</title>" in graph for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.pb.gz", "--growth"], "--growth: expected a process, and no --base"),
        (["1", "--growth", "--base", "x.pb.gz"], "--growth: expected a process, and no --base"),
        (["1", "--growth", "-o", "x.collapsed"], ".pb.gz, .html or .svg for a difference"),
        (["x.pb.gz", "--slices", "5"], "--slices 5: expected a process; x.pb.gz was sampled when"),
        (["x.pb.gz", "--slices", "0"], "--slices 0: expected a process; x.pb.gz was sampled when"),
        (["x.pb.gz", "--seconds", "3"], "--seconds 3: expected a process; x.pb.gz was sampled"),
        (["x.pb.gz", "--seconds", "10"], "--seconds 10: expected a process; x.pb.gz was sampled"),
        (["x.pb.gz", "--interval", "512K"], "--interval 524288: expected a process; x.pb.gz was"),
        (["x.pb.gz"], "x.pb.gz: No such file or directory"),
        (["redis-server"], "expected a process id (kmem ps lists them), or a NAME.pb.gz"),
        (["1", "--base", "x.pb.gz"], "x.pb.gz: No such file or directory"),
        (["0"], "expected a process id of 1 or more, or a file"),
        ([""], "expected a name"),
    ],
)
def test_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [KMEM, "profile", *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
