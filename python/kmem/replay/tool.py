# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs build/tools/replay and related tools, and reports why they refuse."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
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
OPTIONS_FILE_BYTES = 4096  # the library takes no longer file


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


def reason_of(line: str) -> str:
    """The library's message without the default, on which a program would go on; no replay does."""
    return line.removeprefix("kmem: ").removesuffix("; the default stays").removesuffix("; ignored")


def complaint(line: str) -> KmemError:
    """An error from the library's message at its start."""
    text = reason_of(line)
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


def entries_of(texts: Sequence[str]) -> Iterator[str]:
    """The entries of options, and those of an @FILE in its place.

    A file that the library would not take stays an entry, for the library to refuse.
    """
    for entry in ",".join(texts).replace("\n", ",").split(","):
        if not entry.startswith("@"):
            yield entry
            continue
        file = Path(entry[1:])
        # A pipe can be read once, and the library reads it.
        if (
            not file.is_file()
            or not os.access(file, os.R_OK)
            or file.stat().st_size >= OPTIONS_FILE_BYTES
        ):
            yield entry
            continue
        with file.open(errors="replace") as content:
            for line in content.read(OPTIONS_FILE_BYTES).split("\n"):
                if not line.startswith("#"):
                    yield from line.split(",")


def refuse_options(texts: Sequence[str]) -> None:
    """Refuse options that write files, which the tool itself would write, and hardened blocks.

    These have a back end of their own, whose pages and calls no figure of a replay counts.
    """
    for entry in entries_of(texts):
        if entry.partition("=")[0] in FILE_OPTIONS:
            raise BadUsage(
                f"option {entry}: a replay writes no such file; expected options of the allocator"
            )
        if entry == "protect=hardened":
            raise BadUsage(
                f"option {entry}: a replay has no hardened blocks; expected protect=none"
            )


def tool_arguments(
    options: str, cpus: int | None, nodes: int | None, repeat: int | None
) -> list[str]:
    given = {"cpus": cpus, "nodes": nodes, "repeat": repeat}
    return [f"{name}={value}" for name, value in given.items() if value is not None] + [
        f"options={options}"
    ]
