# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem guards: the faults that sampled guards have found, in running and in ended processes.

A process appends a line of JSON for each fault to a file of its own beside its registry, also when
the fault ends it (src/profile/guard_report.c). The file of a process that has ended is removed once
it was shown. Root reads files of other users, who may have put anything there.
"""

import contextlib
import json
import os
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from kmem.common.errors import KmemError, SayOnce, say
from kmem.common.processes import start_time
from kmem.common.text import printable
from kmem.live.images import Image, read_image
from kmem.live.registry.find import USER_LINES, open_process
from kmem.live.registry.heap import read_guards
from kmem.live.registry.owner import files, folders_of, opened

SUFFIX = ".faults"
FILE_MOST_BYTES = 4 << 20  # the library writes 64 lines of at most 16 KiB
USER_MOST_BYTES = 4 << 20  # of all files of another user in one look
STEPS = ("here", "allocated", "freed")  # whose threads and stacks a fault has


@dataclass(frozen=True)
class FaultFile:
    """A file of faults in its folder."""

    folder: Path
    name: str
    process: int

    @property
    def ended(self) -> bool:
        return start_time(self.process) is None

    def read(self, left: int | None) -> bytes:
        """What is in it. KmemError if it is longer than @left, or not to be trusted."""
        with opened(self.folder) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(self.name, flags, dir_fd=folder), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.fstat(folder).st_uid:
                    raise KmemError(f"{self.folder / self.name}: not a file of the folder's user")
                if status.st_nlink > 1:
                    raise KmemError(
                        f"{self.folder / self.name}: has {status.st_nlink} names; expected one"
                    )
                if left is not None and status.st_size > left:
                    raise KmemError(
                        f"{self.folder / self.name}: not read; expected {USER_MOST_BYTES >> 20} MiB"
                        " of faults of a user at a time"
                    )
                return file.read(FILE_MOST_BYTES if left is None else left)

    def remove(self) -> None:
        with contextlib.suppress(OSError), opened(self.folder) as folder:
            os.unlink(self.name, dir_fd=folder)


def text_of(value: Any) -> str:
    return printable(value)[:200] if isinstance(value, str) else "?"


def number_of(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 64 else 0


def frames_of(value: Any) -> list[list[Any]]:
    frames = value if isinstance(value, list) else []
    return [
        [frame[0], number_of(frame[1]), number_of(frame[2])]
        for frame in frames[:64]
        if isinstance(frame, list) and len(frame) == 3 and isinstance(frame[0], str)
    ]


def parsed(line: bytes) -> dict[str, Any] | None:
    """A fault with the fields that readers know, in their types; None for other text."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "fault" not in found:
        return None
    fault: dict[str, Any] = {
        name: text_of(found[name])
        for name in ("fault", "access", "where", "cache", "command")
        if name in found
    }
    fault |= {
        name: number_of(found[name])
        for name in ("process", "time", "address", "object", "bytes")
        if name in found
    }
    for step in STEPS:
        if isinstance(found.get(step), dict):
            fault[step] = {
                "thread": number_of(found[step].get("thread")),
                "frames": frames_of(found[step].get("frames")),
            }
    return fault


def fault_files(process: int | None) -> Iterator[FaultFile]:
    """The files of this pid namespace that may be read; of one process, or of all."""
    for path, number in files(SUFFIX):
        if process in (None, number):
            yield FaultFile(path.parent, path.name, number)


def contents(process: int | None) -> Iterator[tuple[FaultFile, bytes]]:
    """The files that can be read, and what is in them. A few lines of reasons for others."""
    own = folders_of(os.geteuid())
    left: dict[Path, int] = defaultdict(lambda: USER_MOST_BYTES)
    refused: Counter[Path] = Counter()
    for file in fault_files(process):
        is_own = file.folder in own
        try:
            content = file.read(None if is_own else left[file.folder])
        except (OSError, KmemError) as error:
            refused[file.folder] += 1
            if is_own or refused[file.folder] <= USER_LINES:
                path = file.folder / file.name
                say(f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error))
            continue
        left[file.folder] -= len(content)
        yield file, content
    for folder, count in refused.items():
        if folder not in own and count > USER_LINES:
            say(f"{folder}: {count - USER_LINES} more of this user's files could not be read")


