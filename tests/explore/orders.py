#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Take the memory order away from one place after the other, and search for what fails then.

    orders.py EXPLORER [--preemptions N] [--seconds N] [PLACE...]

A place is an access or a fence with an order stronger than relaxed which a scenario executes, as
FILE:LINE. Each (or those that contain a PLACE) becomes relaxed, and every scenario that executes it
is searched under --memory ra with one stale read, without a preemption and then with up to N (1),
each for at most --seconds (10). Prints for each place its text and the schedule that fails, or that
none does: then no scenario needs the order within these bounds, which does not mean that nothing
does. Orders of locks are not touched. Exit status: 0; 1 if no place contains a PLACE.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict

from run import Scenario, read_scenarios

FAILED = 1
# Behind the name of a macro stands what it accesses.
ORDERED = re.compile(
    r"  ((?:load_acquire|store_release|exchange_\w+|compare_swap\w*|fence\w*|__atomic_\w+)\(.*)"
    r" at (\S+:\d+)$",
    re.MULTILINE,
)


def read_places(explorer: str, scenarios: list[Scenario]) -> dict[tuple[str, str], list[str]]:
    """Place and text, with the scenarios that execute it in their usual schedule."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for scenario in scenarios:
        steps = subprocess.run(
            [explorer, scenario.name, "--memory", "ra", "--replay", "", "--steps"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for text, place in sorted(set(ORDERED.findall(steps))):
            # Those of the scenario and of the explorer are not the library's.
            if place.startswith("src/"):
                places[place, text].append(scenario.name)
    return dict(sorted(places.items()))


def search(explorer: str, scenario: str, place: str, preemptions: int, seconds: int) -> str:
    """How a schedule fails and how to replay it; empty if none does."""
    bounds = ["--preemptions", str(preemptions), "--seconds", str(seconds)]
    done = subprocess.run(
        [explorer, scenario, "--memory", "ra", "--weaken", place, *bounds],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != FAILED:
        return ""
    reason = re.search(r": FAILED: (.*)", done.stdout)
    replay = re.search(r"^replay: explore (.*)", done.stdout, re.MULTILINE)
    if not reason or not replay:
        sys.exit(f"orders.py: {scenario} --weaken {place}: {done.stdout}{done.stderr}")
    return f"{reason[1]}; {replay[1]} --weaken {place}"


def find(explorer: str, names: list[str], place: str, preemptions: int, seconds: int) -> str:
    for bound in range(preemptions + 1):
        for name in names:
            found = search(explorer, name, place, bound, seconds)
            if found:
                return found
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("explorer")
    parser.add_argument("--preemptions", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=10, help="per scenario and bound")
    parser.add_argument("places", nargs="*", metavar="PLACE")
    given = parser.parse_intermixed_args()
    places = {
        key: names
        for key, names in read_places(given.explorer, read_scenarios(given.explorer, [])).items()
        if not given.places or any(wanted in key[0] for wanted in given.places)
    }
    if not places:
        print(f"orders.py: no scenario executes an order at {given.places}", file=sys.stderr)
        return 1
    needed = 0
    for (place, text), names in places.items():
        found = find(given.explorer, names, place, given.preemptions, given.seconds)
        needed += bool(found)
        told = found or f"not found in {len(names)} scenarios"
        print(f"{place} {text}: {told}", flush=True)
    print(f"{needed} of {len(places)} orders are needed by a scenario")
    return 0


if __name__ == "__main__":
    sys.exit(main())
