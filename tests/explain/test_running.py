# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain PID` of programs whose slabs are pinned in a known way, and its errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("command", "profile")]
from kmem_command import ROOT, kmem
from profiled import LIBRARY, on_library, wait_for_registry
from test_command import numbers

from kmem.explain.process.advice import advise, pinned_bytes
from kmem.explain.process.figures import parts_of, read_process
from kmem.explain.process.holders import SEVERAL_SIZES, Samples, holders
from kmem.explain.process.load import Load, shape_of, trace
from kmem.explain.process.predict import Replayed, Saving, Trim, predict_orders, predict_trim
from kmem.explain.process.shares import (
    FINE_CLASSES,
    PARTS,
    TOTALS,
    explain_caches,
    totals_of,
)
from kmem.explain.table import Figure
from kmem.live.lines import Line
from kmem.live.pprof import Frame, Row
from kmem.live.registry.find import open_process
from kmem.live.registry.layout import RegistryError

pytestmark = pytest.mark.alone

PINS = ROOT / "build" / "tests" / "explain" / "explain-pins"
STRIDE = 208  # of the class of its 200 bytes
OBJECTS = 300_000
explain = partial(kmem, "explain", timeout=120)
Program = tuple[subprocess.Popen[str], int]


@contextmanager
def pins(
    pattern: str, options: str = "profile_interval=64K,reclaim_thread=off"
) -> Iterator[Program]:
    """The program, and how many objects it has freed."""
    if not PINS.exists() or not LIBRARY.exists():
        pytest.skip(f"{PINS} is not built")
    with on_library(options, PINS, pattern) as process:
        assert process.stdout is not None
        freed = int(process.stdout.readline())
        wait_for_registry(process.pid)
        yield process, freed


