# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The folder that a recording writes its events into, beside the trace.

The folder is removed once there is a trace of its events. It stays if no trace could be made, or if
the command was killed: `kmem record recover` makes the trace later, from a folder that no command
has locked. A trace that goes to a device or a pipe has no place beside it: its folder is among the
temporary files, and nothing of it is kept.
"""

import fcntl
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kmem.common.errors import KmemError, say

PREFIX = ".kmem-record-"  # of work folders
ABOUT = "about.json"  # in a work folder: facts on the recording that its trace repeats


class Nothing(KmemError):
    """Why a folder has no events that a trace could be made of."""


class Unmade(KmemError):
    """Why no trace of a recording could be made."""


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Whether the folder is ours alone; the lock ends with the command, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ours = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ours = False
        yield ours
    finally:
        os.close(descriptor)


def is_no_file(out: Path) -> bool:
    return out.exists() and not out.is_file()


def place_of(out: Path) -> Path:
    """The folder of a work folder."""
    return Path(tempfile.gettempdir()) if is_no_file(out) else out.resolve().parent


@contextmanager
def removed_after(folder: Path, out: Path) -> Iterator[None]:
    """Remove the folder at the end, unless it holds a recording without a trace."""
    try:
        yield
    except Unmade as error:
        if is_no_file(out):
            shutil.rmtree(folder, ignore_errors=True)
            raise KmemError(f"{error}; what was recorded is lost, as {out} is no file") from None
        words = shlex.join(["kmem", "record", "recover", str(folder)])
        raise KmemError(f"{error}; what was recorded is kept: {words} --out FILE") from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def work_folder(out: Path, about: dict[str, Any]) -> Iterator[Path]:
    """A folder beside the trace, so that raw events are on the disk that the user chose."""
    tell_of_others(out)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place_of(out)))
        with locked(folder), removed_after(folder, out):
            write_about(folder, out, about)
            yield folder
    except OSError as error:
        if error.filename is None:  # a program that could not be started, for want of memory
            raise
        raise KmemError(f"record: {out}: {error.strerror}; expected a place to write to") from None


def write_about(folder: Path, out: Path, about: dict[str, Any]) -> None:
    try:
        (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    except OSError as error:
        raise KmemError(f"record: {out}: {error.strerror}; expected room for events") from None


def tell_of_others(out: Path) -> None:
    """Tell of recordings in folders beside this trace that no command makes a trace of."""
    for folder in sorted(place_of(out).glob(f"{PREFIX}*")):
        with suppress(OSError), locked(folder) as ours:
            if ours and has_events(folder):
                words = shlex.join(["kmem", "record", "recover", str(folder)])
                say(f"an earlier recording has no trace yet: {words} --out FILE makes one")


def has_events(folder: Path) -> bool:
    return (folder / "raw").exists() or (folder / "cpu0").exists()


@contextmanager
def making_a_trace() -> Iterator[None]:
    try:
        yield
    except Nothing:
        raise
    except KmemError as error:
        raise Unmade(str(error)) from None
    except OSError as error:
        raise Unmade(f"record: {error.filename or 'the trace'}: {error.strerror}") from None


def read_about(folder: Path) -> dict[str, Any]:
    """The facts that the command wrote before it began; empty if the disk was full then."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = None
    return about if isinstance(about, dict) else {}
