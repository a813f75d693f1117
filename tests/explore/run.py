#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Run scenarios of the explorer and print a table of their figures.

    run.py EXPLORER [--memory sc|tso|ra] [--delays N] [--preemptions N] [--quick] [--seconds N]
           [NAME...]
    run.py EXPLORER --reduced|--compare [--preemptions N] [--quick] [--seconds N] [NAME...]
    run.py EXPLORER --all [--quick] [--seconds N] [NAME...]
    run.py EXPLORER ... --keep FILE [--anew] [NAME...]

A scenario (or those whose names contain a NAME) is searched with no preemption, then with one, up
to N (2). --quick searches the large scenarios with one preemption less. --seconds is the most time
of the processor that a scenario may take. --memory tso gives each thread a store buffer, and each
schedule one access that does not see what is in another's; --memory ra is C11 with a stale read
(--delays: so many). --keep writes into FILE (results.py) the last bound that was exhausted,
leaves out scenarios that FILE has as exhausted, and begins with those that took the least time;
--anew, for sources that have changed, leaves out none and forgets what FILE has of them.
--reduced leaves out most of equal schedules; --compare searches in both ways, which must reach the
same. --all has no bound on preemptions, and runs one of each class of equal schedules; with --quick
it leaves out scenarios that docs/figures/explored.json has as not exhausted in this way. Columns:
executions, scheduling points that they passed, points with a choice, all of the last bound, and
seconds of the processor. Exit status: 1 if a schedule fails, with the schedule printed, or if no
scenario has a NAME; 2 for wrong arguments; 0 otherwise, also if time was over, which the table
says.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from results import FILE, Figures, Kept, search_name

FAILED, LATE = 1, 3
FIGURES = re.compile(
    r"(\d+ preemptions|all): (\d+) executions, (\d+) points, (\d+) choices, (?:\d+ cut short, )?"
    r"([\d.]+) s(, NOT exhausted)?"
)
ROW = "{:<26} {:>11} {:>10} {:>12} {:>9} {:>8}  {}"


@dataclass
class Scenario:
    name: str
    large: bool


def read_scenarios(explorer: str, wanted: list[str]) -> list[Scenario]:
    """The explorer's scenarios whose names contain one of the wanted texts."""
    lines = subprocess.run([explorer, "--list"], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in lines.splitlines()]
    found = [Scenario(name, size == "large") for name, size, _ in rows]
    for text in wanted:
        if not any(text in scenario.name for scenario in found):
            sys.exit(f"run.py: no scenario has '{text}' in its name; {explorer} --list prints them")
    return [one for one in found if not wanted or any(text in one.name for text in wanted)]


def run(explorer: str, scenario: Scenario, bounds: list[str], kept: Kept | None) -> bool:
    """Searches a scenario, prints its row and keeps it; false if a schedule fails."""
    done = subprocess.run(
        [explorer, scenario.name, *bounds], capture_output=True, text=True, check=False
    )
    found = FIGURES.findall(done.stdout)
    if done.returncode not in (0, FAILED, LATE) or not found:
        sys.exit(f"run.py: {scenario.name}: status {done.returncode}: {done.stdout}{done.stderr}")
    rows = [
        Figures(
            None if bound == "all" else int(bound.removesuffix(" preemptions")),
            int(executions),
            int(points),
            float(took),
            late == "",
        )
        for bound, executions, points, _, took, late in found
    ]
    bound, executions, points, choices, took, late = found[-1]
    bound = bound.removesuffix(" preemptions")
    verdict = "FAILED" if done.returncode == FAILED else "not exhausted" if late else "exhausted"
    print(ROW.format(scenario.name, bound, executions, points, choices, took, verdict), flush=True)
    if done.returncode == FAILED:
        print(done.stdout)
    elif kept:
        kept.add(scenario.name, rows)
    return done.returncode != FAILED


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("explorer")
    parser.add_argument("--memory", choices=["sc", "tso", "ra"], default="sc")
    parser.add_argument("--preemptions", type=int, default=2)
    parser.add_argument("--delays", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--seconds", type=int, default=0, help="per scenario; 0: no limit")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_intermixed_args()
    scenarios = read_scenarios(given.explorer, given.names)
    kept = None
    if given.all and given.quick:
        known = Kept(FILE, "all")
        scenarios = [one for one in scenarios if not known.is_late(one.name)]
    if given.keep:
        kind = "all" if given.all else "reduced" if given.reduced else "plain"
        kept = Kept(given.keep, search_name(kind, given.memory, given.delays))
        wanted = None if given.all else given.preemptions
        scenarios = [
            one for one in scenarios if given.anew or not kept.is_exhausted(one.name, wanted)
        ]
        scenarios.sort(key=lambda one: kept.seconds(one.name))
        kept.anew = given.anew
    print(
        ROW.format(
            "scenario", "preemptions", "executions", "points", "choices", "seconds", "result"
        )
    )
    seconds = ["--seconds", str(given.seconds)]
    passed = []
    for scenario in scenarios:
        preemptions = max(given.preemptions - (given.quick and scenario.large), 0)
        bounds = ["--memory", given.memory, "--preemptions", str(preemptions)]
        bounds += ["--delays", str(given.delays)]
        bounds += ["--reduced"] * given.reduced + ["--compare"] * given.compare
        bounds = (["--all"] if given.all else bounds) + seconds
        passed.append(run(given.explorer, scenario, bounds, kept))
    print(f"{sum(passed)} of {len(passed)} scenarios pass")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
