# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Errors of a command, and the line that tells the user of them."""

import os
import sys


class KmemError(Exception):
    """A one-line reason for the user; the command prints it and fails."""

    status = 1


class BadUsage(KmemError):
    """The command line is wrong, whatever there is on the machine."""

    status = 2


def say(text: str) -> None:
    """One line on standard error; where it cannot be written there is no place to say that.

    Names in it come from the command line, from traces and from other processes.
    """
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    try:
        print(f"kmem: {line}", file=sys.stderr, flush=True)
    except OSError:
        # Python would try again at the end, and fail with a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
