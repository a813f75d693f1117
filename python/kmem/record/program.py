# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record program`: traces of programs on libkmem.

The library writes raw events into a folder beside the trace; build/tools/record-program makes the
trace of them.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.files import whole
from kmem.common.library_options import check_options
from kmem.common.processes import is_mapped
from kmem.common.signals import end_as_by_ctrl_c
from kmem.common.tree import BUILD, LAUNCHER, build
from kmem.record.folder import Nothing, making_a_trace, work_folder
from kmem.record.running import run_with_its_signals
from kmem.record.tool import check_out, run_tool, shown, source_of

PROGRAM_TOOL = BUILD / "tools" / "record-program"
PATH_MOST = 200  # bytes, of the raw file, so that the option holds it
SHOWN_MOST = 5


def unmatched(counts: dict[str, Any]) -> str:
    """Counts that are above 0 only if a recording of a program lost events."""
    if not counts["orphans"] and not counts["implied"]:
        return ""
    return f"; {counts['orphans']:,} frees without allocation, {counts['implied']:,} missing frees"


def name_of(out: Path, process: dict[str, Any]) -> Path:
    return out.with_name(f"{out.stem}.{process['number']}-{process['pid']}{out.suffix}")


def write_trace(raw: Path, number: int, target: Path, source: str) -> dict[str, Any]:
    """Make a process's trace, and put it in its place once it is whole; its counts."""
    with whole(target) as place:
        try:
            return run_tool(PROGRAM_TOOL, raw, str(number), place, source)
        except KmemError as error:
            raise KmemError(str(error).replace(str(place), str(target))) from None


def write_traces(raw: Path, out: Path, command: Sequence[str], *, every: bool) -> None:
    if not raw.exists() or raw.stat().st_size == 0:
        raise Nothing(
            f"record: {command[0]} recorded nothing: it did not load the library (a static or"
            " set-user-id program?), or could not write"
        )
    found = run_tool(PROGRAM_TOOL, raw)
    processes = sorted(found["processes"], key=lambda process: -process["events"])
    if not processes:
        raise Nothing(f"record: {command[0]} recorded nothing")
    for place, process in enumerate(processes if every else processes[:1]):
        target = name_of(out, process) if place else out
        source = source_of(f"program: {process['name']} ({process['pid']}) of: ", command)
        counts = write_trace(raw, process["number"], target, source)
        say(f"{target}: {process['name']} ({process['pid']}): {shown(counts)}{unmatched(counts)}")
    others = processes[1:]
    if others and not every:
        most = ", ".join(
            f"{process['name']} ({process['pid']}, {process['events']:,} events)"
            for process in others[:SHOWN_MOST]
        )
        more = " and more" if len(others) > SHOWN_MOST else ""
        say(f"not written, --all would: {most}{more}")
    if found["missing"]:
        reason = os.strerror(found["ended"]) if found["ended"] else "threads were killed meanwhile"
        say(f"{found['missing']:,} events were lost: {reason}")


def record_program(
    command: Sequence[str], out: Path, options: Sequence[str], *, every: bool
) -> int:
    """The program's exit status, as a shell has it."""
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    build()
    check_options("record", options)
    if not PROGRAM_TOOL.exists():
        raise KmemError("record: traces need libzstd; install libzstd-dev and run make build")
    check_out(out)
    with work_folder(out, {"command": list(command)}) as folder:
        raw = folder / "raw"
        # These characters would end the option, and the name with it.
        if set(",\n") & set(str(raw)) or len(os.fsencode(raw)) > PATH_MOST:
            raise BadUsage(
                f"record: {str(out)!r}: expected a path without commas and line ends, of at most"
                f" {PATH_MOST - 32} bytes"
            )
        # Of two equal options the last counts, so no other file gets the events.
        chosen = [argument for text in (*options, f"record={raw}") for argument in ("--set", text)]
        status = run_with_its_signals([LAUNCHER, "run", *chosen, "--", *command])
        if status in (125, 126, 127) and not raw.exists():
            return status
        with making_a_trace():
            write_traces(raw, out, command, every=every)
    return 128 - status if status < 0 else status


def recorders_of(raw: Path) -> list[int]:
    """Processes that have the file mapped: they go on recording after the command was killed."""
    status = raw.stat()
    there = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [process for process in there if is_mapped(process, status)]


def recover_program(folder: Path, out: Path, about: dict[str, Any], *, every: bool) -> None:
    raw = folder / "raw"
    if recorders := recorders_of(raw):
        raise KmemError(
            f"record recover: {folder}: process {recorders[0]} goes on recording into it; expected"
            " its end"
        )
    words = about.get("command")
    command = [str(word) for word in words] if isinstance(words, list) and words else ["?"]
    write_traces(raw, out, command, every=every)
