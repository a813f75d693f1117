# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Errors of a command, and the line that tells the user of them."""

import os
import sys


class KmemError(Exception):
    """An error with a one-line reason, which the command prints before it fails."""

    status = 1


class BadUsage(KmemError):
    """The command line is wrong, whatever the machine's state."""

    status = 2


def say(text: str) -> None:
    """Print a line on standard error. If that fails, the failure cannot be reported anywhere.

    Names in it come from the command line, from traces and from other processes.
    """
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    try:
        print(f"kmem: {line}", file=sys.stderr, flush=True)
    except OSError:
        # Python would write the rest of the buffer at exit, fail again, and exit with another
        # status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class SayOnce:
    """Prints each line only once: actions of users must not fill the disk with lines."""

    def __init__(self, most: int = 1000) -> None:
        """@most: different lines."""
        self.most = most
        self.said: set[str] = set()

    def __call__(self, line: str) -> None:
        if line not in self.said and len(self.said) < self.most:
            self.said.add(line)
            say(line)
