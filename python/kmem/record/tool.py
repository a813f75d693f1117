# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs the programs of tools/record, and has the words about their traces."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kmem.common.errors import KmemError
from kmem.common.files import why_not_written

SOURCE_MOST = 65536  # bytes, of the text in a trace's header; an argument may have twice as many


def run_tool(tool: Path, *arguments: str | Path) -> dict[str, Any]:
    """The tool's document."""
    done = subprocess.run(
        [tool, *arguments],
        capture_output=True,
        text=True,
        errors="replace",  # names of programs are bytes
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.splitlines() or [f"{tool.name} ended with status {done.returncode}"]
        raise KmemError(lines[-1].removeprefix("kmem: "))
    return dict(json.loads(done.stdout or "{}"))


def is_descriptor(out: Path) -> bool:
    """Whether the path names a file that this process has open, as /dev/stdout does."""
    named = [out, out.readlink()] if out.is_symlink() else [out]
    folders = [path.absolute().parent.resolve() for path in named]
    return any(folder.name == "fd" and Path("/proc") in folder.parents for folder in folders)


def check_out(out: Path) -> None:
    if reason := why_not_written(out):
        raise KmemError(f"record: --out {out}: {reason}; expected a file to write")
    if is_descriptor(out):  # another process writes the trace, and has other files
        raise KmemError(f"record: --out {out}: an open file of this command; expected its name")


def shown(counts: dict[str, Any]) -> str:
    return (
        f"{counts['allocations']:,} allocations, {counts['frees']:,} frees,"
        f" {counts['living']:,} blocks of {counts['living_bytes']:,} bytes live at the end"
    )


def source_of(what: str, command: Sequence[str]) -> str:
    """The origin of a trace, which its header repeats."""
    return os.fsdecode(os.fsencode(f"kmem record {what}{shlex.join(command)}")[:SOURCE_MOST])
