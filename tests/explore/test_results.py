# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What run.py keeps of searches, where it goes on, and the table of docs/checked.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXPLORER = HERE.parents[1] / "build/tests/explore/explore"
sys.path.append(str(HERE))

import results  # noqa: E402
from results import Figures, merged, search_name, with_table  # noqa: E402


def run(*arguments: str) -> list[str]:
    """The scenarios whose rows run.py prints."""
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    done = subprocess.run(
        [sys.executable, HERE / "run.py", EXPLORER, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split()[0] for line in done.stdout.splitlines()[1:-1]]


def test_a_search_goes_on_behind_what_the_file_has(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    two = ("--reduced", "--preemptions", "2", "--keep", str(file), "event_one", "lock_two")
    three = ("--reduced", "--preemptions", "3", "--keep", str(file), "event_one", "lock_two")
    assert sorted(run(*two)) == ["event_one", "lock_two"]
    before = json.loads(file.read_text())["sc"]
    assert {one["preemptions"] for one in before.values()} == {2}
    assert run(*two) == []
    assert sorted(run(*two, "--anew")) == ["event_one", "lock_two"]
    # Another search, and a further bound.
    assert run("--all", "--keep", str(file), "event_one") == ["event_one"]
    assert sorted(run(*three)) == ["event_one", "lock_two"]
    document = json.loads(file.read_text())
    assert document["all"]["event_one"]["executions"] > 0
    after = document["sc"]
    assert {one["preemptions"] for one in after.values()} == {3}
    assert all(after[name]["executions"] > before[name]["executions"] for name in after)


def test_a_quick_full_search_is_of_scenarios_that_end(tmp_path: Path) -> None:
    """Which do is known from docs/figures; a scenario that is not known is searched."""
    assert run("--all", "--quick", "event_one", "lock_two") == ["event_one"]
    file = tmp_path / "kept.json"
    known = {"ends": {"executions": 1, "points": 2, "seconds": 9.0}, "endless": {"late": 3.0}}
    file.write_text(json.dumps({"all": known}))
    kept = results.Kept(file, "all")
    assert [kept.is_late(name) for name in ("ends", "endless", "new")] == [False, True, False]


def test_the_last_exhausted_bound_is_kept() -> None:
    one, two, three = (Figures(n, 10**n, 100**n, n * 1.5, True) for n in (1, 2, 3))
    late = Figures(3, 55, 66, 60.0, False)
    kept = merged({}, [one, two, late])
    assert kept == {
        "preemptions": 2,
        "executions": 100,
        "points": 10000,
        "seconds": 3.0,
        "late": 60.0,
    }
    assert merged(kept, [one]) == kept, "a lower bound takes nothing away"
    assert merged(kept, [one, two, three])["preemptions"] == 3
    assert "late" not in merged(kept, [three])
    assert merged({}, [Figures(None, 7, 8, 20.0, False)]) == {"late": 20.0}
    earlier = {**kept, "earlier": 1}
    assert merged(earlier, [one]) == earlier, "an earlier search is replaced by one as far"
    assert "earlier" not in merged(earlier, [one, two])
    assert merged({}, [Figures(None, 7, 8, 2.0, True)]) == {
        "executions": 7,
        "points": 8,
        "seconds": 2.0,
    }


def test_searches_have_names_of_their_own() -> None:
    names = [
        search_name("reduced", "sc", 1),
        search_name("plain", "sc", 1),
        search_name("all", "sc", 1),
        search_name("plain", "tso", 1),
        search_name("plain", "tso", 2),
        search_name("plain", "ra", 1),
    ]
    assert names == ["sc", "sc-plain", "all", "tso", "tso-2-delays", "ra"]


def test_the_table_is_of_the_kept_figures() -> None:
    document = json.loads(results.FILE.read_text())
    text = results.DOCUMENT.read_text()
    assert with_table(text, document) == text, "run tests/explore/results.py write"
    document["sc"]["pop_drain"]["executions"] += 1
    assert with_table(text, document) != text


def test_every_scenario_is_kept() -> None:
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    listed = subprocess.run([EXPLORER, "--list"], capture_output=True, text=True, check=True)
    names = {line.split("\t")[0] for line in listed.stdout.splitlines()}
    document = json.loads(results.FILE.read_text())
    assert set(document["sc"]) == names
    assert {one["preemptions"] for one in document["sc"].values()} <= {2, 3}
