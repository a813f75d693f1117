# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs programs, with and without the drop-in malloc, and checks how they ended.

`Plain` runs a program as it is. `DropIn` runs it under `./kmem run` with one of the settings below,
and requires a zero exit code, no message of libkmem on standard error, and a slab table that shows
at least the stated number of objects handed out.

KMEM_TEST_PRELOAD=/path/to/another/malloc.so runs the same tests on that library instead, without
the slab table: a way to see whether a failure is libkmem's or the program's own.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from slabtable import SlabTable, read_table

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"
LIBRARIES = ROOT / "build" / "src"
HERE = Path(__file__).resolve().parent
PROGRAMS_IN_C = HERE / "c"
INPUTS = HERE / "inputs"

# Of messages, and of debugging's reports.
MESSAGE_PREFIXES = ("kmem:", "BUG ", "FIX ")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GIB = 1 << 30
Argument = str | Path
Command = list[Argument]


class ProgramError(AssertionError):
    """A program did not do what the test requires of it."""


@dataclass(frozen=True)
class Setting:
    """One way to run a program on the drop-in."""

    name: str
    options: str = ""  # for --set
    address_space: int = 0  # RLIMIT_AS in bytes, 0 for no limit
    environment: Mapping[str, str] = field(default_factory=dict)

    def with_options(self, options: str) -> "Setting":
        return replace(self, options=",".join(filter(None, (self.options, options))))

    def with_address_space(self, bytes_: int) -> "Setting":
        return replace(self, address_space=bytes_)


