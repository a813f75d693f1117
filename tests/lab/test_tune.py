# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem tune`: the same search finds the same, interrupted or not, here and on a cluster; what it
prints is accepted by run and replay and has the figures printed."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster
from traces import event, trace_of

from kmem.common.errors import KmemError
from kmem.traces import file as tr
from kmem.tune.command import make_search
from kmem.tune.replays import Replays
from kmem.tune.space import (
    BY_ENGINE,
    COMMON,
    ENGINES,
    Params,
    choices_for,
    entries,
    first_params,
    fixed_names,
)
from kmem.tune.study import Study, Trial, ask, best, pareto

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"
TRIALS = 24
TRACES = Path(tr.__file__).parent
BOOT = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
OTHER_BOOT = TRACES / "boot-6.1tiny-slob-64M.slt.zst"


def command(study: Path, *arguments: str | Path) -> list[str | Path]:
    return [KMEM, "tune", BOOT, "--study", study, *arguments]


def tune(study: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(study, *arguments), capture_output=True, text=True, timeout=300, check=False
    )


def found_by(study: Path, *arguments: str | Path) -> dict[str, Any]:
    """The document; its bytes are compared elsewhere."""
    file = study.with_suffix(".json")
    done = tune(study, "--json", file, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    document = dict(json.loads(file.read_text()))
    assert done.stdout.splitlines()[-1] == f"KMEM_OPTIONS={document['chosen']['kmem_options']}"
    return document


def trials_in(study: Path) -> list[tuple[int, str]]:
    """Number and options of each trial, as a reader of the file sees them."""
    try:
        with sqlite3.connect(f"file:{study}?mode=ro", uri=True) as database:
            rows = database.execute(
                "select trial_id, key, value_json from trial_user_attributes"
            ).fetchall()
            kept = {row[0] for row in database.execute("select trial_id from trials").fetchall()}
    except sqlite3.Error:
        return []  # not made yet
    attributes: dict[int, dict[str, Any]] = {}
    for trial, key, text in rows:
        if trial in kept:
            attributes.setdefault(trial, {})[key] = json.loads(text)
    return sorted((one["number"], one["line"]) for one in attributes.values())


# ---- The same every time ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that nothing disturbed; its document is beside it."""
    study = tmp_path_factory.mktemp("whole") / "study.sqlite"
    found_by(study, "--trials", str(TRIALS))
    return study


def assert_same(study: Path, other: Path) -> None:
    assert study.with_suffix(".json").read_bytes() == other.with_suffix(".json").read_bytes()
    assert trials_in(study) == trials_in(other)


def test_the_same_search_finds_the_same(tmp_path: Path, whole: Path) -> None:
    again, other = tmp_path / "again.sqlite", tmp_path / "other.sqlite"
    found_by(again, "--trials", str(TRIALS))
    assert_same(again, whole)
    found_by(other, "--trials", "12", "--seed", "6")
    assert trials_in(other) != trials_in(whole)[:12]
    # It starts with what is known to matter.
    for study in (whole, other):
        lines = [line for _, line in trials_in(study)]
        assert lines[:4] == ["", "engine=slab", "engine=slob", "sheaf_capacity=0"]


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.full),
        (signal.SIGKILL, -9),
    ],
)
def test_interrupted_and_resumed(
    tmp_path: Path, whole: Path, number: signal.Signals, status: int
) -> None:
    broken = tmp_path / "broken.sqlite"
    trials = "4000"  # it does not end before the signal, however late that comes
    process = subprocess.Popen(
        command(broken, "--trials", trials),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(trials_in(broken)) < 4 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (status, "")
    kept = trials_in(broken)
    assert len(kept) >= 4
    if status == 130:
        (line,) = errors.splitlines()
        assert line.startswith(f"kmem: tune: interrupted after {len(kept)} of {trials} trials")
    found_by(broken, "--trials", str(TRIALS))
    assert broken.with_suffix(".json").read_bytes() == whole.with_suffix(".json").read_bytes()
    after = trials_in(broken)
    assert after[:TRIALS] == trials_in(whole)
    assert set(kept) <= set(after)
    # None was lost, none was done twice.
    numbers = [number for number, _ in after]
    assert numbers[:TRIALS] == list(range(TRIALS))
    assert len(numbers) == len(set(numbers))


IN_A_CALLBACK = """
import gc, os, signal, sys
from kmem.commands.start import start
from kmem.tune.study import Study
number = int(sys.argv.pop())

def interrupt(phase, info):
    gc.callbacks.remove(interrupt)
    os.kill(os.getpid(), number)
    for _ in range(100):
        pass  # the handler comes before this has ended

def add_and_collect(study, trial, add=Study.add):
    add(study, trial)
    if trial.number == 0:
        gc.callbacks.append(interrupt)
        gc.collect()

Study.add = add_and_collect
sys.exit(start())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_where_nobody_is_told(tmp_path: Path, number: signal.Signals) -> None:
    """An exception in a callback of the garbage collector goes nowhere."""
    study = tmp_path / "study.sqlite"
    done = subprocess.run(
        [
            *(sys.executable, "-c", IN_A_CALLBACK),
            *command(study, "--trials", str(TRIALS))[1:],
            str(int(number)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith(f"kmem: tune: interrupted after 1 of {TRIALS} trials")
    assert trials_in(study) == [(0, "")]


def test_more_trials_go_on(tmp_path: Path, whole: Path) -> None:
    """From the middle of a batch."""
    study = tmp_path / "step.sqlite"
    for trials in (7, TRIALS):
        assert found_by(study, "--trials", str(trials))["trials"] == trials
    assert_same(study, whole)
    # Fewer are looked at, and none is forgotten.
    assert found_by(study, "--trials", "3")["trials"] == 3
    assert len(trials_in(study)) == TRIALS


def test_several_commands_make_the_file_at_once(tmp_path: Path) -> None:
    count, rounds = 6, 4
    for number in range(rounds):
        study = tmp_path / f"{number}.sqlite"
        begin = threading.Barrier(count)

        def make(study: Path = study, begin: threading.Barrier = begin) -> int:
            begin.wait()
            return len(Study(study, "one").trials())

        with ThreadPoolExecutor(count) as pool:
            made = [pool.submit(make) for _ in range(count)]
            assert [one.result() for one in made] == [0] * count
        with sqlite3.connect(study) as database:
            assert database.execute("SELECT COUNT(*) FROM studies").fetchone() == (1,)


def test_a_study_that_cannot_grow(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.sqlite", "one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (study.file.stat().st_size, before[1]))
    try:
        with pytest.raises(KmemError, match=f"tune: --study {study.file}: [^\n]*$"):
            for number in range(1000):
                study.add(Trial(number, {}, {}, "", None, "x" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_another_question_is_another_study_in_the_same_file(tmp_path: Path) -> None:
    study = tmp_path / "all.sqlite"
    found_by(study, "--trials", "2")
    for arguments in (
        ["--goal", "time"],
        ["--cpus", "2"],
        [OTHER_BOOT],
    ):
        found_by(study, "--trials", "2", *arguments)
    assert len(trials_in(study)) == 4 * 2


def test_on_a_cluster(tmp_path: Path) -> None:
    """Two processes that know nothing but Dask; the same document."""
    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    found_by(here, "--trials", "12", OTHER_BOOT)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tcp://")
        found_by(there, "--trials", "12", OTHER_BOOT, "--scheduler", address)
    assert here.with_suffix(".json").read_bytes() == there.with_suffix(".json").read_bytes()


# ---- What is printed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--goal", "both"],
        ["--goal", "time", "--cpus", "4", "--repeat", "4"],
        ["--goal", "memory", "--engine", "slob", "--set", "classes=kernel"],
    ],
)
def test_the_line_has_the_figures_printed(tmp_path: Path, arguments: list[str]) -> None:
    document = found_by(tmp_path / "study.sqlite", "--trials", "16", *arguments)
    chosen, defaults = document["chosen"], document["defaults"]
    line = chosen["kmem_options"]
    goal = document["goal"]
    if goal != "both":
        assert chosen[f"{goal}_ratio"] <= min(
            one[f"{goal}_ratio"] for one in [*document["pareto"], defaults]
        )
    else:
        assert chosen["time_ratio"] * chosen["memory_ratio"] <= min(
            one["time_ratio"] * one["memory_ratio"] for one in [*document["pareto"], defaults]
        )
    done = subprocess.run(
        [KMEM, "run", "--set", line, "--", "true"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    machine = [one for one in arguments if one in ("--cpus", "--repeat", "4")]
    for row in (chosen, defaults, document["pareto"][0]):
        file = tmp_path / "replay.json"
        subprocess.run(
            [KMEM, "replay", BOOT, "--set", row["kmem_options"], *machine, "--json", file],
            capture_output=True,
            check=True,
        )
        replayed = json.loads(file.read_text())
        (figures,) = row["traces"]
        assert figures["modelled_ns"] == replayed["modelled"]["ns"]
        assert figures["peak_pages"] == replayed["peak"]["pages"]
        assert figures["end_pages"] == replayed["end"]["pages"]
        assert figures["metadata_bytes"] == replayed["waste_bytes"]["metadata"]
        (default,) = defaults["traces"]
        for ratio, name in (("time_ratio", "modelled_ns"), ("memory_ratio", "memory_bytes")):
            assert row[ratio] == pytest.approx(figures[name] / default[name], abs=1e-6)


def test_several_traces_count_alike(tmp_path: Path) -> None:
    document = found_by(tmp_path / "study.sqlite", "--trials", "4", OTHER_BOOT)
    slab = document["pareto"][-1]
    assert [figures["trace"] for figures in slab["traces"]] == [BOOT.name, OTHER_BOOT.name]
    product = 1.0
    for figures, default in zip(slab["traces"], document["defaults"]["traces"], strict=True):
        product *= figures["memory_bytes"] / default["memory_bytes"]
    assert slab["memory_ratio"] == pytest.approx(product**0.5, abs=1e-6)


def test_costs_are_used(tmp_path: Path) -> None:
    costs = tmp_path / "costs.csv"
    costs.write_text("count,ns\ncalls,7\n")
    document = found_by(tmp_path / "study.sqlite", "--trials", "3", "--costs", costs)
    # Calls alone cost: no option changes their number.
    assert {one["time_ratio"] for one in document["pareto"]} == {1.0}


def test_options_that_do_nothing_that_costs(tmp_path: Path) -> None:
    """There is no ratio to nothing, and no less of it to look for: they are no candidates."""
    costs = tmp_path / "costs.csv"
    costs.write_text("count,ns\ncompare_swaps,10\n")
    document = found_by(tmp_path / "study.sqlite", "--trials", "4", "--costs", costs)
    failed = {one["kmem_options"]: one["reason"] for one in document["failed"]}
    # Engine slab swaps nothing.
    assert failed["engine=slab"] == "the costs model no time of it"
    assert document["chosen"]["time_ratio"] > 0


# ---- Space and front ----------------------------------------------------------------------------


def test_every_value_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, trace_of([event(0, tr.ALLOC, 0, 100)]))
    for engine in ENGINES:
        for name, values in (COMMON | BY_ENGINE[engine]).items():
            for value in values:
                params: Params = {"engine": engine, name: value}
                if name == "batches":
                    params["limit"] = 64
                line = ",".join(entries(params))
                done = subprocess.run(
                    [ROOT / "build" / "tools" / "replay", path, f"options={line}"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, line
                assert len(done.stderr.splitlines()) == 1, line


def test_what_is_set_is_not_searched() -> None:
    options = "engine=slab,limit=32,classes=kernel,kmalloc-64.shared=0"
    assert fixed_names(options) >= {"engine", "limit", "batches", "classes"}
    for one in ask([], 1, 20, options=options, goal="both", seed=1):
        assert set(one.params) == {"slab_merge", "shared", "slab_max_order"}
    assert [entries(params) for params in first_params("engine=slab")] == [[]]
    assert [entries(params) for params in first_params("sheaf_capacity=0")] == [
        [],
        ["engine=slab"],
        ["engine=slob"],
    ]


def test_what_a_file_sets_is_not_searched(tmp_path: Path) -> None:
    given = tmp_path / "options"
    given.write_text("# kept\nengine=slob\nclasses=kernel\n")
    named = found_by(tmp_path / "named", "--trials", "6", "--set", "engine=slob,classes=kernel")
    of_file = found_by(tmp_path / "of_file", "--trials", "6", "--set", f"@{given}")
    assert of_file == named


def test_entries() -> None:
    assert entries({"engine": "slub", "freeze": None, "sheaf_capacity": 0}) == ["sheaf_capacity=0"]
    assert entries({"engine": "slob", "slob_breaks": ""}) == ["engine=slob", "slob_breaks="]
    slab: Params = {"engine": "slab", "limit": 8, "batches": 4}
    assert entries(slab) == ["engine=slab", "limit=8", "batchcount=2"]
    assert entries(slab | {"limit": None}) == ["engine=slab"]
    assert entries(slab | {"limit": 2, "batches": 8})[-1] == "batchcount=1"


def trial(number: int, ratios: tuple[float, float] | None, line: str = "") -> Trial:
    return Trial(number, {}, {}, line, ratios, [])


def test_front_and_best() -> None:
    trials = [
        trial(0, (1.0, 1.0)),
        trial(1, (0.5, 2.0), "a=1"),
        trial(2, (0.9, 1.2), "a=1"),
        trial(3, (0.9, 1.1), "a=1,b=2"),
        trial(4, (0.9, 1.1), "b=2"),
        trial(5, None),
        trial(6, (2.0, 0.9)),
        trial(7, (3.0, 0.9)),
        trial(8, (1.0, 1.0)),
    ]
    assert [one.number for one in pareto(trials)] == [1, 4, 0, 6]
    assert best(trials, "time").number == 1
    assert best(trials, "memory").number == 6
    assert best(trials, "both").number == 4


def test_asked_again_is_the_same() -> None:
    def points(start: int, count: int, known: list[Trial]) -> list[Params]:
        asked = ask(known, start, count, options="", goal="both", seed=3)
        assert [one.number for one in asked] == list(range(start, start + count))
        return [one.params for one in asked]

    (default,) = ask([], 0, 1, options="", goal="both", seed=3)
    assert entries(default.params) == []
    first = ask([], 1, 16, options="", goal="both", seed=3)
    known = [
        Trial(one.number, one.params, one.distributions, "", (1 / (one.number + 1), 1.0), [])
        for one in [default, *first]
    ]
    assert points(17, 8, known) == points(17, 8, known)
    # What was found decides; here another trial was the fastest.
    turned = [
        Trial(one.number, one.params, one.distributions, "", (one.number + 1.0, 1.0), [])
        for one in known
    ]
    assert points(17, 8, known) != points(17, 8, turned)
    for params in points(17, 8, known):
        engine = str(params["engine"])
        assert params.keys() == {"engine", *choices_for(engine, set())}


@pytest.mark.parametrize("seed", [0, 4294, 4295, 2**32, 10**30])
def test_any_seed_will_do(seed: int) -> None:
    asked = ask([], 0, 2, options="", goal="both", seed=seed)
    assert [one.number for one in asked] == [0, 1]


# ---- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "arguments", "named"),
    [
        (2, ["--set", "nonsense=1"], "nonsense"),
        (2, ["--set", "freeze=never"], "freeze=never"),
        (2, ["--cpus", "0"], "cpus=0"),
        (2, ["--cpu-seconds", "inf"], "--cpu-seconds 'inf': expected 0.000001 to 1000000000"),
        (2, ["--cpu-seconds", "nan"], "--cpu-seconds 'nan': expected 0.000001 to 1000000000"),
        (2, ["--resident", "8M"], f"--resident: {BOOT} is of a kernel, which has no process"),
        (2, ["--cpu-seconds", "1"], f"--cpu-seconds: {BOOT} is of a kernel"),
        (1, ["--costs", "/no/such/file"], "/no/such/file"),
        (1, ["--json", "/no/such/file"], "/no/such/file"),
        (1, ["--study", "/no/such/file"], "/no/such/file"),
        (2, ["--study", "/tmp/study?mode=ro"], "expected a name without ? and %"),
        (1, ["--study", str(BOOT)], BOOT.name),
        (1, ["--scheduler", "nonsense"], "nonsense"),
        (1, ["/no/such/trace"], "/no/such/trace"),
        (1, [str(ROOT / "kmem")], "kmem: byte 0"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, status: int, arguments: list[str], named: str) -> None:
    done = tune(tmp_path / "study.sqlite", "--trials", "2", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kmem: ")
    assert named in line


def test_a_trace_that_is_replaced_meanwhile(tmp_path: Path) -> None:
    """Its figures would be in the study of the trace that was there before."""
    path, other = tmp_path / "one.ktrace", tmp_path / "other.ktrace"
    for file, size in ((path, 64), (other, 6400)):
        tr.write_trace(file, trace_of([event(0, tr.ALLOC, 0, size)]))
    nothing: Any = None
    search = make_search(
        [path], goal="both", seed=1, batch=1, options="", costs={},
        machine=dict.fromkeys(("cpus", "nodes", "repeat")),
    )  # fmt: skip
    replays = Replays(search, nothing, nothing, [])
    assert len(replays.replay("")["documents"]) == 1
    other.replace(path)
    with pytest.raises(KmemError, match=r"one\.ktrace: changed since the search began; expected"):
        replays.replay("")


def test_a_traces_name_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.ktrace")
    tr.write_trace(path, trace_of([event(0, tr.ALLOC, 0, 64)]))
    words = [KMEM, "tune", path, "--study", tmp_path / "study.sqlite", "--trials", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_trace_with_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "empty.ktrace"
    tr.write_trace(path, trace_of([]))
    done = tune(tmp_path / "study.sqlite", "--trials", "2", path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "empty.ktrace has nothing to replay" in line


def test_a_trace_of_a_few_calls(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, trace_of([event(0, tr.ALLOC, 0, 64)]))
    words = [KMEM, "tune", path, "--study", tmp_path / "study.sqlite", "--trials", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "ms of modelled time, too little to choose options by" in done.stdout
