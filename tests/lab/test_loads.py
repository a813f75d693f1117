# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Workloads on the simulated machine, their check against recorded runs, and the experiments
cpu-partial and freeze, all at a small scale."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kmem.common.errors import KmemError
from kmem.lab import cpu_partial, cpu_partial_runs, freeze, workloads
from kmem.lab.hackbench import CACHES
from kmem.lab.loads import NO_CLOCK, Load, allocator_ns, run
from kmem.lab.mails import read_mail
from kmem.lab.page import as_html
from kmem.lab.report import Report
from kmem.lab.shapes import Shape, read_recorded
from kmem.replay.costs import read_costs
from kmem.traces.file import ALLOC, CACHE_KMALLOC, FREE, read_trace

ROOT = Path(__file__).resolve().parents[2]

SMALL: dict[str, tuple[str, dict[str, int | str]]] = {
    "messages": ("messages", {"groups": 3, "pairs": 5, "loops": 40, "task": "process"}),
    "pipes": ("messages", {"groups": 3, "pairs": 5, "loops": 40, "message": ""}),
    "tcp": ("exchange", {"groups": 2, "loops": 500, "message": "tcp", "capacity": 1}),
    "udp": ("exchange", {"groups": 2, "loops": 500, "message": "udp", "capacity": 2}),
    "one packet socket": ("packets", {"loops": 2000, "message": "packet"}),
    "packet sockets": ("packets", {"groups": 8, "loops": 500, "message": "packet"}),
    "rings": ("rings", {"groups": 4, "loops": 200, "message": "udp", "capacity": 64}),
    "pairs": ("pairs", {"loops": 200}),
    "bursts": ("bursts", {"loops": 400, "capacity": 64}),
    "handed": ("handed", {"loops": 200, "capacity": 16}),
    "random": ("random", {"loops": 200, "capacity": 16}),
    "births": ("births", {"loops": 40, "task": "process"}),
}
# A CPU may be within a step when the last message comes through, and its time is counted whole.
STEP_MOST_NS = 1000
MESSAGES = {
    "messages": 3 * 5 * 5 * 40,
    "pipes": 3 * 5 * 5 * 40,
    "tcp": 1000,
    "udp": 1000,
    "one packet socket": 2000,
    "packet sockets": 4000,
    "rings": 4 * 200 * 16,
    "pairs": 4 * 200,
    "bursts": 4 * 400,
    "handed": 4 * 200,
    "random": 4 * 200,
    "births": 4 * 40,
}


def small(name: str, **settings: int | str) -> Load:
    load, own = SMALL[name]
    return Load(load, {"boot_cpus": 4, "nodes": 2, **own, **settings})


@pytest.mark.parametrize("name", SMALL)
def test_all_messages_come_through_and_nothing_stays(name: str) -> None:
    document = run(small(name))
    assert document["messages"] == document["measured_messages"] == MESSAGES[name]
    # No object is left, so shrinking gives every slab back.
    assert document["shrunk_kib"] == 0
    counts = document["counts"]
    # A bulk may need more than one.
    assert counts["slow_paths"] == counts["calls"] or name == "rings"
    assert counts["remote_objects_node"] <= counts["remote_objects"]
    assert counts["list_waits"] <= counts["list_locks"]
    assert document["measured_ns"] <= document["busy_ns"] + 1 or document["load"] == "exchange"
    assert document["busy_ns"] <= 4 * (document["all_ns"] + STEP_MOST_NS)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("skip", [1, 40, 66])
def test_the_measured_part_is_within_the_run(name: str, skip: int) -> None:
    """Also where a bulk comes through that reaches beyond its begin or its end."""
    load, settings = SMALL[name]
    loops = int(settings["loops"])
    for less in (0, 1, 2, 5):
        settings = {"boot_cpus": 4, "nodes": 2, **settings, "loops": loops - less, "skip": skip}
        document = run(Load(load, settings))
        measured = document["measured_messages"]
        assert 0 < measured < document["messages"]
        assert 0 < document["measured_ns"] <= document["all_ns"]
        assert 0 < document["busy_ns"] <= 4 * (document["all_ns"] + STEP_MOST_NS)
        if name == "rings":
            assert measured % document["bulk"] == 0