DEFAULT = Setting("default")
LOCKED = Setting("locked", options="slots=locked")
LIMITED = Setting("limited", address_space=4 * GIB)
SLAB = Setting("slab", options="engine=slab")
SLOB = Setting("slob", options="engine=slob")
MIXED = Setting("mixed", options="kmalloc-64.engine=slab,kmalloc-1*.engine=slob")
UNREGISTERED = Setting("unregistered", environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"})


@dataclass(frozen=True)
class Finished:
    """How a program ended; `tables` holds the slab table of each process that wrote one."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    tables: tuple[SlabTable, ...] = ()

    def describe(self) -> str:
        return (
            f"command: {' '.join(self.argv)}\nstatus: {self.status}\n"
            f"standard output (end):\n{self.stdout[-2000:]}\n"
            f"standard error (end):\n{self.stderr[-4000:]}"
        )

    def messages(self) -> list[str]:
        """The lines that libkmem wrote to standard error."""
        return [line for line in self.stderr.splitlines() if line.startswith(MESSAGE_PREFIXES)]

    def handed_out(self) -> int:
        """Objects that left the slabs of the process that used the most of them.

        Tables without a cache of malloc's sizes do not count.
        """
        return max((table.handed_out for table in self.tables if table.kmalloc_caches()), default=0)


def base_environment(folder: Path) -> dict[str, str]:
    """What every program finds: Debian's own tools, no user settings, one locale."""
    return {"PATH": SYSTEM_PATH, "HOME": str(folder), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def start(
    argv: Sequence[Argument],
    folder: Path,
    environment: Mapping[str, str],
    address_space: int = 0,
) -> subprocess.Popen[str]:
    """Starts a program in its own session, so that stop() reaches all of its children.

    Signals that our own parent ignored, as shells do for what runs in the background, are reset.
    """
    signals = ["env", "--default-signal=HUP,INT,QUIT"]
    limits = [*signals, "prlimit", "--core=0"]
    if address_space:
        limits.append(f"--as={address_space}")
    return subprocess.Popen(
        [*limits, "--", *map(str, argv)],
        cwd=folder,
        env={**base_environment(folder), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def stop(process: subprocess.Popen[str]) -> None:
    """Ends the session of a program that start() started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait(
    process: subprocess.Popen[str], stdin: str | None = None, timeout: float = 300.0
) -> Finished:
    """Feeds and waits for a program; one that does not end is stopped and reported."""
    argv = tuple(map(str, process.args)) if isinstance(process.args, list) else ()
    try:
        stdout, stderr = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        stdout, stderr = process.communicate()
        ended = Finished(argv, process.returncode, stdout, stderr)
        raise ProgramError(f"not finished after {timeout:.0f} s\n{ended.describe()}") from None
    return Finished(argv, process.returncode, stdout, stderr)


def check_status(finished: Finished, status: int = 0) -> None:
    if finished.status != status:
        raise ProgramError(f"status {finished.status}, not {status}\n{finished.describe()}")


def check_silent(finished: Finished) -> None:
    if finished.messages():
        raise ProgramError(f"libkmem wrote to standard error\n{finished.describe()}")


def check_served(finished: Finished, minimum: int, processes: int = 1) -> None:
    """The program's memory came from libkmem: its tables say so."""
    if len(finished.tables) < processes:
        raise ProgramError(
            f"{len(finished.tables)} slab tables, at least {processes} expected\n"
            + finished.describe()
        )
    if finished.handed_out() < minimum:
        raise ProgramError(
            f"{finished.handed_out()} objects handed out, at least {minimum} expected\n"
            + finished.describe()
        )


@dataclass
class Plain:
    """Runs programs without the drop-in."""

    folder: Path

    def run(
        self,
        argv: Sequence[Argument],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout: float = 300.0,
    ) -> Finished:
        process = start(argv, folder or self.folder, environment or {})
        finished = wait(process, stdin, timeout)
        check_status(finished)
        return finished


@dataclass
class DropIn:
    """Runs programs on the drop-in malloc under one setting."""

    setting: Setting
    folder: Path
    command: Path = KMEM
    preload: str = field(default_factory=lambda: os.environ.get("KMEM_TEST_PRELOAD", ""))

    def under(self, setting: Setting) -> "DropIn":
        return replace(self, setting=setting)

    def next_tables(self) -> Path:
        """A new folder for the tables of one run; any user may write there."""
        tables = Path(tempfile.mkdtemp(prefix="tables-", dir=self.folder))
        tables.chmod(0o1777)
        return tables

    def command_line(self, argv: Sequence[Argument], table: Path | None) -> Command:
        if self.preload:
            return ["env", f"LD_PRELOAD={self.preload}", *argv]
        chosen: Command = ["--set", self.setting.options] if self.setting.options else []
        written: Command = ["--slabinfo", table] if table else []
        return [self.command, "run", *chosen, *written, "--", *argv]

    def read_tables(self, tables: Path, every: bool) -> tuple[SlabTable, ...]:
        if self.preload:
            return ()
        files = sorted(tables.iterdir()) if every else [tables / "table"]
        return tuple(read_table(file) for file in files)

    def start(
        self,
        argv: Sequence[Argument],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        table: Path | None = None,
    ) -> subprocess.Popen[str]:
        return start(
            self.command_line(argv, table),
            folder or self.folder,
            {**self.setting.environment, **(environment or {})},
            self.setting.address_space,
        )

    def launch(
        self,
        argv: Sequence[Argument],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        every: bool = False,
    ) -> tuple[subprocess.Popen[str], Callable[[], tuple[SlabTable, ...]]]:
        """Starts a program; the function returned reads its tables once it has ended."""
        tables = self.next_tables()
        process = self.start(argv, folder, environment, tables / ("%p" if every else "table"))
        return process, lambda: self.read_tables(tables, every)

    def attempt(
        self,
        argv: Sequence[Argument],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout: float = 300.0,
    ) -> Finished:
        """Runs a program that may end in any way; nothing is checked, no table is written."""
        return wait(self.start(argv, None, environment), stdin, timeout)

    def run(
        self,
        argv: Sequence[Argument],
        *,
        minimum: int,
        processes: int = 1,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout: float = 300.0,
    ) -> Finished:
        """Runs a program that must succeed.

        `minimum` is the least number of objects that must have left the slabs. With `processes`
        above one, every process writes a table, at least so many must be there, and the minimum
        holds for the one that used the most objects.
        """
        every = processes > 1
        process, read = self.launch(argv, folder=folder, environment=environment, every=every)
        ended = wait(process, stdin, timeout)
        check_status(ended)
        return self.check(ended, read, minimum, processes)

    def check(
        self,
        ended: Finished,
        read: Callable[[], tuple[SlabTable, ...]],
        minimum: int,
        processes: int = 1,
    ) -> Finished:
        """The checks of run() for a program that has ended with status zero."""
        check_silent(ended)
        finished = Finished(ended.argv, ended.status, ended.stdout, ended.stderr, read())
        if not self.preload:
            check_served(finished, minimum, processes)
        return finished


@contextmanager
def stopping(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Ends a server that a failing test would leave behind."""
    try:
        yield process
    finally:
        if process.poll() is None:
            stop(process)
            process.communicate()
