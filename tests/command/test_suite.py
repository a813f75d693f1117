# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench suite`: rounds, disturbed and failing runs, peers, and the command itself."""

import errno
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem
from rich.console import Console

from kmem.bench import crates, micro, peers
from kmem.bench.allocators import GLIBC, LIBKMEM, Allocator
from kmem.bench.program_list import PROGRAMS
from kmem.bench.programs import Program
from kmem.bench.rounds import REPEATS, Result, Row, measure_rows
from kmem.bench.suite_report import Report, as_document, as_html, notes
from kmem.bench.timed import RunError, Sample, Watch, busy_seconds, is_foreign, timed_run
from kmem.bench.worker import Job, Worker
from kmem.common.errors import KmemError
from kmem.common.figures import geometric_mean

OTHER = Allocator("other", None)

suite = partial(kmem, "bench", "suite", timeout=500)


def ignore(_: str) -> None:
    pass


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run counts as disturbed, whatever else this machine does."""
    monkeypatch.setattr(Watch, "disturbed", lambda _: False)


def sample(seconds: float, peak_bytes: int = 1 << 20, output: str = "same") -> Sample:
    return Sample(seconds, seconds, peak_bytes, 10, 0, output)


def made_up(name: str, seconds: dict[str, float], calls: list[str] | None = None) -> Row:
    """A row that takes the given time on each allocator, without running anything."""

    def run(allocator: Allocator) -> Sample:
        if calls is not None:
            calls.append(allocator.name)
        return sample(seconds[allocator.name])

    return Row(name, "made up", run)


# ---- rounds -------------------------------------------------------------------------------------


def test_rounds_are_interleaved_in_changing_orders(calm: None) -> None:
    calls: list[str] = []
    names = [LIBKMEM, GLIBC, OTHER]
    row = made_up("row", {"libkmem": 1.0, "glibc": 2.0, "other": 3.0}, calls)
    (result,) = measure_rows([row], names, 12, 1, ignore)
    warm_up, *counted = calls
    assert warm_up == "glibc"
    rounds = [tuple(counted[i : i + 3]) for i in range(0, len(counted), 3)]
    assert len(rounds) == 12
    assert all(sorted(order) == ["glibc", "libkmem", "other"] for order in rounds)
    assert len(set(rounds)) > 2
    assert result.rounds == 12 and result.disturbed_rounds == 0 and not result.failures
    assert {name: ratio.median for name, ratio in result.time.items()} == {
        "libkmem": 1.0,
        "glibc": 2.0,
        "other": 3.0,
    }


def fails_at(name: str, turn: int, error: Callable[[], Sample]) -> Row:
    """A row whose run on one allocator goes wrong at its TURN-th time."""
    turns = 0

    def run(allocator: Allocator) -> Sample:
        nonlocal turns
        if allocator.name == name:
            turns += 1
            if turns == turn:
                return error()
        return sample(1.0)

    return Row("row", "made up", run)


def crash() -> Sample:
    raise RunError("program ended with SIGSEGV")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (crash, "program ended with SIGSEGV"),
        (lambda: sample(1.0, output="same\nbut"), "gave another output: 2 lines instead of 1"),
        (lambda: sample(1.0, output="other"), "gave another output: 'other' instead of 'same'"),
    ],
)
@pytest.mark.parametrize("turn", [1, 3])
def test_failing_allocator_is_out_of_the_row(
    calm: None, error: Callable[[], Sample], reason: str, turn: int
) -> None:
    row = fails_at("other", turn, error)
    (result,) = measure_rows([row], [LIBKMEM, GLIBC, OTHER], 4, 1, ignore)
    assert result.failures == {"other": reason}
    assert set(result.medians) == set(result.time) == set(result.memory) == {"libkmem", "glibc"}
    assert result.rounds == 4


def test_row_that_fails_without_any_allocator(calm: None) -> None:
    def run(_: Allocator) -> Sample:
        raise RunError("program is broken")

    (result,) = measure_rows([Row("row", "", run)], [LIBKMEM, OTHER], 3, 1, ignore)
    assert result.failures == {"libkmem": "program is broken", "other": "program is broken"}
    assert result.rounds == 0 and not result.medians and not result.time


def disturb(monkeypatch: pytest.MonkeyPatch, answers: Iterable[bool], rest: bool) -> None:
    """The first runs are disturbed as ANSWERS say, all after them as REST says."""
    told = iter(answers)
    monkeypatch.setattr(Watch, "disturbed", lambda _: next(told, rest))


def test_disturbed_round_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    row = made_up("row", {"libkmem": 1.0, "glibc": 2.0}, calls)
    # Runs 3 and 4 are the second round; only one of them is disturbed.
    disturb(monkeypatch, [False, False, True, False], rest=False)
    (result,) = measure_rows([row], [LIBKMEM, GLIBC], 3, 1, ignore)
    assert result.rounds == 3 and result.disturbed_rounds == 0
    assert len(calls) == 1 + 2 * (3 + 1)


def test_row_that_stays_disturbed_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    row = made_up("row", {"libkmem": 1.0, "glibc": 2.0}, calls)
    # One calm round; every repetition is disturbed, up to the limit.
    disturb(monkeypatch, [False, False], rest=True)
    (result,) = measure_rows([row], [LIBKMEM, GLIBC], 3, 1, ignore)
    assert result.rounds == 3 and result.disturbed_rounds == 2
    assert len(calls) == 1 + 2 * (3 + REPEATS * 2)
    (line,) = [line for line in notes(report([result]), 1.1) if line.startswith("*")]
    assert "2 of 3 rounds" in line


def test_proc_stat_without_idle_time() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice; guest is in user already.
    text = "cpu  100 200 300 9999 8888 10 20 30 55 66\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert busy_seconds(text) == pytest.approx(660 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize(
    ("foreign", "disturbed"), [(-0.5, False), (0.0, False), (0.1, False), (0.5, True)]
)
def test_foreign_time_counts_beside_the_length_of_the_run(foreign: float, disturbed: bool) -> None:
    assert is_foreign(foreign, 2.0, 2) is disturbed
    assert not is_foreign(foreign, 100.0, 2)


# ---- runs ---------------------------------------------------------------------------------------


def make_library(folder: Path, name: str, source: str) -> Allocator:
    file, library = folder / f"{name}.c", folder / f"{name}.so"
    file.write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, file], check=True)
    return Allocator(name, library)


def test_broken_allocator_is_named_with_its_signal(tmp_path: Path, calm: None) -> None:
    source = "#include <stdlib.h>\nvoid *malloc(size_t bytes) { abort(); }\n"
    broken = make_library(tmp_path, "broken", source)
    command = ["/usr/bin/sort", "/dev/null"]
    row = Row("sort", "", lambda allocator: timed_run(tmp_path, command, allocator))
    (result,) = measure_rows([row], [LIBKMEM, broken], 1, 1, ignore)
    assert result.failures == {"broken": "sort ended with SIGABRT"}
    assert set(result.medians) == {"libkmem"}


def test_run_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no-such-program"):
        timed_run(tmp_path, [tmp_path / "no-such-program"], GLIBC)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Not under pytest's own folder, which only its user may enter; servers run as another."""
    folder = Path(tempfile.mkdtemp(prefix="kmem-test-suite-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            program,
            id=program.name,
            marks=() if program.name in ("redis", "sqlite3") else pytest.mark.full,
        )
        for program in PROGRAMS
    ],
)
def test_program_runs_alike_on_both(program: Program, open_folder: Path) -> None:
    if program.missing():
        pytest.skip(f"missing {', '.join(program.missing())}")
    run = program.prepare(open_folder, 0.01)
    expected = run(GLIBC, {})
    found = run(LIBKMEM, {})
    assert found.output == expected.output
    assert min(found.seconds, found.cpu_seconds, found.peak_bytes, found.minor_faults) > 0
    assert found.peak_bytes < 1 << 30


