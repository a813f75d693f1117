# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab order`: the mail's table, single cases, bad input, and the tool behind it."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kmem_command import ROOT, kmem

TOOL = ROOT / "build" / "tools" / "order"

# Cache, size, current and patched objects and pages, online CPUs (S3.6, B).
MAIL = [
    ("TCPv6", 2432, [53, 2], [26, 1], 16),
    ("net_namespace", 4864, [53, 4], [26, 2], 16),
    ("dtl", 4096, [32, 2], [16, 1], 1),
    ("names_cache", 4096, [32, 2], [16, 1], 1),
    ("task_struct", 9728, [53, 8], [13, 2], 1),
    ("thread_stack", 16384, [32, 8], [8, 2], 1),
    ("pgtable-2^11", 32768, [16, 8], [8, 4], 1),
    ("pgtable-2^8", 4096, [32, 2], [16, 1], 1),
    ("kmalloc-32k", 32768, [16, 8], [8, 4], 1),
    ("kmalloc-16k", 16384, [32, 8], [8, 2], 1),
    ("kmalloc-8k", 8192, [32, 4], [8, 1], 1),
    ("kmalloc-4k", 4096, [32, 2], [16, 1], 1),
]

order = partial(kmem, "lab", "order")


@pytest.mark.parametrize("rule", [(), ("--order-rule", "5.10"), ("--order-rule", "6.12")])
def test_table_is_the_mails(tmp_path: Path, rule: tuple[str, ...]) -> None:
    file = tmp_path / "order.json"
    result = order("--table-only", "--json", file, *rule)
    assert result.returncode == 0, result.stderr
    assert "12 of 12 rows exact" in result.stdout
    for count in ("nr_cpu_ids 64", "1 CPU online", "16 for the 2 made later"):
        assert count in result.stdout
    assert "simulator" not in result.stdout
    expected = [
        {
            "cache": cache,
            "current": current,
            "patched": patched,
            "size": size,
            "current_cpus": 64,
            "patched_cpus": cpus,
        }
        for cache, size, current, patched, cpus in MAIL
    ]
    assert json.loads(file.read_text()) == {"rows": expected}