class Names:
    """Functions and lines in files, as far as these are still the same and can be read."""

    def __init__(self) -> None:
        self.images: dict[str, Image] = {}
        self.changes: dict[str, float] = {}  # when the files were last changed, or put there
        self.say_once = SayOnce()

    def of(self, frame: list[Any], moment: int) -> list[str]:
        """The functions inlined at the place of a frame of a moment, then the function itself."""
        path, offset, address = frame
        if not path.startswith("/"):
            return [f"0x{address:x}"]
        place = [printable(f"[{Path(path).name}]+0x{offset:x}")]
        if path not in self.images:
            self.images[path] = read_image(path)
            with contextlib.suppress(OSError, ValueError):
                self.changes[path] = Path(path).stat().st_ctime
        # Another file may be there since, as a program that was built anew.
        if int(self.changes.get(path, 0)) > moment:
            self.say_once(f"{path} was changed after a fault, whose frames there have no names")
            return place
        return [
            f"{line.function} ({line.file}:{line.number})" if line.file else line.function
            for line in self.images[path].lines_at(offset)
        ] or place


def with_names(fault: dict[str, Any], names: Names) -> dict[str, Any]:
    return fault | {
        step: {
            "thread": fault[step]["thread"],
            "frames": [
                name
                for frame in fault[step]["frames"]
                for name in names.of(frame, fault.get("time", 0))
            ],
        }
        for step in STEPS
        if step in fault
    }


def fault_lines(fault: dict[str, Any]) -> Iterator[str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(fault.get("time", 0), 1 << 40)))
    yield (
        f"{when} process {fault.get('process', 0)} ({fault.get('command', '?')}):"
        f" {fault['fault']}: {fault.get('access', '?')} at 0x{fault.get('address', 0):x}"
    )
    if "object" in fault:
        yield (
            f"  {fault.get('where', '?')}, of an object of {fault.get('bytes', 0)} bytes at"
            f" 0x{fault['object']:x} of cache {fault.get('cache', '?')}"
        )
    for step in STEPS:
        if step in fault:
            yield f"  {step} by thread {fault[step]['thread']}:"
            yield from (f"    {frame}" for frame in fault[step]["frames"])


def why_no_faults(process: int) -> str:
    """What it means that a process has none, so that silence is not taken for safety.

    Raises KmemError for a running process that cannot have any, and for a number that no process
    can have had. One that has ended may have had none, which is what one hopes for, so that is no
    error.
    """
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    if process > most:
        raise KmemError(f"process {process}: there never was one; expected at most {most}")
    if start_time(process) is None:
        return f"process {process}: there is none, and it has left no faults that were not shown"
    with open_process(process) as registry:
        guards = read_guards(registry)
    if guards and guards.made:
        many = "s"[: guards.made != 1]
        return f"process {process}: no faults, with {guards.made} guard{many} made so far"
    return (
        f"process {process}: it has made no guards, so no faults can be found; expected one started"
        f" with kmem run --guards, or: kmem attr {process} '*/guard_sampling' 1000"
    )


def show_guards(process: int | None, *, as_json: bool, keep: bool) -> None:
    names = Names()
    faults = []
    shown = []
    for file, content in contents(process):
        found = map(parsed, content.splitlines())
        faults += [with_names(fault, names) for fault in found if fault is not None]
        shown.append(file)
    faults.sort(key=lambda fault: fault.get("time", 0))
    if process is not None and not faults:
        say(why_no_faults(process))
    elif not faults:
        say("no faults that were not shown")
    if as_json:
        typer.echo(json.dumps(faults, indent=1))
    else:
        for fault in faults:
            for line in fault_lines(fault):
                typer.echo(line)
    for file in shown:
        if file.ended and not keep:
            file.remove()
