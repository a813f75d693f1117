# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Signals that end a command."""

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Text = TypeVar("Text", str, bytes)


def handle(handler: Callable[..., None], *numbers: signal.Signals) -> None:
    """Install a handler, except for signals that the command was told to ignore (nohup)."""
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def end_as_by_ctrl_c(*numbers: signal.Signals) -> None:
    """Let these signals end the command as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handle(interrupt, *numbers)


@contextlib.contextmanager
def signals_kept() -> Iterator[list[int]]:
    """Collect the signals that would end the command.

    A closed terminal sends more than one, and people press Ctrl-C twice. The second signal must not
    interrupt the orderly end that the first began, or the program would stay under sampling.
    """
    kept: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        handle(lambda number, _: kept.append(number), *numbers)
        yield kept
    finally:
        for number, action in before.items():
            signal.signal(number, action)


@contextlib.contextmanager
def killed_by_errors(
    start: Callable[[], subprocess.Popen[Text]],
) -> Iterator[subprocess.Popen[Text]]:
    """A program that is killed if the block is left by an error, such as the end by a signal.

    A signal while the program starts is kept until it can be killed: subprocess would forget a
    program whose start was interrupted, and that would go on. Python gives signals to the main
    thread only, so a start on any other needs no care.
    """
    with contextlib.ExitStack() as starting:
        kept: list[int] = []
        if threading.current_thread() is threading.main_thread():
            kept = starting.enter_context(signals_kept())
        with start() as program:
            try:
                starting.close()
                for number in kept:
                    signal.raise_signal(number)
                yield program
            except BaseException:
                program.kill()
                raise
