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


def test_unknown_loads_are_named() -> None:
    done = subprocess.run([TOOL, "nothing", CACHES], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "loads: expected messages, exchange, packets or rings, not nothing\n"
