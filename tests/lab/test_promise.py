# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `kmem tune` promises of a process, and whether the programs show it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from traces import event, trace_of

from kmem.common.figures import Change, median_change, range_of
from kmem.lab.heap_list import HEAP_LIST
from kmem.lab.heaps import verdict
from kmem.traces import file as tr
from kmem.tune.promise import Promise, lines_of, promise_of, signed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "command"))
from kmem_command import kmem

MIB = 1 << 20
TRACES = Path(tr.__file__).parent


def test_changes() -> None:
    assert range_of([3, -1, 2]) == Change(2, -1, 3)
    change = median_change([5, 6, 7, 6, 5], [1, 2, 3, 2, 1])
    assert change.low <= change.median == 4 <= change.high
    assert Change(2, 1, 4).share(4) == Change(0.5, 0.25, 1)
    assert Change(2, 1, 4).meets(Change(5, 4, 6))
    assert not Change(2, 1, 4).meets(Change(6, 5, 7))
    assert Change(1, -1, 2).is_none()
    assert not Change(2, 1, 2).is_none()


def test_promise_of_figures() -> None:
    defaults = [{"memory_bytes": 10 * MIB, "modelled_ns": 5e6}] * 2
    figures = [
        {"memory_bytes": 9 * MIB, "modelled_ns": 6e6},
        {"memory_bytes": 7 * MIB, "modelled_ns": 5e6},
    ]
    promise = promise_of(figures, defaults)
    assert promise.peak_bytes == Change(-2 * MIB, -3 * MIB, -MIB)
    assert promise.cpu_seconds == pytest.approx(Change(0.0005, 0, 0.001))
    (line,) = lines_of(promise, 2, 40 * MIB, 0.01)
    assert line == (
        "promise: -2.00 (-3.00 to -1.00) MiB resident at the peak, -5.0 (-7.5 to -2.5)% of it;"
        " +0.50 (+0.00 to +1.00) ms of CPU time, modelled, +5.0 (+0.0 to +10.0)% of it, from least"
        " to most of 2 traces"
    )
    alone = Promise(Change(MIB, MIB, MIB), Change(0, 0, 0))
    first, second = lines_of(alone, 1, None, 0.01)
    assert first.startswith("promise: +1.00 MiB resident at the peak; +0.00 ms")
    assert "--resident of the program on the defaults tells" in second
    assert signed(Change(-0.5, -0.5, -0.5), 1, 1) == "-0.5"


def test_verdicts() -> None:
    whole = 100.0
    # A gain that is seen, one that is not, and one that a program's spread would hide.
    assert verdict(Change(-9, -9, -8), Change(-8, -10, -7), whole) == "agrees"
    assert verdict(Change(-9, -9, -8), Change(-1, -2, 1), whole) == "differs"
    assert verdict(Change(-9, -9, -8), Change(-1, -12, 9), whole) == "no telling"
    # Less than a hundredth of the whole is worth no option, if the program can tell as much.
    assert verdict(Change(-0.3, -0.3, -0.3), Change(0.1, 0, 0.2), whole) == "agrees"
    assert verdict(Change(-0.3, -0.3, -0.3), Change(0.1, -9, 9), whole) == "no telling"
    assert verdict(Change(0, -0.1, 0.1), Change(0.1, -9, 9), whole) == "no telling"


def tune(folder: Path, *words: str | Path) -> tuple[dict[str, object], str]:
    file = folder / "out.json"
    study = folder / "study.sqlite"
    done = kmem("tune", *words, "--trials", "3", "--study", study, "--json", file)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(file.read_text()), done.stdout


def test_programs_count_resident_pages(tmp_path: Path) -> None:
    """A few objects of many sizes have slabs in use whose pages nobody has written to."""
    trace = tmp_path / "few.ktrace"
    rows = [event(i, tr.ALLOC, i, 100 * (i + 1)) for i in range(40)]
    tr.write_trace(trace, trace_of(rows))
    document, text = tune(tmp_path, trace, "--resident", "8M", "--cpu-seconds", "0.5")
    (figures,) = document["defaults"]["traces"]  # type: ignore[index]
    assert figures["memory_is"] == "resident"
    assert figures["resident_pages"] < figures["peak_pages"] / 4
    expected = figures["resident_pages"] * 4096 + figures["metadata_bytes"]
    assert figures["memory_bytes"] == expected
    assert document["process"] == {"resident_bytes": 8 * MIB, "cpu_seconds": 0.5}
    assert "memory: resident pages at the peak" in text
    (chosen,) = document["chosen"]["traces"]  # type: ignore[index]
    change = chosen["memory_bytes"] - expected
    assert document["promise"]["peak_bytes"]["change"] == change  # type: ignore[index]
    assert f"promise: {change / MIB:+.2f} MiB resident at the peak, " in text


def test_kernels_count_pages_in_use(tmp_path: Path) -> None:
    document, text = tune(tmp_path, TRACES / "boot-6.1tiny-slub-64M.slt.zst")
    (figures,) = document["defaults"]["traces"]  # type: ignore[index]
    assert figures["memory_is"] == "in use"
    assert figures["memory_bytes"] == figures["peak_pages"] * 4096 + figures["metadata_bytes"]
    assert "memory: pages in use at the peak" in text
    assert "promise" not in text


def test_sizes_are_checked() -> None:
    done = kmem("tune", TRACES / "heaps" / "sqlite.ktrace", "--resident", "12X")
    assert done.returncode == 2
    assert "--resident" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("name", ["sqlite", "clang", "postgres"])
def test_programs_show_what_was_promised(tmp_path: Path, name: str) -> None:
    """Memory with the kernel's classes: much more for SQLite, 2% for clang, next to none less."""
    heap = next(heap for heap in HEAP_LIST if heap.name == name)
    if missing := heap.program.missing():
        pytest.skip(f"needs {missing[0]}")
    file = tmp_path / "check.json"
    options = "classes=kernel,slub_max_order=0"
    done = kmem("lab", "heaps", name, "--check", options, "--json", file, timeout=560)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    memory = row["peak_bytes"]
    promise, seen = (memory[one]["change"] / memory["of_defaults"] for one in ("promise", "seen"))
    # Pages in use would miss by 5% for SQLite, and by 2% for PostgreSQL.
    assert promise == pytest.approx(seen, abs=0.015), memory
    least = {"sqlite": 0.25, "clang": 0.01, "postgres": -0.03}[name]
    assert min(promise, seen) > least
    assert memory["verdict"] != "differs"
