# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run of a program on an allocator, measured from outside by bench/timed.c."""

import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kmem.bench.allocators import Allocator, preloadable
from kmem.common.errors import KmemError
from kmem.common.tree import BUILD

TIMED = BUILD / "bench" / "timed"
TIMEOUT = 300.0  # seconds; a run that takes longer has hung

# /proc/stat counts in ticks, so a difference of this many seconds a CPU may be rounding.
TICKS_SECONDS = 2 / os.sysconf("SC_CLK_TCK")
FOREIGN_SHARE = 0.05  # share of all CPUs' time; if others took more, the run is disturbed


class RunError(KmemError):
    """Why a run does not count: its status, signal, time or output is wrong."""


@dataclass(frozen=True)
class Sample:
    """The measurements of a run."""

    seconds: float  # wall clock
    cpu_seconds: float  # user and kernel mode, with children
    peak_bytes: int  # resident, of the largest single process
    minor_faults: int
    major_faults: int
    output: str = ""  # must be equal on every allocator
    mib_seconds: float = 0.0  # memory over time, of all processes; 0 if it ended within 10 ms
    disturbed: bool = False  # other processes took CPU time that the run wanted


def clean_environment() -> dict[str, str]:
    """Our environment in the C locale, with no preload and with Python's objects on malloc."""
    ours = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return ours | {"LC_ALL": "C", "PYTHONMALLOC": "malloc"}


def busy_seconds(text: str | None = None) -> float:
    """CPU seconds of all processes on all CPUs, and seconds stolen by other guests (/proc/stat)."""
    words = (text or Path("/proc/stat").read_text()).split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words[1:9])
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU time of this process and of its children that ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def is_foreign(foreign: float, wall: float, cpus: int) -> bool:
    """Whether other processes' `foreign` CPU seconds are many beside `wall` seconds of all CPUs."""
    return foreign > (FOREIGN_SHARE * wall + TICKS_SECONDS) * cpus


@dataclass
class Watch:
    """Load of the machine since the object was made. Ask when all processes of a run have ended."""

    wall: float = field(default_factory=time.monotonic)
    busy: float = field(default_factory=busy_seconds)
    own: float = field(default_factory=own_seconds)

    def disturbed(self) -> bool:
        end = Watch()
        foreign = (end.busy - self.busy) - (end.own - self.own)
        return is_foreign(foreign, end.wall - self.wall, os.cpu_count() or 1)


def reason(command: str | Path, status: int, stderr: str) -> str:
    """A line about a run that ended badly. bench/timed.c reports signals as shells do."""
    what = f"status {status}"
    if status > 128:
        with suppress(ValueError):
            what = signal.Signals(status - 128).name
    said = " ".join(stderr.split())[-200:]
    return f"{Path(command).name} ended with {what}" + (f": {said}" if said else "")


@dataclass
class Timed:
    """A program under bench/timed.c, in a session of its own."""

    name: str
    process: subprocess.Popen[str]
    result: Path

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def wait(self, stdin: str | None = None, timeout: float = TIMEOUT) -> Sample:
        """Wait for the end; the sample does not include the load of other processes."""
        try:
            stdout, stderr = self.process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.communicate()
            raise RunError(f"{self.name} did not end in {timeout:.0f} s") from None
        if self.process.returncode != 0:
            raise RunError(reason(self.name, self.process.returncode, stderr))
        words = self.result.read_text().split()
        wall_ns, cpu_ns, peak_kib, minor, major, kib_ms = map(int, words)
        mib_seconds = kib_ms / 1024 / 1000
        peak = peak_kib * 1024
        return Sample(wall_ns / 1e9, cpu_ns / 1e9, peak, minor, major, stdout, mib_seconds)


@contextmanager
def started(
    folder: Path,
    command: Sequence[str | Path],
    allocator: Allocator,
    extra: Mapping[str, str] | None = None,
    user: Sequence[str] = (),
) -> Iterator[Timed]:
    """Start a program in FOLDER, and kill its remaining processes at the end.

    `extra` is added to the caller's environment; `user` is a command prefix that changes to another
    user.
    """
    try:
        preload = [] if allocator.library is None else ["-p", preloadable(allocator.library)]
    except KmemError as error:
        raise RunError(str(error)) from None
    with tempfile.NamedTemporaryFile(dir=folder, prefix="timed-") as result:
        Path(result.name).chmod(0o666)
        process = subprocess.Popen(
            [*user, str(TIMED), *preload, result.name, *map(str, command)],
            cwd=folder,
            env={**clean_environment(), **(extra or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        timed = Timed(str(command[0]), process, Path(result.name))
        try:
            yield timed
        finally:
            if process.poll() is None:
                timed.kill()
                process.communicate()


def timed_run(
    folder: Path,
    command: Sequence[str | Path],
    allocator: Allocator,
    extra: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> Sample:
    """Run a command that ends by itself."""
    with started(folder, command, allocator, extra) as timed:
        return timed.wait(stdin)
