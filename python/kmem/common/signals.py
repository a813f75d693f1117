# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Signals that end a command."""

import signal
from collections.abc import Callable


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