def test_load_is_beside_the_mails_tables(tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    result = order("--groups", "5", "--loops", "2", "--json", file)
    assert result.returncode == 0, result.stderr
    assert "12 of 12 rows exact" in result.stdout
    assert "scaled down: the mail's load has -l 200 -g 200" in result.stdout
    document = json.loads(file.read_text())
    assert list(document["load"]) == [
        "current",
        "patched",
        "boot_64_cpus",
        "boot_16_plus_48_hotplugged",
    ]
    for number in ("205760", "506752", "331840", "390272", "251328", "941926", "913600"):
        assert f"({number})" in result.stdout
    for seconds in ("10.990", "11.010", "12.554", "12.589"):
        assert f"({seconds})" in result.stdout
    # So few processes never take what the mail has during its hackbench.
    assert "too small for the mail's memory" in result.stdout
    for name, load in document["load"].items():
        costs = {
            key: cost * (load["counts"][key] + load["exit_counts"][key])
            for key, cost in document["costs_ns"].items()
            if not key.startswith("received_objects")  # the program's time
        }
        costs["waiting"] = sum(load[key]["list_wait_ns"] for key in ("counts", "exit_counts"))
        cpus = 16 if name in ("current", "patched") else 64
        assert load["modelled_seconds"] == pytest.approx(sum(costs.values()) / cpus / 1e9)
        for key in ("start_kib", "during_kib", "after_kib", "shrunk_kib"):
            assert f" {load[key]} (" in result.stdout


def test_quick_has_the_mails_memory_in_every_process(tmp_path: Path) -> None:
    """Fewer messages, but all processes: the moment is found in `current` alone, and
    `current` has the mail's memory there."""
    file = tmp_path / "order.json"
    result = order("--quick", "--json", file)
    assert result.returncode == 0, result.stderr
    document = json.loads(file.read_text())
    share = document["load"]["current"]["forked_share"]
    assert 0.1 < share < 0.5
    assert f"when {share:.1%} of the processes have been forked" in result.stdout
    assert document["load"]["current"]["during_kib"] == pytest.approx(629145, rel=0.01)
    assert document["load"]["current"]["start_kib"] == pytest.approx(205760, rel=0.02)
    near = {(row["pair"], row["state"]): row["near"] for row in document["quotients"]}
    assert len(near) == 6
    for pair in ("patched", "boot_16_plus_48_hotplugged"):
        assert near[pair, "After-boot"]
        assert near[pair, "During-hackbench"]
    assert near["patched", "After-hackbench"]


def test_kept_figures_are_near_the_mails() -> None:
    """The run at full scale, from what the command wrote."""
    document = json.loads((ROOT / "docs" / "figures" / "order.json").read_text())
    mail = {
        ("patched", "After-boot"): 156096 / 205760,
        ("patched", "During-hackbench"): 506752 / 629145,
        ("patched", "After-hackbench"): 331840 / 474176,
        ("boot_16_plus_48_hotplugged", "After-boot"): 159744 / 390272,
        ("boot_16_plus_48_hotplugged", "During-hackbench"): 941926 / 1001267,
        ("boot_16_plus_48_hotplugged", "After-hackbench"): 827200 / 913600,
    }
    rows = {(row["pair"], row["state"]): row for row in document["quotients"]}
    assert rows.keys() == mail.keys()
    for key, quotient in mail.items():
        assert rows[key]["mail"] == pytest.approx(quotient)
        assert abs(rows[key]["ours"] - quotient) <= 0.1, key


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--size", "2432", "--cpus", "64", "--page-size", "65536"], "53 2 1"),
        (["--size", "9728", "--cpus", "16", "--page-size", "65536"], "26 4 2"),
        (["--size", "256", "--cpus", "256"], "64 4 2"),
        (["--size", "8192", "--cpus", "1"], "4 8 3"),
        # S3-23
        (["--size", "11000", "--cpus", "8"], "2 8 3"),
        (["--size", "11000", "--cpus", "8", "--order-rule", "5.10"], "1 4 2"),
        # Bounds
        (["--size", "64", "--cpus", "8", "--slub-min-order", "1"], "128 2 1"),
        (["--size", "64", "--cpus", "8", "--slub-min-objects", "100"], "128 2 1"),
        (["--size", "1024", "--cpus", "8", "--slub-max-order", "0"], "4 1 0"),
        (["--size", "4194304", "--cpus", "8"], "1 1024 10"),
    ],
)
def test_single_case(arguments: list[str], expected: str) -> None:
    result = order(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout == expected + "\n"


def test_single_case_as_json(tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    assert order("--size", "2432", "--cpus", "64", "--json", file).returncode == 0
    document = json.loads(file.read_text())
    assert (document["size"], document["cpus"], document["page_size"]) == (2432, 64, 4096)
    assert (document["objects"], document["pages"], document["order"]) == (13, 8, 3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--size", "0", "--cpus", "1"], ["size 0", "from 8"]),
        (["--size", "-64", "--cpus", "1"], ["size -64"]),
        (["--size", "4194305", "--cpus", "1"], ["size 4194305", "at most 4194304"]),
        (["--size", str(1 << 64), "--cpus", "1"], [str(1 << 64)]),
        (["--size", "64"], ["--cpus"]),
        (["--size", "64", "--cpus", "0"], ["cpus 0", "from 1 to 8192"]),
        (["--size", "64", "--cpus", "8193"], ["cpus 8193"]),
        (["--size", "64", "--cpus", "1", "--page-size", "5000"], ["5000", "power of two"]),
        (["--size", "64", "--cpus", "1", "--page-size", "2048"], ["2048", "from 4096 to 65536"]),
        (["--size", "64", "--cpus", "1", "--slub-max-order", "11"], ["slub-max-order 11"]),
        (["--size", "64", "--cpus", "1", "--slub-min-objects", "32768"], ["32768"]),
        (["--size", "64", "--cpus", "1", "--order-rule", "4.4"], ["4.4", "6.12"]),
        (["--size", "much", "--cpus", "1"], ["--size"]),
        (["--size", "64", "--cpus", "1", "--table-only"], ["--table-only", "--size"]),
        (["--cpus", "8"], ["--cpus", "--size"]),
        (["--page-size", "4096", "--table-only"], ["--page-size", "--size"]),
        (["--table-only", "--groups", "5"], ["--groups"]),
        (["--size", "64", "--cpus", "1", "--loops", "5"], ["--loops"]),
        (["--table-only", "--quick"], ["--quick"]),
        (["--quick", "--loops", "5"], ["--quick", "--loops"]),
        (["--groups", "0"], ["groups", "not 0", "10000"]),
        (["--loops", "-1"], ["loops", "not -1", "100000000"]),
        (["--table-only", "--json", "/no/such/folder/file"], ["/no/such/folder/file"]),
    ],
)
def test_bad_input_is_named(arguments: list[str], named: list[str]) -> None:
    result = order(*arguments)
    assert result.returncode == (1 if "/no/such/folder/file" in arguments else 2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    for text in named:
        assert text in result.stderr


def ask_tool(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOL], input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "line",
    [
        "6.12",
        "6.12 64 1 4096 0 3",
        "6.12 64 1 4096 0 3 0 0",
        "6.12 64x 1 4096 0 3 0",
        "6.13 64 1 4096 0 3 0",
        "\n",
    ],
)
def test_tool_refuses_a_bad_line(line: str) -> None:
    done = ask_tool(f"5.10 64 1 4096 0 3 0\n{line}\n")
    assert done.returncode == 2
    assert done.stdout == "64 1 0\n"
    assert "expected" in done.stderr


cases = st.tuples(
    st.sampled_from(["5.10", "6.12"]),
    st.integers(8, 1 << 22),
    st.integers(1, 8192),
    st.sampled_from([4096, 16384, 65536]),
    st.integers(0, 10),
    st.integers(0, 10),
    # The next order may hold almost twice as many, and a slab holds at most 32767.
    st.integers(0, 16383),
)


@given(st.lists(cases, min_size=1, max_size=100))
def test_slabs_hold_what_they_say(batch: list[tuple[str, int, int, int, int, int, int]]) -> None:
    done = ask_tool("".join(" ".join(map(str, case)) + "\n" for case in batch))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(batch)
    for (_, size, _, page_size, minimum, maximum, _), line in zip(batch, lines, strict=True):
        objects, pages, order = map(int, line.split())
        assert pages == 1 << order
        assert 1 <= objects <= 32768
        assert objects * size <= pages * page_size < (objects + 1) * size
        maximum = max(minimum, maximum)
        if size <= page_size << maximum:
            assert order <= maximum
        # A slab at least of the minimum, or it would hold too many objects to count.
        assert order >= minimum or (page_size << minimum) // size > 32767