# ---- peers --------------------------------------------------------------------------------------


def test_missing_peer_has_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(crates.shutil, "which", lambda _: None)
    found, missing = peers.find(["glibc", "snmalloc"], Console(quiet=True))
    assert [peer.allocator.name for peer in found] == ["glibc"]
    assert missing == {"snmalloc": "cargo is not installed"}


def test_peer_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    cargo.write_text("#!/bin/sh\necho 'error: no network' >&2\nexit 101\n")
    cargo.chmod(0o755)
    for tool in ("g++", "make", "cmake"):
        (cargo.parent / tool).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{cargo.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, missing = peers.find(["snmalloc"], Console(quiet=True))
    assert not found
    assert missing == {"snmalloc": "fetching snmalloc-sys: error: no network"}
    assert not (tmp_path / "kmem" / "peers" / "snmalloc" / "peer.json").exists()


def test_peer_for_which_there_is_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a write says then has no file's name."""

    def make(*_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(crates, "make", make)
    found, missing = peers.find(["snmalloc"], Console(quiet=True))
    assert not found
    assert missing == {"snmalloc": f"{tmp_path}/kmem/peers/snmalloc: No space left on device"}


def test_tcmalloc_is_built_from_the_files_that_the_crate_names(tmp_path: Path) -> None:
    sources, folder = tmp_path / "sources", tmp_path / "build"
    sources.mkdir()
    folder.mkdir()
    (sources / "build.rs").write_text(
        'cc.files(["c_src/abseil-cpp/absl/base/log.cc", "c_src/tcmalloc/tcmalloc/rseq.S",\n'
        '"c_src/malloc_bridge.cc"]); cc.includes(["c_src/abseil-cpp"]);'
    )
    commands = crates.build_tcmalloc(sources, folder)
    assert [command[0] for command in commands] == ["cmake", "cmake"]
    text = (folder / "CMakeLists.txt").read_text()
    files = text.partition("SHARED ")[2].partition(")")[0].split()
    assert files == [
        f"{sources}/c_src/abseil-cpp/absl/base/log.cc",
        f"{sources}/c_src/tcmalloc/tcmalloc/rseq.S",
        f"{sources}/c_src/tcmalloc/tcmalloc/tcmalloc.cc",
    ]


def test_hardened_malloc_is_built_with_the_crates_settings(tmp_path: Path) -> None:
    (tmp_path / "config-default.conf").write_text("# said=twice\nN_ARENA=4\nSLAB_CANARY=true\n")
    (command,) = crates.build_hardened_malloc(tmp_path, tmp_path / "build")
    assert {"-DN_ARENA=4", "-DSLAB_CANARY=true"} <= set(command)
    assert not [word for word in command if "said" in word]


def test_library_without_all_calls_is_no_peer(tmp_path: Path) -> None:
    source = (
        "#include <stddef.h>\nextern void *__libc_malloc(size_t bytes);\n"
        "void *malloc(size_t bytes) { return __libc_malloc(bytes); }\n"
    )
    half = make_library(tmp_path, "half", source)
    assert half.library is not None
    with pytest.raises(KmemError, match="has no calloc"):
        crates.check_library(half.library)
    assert LIBKMEM.library is not None
    crates.check_library(LIBKMEM.library)


def test_cached_peer_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (crate,) = [crate for crate in crates.CRATES if crate.name == "snmalloc"]
    folder = tmp_path / "kmem" / "peers" / "snmalloc"
    folder.mkdir(parents=True)
    (folder / "peer.json").write_text('{"version": "snmalloc-sys 9"}')
    (folder / "build").mkdir()
    (folder / "build" / crate.library).symlink_to(LIBKMEM.library)
    allocator, version = crates.provide(crate, lambda what: pytest.fail(what))
    assert version == "snmalloc-sys 9"
    assert allocator.library == folder / "build" / crate.library


@pytest.mark.parametrize("text", ["", '{"version": "snmalloc-sys 9"}'])
def test_cached_peer_of_which_a_part_is_missing(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk, or a cache that was cleaned: without library the C library would run instead."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(crates.shutil, "which", lambda _: None)
    folder = tmp_path / "kmem" / "peers" / "snmalloc"
    folder.mkdir(parents=True)
    (folder / "peer.json").write_text(text)
    found, missing = peers.find(["snmalloc"], Console(quiet=True))
    assert not found
    assert missing == {"snmalloc": "cargo is not installed"}


def test_cached_peer_that_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As after an upgrade of what it needs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (crate,) = [crate for crate in crates.CRATES if crate.name == "snmalloc"]
    folder = tmp_path / "kmem" / "peers" / "snmalloc"
    (folder / "build").mkdir(parents=True)
    (folder / "peer.json").write_text('{"version": "snmalloc-sys 9"}')
    (folder / "build" / crate.library).touch()
    found, missing = peers.find(["snmalloc"], Console(quiet=True))
    assert not found
    assert f"{crate.library} has no malloc" in missing["snmalloc"]


def test_library_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(crates, "CHECK_TIMEOUT", 0.2)
    source = (
        "#include <unistd.h>\n__attribute__((constructor)) static void hang(void) { pause(); }\n"
    )
    hanging = make_library(tmp_path, "hanging", source)
    assert hanging.library is not None
    with pytest.raises(KmemError, match="does not work: no end in"):
        crates.check_library(hanging.library)


def test_worker_that_ended_between_rounds() -> None:
    worker = Worker(Job("ended", ("/bin/sh", "-c", "echo hz 1; exit 3")))
    worker.process.wait()
    with pytest.raises(KmemError, match="the worker of ended ended with status 3"):
        worker.round(keep=True)
    worker.close()


# ---- the report ---------------------------------------------------------------------------------


def report(results: list[Result], missing: dict[str, str] | None = None) -> Report:
    names = list(dict.fromkeys(name for row in results for name in (*row.medians, *row.failures)))
    versions = {name: f"{name} 1.0" for name in names}
    return Report("abc", 1.0, 1, 7, "", versions, missing or {}, results)


def test_means_are_over_rows_that_all_finished(calm: None) -> None:
    rows = [
        made_up("one", {"libkmem": 1.0, "glibc": 2.0, "other": 4.0}),
        made_up("two", {"libkmem": 8.0, "glibc": 1.0, "other": 1.0}),
        fails_at("other", 1, crash),
    ]
    results = measure_rows(rows, [LIBKMEM, GLIBC, OTHER], 7, 1, ignore)
    document = as_document(report(results))
    geomean = document["geomean"]
    assert isinstance(geomean, dict) and geomean["rows"] == 2
    assert geomean["time"] == {
        "libkmem": pytest.approx(geometric_mean([1, 8]), rel=1e-3),
        "glibc": pytest.approx(geometric_mean([2, 1]), rel=1e-3),
        "other": pytest.approx(geometric_mean([4, 1]), rel=1e-3),
    }
    assert document["failures"] == [
        {"workload": "row", "allocator": "other", "reason": "program ended with SIGSEGV"}
    ]
    said = notes(report(results), 1.1)
    assert "row on other failed: program ended with SIGSEGV" in said
    assert "libkmem over 1.1 times the row's best, time: two 8.00 (8.00 to 8.00)" in said
    assert "libkmem over 1.1 times the row's best, memory: no row" in said


def test_hardened_allocator_is_never_the_best(calm: None) -> None:
    """Its figures are there, in the last column, and a row that it did not finish still counts."""
    guarded = Allocator("guarded", None, hardened=True)
    rows = [
        made_up("one", {"libkmem": 2.0, "glibc": 4.0, "guarded": 1.0}),
        fails_at("guarded", 1, crash),
    ]
    results = measure_rows(rows, [guarded, LIBKMEM, GLIBC], 7, 1, ignore)
    ratios = {name: ratio.median for name, ratio in results[0].time.items()}
    assert ratios == {"guarded": 0.5, "libkmem": 1.0, "glibc": 2.0}
    versions = {"guarded": "1", "libkmem": "1", "glibc": "1"}
    found = Report("abc", 1.0, 1, 7, "", versions, {}, results, ["guarded"])
    assert found.names == ["libkmem", "glibc", "guarded"]
    assert found.least(results[0], lambda figures: figures.seconds) == 2.0
    assert len(found.common()) == 2
    assert set(found.means(lambda row: row.time)) == {"libkmem", "glibc"}
    assert "hardened, and never the best of a row: guarded" in notes(found, 1.1)
    assert as_document(found)["hardened"] == ["guarded"]


def test_memory_over_time_has_ratios_where_every_run_was_seen(calm: None) -> None:
    def seen(name: str, least: float) -> Row:
        def run(allocator: Allocator) -> Sample:
            ours = allocator == LIBKMEM
            return replace(sample(1.0), mib_seconds=6.0 if ours else least)

        return Row(name, "made up", run)

    results = measure_rows([seen("long", 2.0), seen("short", 0.0)], [LIBKMEM, GLIBC], 7, 1, ignore)
    assert {name: ratio.median for name, ratio in results[0].over_time.items()} == {
        "libkmem": 3.0,
        "glibc": 1.0,
    }
    assert results[1].over_time == {}
    document = as_document(report(results))
    rows = document["rows"]
    assert isinstance(rows, list)
    assert [row["mib_seconds"] for row in rows] == [6.0, 2.0, 6.0, 0.0]
    assert rows[0]["mib_seconds_ratio"]["median"] == 3.0 and rows[2]["mib_seconds_ratio"] is None
    geomean = document["geomean"]
    assert isinstance(geomean, dict) and geomean["mib_seconds"]["libkmem"] == 3.0


def test_missing_is_named_everywhere(calm: None) -> None:
    results = measure_rows(
        [made_up("one", {"libkmem": 1.0, "glibc": 2.0})], [LIBKMEM, GLIBC], 1, 1, ignore
    )
    found = report(results, {"snmalloc": "cargo is not installed"})
    assert as_document(found)["missing"] == {"snmalloc": "cargo is not installed"}
    assert "snmalloc is missing: cargo is not installed" in notes(found, 1.1)
    page = as_html(found, 1.1)
    assert "snmalloc is missing: cargo is not installed" in page
    assert "<svg" in page and "http-equiv" not in page and "src=" not in page


# ---- the command --------------------------------------------------------------------------------


def test_small_run(tmp_path: Path) -> None:
    file, page = tmp_path / "suite.json", tmp_path / "suite.html"
    rows = ["batch forward", "batch random", "mixed", "sqlite3"]
    done = suite(
        *("--rounds", "2", "--scale", "0.002", "--only", "batch forward,batch ra*,mixed,sqlite3"),
        *("--peers", "glibc", "--json", file, "--html", page),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert set(document["machine"]) == {"processor", "cpus", "kernel", "memory_bytes"}
    assert list(document["allocators"]) == ["libkmem", "glibc"]
    assert document["commit"] in document["allocators"]["libkmem"]
    assert document["missing"] == {} and document["failures"] == []
    assert [(row["workload"], row["allocator"]) for row in document["rows"]] == [
        (row, name) for row in rows for name in ("libkmem", "glibc")
    ]
    for row in document["rows"]:
        assert row["rounds"] == 2
        assert row["seconds"] > 0 and row["cpu_seconds"] > 0
        assert 1 << 20 <= row["peak_bytes"] < 1 << 30
        assert row["minor_faults"] > 0
        assert row["mib_seconds"] >= 0
        for ratio in (row["time_ratio"], row["memory_ratio"]):
            assert ratio["median"] >= 1 and ratio["low"] <= ratio["high"]
    for kind in ("time", "memory"):
        assert set(document["geomean"][kind]) == {"libkmem", "glibc"}
        assert min(document["geomean"][kind].values()) >= 1
    assert document["geomean"]["rows"] == len(rows)
    for text in (*rows, "geometric mean, 4 rows", "glibc: ", "fewer than 7"):
        assert text in done.stdout
    assert "<svg" in page.read_text() and "geometric mean, 4 rows" in page.read_text()


def test_list_of_rows() -> None:
    done = suite("--list")
    assert done.returncode == 0, done.stderr
    lines = {" ".join(line.split()) for line in done.stdout.splitlines()}
    for program in PROGRAMS:
        assert f"{program.name} {program.stands_for} {' '.join(program.packages)}" in lines
    some = suite("--list", "--only", "ng*")
    assert "nginx" in some.stdout and "redis" not in some.stdout
    wrong = suite("--list", "--only", "no-such*")
    assert wrong.returncode == 2 and "--only no-such*: there are" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--only", "no-such*"), 2, "--only no-such*: there are short-lived,"),
        (("--only", ","), 2, "--only: expected patterns; there are short-lived,"),
        (("--peers", ""), 2, "--peers: expected names; there are glibc, mimalloc,"),
        (("--peers", "glibc,hoard"), 2, "--peers hoard: there are glibc, mimalloc,"),
        (("--scale", "0"), 2, "--scale 0; expected 0.0001 to 1000"),
        (("--scale", "nan"), 2, "--scale nan; expected 0.0001 to 1000"),
        (("--rounds", "0"), 2, "--rounds"),
        (("--json", "/no/such/folder/file"), 1, "--json /no/such/folder/file: No such file"),
        (("--html", "/no/such/folder/file"), 1, "--html /no/such/folder/file: No such file"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], status: int, named: str) -> None:
    done = suite(*arguments)
    assert done.returncode == status
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("part", ["a b", "a:b"])
def test_library_that_cannot_be_preloaded(part: str, tmp_path: Path) -> None:
    """The dynamic linker would ignore it, and another allocator's figures would have its name."""
    library = tmp_path / part / LIBKMEM.library.name
    library.parent.mkdir()
    library.symlink_to(LIBKMEM.library)
    ours = Allocator("ours", library)
    for use in (
        lambda: crates.check_library(library),
        lambda: micro.job(ours, library.parent),
        lambda: timed_run(tmp_path, ["/bin/true"], ours),
    ):
        with pytest.raises(KmemError, match="LD_PRELOAD cannot carry a path with a colon"):
            use()


def test_row_whose_library_cannot_be_preloaded(tmp_path: Path, calm: None) -> None:
    """As a copy of it in a TMPDIR with a blank: the row fails, not all that was measured before."""
    ours = Allocator("ours", tmp_path / "a b" / "libours.so")
    row = Row("true", "", lambda allocator: timed_run(tmp_path, ["/bin/true"], allocator))
    (result,) = measure_rows([row], [GLIBC, ours], 1, 1, ignore)
    assert set(result.medians) == {"glibc"}
    assert "LD_PRELOAD cannot carry a path with a colon" in result.failures["ours"]