def test_of_a_run_something_is_measured() -> None:
    with pytest.raises(KmemError, match="expected skip from 0 to 66, not 67"):
        run(small("messages", skip=67))


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_document(name: str) -> None:
    assert run(small(name)) == run(small(name))


def test_another_seed_is_another_run() -> None:
    assert run(small("messages"))["counts"] != run(small("messages", seed=7))["counts"]


def test_a_message_takes_what_it_is_said_to() -> None:
    """Two objects a message, each taken and given back once."""
    document = run(small("messages", task=""))
    assert document["counts"]["calls"] == 4 * MESSAGES["messages"]
    assert run(small("pipes"))["counts"]["calls"] == 0


def test_the_allocators_time_is_in_the_clocks() -> None:
    """All work of the kernel costs nothing here, so CPUs are busy with the allocator alone."""
    nothing = {"send_ns": 0, "receive_ns": 0, "wake_ns": 0, "switch_ns": 0, "task": ""}
    costs = {name: cost for name, cost in read_costs().items() if name not in NO_CLOCK}
    costs |= {"received_objects": 0, "received_objects_node": 0}
    document = run(replace(small("messages", **nothing), costs=costs))
    assert document["busy_ns"] == pytest.approx(allocator_ns(document, costs), rel=1e-3)


def test_receivers_pay_for_lines_of_other_cpus() -> None:
    """Objects that a CPU took, and another gives back, take the receiver's time. A single CPU has
    its own lines only."""
    nothing = {"send_ns": 0, "receive_ns": 0, "wake_ns": 0, "switch_ns": 0, "task": ""}
    free = {name: 0.0 for name in read_costs()}
    load = replace(small("messages", **nothing), costs=free | {"received_objects": 1000})
    document = run(load)
    # The step that ends the measured part is counted, and its time comes after.
    assert 0 <= 1000 * document["received"]["objects"] - document["busy_ns"] <= 1000
    assert document["busy_ns"] > 0
    load = replace(load, costs=free | {"received_objects_node": 1000})
    document = run(load)
    assert 0 < document["received"]["objects_node"] <= document["received"]["objects"]
    assert 0 <= 1000 * document["received"]["objects_node"] - document["busy_ns"] <= 1000
    alone = run(small("messages", boot_cpus=1, nodes=1))
    assert alone["received"] == {"objects": 0, "objects_node": 0}


@pytest.mark.parametrize("filled", [10, 50, 100])
def test_filled_sockets_pass_as_many_messages(filled: int) -> None:
    document = run(small("messages", filled=filled))
    assert document["messages"] == document["measured_messages"] == MESSAGES["messages"]
    assert document["shrunk_kib"] == 0
    # The messages that wait when the load begins have their objects then.
    assert document["forked_kib"] > run(small("messages"))["forked_kib"]


def test_costs_slow_the_run() -> None:
    cheap, dear = (
        run(Load("messages", small("messages").settings, costs=read_costs() | {"calls": ns}))
        for ns in (10, 1000)
    )
    assert dear["busy_ns"] - cheap["busy_ns"] > 0.9 * 990 * cheap["counts"]["calls"]


def test_contended_lists_are_waited_for() -> None:
    """A list lock that takes long is held by somebody whenever another CPU wants it."""
    settings = {"boot_cpus": 8, "groups": 8, "pairs": 5, "loops": 50, "cache_cpus": 8}
    short, long = (
        run(Load("messages", settings, costs=read_costs() | {"list_locks": ns}))["counts"]
        for ns in (0, 20000)
    )
    assert long["list_waits"] > short["list_waits"]
    assert long["list_wait_ns"] > 1000 * long["list_waits"]


