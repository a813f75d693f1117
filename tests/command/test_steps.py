# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The steps of `make test` and `make test-all`: which run, and what is said of each."""

import sys
from pathlib import Path
from threading import Event

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import run_tests  # noqa: E402


def good() -> run_tests.Counts:
    return run_tests.Counts(passed=3, skipped=1, notes=["skipped one: no reason"])


def broken() -> run_tests.Counts:
    raise FileNotFoundError("no such tool")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    steps = [("first", broken), ("second, good", good)]
    monkeypatch.setattr(run_tests, "STEPS", {"all": steps})
    monkeypatch.setattr(sys, "argv", ["run_tests.py", *words])
    monkeypatch.setenv("KMEM_TEST_SIZE", "all")
    return run_tests.main()


def test_a_broken_step_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "all") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "== first",
        "== first: 0 passed, 1 failed, 0 skipped in 0 s",
        "== second, good",
        "== second, good: 3 passed, 0 failed, 1 skipped in 0 s",
        "==",
        "first: 0 passed, 1 failed, 0 skipped in 0 s",
        "second, good: 3 passed, 0 failed, 1 skipped in 0 s",
        "FAILED first: FileNotFoundError: no such tool",
        "skipped one: no reason",
        "3 passed, 1 failed, 1 skipped",
    ]


def test_chosen_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "all", "good") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 1 skipped"
    for words in (["all", "good", "third"], ["some"], []):
        assert run(monkeypatch, *words) == 2
        assert capsys.readouterr().err.splitlines()[1:] == ["first", "second, good"]


def test_a_step_beside_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    next_runs, beside_runs = Event(), Event()

    def beside() -> run_tests.Counts:
        beside_runs.set()
        assert next_runs.wait(20)
        return run_tests.Counts(passed=1, seconds={"a long test": 7.25, "a short test": 0.5})

    def following() -> run_tests.Counts:
        next_runs.set()
        assert beside_runs.wait(20)
        return run_tests.Counts(passed=2)

    steps = [(run_tests.BESIDE, beside), ("following", following), ("last", good)]
    monkeypatch.setattr(run_tests, "STEPS", {"all": steps})
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "all"])
    monkeypatch.setenv("KMEM_TEST_SIZE", "all")
    assert run_tests.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "6 passed, 0 failed, 1 skipped"
    assert {"7.2 s: a long test", "0.5 s: a short test"} < set(lines)
    starts = [lines.index(f"== {name}") for name, _ in steps]
    assert starts == sorted(starts)
    # The step after the next begins when both have ended.
    assert lines.index("== last") > lines.index("== explorer: 1 passed, 0 failed, 0 skipped in 0 s")


def test_a_step_beside_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "STEPS", {"all": [(run_tests.BESIDE, good)]})
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "all"])
    monkeypatch.setenv("KMEM_TEST_SIZE", "all")
    assert run_tests.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed, 1 skipped"
