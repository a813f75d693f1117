# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs the recorded command with the signals and the environment that it would have unrecorded."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


def given_environment() -> dict[bytes, bytes]:
    """The user's environment. In the C locale Python sets LC_CTYPE for itself and its children."""
    variables = dict(os.environb)
    variables.pop(b"LC_CTYPE", None)
    for entry in Path("/proc/self/environ").read_bytes().split(b"\0"):
        name, _, text = entry.partition(b"=")
        if name == b"LC_CTYPE":
            variables[name] = text
    return variables


def run_with_its_signals(arguments: Sequence[str | Path]) -> int:
    """Run the program; its status.

    Ctrl-C reaches the program and not the command, which passes other signals on, so that the
    events until then are recorded.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came while the program was started

    def pass_on(number: int, _: object) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    given = signal.signal(signal.SIGINT, signal.SIG_IGN)
    before = {signal.SIGINT: given}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, pass_on)

    def reset_interrupt() -> None:
        # As for a program in the background of a shell, an ignored signal stays ignored.
        if given != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    try:
        child = subprocess.Popen(arguments, env=given_environment(), preexec_fn=reset_interrupt)
        for earlier in early:
            child.send_signal(earlier)
        return child.wait()
    finally:
        for number, action in before.items():
            signal.signal(number, action)
