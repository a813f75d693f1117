# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What all tests have in common: the signals that programs find."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def programs_find_signals_as_at_a_terminal() -> None:
    """Also under nohup and in the background of a script, where they would find some ignored.

    A handler that does nothing keeps us from the signal as well, and exec does not hand it on.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
