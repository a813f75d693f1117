# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a script has started and made ends with the script, in whatever way that is ended.

A script calls exceptions_for_signals() first, but after its imports: Polars has a handler of SIGINT
that lets Python's wait for a program go on. Then a signal that ends the script unwinds its blocks,
which remove temporary folders, end programs and put settings back.

SIGKILL unwinds nothing, so the kernel ends the programs: each is tied to the thread that started
it. Programs that start others, which may outlive them, have process ids of their own (own_system);
these end as a whole.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_SECONDS = 30  # for a program that was asked to end

# Programs that run() waits for, in whatever thread, with the signals that end them.
_running: dict[subprocess.Popen[Any], int] = {}


def _end(number: int, _frame: object) -> NoReturn:
    # A second signal would cut short what the first unwinds.
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    for process, by in list(_running.items()):
        process.send_signal(by)
    sys.exit(128 + number)


def exceptions_for_signals() -> None:
    """Signals that would end this process raise SystemExit, but for those it was told to ignore."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def tied(command: Sequence[str | Path]) -> list[str | Path]:
    """The command that ends, by SIGKILL, with the thread that starts it."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def own_system(command: Sequence[str | Path]) -> list[str | Path]:
    """The command with mounts and process ids of its own, and with all that it leaves behind tied.

    Needs root. Process 1 there is the command, which has to wait for processes without a parent.
    """
    options = ["--pid", "--fork", "--kill-child", "--mount", "--propagation", "private"]
    return tied(["unshare", *options, *command])


def end(process: subprocess.Popen[Any], by: int = signal.SIGTERM) -> None:
    """Ask the program to end by this signal, and wait until it has."""
    process.send_signal(by)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def started(
    command: Sequence[str | Path], by: int = signal.SIGTERM, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """As subprocess.Popen, but the program may put things back before it ends with this script."""
    with subprocess.Popen(tied(command), **options) as process:
        _running[process] = by
        try:
            yield process
            process.wait()
        except BaseException:
            end(process, by)
            raise
        finally:
            del _running[process]


def run(command: Sequence[str | Path], by: int = signal.SIGTERM, **options: Any) -> int:
    """As `started`; waits for the program, and returns its exit status."""
    with started(command, by, **options) as process:
        return process.wait()


@contextmanager
def setting(file: Path, value: str, before: str) -> Iterator[None]:
    """With this value in a file of the system's; @before is there again when this script ends.

    A process that signals and SIGKILL do not reach waits for the end of its input.
    """
    script = 'trap "" HUP INT TERM; cat >/dev/null; echo "$1" >"$2"'
    with subprocess.Popen(
        ["sh", "-c", script, "sh", before, file], stdin=subprocess.PIPE, start_new_session=True
    ) as keeper:
        try:
            file.write_text(value)
            yield
        finally:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()
