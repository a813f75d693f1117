# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Python's own regression tests, with its small-object allocator and without (PYTHONMALLOC)."""

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest
from dropin import (
    DEFAULT,
    LIMITED,
    LOCKED,
    MIXED,
    SLAB,
    SLOB,
    UNREGISTERED,
    DropIn,
    Finished,
    Setting,
)
from needs import require

PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Suite:
    """A module of Python's test package; which of its tests run, and how many at least.

    In newer releases of Python some modules are packages, whose own modules hold the classes.
    """

    module: str
    tests: int
    chosen: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        chosen = [f"--match=test.{self.module}*.{pattern}" for pattern in self.chosen]
        left_out = [f"--ignore=test.{self.module}*.{pattern}" for pattern in self.left_out]
        return [*chosen, *left_out, self.module]


JSON = Suite("test_json", 160)
RE = Suite("test_re", 150)
GC = Suite("test_gc", 40)
THREADING = Suite("test_threading", 180)
# Those that mostly wait are left out: what is here takes a quarter of the whole's time.
MULTIPROCESSING = Suite(
    "test_multiprocessing_fork",
    100,
    chosen=tuple(
        f"{name}.*"
        for name in (
            "WithProcessesTestProcess",
            "WithProcessesTestPool",
            "WithThreadsTestPool",
            "WithManagerTestPool",
            "WithProcessesTestQueue",
            "WithProcessesTestConnection",
            "WithProcessesTestHeap",
            "WithProcessesTestSharedCTypes",
            "TestSyncManagerTypes",
        )
    ),
)
SUBPROCESS = Suite(
    "test_subprocess",
    150,
    chosen=("ProcessTestCase.*", "POSIXProcessTestCase.*"),
    left_out=("*timeout*", "*leak*", "*_dead"),
)
SUITES = (JSON, RE, GC, THREADING, MULTIPROCESSING, SUBPROCESS)

# Objects that must have left the slabs: without Python's own allocator everything it holds.
MINIMUM = {"pymalloc": 1_000, "malloc": 50_000}


def is_quick(setting: Setting, allocator: str, suite: Suite) -> bool:
    if setting is DEFAULT:
        return allocator == "malloc" or suite in (JSON, RE, GC, MULTIPROCESSING)
    if setting in (SLAB, SLOB, MIXED):
        return allocator == "malloc" and suite is JSON
    return allocator == "malloc" and suite in (JSON, RE, GC)


def matrix() -> list[object]:
    return [
        pytest.param(
            setting,
            allocator,
            suite,
            id=f"{setting.name}-{allocator}-{suite.module}",
            marks=() if is_quick(setting, allocator, suite) else (pytest.mark.full,),
        )
        for setting in (DEFAULT, LOCKED, LIMITED, UNREGISTERED, SLAB, SLOB, MIXED)
        for allocator in MINIMUM
        for suite in SUITES
    ]


def expect_success(report: Path, suite: Suite, finished: Finished) -> None:
    root = ElementTree.parse(report).getroot()
    counts = {name: int(root.get(name, "-1")) for name in ("tests", "errors", "failures")}
    assert counts["tests"] >= suite.tests, counts
    assert counts["errors"] == counts["failures"] == 0, finished.describe()
    assert "Tests result: SUCCESS" in finished.stdout, finished.describe()


@pytest.mark.parametrize(("dropin", "allocator", "suite"), matrix(), indirect=["dropin"])
def test_regression_suite(dropin: DropIn, allocator: str, suite: Suite, tmp_path: Path) -> None:
    require("python")
    report = tmp_path / "report.xml"
    # The time limit of one test is Python's own: it prints where every thread stood.
    argv = [PYTHON, "-m", "test", "--timeout=120", f"--junit-xml={report}", *suite.arguments()]
    finished = dropin.run(
        argv,
        minimum=MINIMUM[allocator],
        environment={} if allocator == "pymalloc" else {"PYTHONMALLOC": allocator},
        timeout=400,
    )
    expect_success(report, suite, finished)
