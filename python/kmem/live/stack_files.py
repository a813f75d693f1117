# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stacks as text for other viewers: collapsed lines, and speedscope's JSON."""

import json
from collections.abc import Sequence

from kmem.live.lines import Line

Stack = tuple[Sequence[Line], int]  # functions, the innermost first, and a value
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def collapsed(stacks: Sequence[Stack]) -> str:
    """A line a stack, "main;work;malloc 1024": the outermost function first, then the value.

    flamegraph.pl, inferno and others read it. A semicolon in a name would begin another frame, so a
    comma stands for it; a line's end cannot occur in names.
    """
    totals: dict[str, int] = {}
    for lines, value in stacks:
        line = ";".join(line.function.replace(";", ",") for line in reversed(lines))
        totals[line] = totals.get(line, 0) + value
    return "".join(f"{line} {value}\n" for line, value in sorted(totals.items()) if value > 0)


def frame(line: Line) -> dict[str, str | int]:
    place: dict[str, str | int] = {"file": line.file, "line": line.number} if line.file else {}
    return {"name": line.function, **place}


def speedscope(stacks: Sequence[Stack], title: str, unit: str) -> str:
    """A document with one profile of weighted stacks, as speedscope.app reads it."""
    frames: dict[Line, int] = {}
    samples, weights = [], []
    for lines, value in stacks:
        if value > 0:
            samples.append([frames.setdefault(line, len(frames)) for line in reversed(lines)])
            weights.append(value)
    profile = {
        "type": "sampled",
        "name": title,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    return json.dumps(
        {
            "$schema": SCHEMA,
            "exporter": "libkmem",
            "name": title,
            "shared": {"frames": list(map(frame, frames))},
            "profiles": [profile],
        }
    )
