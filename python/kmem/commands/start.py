# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs the command line. An error is a single line; output that cannot be written is an error."""

import errno
import os
import signal
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

import typer

from kmem.commands.complaints import as_line
from kmem.commands.shown import command
from kmem.common.errors import KmemError, say
from kmem.common.signals import end_as_by_ctrl_c


def run_command() -> int:
    """Run the command line, print an error as a single line, and return the exit status."""
    try:
        # After typer.Exit, Typer returns its exit status; else it returns the command's own value.
        status = command()(prog_name="kmem", standalone_mode=False)
    except typer.TyperException as error:
        # Without text: a group of commands was called alone, and its help is printed.
        if error.format_message():
            say(as_line(error))
        return error.exit_code
    except KmemError as error:
        say(str(error))
        return error.status
    except MemoryError:
        say(os.strerror(errno.ENOMEM))
        return 1
    return status if isinstance(status, int) else 0


class Output(FileIO):
    """Standard output, which remembers that it could not be written.

    A text that is larger than the buffer is not kept in it, so a later flush would succeed.
    """

    failed = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            self.failed = True
            raise


def open_output() -> Output | None:
    """Print to an Output from now on; None if somebody else has put a stream in its place."""
    before = sys.stdout
    if before is not sys.__stdout__ or not isinstance(before, TextIOWrapper):
        return None
    output = Output(before.fileno(), "w", closefd=False)
    # Names of files, processes and caches may have letters that the locale lacks.
    sys.stdout = TextIOWrapper(
        BufferedWriter(output),
        encoding=before.encoding,
        errors="backslashreplace",
        line_buffering=before.line_buffering,
    )
    return output


def output_fails(output: Output | None) -> bool:
    """Whether printed text could not be written, or is still in the buffer and cannot be."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return output is not None and output.failed


def has_no_folder() -> bool:
    """Whether the folder that the command was started in is gone. No error of it has a name."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def start() -> int:
    """Run the command line, write its output, and return the exit status."""
    # Without this, programs started by the command would go on, and its folders would stay.
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    output = open_output()
    try:
        try:
            return run_command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        if not output_fails(output):  # no more processes, descriptors or memory
            if error.errno == errno.ENOENT and has_no_folder():
                say("the current folder was removed; expected one that exists")
            else:
                say(str(error.strerror))
            return 1
        # Python writes the rest of its buffer at exit, which would fail again: send it to
        # /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        # A reader that has seen enough is no error.
        if error.errno != errno.EPIPE:
            say(f"standard output: {error.strerror}")
        return 1
