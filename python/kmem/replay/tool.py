# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs build/tools/replay and related tools, and reports why they refuse."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kmem.common import spread
from kmem.common.errors import BadUsage, KmemError
from kmem.common.tree import BUILD

# Tools by the KiB of a page.
TOOLS = {
    4: BUILD / "tools" / "replay",
    16: BUILD / "tools" / "replay-16k",
    64: BUILD / "tools" / "replay-64k",
}
FILE_OPTIONS = ("slabinfo", "attrs", "record")


def run_tool(
    tool: Path, trace: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The document of a tool that replays, and its lines for people; here with an environment."""
    command: list[str | Path] = [tool, trace, *arguments]
    if environment is None:
        done = spread.run_program(command)
    else:
        done = spread.here.run(command, environment)
    lines = done.messages.splitlines()
    if done.status != 0:
        reason = next(filter(None, lines), f"status {done.status}")
        kind = BadUsage if done.status == BadUsage.status else KmemError
        raise kind(f"replay: {reason.removeprefix('replay: ').removeprefix('kmem: ')}")
    return dict(json.loads(done.output)), lines


def complaint(line: str) -> KmemError:
    """An error from the library's message at its start."""
    text = line.removeprefix("kmem: ")
    kind = BadUsage if text.startswith(("option ", "unknown option ")) else KmemError
    return kind(f"replay: {text}")


def run(
    trace: Path,
    arguments: Sequence[str],
    page_kib: int = 4,
    environment: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], str]:
    """The simulation's document, and its line about speed; any other line is an error."""
    document, (*messages, speed) = run_tool(TOOLS[page_kib], trace, arguments, environment)
    if messages:
        raise complaint(messages[0])
    return document, speed


def refuse_file_options(texts: Sequence[str]) -> None:
    """Refuse options that write files: the tool itself would write them, not the replay."""
    for entry in ",".join(texts).replace("\n", ",").split(","):
        if entry.partition("=")[0] in FILE_OPTIONS:
            raise BadUsage(
                f"option {entry}: a replay writes no such file; expected options of the allocator"
            )


def tool_arguments(
    options: str, cpus: int | None, nodes: int | None, repeat: int | None
) -> list[str]:
    given = {"cpus": cpus, "nodes": nodes, "repeat": repeat}
    return [f"{name}={value}" for name, value in given.items() if value is not None] + [
        f"options={options}"
    ]
