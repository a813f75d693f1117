# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names of the functions of a process, by its mappings and the files that they are of."""

import bisect
import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kmem.common.processes import MAPS_MOST_BYTES, open_maps, start_time
from kmem.common.text import printable
from kmem.live.images import Image, place_of, read_image
from kmem.live.java_maps import ask_for_map, is_java
from kmem.live.java_methods import Machine, open_machine
from kmem.live.lines import Line
from kmem.live.perf_maps import PerfMap, made_line
from kmem.live.pprof import Frame, Mapping
from kmem.live.stacks import ENTRY, FRAMES_MOST, PYTHON, Stack, python_line

CUT = f"[cut at {FRAMES_MOST} frames]"  # the root of a stack whose outer frames are not known
ELF_MAGIC = b"\x7fELF"


def read_mappings(process: int) -> list[Mapping]:
    """Mappings of files, by address; none if they may not be read."""
    found = []
    try:
        with open_maps(process) as maps:
            text = maps.read(MAPS_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    for line in text.split("\n"):
        words = line.split(maxsplit=5)
        if len(words) == 6:
            start, end = (int(word, 16) for word in words[0].split("-"))
            found.append(Mapping(start, end, int(words[2], 16), words[5]))
    return found


def program_path(process: int) -> str:
    """The path of its program as its mappings have it; empty if it may not be read."""
    try:
        path = os.fsencode(Path(f"/proc/{process}/exe").readlink())
    except OSError:
        return ""
    return path.decode("utf-8", "replace")


def open_mapped(process: int, mapping: Mapping) -> int | None:
    """A mapped file by the kernel's own links; None if it is no ELF file, or may not be opened.

    The link to the program is for its user, those to all mapped files are for root.
    """
    folder = Path(f"/proc/{process}")
    ways = [folder / "map_files" / f"{mapping.start:x}-{mapping.end:x}"]
    if program_path(process) == mapping.path:
        ways.insert(0, folder / "exe")
    for way in ways:
        with contextlib.suppress(OSError):
            # A device is not even opened.
            if not stat.S_ISREG(way.stat().st_mode):
                continue
            descriptor = os.open(way, os.O_RDONLY | os.O_NONBLOCK)
            # Others, as the registry and large files of data, are not kept.
            if os.pread(descriptor, len(ELF_MAGIC), 0) == ELF_MAGIC:
                return descriptor
            os.close(descriptor)
    return None


def close_all(descriptors: dict[str, int | None]) -> None:
    for descriptor in descriptors.values():
        if descriptor is not None:
            os.close(descriptor)


EVALUATE = "_PyEval_EvalFrameDefault"  # the interpreter's function that runs functions in Python


def merged(
    frames: Sequence[tuple[Frame, bool]], functions: Sequence[tuple[Line | None, bool]]
) -> list[Frame]:
    """The frames with functions in Python in place of the interpreter's frames, which are marked.

    A call of the interpreter from C code runs the functions up to the one that C code called, which
    is marked. Functions without a frame of the interpreter stand as the outermost.
    """
    left = list(functions)
    whole: list[Frame] = []
    for frame, is_interpreter in frames:
        if frame.address == 0:  # the root of a stack that was cut
            break
        if not is_interpreter or not left:
            whole.append(frame)
            continue
        is_entry = False
        before = len(whole)
        while left and not is_entry:
            line, is_entry = left.pop(0)
            if line is not None:
                whole.append(Frame(0, (line,), None))
        if len(whole) == before:
            whole.append(frame)
    whole += [Frame(0, (line,), None) for line, _ in left if line is not None]
    return [*whole, *(frame for frame, _ in frames[-1:] if frame.address == 0)]


class Symbols:
    """Names the frames of a process, also when it has ended or become another program since.

    The mappings are those of the last look. The files are the files that the process sees, which
    may be in a container; their debug files may be outside of it too. A file that is not at its
    path is kept open from the first look on, as only a running process leads to it.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.program = ""  # the path of the program in its mappings
        self.mappings: list[Mapping] = []
        self.starts: list[int] = []
        self.images: dict[str, Image] = {}
        self.perf_map = PerfMap(process)
        self.java: Machine | None = None  # a machine whose memory can be read
        self.java_is_looked_for = False
        self.started = start_time(process)
        self.notes: list[str] | None = None  # on names that are missing; None: not looked for yet
        self.python_names: dict[int, Line] = {}  # functions in Python
        self.evaluators: dict[str, range] = {}  # where files have the function EVALUATE
        self.kept: dict[str, int | None] = {}  # descriptors of files that are not at their paths
        self.root: int | None = None
        with contextlib.suppress(OSError):
            self.root = os.open(f"/proc/{process}/root", os.O_PATH)

    def close(self) -> None:
        if self.root is not None:
            os.close(self.root)
            self.root = None
        close_all(self.kept)
        self.kept.clear()
        if self.java is not None:
            self.java.close()
            self.java = None

    def look(self, is_the_same: Callable[[], bool]) -> bool:
        """Read the mappings as they are now; False if the program has ended or changed."""
        mappings = read_mappings(self.process)
        kept = self.keep(mappings)
        program = program_path(self.process)
        if not is_the_same():
            close_all(kept)
            return False
        self.kept |= kept
        if mappings:
            self.program = program
            self.mappings = mappings
            self.starts = [mapping.start for mapping in mappings]
        return True

    def keep(self, mappings: Sequence[Mapping]) -> dict[str, int | None]:
        """Open the files among those not yet looked at that are not at their paths.

        A file was deleted or replaced, as by an update, or is outside of the process's root.
        """
        found: dict[str, int | None] = {}
        roots = self.roots()
        for mapping in mappings:
            path = mapping.path
            if not path.startswith("/") or path in self.kept or path in found:
                continue
            is_there = bool(roots) and (roots[0] / path.lstrip("/")).exists()
            found[path] = None if is_there else open_mapped(self.process, mapping)
        return found

    def elsewhere(self, path: str) -> Path | None:
        kept = self.kept.get(path)
        return None if kept is None else Path(f"/proc/self/fd/{kept}")

    def roots(self) -> list[Path]:
        """The process's own file system, then the command's."""
        return [] if self.root is None else [Path(f"/proc/self/fd/{self.root}"), Path("/")]

    def image(self, path: str) -> Image:
        if path not in self.images:
            self.images[path] = read_image(path, self.roots(), self.elsewhere(path))
        return self.images[path]

    def frame(self, return_address: int) -> Frame:
        """The name of the call before a return address; 0 stands for frames that were cut off."""
        if return_address == 0:
            return Frame(0, (Line(CUT),), None)
        address = return_address - 1
        at = bisect.bisect(self.starts, address) - 1
        mapping = self.mappings[at] if at >= 0 else None
        lines: tuple[Line, ...] = ()
        if mapping is None or address >= mapping.end or not mapping.path.startswith("/"):
            mapping, shown = None, f"0x{address:x}"
        else:
            offset = address - mapping.start + mapping.offset
            image = self.image(mapping.path)
            lines = image.lines_at(offset)
            mapping = replace(mapping, build_id=image.build_id, has_lines=image.has_lines)
            # SVG allows no control characters.
            shown = printable(f"[{Path(mapping.path).name}]+0x{offset:x}")
        # Code that the program made may also be in a file without a name, as of memfd_create.
        lines = lines or self.made_lines(return_address) or (Line(shown),)
        return Frame(address, lines, mapping)

    def find_java(self) -> Machine | None:
        """A machine of Java that can be read, looked for once the process has its library."""
        if not self.java_is_looked_for and is_java(self.mappings):
            self.java_is_looked_for = True
            # Not another program that has the number by now.
            if self.started is not None and start_time(self.process) == self.started:
                self.java = open_machine(self.process, self.mappings, self.roots())
        return self.java

    def see(self, stacks: Callable[[], Iterable[Stack]]) -> None:
        """Name methods of Java while they are there: their code may be thrown away soon."""
        if java := self.find_java():
            java.look_again()
            for stack in stacks():
                for address in stack:
                    java.lines_at(address)

    def made_lines(self, return_address: int) -> tuple[Line, ...]:
        """Of code that the program made while it ran."""
        java = self.find_java()
        if self.notes is None:
            self.notes = []
            still_runs = self.started is not None and start_time(self.process) == self.started
            # Where its memory may not be read, as with ptrace_scope, it tells the outer methods.
            is_asked = still_runs and java is None and is_java(self.mappings)
            if is_asked and (why := ask_for_map(self.process)):
                self.notes.append(f"functions of Java may have no names: {why}")
        if java is not None and (lines := java.lines_at(return_address)):
            return lines
        name = self.perf_map.name(self.roots()[:1], return_address - 1)
        return () if name is None else (made_line(name),)

    def frames(self, stack: Stack) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first."""
        python = [frame for frame in stack if frame & PYTHON]
        native = [self.frame(address) for address in stack if not address & PYTHON]
        if not python:
            return tuple(native)
        marked = [(frame, self.is_interpreter(frame)) for frame in native]
        functions = [
            (python_line(frame, self.python_names), bool(frame & ENTRY)) for frame in python
        ]
        return tuple(merged(marked, functions))

    def is_interpreter(self, frame: Frame) -> bool:
        """Whether a frame is of the function that runs functions in Python.

        By its place, as names are of debugging information, which may name a part of a function.
        """
        mapping = frame.mapping
        if mapping is None:
            return False
        if mapping.path not in self.evaluators:
            self.evaluators[mapping.path] = place_of(
                EVALUATE, mapping.path, self.roots(), self.elsewhere(mapping.path)
            )
        offset = frame.address - mapping.start + mapping.offset
        return offset in self.evaluators[mapping.path]
