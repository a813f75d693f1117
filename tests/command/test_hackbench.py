# SPDX-License-Identifier: Apache-2.0 OR MIT
"""tools/loads with 64 KiB pages: the load of `kmem lab order`, at a small scale."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "tools" / "loads-64k"
CACHES = ROOT / "python" / "kmem" / "lab" / "hackbench_caches.csv"
ORDERS = ROOT / "python" / "kmem" / "lab" / "mail" / "online_cpus_orders.csv"
MACHINE = ("possible=64", "boot_cpus=16", "load_cpus=16", "task=process", "capacity=92")
SMALL = ("groups=8", "pairs=5", "loops=20")
KERNEL = "freeze=eager,cpu_partial_accounting=objects,cpu_partial_defaults=seed"


def run(*arguments: str, caches: Path = CACHES) -> subprocess.CompletedProcess[str]:
    """Arguments of the tool, among them two options of the library."""
    options = {"order_rule": "5.10", "order_cpus": "online"}
    given = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name in options:
            options[name] = value
        else:
            given.append(argument)
    kernel = ",".join([KERNEL, *(f"{name}={value}" for name, value in options.items())])
    return subprocess.run(
        [TOOL, "messages", caches, *MACHINE, f"options={kernel}", *given],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def load(*arguments: str) -> dict[str, Any]:
    done = run(*SMALL, *arguments)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("arguments", [(), ("order_cpus=possible",), ("load_cpus=64",)])
def test_two_runs_are_the_same(arguments: tuple[str, ...]) -> None:
    assert run(*SMALL, *arguments).stdout == run(*SMALL, *arguments).stdout


@pytest.mark.parametrize(
    "arguments", [(), ("order_cpus=possible",), ("load_cpus=64",), ("boot_cpus=64", "load_cpus=64")]
)
def test_memory_comes_and_goes(arguments: tuple[str, ...]) -> None:
    result = load(*arguments)
    assert result["page_bytes"] == 65536
    assert result["during_kib"] > result["hotplug_kib"] >= result["start_kib"]
    # So few messages leave about as much on the CPUs' lists as they took.
    assert result["after_kib"] > result["shrunk_kib"]
    # All objects of the load are back, and those of the start lie where they lay.
    assert result["shrunk_kib"] == result["hotplug_kib"]
    assert (result["hotplug_kib"] > result["start_kib"]) == ("load_cpus=64" in arguments[:1])


def test_counts_are_of_all_messages_and_processes() -> None:
    result = load()
    assert result["messages"] == 8 * 5 * 5 * 20
    # Two objects a message, each allocated and freed.
    assert result["counts"]["calls"] == 4 * result["messages"]
    assert result["counts"]["slow_paths"] == result["counts"]["calls"]
    assert result["exit_counts"]["slow_paths"] == result["exit_counts"]["calls"]
    assert 0 < result["counts"]["list_handed_over"] <= result["counts"]["list_locks"]


LIVES = ("lives=1", "runs=2")
TASKS = 8 * 2 * 5


def test_processes_are_forked_then_end_and_are_reaped() -> None:
    curve = load(*LIVES)["curve"]
    for run_number in (0, 1):
        points = [point for point in curve if point["run"] == run_number]
        for name, whole in (("forked", TASKS), ("messages", 8 * 5 * 5 * 20), ("ended", TASKS)):
            figures = [point[name] for point in points]
            assert figures == sorted(figures), name
            assert figures[0] == 0, name
            assert figures[-1] == whole, name
        # All are there before the first message, and none is reaped that has not ended.
        assert all(point["forked"] == TASKS for point in points if point["messages"])
        assert all(point["reaped"] <= point["ended"] for point in points)
        assert points[-1]["reaped"] == TASKS


def test_each_fork_takes_the_objects_of_a_process(tmp_path: Path) -> None:
    """Without a step of its life, a process would take or leave something else."""
    with CACHES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    own = sum(int(row["size"]) * (int(row["process"]) + int(row["socket"])) for row in rows)
    first = [point for point in load(*LIVES)["curve"] if point["run"] == 0]
    forked = next(point for point in first if point["forked"] == TASKS)
    grown = (forked["live_kib"] - first[0]["live_kib"]) * 1024
    assert grown == pytest.approx(TASKS * own, abs=2048)


@pytest.mark.parametrize("arguments", [(), ("load_cpus=64",), ("grace_ns=0",)])
def test_processes_leave_nothing_behind(arguments: tuple[str, ...]) -> None:
    result = load(*LIVES, *arguments)
    assert result["shrunk_kib"] <= result["hotplug_kib"]
    # Freed objects keep slabs on the lists until they are shrunk.
    assert result["after_kib"] > result["shrunk_kib"]
    assert result["curve"][-1]["live_kib"] < result["mean_live_kib"]


def test_a_grace_period_holds_objects_back() -> None:
    ends = [load(*LIVES, f"grace_ns={ns}")["curve"][-1]["live_kib"] for ns in (0, 1000000000)]
    assert ends[1] > ends[0]


@pytest.mark.parametrize("freed", ["exit-rcu", "reap", "reap-rcu"])
def test_each_way_to_go_back_counts(tmp_path: Path, freed: str) -> None:
    """Objects that would all go as the process exits leave another number of slabs."""
    table = tmp_path / "caches.csv"
    text = CACHES.read_text(encoding="utf-8")
    assert f",{freed}\n" in text
    table.write_text(text.replace(f",{freed}\n", ",exit\n"), encoding="utf-8")
    arguments = ("groups=40", "pairs=5", "loops=4", *LIVES)
    curves = [json.loads(run(*arguments, caches=file).stdout)["curve"] for file in (CACHES, table)]
    assert curves[0] != curves[1]


def test_later_runs_begin_with_what_earlier_ones_left() -> None:
    curve = load("groups=40", *LIVES)["curve"]
    first, second = (
        next(point["slab_kib"] for point in curve if point["run"] == number) for number in (0, 1)
    )
    assert second > first


def test_processes_of_the_boot_leave_slabs() -> None:
    few, many = (load(*LIVES, f"boot_tasks={tasks}") for tasks in (0, 300))
    assert many["start_kib"] > few["start_kib"]
    assert many["shrunk_kib"] == few["shrunk_kib"]


@pytest.mark.parametrize("rule", ["5.10", "6.12"])
def test_slabs_are_those_of_the_mails_table(rule: str) -> None:
    with ORDERS.open(encoding="utf-8") as file:
        mail = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert len(mail) == 12
    for column, order_cpus in (("current", "possible"), ("patched", "online")):
        slabs = load(f"order_cpus={order_cpus}", f"order_rule={rule}")["slabs"]
        for row in mail:
            expected = [int(row[f"{column}_objperslab"]), int(row[f"{column}_pagesperslab"])]
            assert slabs[row["cache"]] == expected, (row["cache"], column)


def test_online_cpus_give_smaller_slabs() -> None:
    current = load("order_cpus=possible")
    patched = load()
    for key in ("start_kib", "after_kib"):
        assert patched[key] < current[key]
    # With all CPUs there at boot each has slabs of its own.
    assert load("boot_cpus=64", "load_cpus=64")["start_kib"] > patched["start_kib"]


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("loops=0", "expected loops from 1 to 100000000, not 0"),
        ("loops=5x", "not 5x"),
        ("loops=-1", "not -1"),
        ("loops", "not loops"),
        ("groups=10001", "expected groups from 1 to 10000, not 10001"),
        ("list_locks=-1", "expected a cost from 0 to 1000000 ns, not list_locks=-1"),
        ("task=thread", "expected a column of the table of caches, not thread"),
        ("lives=2", "expected lives from 0 to 1, not 2"),
        ("runs=0", "expected runs from 1 to 100, not 0"),
        ("boot_tasks=1000001", "expected boot_tasks from 0 to 1000000, not 1000001"),
        ("runs=2", "expected lives=1 with runs above 1"),
        ("nonsense=1", "not nonsense=1"),
        ("=1", "not =1"),
    ],
)
def test_bad_arguments_are_named(argument: str, named: str) -> None:
    done = run(argument)
    # The table is a file, which might have such a column.
    assert done.returncode == (1 if "a column of" in named else 2)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith(f"{named}\n")


def test_cpus_must_fit() -> None:
    for arguments in (("boot_cpus=17",), ("load_cpus=65",)):
        done = run(*arguments)
        assert done.returncode == 2
        assert "boot_cpus <= load_cpus <= possible" in done.stderr


def test_bad_tables_are_named(tmp_path: Path) -> None:
    assert "/no/such/table" in run(caches=Path("/no/such/table")).stderr
    table = tmp_path / "caches.csv"
    table.write_text("cache,size,made,boot,cpu,process,socket,message\nodd,64,never,1,0,0,0,0\n")
    done = run(caches=table)
    assert done.returncode == 1
    assert "odd,64,never" in done.stderr
    heading = "cache,size,made,boot,cpu,process,socket,message"
    table.write_text(f"{heading},freed\nodd,64,boot,1,0,0,0,0,later\n")
    assert "expected exit, exit-rcu, reap or reap-rcu" in run(caches=table).stderr
    table.write_text(f"{heading}\nodd,64,boot,1,0,0,0,0\n")
    assert "not freed" in run("lives=1", caches=table).stderr


def test_unknown_loads_are_named() -> None:
    done = subprocess.run([TOOL, "nothing", CACHES], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "loads: expected messages, exchange, packets, rings, mesh, forks, pairs, bursts, "
        "handed, random or births, not nothing\n"
    )
