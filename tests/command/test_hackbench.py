# SPDX-License-Identifier: Apache-2.0 OR MIT
"""tools/hackbench: the load of `kmem lab order`, at a small scale."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "tools" / "hackbench"
CACHES = ROOT / "python" / "kmem" / "hackbench_caches.csv"
ORDERS = ROOT / "python" / "kmem" / "mail" / "online_cpus_orders.csv"
SMALL = ("groups=8", "pairs=5", "loops=20")


def run(*arguments: str, caches: Path = CACHES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOL, caches, *arguments], capture_output=True, text=True, timeout=120, check=False
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
    assert result["message_counts"]["calls"] == 4 * result["messages"]
    assert result["message_counts"]["slow_paths"] == result["message_counts"]["calls"]
    assert result["exit_counts"]["slow_paths"] == result["exit_counts"]["calls"]
    assert (
        0 < result["message_counts"]["list_handed_over"] <= result["message_counts"]["list_locks"]
    )


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
    "argument",
    [
        "loops=0",
        "loops=10001",
        "loops=5x",
        "loops",
        "order_cpus=present",
        "order_rule=4.4",
        "nonsense=1",
        "=1",
    ],
)
def test_bad_arguments_are_named(argument: str) -> None:
    done = run(argument)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.endswith(f"not {argument}\n")


def test_cpus_must_fit() -> None:
    for arguments in (("boot_cpus=17",), ("load_cpus=65",)):
        done = run(*arguments)
        assert done.returncode == 1
        assert "boot_cpus <= load_cpus <= possible" in done.stderr


def test_bad_tables_are_named(tmp_path: Path) -> None:
    assert "/no/such/table" in run(caches=Path("/no/such/table")).stderr
    table = tmp_path / "caches.csv"
    table.write_text("cache,size,made,boot,cpu,process,socket,message\nodd,64,never,1,0,0,0,0\n")
    done = run(caches=table)
    assert done.returncode == 1
    assert "odd,64,never" in done.stderr