def explained(process: int, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "out.json"
    result = explain(process, "--json", file)
    assert (result.returncode, result.stderr) == (0, "")
    return dict(json.loads(file.read_text()))


def values(part: dict[str, Any]) -> dict[str, float]:
    return {name: figure["value"] for name, figure in part.items() if figure is not None}


def trimmed(process: int) -> int:
    """What `kmem trim` says that it gave back."""
    result = kmem("trim", process, timeout=60)
    match = re.fullmatch(r"(\d+) bytes given back\n", result.stdout)
    assert match, result.stdout + result.stderr
    return int(match[1])


@pytest.mark.parametrize("pattern", ["every", "random"])
def test_pinned_slabs(pattern: str, tmp_path: Path) -> None:
    with pins(pattern) as (process, freed):
        document = explained(process.pid, tmp_path)
        given_back = trimmed(process.pid)
        cache = next(one for one in document["caches"] if one["name"] == "kmalloc-208")
        shares = values({name: cache[f"{name}_bytes"] for name in PARTS})
        # Frees that emptied their slab are no waste of it; only random ones do that.
        gone = OBJECTS - cache["objects"]["value"]
        free = (freed - gone) * STRIDE
        assert shares["partial"] == pytest.approx(free, rel=0.05)
        # Samples of the profile lie outside of slabs.
        assert cache["in_use"] == {"value": pytest.approx(OBJECTS - freed, rel=0.01), "how": "read"}
        assert sum(shares.values()) == cache["slabs_bytes"]["value"]
        assert cache["sites"][0]["calls"][0] == "pins_here (pins.c:24)"
        assert document["trim"]["total_bytes"]["value"] == pytest.approx(given_back, rel=0.1)
        # As much is left to give back as sheaves that were filled since hold.
        again = explained(process.pid, tmp_path)
        assert again["trim"]["slabs_bytes"]["value"] < max(given_back / 20, 64 << 10)
        options = {one["option"] for one in document["advice"]["items"]}
        assert "kmem_cache_create" in options
        assert ("reclaim_thread=on" in options) == (pattern == "random")
        back = values({"back": again["caches"][0]["given_back_bytes"]})["back"]
        assert (back > given_back / 4) == (pattern == "random")


@pytest.mark.parametrize("option", ["slub_max_order=0", "classes=kernel"])
def test_predictions_come_true(option: str, tmp_path: Path) -> None:
    """Slabs of a program with the option are as many as were predicted without it."""
    base = "profile_interval=0,reclaim_thread=off,registry=on"
    with pins("random", base) as (process, _):
        document = explained(process.pid, tmp_path)
    with pins("random", f"{base},{option}") as (process, _):
        other = explained(process.pid, tmp_path)
    assert document["classes"]["reason"] is None
    savings = [*document["orders"], document["classes"]["saving"]]
    found = next(one for one in savings if one["option"] == option)
    saving = found["bytes"]["value"]
    # Blocks of pages are slabs with the one table and large blocks with the other.
    slabs = [
        sum(
            cache["slabs_bytes"]["value"]
            for cache in one["caches"]
            if not re.fullmatch(r"kmalloc-\d{3,}k", cache["name"])
        )
        for one in (document, other)
    ]
    assert slabs[0] - slabs[1] == pytest.approx(saving, rel=0.15)
    assert option in {one["option"] for one in document["advice"]["items"]}
    if option == "classes=kernel":
        off = found["off_bytes"]["value"]
        least, most = (f"{size / 2**20:,.1f}" for size in (saving - off, saving + off))
        assert f", between {least} and {most} MiB" in document["advice"]["text"]
    else:
        assert found["off_bytes"] is None


def test_no_advice_for_a_program_with_nothing_wrong(tmp_path: Path) -> None:
    with pins("none") as (process, _):
        document = explained(process.pid, tmp_path)
    assert document["advice"]["items"] == []
    assert document["advice"]["text"].startswith("advice: none")
    savings = [one["bytes"]["value"] for one in document["orders"]]
    savings += [document["classes"]["saving"]["bytes"]["value"]]
    savings += [document["trim"]["total_bytes"]["value"]]
    assert max(savings) < document["advice"]["least_bytes"]["value"]


@pytest.mark.parametrize(
    "options", ["", "engine=slab", "engine=slob", "debug=FZPU", "protect=hardened"]
)
def test_shares_add_up(options: str, tmp_path: Path) -> None:
    with pins("random", f"registry=on,reclaim_thread=off,{options}".rstrip(",")) as (process, _):
        document = explained(process.pid, tmp_path)
    heap = values(document["heap"])
    assert sum(heap[f"{name}_bytes"] for name in TOTALS) == heap["held_bytes"]
    assert sum(values(document["slabs"]).values()) == heap["slabs_bytes"]
    for cache in document["caches"]:
        shares = values({name: cache[f"{name}_bytes"] for name in PARTS})
        assert min(shares.values()) >= 0
        assert sum(shares.values()) == cache["slabs_bytes"]["value"]
    assert {key for key, _ in numbers(document)} <= {"pid"}
    assert heap["held_bytes"] > 0
    if options == "protect=hardened":
        assert document["trim"]["total_bytes"] is None


def test_text_and_page(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    with pins("random") as (process, _):
        result = explain(process.pid, "--top", "1", "--html", page)
        full = explain(process.pid, "--json", "/dev/full")
    assert (full.returncode, full.stderr) == (
        1,
        "kmem: --json /dev/full: No space left on device\n",
    )
    assert "advice: " in full.stdout
    assert (result.returncode, result.stderr) == (0, "")
    for text in (
        "free in partial slabs of nodes",
        "pins_here (pins.c:24)",
        "kmem trim",
        "advice: ",
    ):
        assert text in result.stdout
        assert text in page.read_text()
    assert "2 smaller caches: --top 3 has them" in result.stdout
    assert '<svg class="treemap"' in page.read_text()
    assert "http" not in re.sub(r"http://www.w3.org\S*", "", page.read_text())


def test_samples_of_the_command(tmp_path: Path) -> None:
    """--seconds samples what is allocated meanwhile, and does not see what was there."""
    with pins("random", "registry=on,reclaim_thread=off") as (process, _):
        before = explain(process.pid)
        result = explain(process.pid, "--seconds", "0.5")
    assert "no samples: --seconds" in before.stdout
    assert result.returncode == 0, result.stderr
    assert "pins_here" not in result.stdout


def refused(*arguments: object, status: int = 1) -> str:
    result = explain(*arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_errors() -> None:
    assert "process 4194305: there is none" in refused(4194305)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert "does not run on libkmem" in refused(process.pid)
        finally:
            process.kill()
    assert "expected a single process id, or files" in refused(1, 2, status=2)
    assert "--cpus is for files" in refused(1, "--cpus", 2, status=2)
    assert "--seconds is for a process" in refused(__file__, "--seconds", 1, status=2)


def test_of_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    script = (
        "import os, sys; os.setgid(65534); os.setuid(65534); os.chdir('/')\n"
        "from kmem.commands.start import start\nsys.exit(start())"
    )
    with pins("none") as (process, _):
        result = subprocess.run(
            [sys.executable, "-c", script, "explain", str(process.pid)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        )
    if "ModuleNotFoundError" in result.stderr or "PermissionError" in result.stderr:
        pytest.skip(f"user 65534 may not read the packages: {result.stderr[-200:]}")
    expected = f"process {process.pid} belongs to user 0; expected one of your own"
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"kmem: {expected}\n"


def test_process_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    from kmem.explain.process import figures

    with pins("random") as (process, _), open_process(process.pid, writable=True) as registry:
        real = figures.ask

        def ask_and_end(*arguments: Any) -> tuple[int, int]:
            place = real(*arguments)
            process.kill()
            process.wait()
            return place

        monkeypatch.setattr(figures, "ask", ask_and_end)
        with pytest.raises(RegistryError, match=f"process {process.pid} has ended"):
            read_process(registry)


def test_sleeping_process(tmp_path: Path) -> None:
    """It answers nothing: then free objects are not split, and nothing is predicted of slabs."""
    with pins("random", "registry=on,reclaim_thread=off") as (process, freed):
        os.kill(process.pid, 19)  # SIGSTOP
        document = explained(process.pid, tmp_path)
        os.kill(process.pid, 18)
    cache = next(one for one in document["caches"] if one["name"] == "kmalloc-208")
    assert not document["process"]["answered"]
    assert cache["sheaves_bytes"] is None
    assert cache["of_cpus_bytes"] is None
    assert cache["partial_bytes"]["value"] > 0
    assert document["trim"]["total_bytes"] is None
    assert "what a trim would give back is not known" in document["advice"]["text"].lower()
    assert document["orders"] == []
    assert document["classes"]["saving"] is None
    heap = values(document["heap"])
    assert sum(heap[f"{name}_bytes"] for name in TOTALS) == heap["held_bytes"]
    assert freed


# ---- Parts, without a process of their own each


@pytest.fixture(scope="module")
def pinned() -> Any:
    with pins("random") as (process, _), open_process(process.pid, writable=True) as registry:
        return read_process(registry)


def row(size: int, objects: int, name: str = "f") -> Row:
    return Row((Frame(1, (Line(name),), None),), (0, 0, objects, size))


def test_stacks_belong_to_caches_by_their_mean_size(pinned: Any) -> None:
    caches = explain_caches(pinned)
    of = next(one for one in caches if one.name == "kmalloc-208")
    found = holders(
        Samples(
            [
                row(208 * 300, 300, "exact"),
                row(209 * 100, 100, "near"),
                row(300 * 100, 100, "mixed"),
                row(208 * 10**6, 10**6, "more than there is"),
            ],
            "",
            64 << 10,
        ),
        caches,
    )
    assert [site.calls[0] for site in found[of.birth]] == ["exact", "near"]
    assert {site.calls[0] for site in found[SEVERAL_SIZES]} == {"mixed", "more than there is"}


def test_advice_wants_a_saving(pinned: Any) -> None:
    """Each kind of advice is there for a large saving, and not for a small one."""
    caches, totals = explain_caches(pinned), totals_of(pinned)
    few = [replace(one, live=Figure(one.cache.objects, "read")) for one in caches]
    none = Figure(0, "computed")

    def options(trim: int, order: int, classes: int, off: float = 0.0) -> list[str]:
        found = advise(
            pinned,
            totals,
            few,
            {},
            trim=Trim(Figure(trim, "computed"), none, none, none),
            orders=[Saving("slub_max_order=1", Figure(order, "computed"), "")],
            classes=Replayed(Saving("classes=kernel", Figure(classes, "modelled"), "", off), ""),
        )
        return [one.option for one in found]

    large, small = 32 << 20, 1 << 19
    assert options(small, small, small) == []
    assert options(large, small, small) == ["reclaim_thread=on"]
    assert options(small, large, small) == ["slub_max_order=1"]
    assert options(small, small, large) == ["classes=kernel"]
    # A saving that may be wrong by as much as it is may be none.
    assert options(small, small, large, off=large) == []


def test_smaller_slabs_of_real_places(pinned: Any) -> None:
    caches = explain_caches(pinned)
    of = next(one for one in caches if one.name == "kmalloc-208")
    assert parts_of(of.cache) == [1, 2, 4]
    saving = next(one for one in predict_orders(pinned, caches) if one.option == "slub_max_order=0")
    free = pinned.asked.free[1][of.birth]
    assert 0.85 * free < saving.bytes.value < free
    trim = predict_trim(pinned, caches, totals_of(pinned))
    assert trim.slabs is not None and trim.slabs.value >= free
    assert pinned_bytes(of) > 0


def test_clusters_that_leave_nothing_are_no_answer() -> None:
    """Objects at random in slabs of eight pages: of the pages a share of nearly 1/e is free."""
    for free in (0.36, 0.37, 0.38):
        assert shape_of(Load(208, 157, 300_000, 15_000, free))[0] == 1


@pytest.mark.parametrize(("make", "expected"), [("even", 4), ("random", 1), ("clusters", 0.5)])
def test_shape_of_distances(make: str, expected: float) -> None:
    """Of objects that stay evenly, at random or in clusters, by the share of their free pages."""
    random = np.random.default_rng(3)
    slots, live, per_slab, in_page = 400_000, 40_000, 160, 20
    places: dict[str, Callable[[], Any]] = {
        "even": lambda: np.arange(live) * slots // live,
        "random": lambda: random.choice(slots, live, replace=False),
        "clusters": lambda: (np.arange(0, slots, 100)[:, None] + np.arange(10)).ravel(),
    }
    stays = np.zeros(slots, bool)
    stays[places[make]()] = True
    slabs = stays.reshape(-1, per_slab)
    left = slabs[slabs.any(axis=1)]
    pages = left.reshape(-1, in_page)
    load = Load(4096 // in_page, per_slab, left.size, live, float((~pages.any(axis=1)).mean()))
    shape, begun = shape_of(load)
    if make == "even":
        assert shape >= expected
    elif make == "random":
        assert shape == expected
        assert begun == pytest.approx(slots, rel=0.02)
    else:
        assert shape <= expected


def test_load_ends_with_what_lives() -> None:
    loads = [Load(208, 39, 1000, 50, 0.3), Load(64, 64, 640, 640, 0.0), Load(48, 85, 170, 0, 1.0)]
    events = trace(loads, "test").records
    made = events.filter(events["operation"] == events["operation"].min())
    gone = events.filter(events["operation"] != events["operation"].min())
    for load in loads:
        born = made.filter(made["requested"] == load.bytes).height
        assert born >= load.slots
        assert born - gone.filter(gone["requested"] == load.bytes).height == load.live
    assert gone["object"].n_unique() == gone.height


def test_classes_of_the_library() -> None:
    """The finer table is as src/heap/classes.c has it."""
    assert FINE_CLASSES[:9] == (16, 32, 48, 64, 80, 96, 112, 128, 144)
    assert {8192, 10240, 32768, 36864, 65536, 81920, 262144} <= set(FINE_CLASSES)
    assert list(FINE_CLASSES) == sorted(set(FINE_CLASSES))
    with pins("none", "registry=on,classes=fine") as (process, _):
        result = kmem("info", process.pid, "--json", timeout=60)
    names = [cache["name"] for cache in json.loads(result.stdout)["caches"]]
    sizes = [
        int(name[8:].removesuffix("k")) * (1024 if name.endswith("k") else 1)
        for name in names
        if name.startswith("kmalloc-")
    ]
    assert sizes
    assert set(sizes) <= set(FINE_CLASSES)