def test_contended_barns_are_waited_for() -> None:
    settings = {"boot_cpus": 8, "groups": 8, "pairs": 5, "loops": 50, "cache_cpus": 8}
    short, long = (
        run(
            Load(
                "messages",
                settings,
                ("sheaf_capacity=4",),
                costs=read_costs() | {"barn_locks": ns, "barn_waits": 0},
            )
        )
        for ns in (0, 20000)
    )
    assert long["counts"]["barn_waits"] > short["counts"]["barn_waits"]
    assert long["counts"]["barn_wait_ns"] > 1000 * long["counts"]["barn_waits"]
    assert long["busy_ns"] - short["busy_ns"] > long["counts"]["barn_wait_ns"]


def test_charges_are_those_of_the_objects_in_use() -> None:
    document = run(small("messages", charged=1))
    assert document["mean_charged_kib"] >= document["mean_live_kib"] > 0
    assert run(small("messages"))["mean_charged_kib"] == 0


@pytest.mark.parametrize("name", ["messages", "tcp", "packet sockets", "rings"])
def test_a_trace_has_every_object_once(name: str, tmp_path: Path) -> None:
    file = tmp_path / "load.ktrace"
    document = run(small(name, trace=str(file)))
    trace = read_trace(file)
    allocs = trace.records.filter(trace.records["operation"] == ALLOC)
    frees = trace.records.filter(trace.records["operation"] == FREE)
    assert allocs.height == frees.height == trace.objects
    assert trace.cpus == 4
    if name == "messages":
        by_size = allocs.filter(allocs["cache"] == CACHE_KMALLOC)["given"].to_list()
        assert by_size.count(512) == MESSAGES[name]
        assert document["counts"]["calls"] == 4 * MESSAGES[name]


def test_what_cpus_have_is_before_the_trace(tmp_path: Path) -> None:
    """Of the table with objects for each CPU, which are there when the trace begins."""
    file = tmp_path / "load.ktrace"
    load = small("messages", trace=str(file), loops=4)
    run(replace(load, caches=CACHES))
    records = read_trace(file).records
    assert (records["operation"] == ALLOC).sum() == (records["operation"] == FREE).sum() > 0


# ---- The check against recorded runs ------------------------------------------------------------


def comparison(recorded: Shape, generated: Shape) -> workloads.Comparison:
    return workloads.Comparison(workloads.PROGRAMS[0], recorded, generated)


def test_misses_are_named() -> None:
    shape = Shape({"cache-256": 50.0, "kmalloc-512": 50.0}, 1000.0, 5000.0, 20.0)
    assert comparison(shape, shape).misses() == []
    within = Shape({"cache-256": 54.0, "kmalloc-512": 46.0}, 1900.0, 2600.0, 24.0)
    assert comparison(shape, within).misses() == []
    other = Shape({"cache-256": 44.0, "kmalloc-512": 56.0}, 2100.0, 2400.0, 26.0)
    assert comparison(shape, other).misses() == [
        "share of kmalloc-512 by 6.0 points",
        "median 2.10x",
        "percentile 90 0.48x",
        "frees on another CPU by +6.0 points",
    ]
    less = Shape({"cache-192": 100.0}, 1000.0, 5000.0, 20.0)
    assert comparison(shape, less).share_points == (100.0, "cache-192")


def test_recorded_figures_are_whole() -> None:
    recorded = read_recorded()
    assert set(recorded) == {program.trace for program in workloads.PROGRAMS}
    for shape in recorded.values():
        assert sum(shape.shares.values()) == pytest.approx(100, abs=1)
        assert 0 < shape.median_ns <= shape.percentile_90_ns


def test_workloads_prints_every_program(tmp_path: Path) -> None:
    file = tmp_path / "workloads.json"
    done = subprocess.run(
        [ROOT / "kmem", "lab", "workloads", "--scale", "0.02", "--json", file],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    for program in workloads.PROGRAMS:
        assert program.command in done.stdout
        assert document[program.trace]["command"] == program.command
    recordings = {(row["program"], row["kernel"], row["cpus"]) for row in document["recordings"]}
    assert len(recordings) == len(document["recordings"]) == 8 * 3 * 2
    assert "recordings of kernels on 16 CPUs" in done.stdout
    assert "Packet rings were not recorded" in " ".join(done.stdout.split())


@pytest.mark.parametrize("scale", ["0", "1.5", "-1"])
def test_a_bad_scale_is_named(scale: str) -> None:
    done = subprocess.run(
        [ROOT / "kmem", "lab", "workloads", "--scale", scale],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "more than 0, at most 1" in done.stderr


def test_a_folder_without_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(KmemError, match=r"hackbench-g4-l200-process\.slt\.zst"):
        workloads.read_traces(tmp_path)


# ---- Experiments --------------------------------------------------------------------------------


def test_changes_are_signed_as_the_mail_prints_them() -> None:
    for row in read_mail("cpu_partial_hackbench"):
        before, after = float(row["before_s"]), float(row["after_s"])
        assert cpu_partial_runs.change(before, after, before) == pytest.approx(
            float(row["change_percent"]), abs=0.011
        )


def test_the_mails_tables_are_whole() -> None:
    rows = read_mail("cpu_partial_hackbench")
    assert len(rows) == 132
    assert {row["machine"] for row in rows} == set(cpu_partial_runs.MACHINES)
    assert [freeze.mail_seconds(program.command) for program in freeze.PROGRAMS] == [
        (7.042, 6.934),
        (2.44, 2.17),
    ]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_partial_runs, "QUICK_ROWS", 45)
    monkeypatch.setattr(cpu_partial_runs, "QUICK_LOOPS", 2)
    monkeypatch.setattr(cpu_partial_runs, "QUICK_MESSAGES", 2000)
    monkeypatch.setattr(cpu_partial_runs, "QUICK_TRANSACTIONS", 200)
    monkeypatch.setattr(
        freeze,
        "PROGRAMS",
        tuple(
            freeze.Program(p.command, p.load, {**p.settings, "groups": 4}, 400, p.mail_loops)
            for p in freeze.PROGRAMS
        ),
    )


def documents(make: Any) -> tuple[Report, str, str]:
    first, second = make(quick=True, seed=3), make(quick=True, seed=3)
    return first, json.dumps(first.document), json.dumps(second.document)


@pytest.mark.usefixtures("tiny")
def test_cpu_partial_has_all_that_it_should() -> None:
    report, first, second = documents(cpu_partial.cpu_partial_report)
    assert first == second
    document = report.document
    mail = read_mail("cpu_partial_hackbench")[::45]
    assert [row["mail_percent"] for row in document["hackbench"]] == [
        float(row["change_percent"]) for row in mail
    ]
    for row in document["hackbench"]:
        for rule in ("objects", "slabs"):
            assert row[rule]["slab_kib"] > 0
            assert row[rule]["allocator_ns_per_message"] < row[rule]["busy_ns_per_message"]
    # Every machine; of two the mail has no rows and a bound.
    assert len(document["netperf"]) == 2 * len(cpu_partial_runs.MACHINES)
    assert sum(row["mail_percent"] is None for row in document["netperf"]) == 4
    for row in document["netperf"]:
        assert row["objects"]["hmean"] > 0 and row["objects"]["stddev"] >= 0
        assert (row["mail_within_percent"] == 2) == (row["mail_percent"] is None)
    for row in document["memory_groups"]:
        assert 0 < row["charged_kib"] <= row["slab_kib"] * 1.1
    page = as_html("cpu-partial", [report])
    assert page.count("<svg") == 1 and "14.916" not in page and "0.538" in page


@pytest.mark.usefixtures("tiny")
def test_cpu_partial_has_mean_and_spread_of_seeds() -> None:
    report = cpu_partial.cpu_partial_report(quick=True, seed=3, seeds=2)
    document = report.document
    assert document["seeds"] == [3, 4]
    for row in document["hackbench"]:
        first, second = row["allocator_percent_by_seed"]
        assert row["allocator_percent"] == pytest.approx((first + second) / 2, abs=1e-4)
    values = document["rank_correlation_by_seed"]["allocator_percent"]["all"]
    assert len(values) == len(document["same_sign_by_seed"]) == 2
    assert document["rank_correlation"]["allocator_percent"]["all"] == pytest.approx(
        sum(values) / 2, abs=0.001
    )
    alone = cpu_partial.cpu_partial_report(quick=True, seed=4).document
    assert alone["rank_correlation"]["allocator_percent"]["all"] == values[1]


def test_spreads_are_mean_least_and_most() -> None:
    assert cpu_partial.spread([0.5]) == "0.50"
    assert cpu_partial.spread([0.4, 0.5, 0.9]) == "0.60 (0.40 to 0.90)"
    assert cpu_partial.spread([110, 113], ".0f") == "112 (110 to 113)"
    assert cpu_partial.mean_of([{"a": [1, "x"]}, {"a": [2, "x"]}]) == {"a": [1.5, "x"]}


def test_the_mails_netperf_changes_are_within_its_deviations() -> None:
    row = {
        "objects": {"mail_hmean": 100.0, "mail_stddev": 3.0},
        "slabs": {"mail_hmean": 90.0, "mail_stddev": 4.0},
    }
    assert cpu_partial_runs.in_deviations(row) == 2
    row["slabs"]["mail_stddev"] = None  # type: ignore[assignment]
    assert cpu_partial_runs.in_deviations(row) is None


def test_a_run_of_the_window_measures_what_a_whole_run_does() -> None:
    whole, window = (run(small("messages", skip=40, window=number)) for number in (0, 1))
    for name in ("counts", "received", "measured_ns", "busy_ns", "mean_slab_kib"):
        assert whole[name] == window[name]
    assert "shrunk_kib" not in window
    with pytest.raises(KmemError, match="expected window=0 with lives=1 or trace"):
        run(small("messages", window=1, trace="/nowhere"))


def test_messages_left_to_a_cpu_are_freed_there(tmp_path: Path) -> None:
    """Also where the sender runs elsewhere by then; a receiver that frees does so where it runs."""
    for capacity, other in ((2, False), (1, True)):
        file = tmp_path / f"{capacity}.ktrace"
        run(small("udp", capacity=capacity, nodes=1, trace=str(file)))
        records = read_trace(file).records
        allocs = records.filter(records["operation"] == ALLOC).select("object", then="cpu")
        frees = records.filter(records["operation"] == FREE).join(allocs, on="object")
        assert (
            (frees["cpu"] != frees["then"]).all()
            if other
            else (frees["cpu"] == frees["then"]).all()
        )


def test_intervals_are_of_the_mean() -> None:
    assert freeze.mean_interval([3.0]) == (3, 3)
    low, high = freeze.mean_interval([1.0, 2.0, 3.0])
    # Student's t of two degrees of freedom is 4.303.
    assert low == pytest.approx(2 - 4.303 / 3**0.5, abs=0.001)
    assert high == pytest.approx(2 + 4.303 / 3**0.5, abs=0.001)


@pytest.mark.usefixtures("tiny")
def test_freeze_says_sign_and_size() -> None:
    report, first, second = documents(freeze.freeze_report)
    assert first == second
    for row in report.document["rows"]:
        assert row["verdict"] == freeze.judge(row["allocator_percent"], row["mail_percent"])
        # A slab that leaves a node's list is frozen by a swap of its own with the eager policy.
        assert row["delayed"]["compare_swaps"] <= row["eager"]["compare_swaps"]
        low, high = row["allocator_interval"]
        assert low <= row["allocator_percent"] <= high
        assert len(row["allocator_by_seed"]) == freeze.QUICK_SEEDS
        assert 0 <= row["same_sign"] <= freeze.QUICK_SEEDS
    assert as_html("freeze", [report]).count("<svg") == 1


def test_verdicts() -> None:
    assert freeze.judge(1.0, -11.0) == "the sign differs"
    assert freeze.judge(-8.0, -11.0) == "sign right, size within a third"
    assert freeze.judge(-22.0, -11.0) == "sign right, size 2.00 of the mail's"
