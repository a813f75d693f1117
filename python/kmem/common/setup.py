# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the parts of the tree are, and making sure that they are there."""

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
LIBRARY = BUILD / "src" / "libkmem-malloc.so"
# The tables of mails that figures are compared with.
MAIL = Path(__file__).parents[1] / "lab" / "mail"


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


def why_not_written(file: Path) -> str | None:
    """The reason why FILE cannot be written, as far as is known before; None if it can be."""
    try:
        if file.is_dir():
            return os.strerror(errno.EISDIR)
        place = file if file.exists() else file.parent
        if place != file and not place.is_dir():
            return os.strerror(errno.ENOENT)
    except OSError as error:  # a name that is too long, a folder that may not be searched
        return error.strerror
    return None if os.access(place, os.W_OK) else os.strerror(errno.EACCES)


def read_text(file: Path, what: str) -> str:
    """The text of a file that the user named."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise KmemError(f"{what} {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise KmemError(f"{what} {file}: byte {error.start}: expected text in UTF-8") from None


def handle(handler: Callable[..., None], *numbers: signal.Signals) -> None:
    """These signals from now on, but those that the command was told to ignore (nohup)."""
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def end_as_by_ctrl_c(*numbers: signal.Signals) -> None:
    """So signals end the command from now on."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handle(interrupt, *numbers)


def children_of_threads() -> list[int]:
    """The processes that this one's threads have started; a thread may end meanwhile."""
    found: list[int] = []
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.extend(map(int, (thread / "children").read_text().split()))
    return found


@contextmanager
def waiting_threads(count: int | None) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for programs, which end with the command if it is ended or fails."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children_of_threads():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            raise


def build(*files: Path) -> None:
    """Build what is out of date, of these files or of all; quick when nothing is."""
    names = [file.relative_to(BUILD) for file in files]
    if subprocess.run([ROOT / "scripts" / "build", *names], check=False).returncode != 0:
        raise KmemError("the build failed, see above")


def need_packages(*names: str) -> None:
    """Install missing Debian packages as root; otherwise the script prints the line."""
    script = ROOT / "scripts" / "debian-packages"
    if subprocess.run([script, *names], check=False).returncode != 0:
        raise KmemError("Debian packages are missing, see above")


def need_extra(extra: str) -> None:
    """Install the packages of an extra of pyproject.toml; quick when they are there."""
    if subprocess.run([ROOT / "scripts" / "venv", extra], check=False).returncode != 0:
        raise KmemError(f"the Python packages of kmem[{extra}] cannot be installed, see above")


def with_option(option: str) -> str:
    """KMEM_OPTIONS as it is set, and one option more."""
    return ",".join(filter(None, [os.environ.get("KMEM_OPTIONS"), option]))


def read_mail(name: str) -> list[dict[str, str]]:
    """The rows of a table of a mail."""
    with (MAIL / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def keep_owner(file: Path, successor: Path) -> None:
    """And its mode: root may write into the folder of somebody who is to read and remove it."""
    status = file.stat()
    with suppress(PermissionError):
        os.chown(successor, status.st_uid, status.st_gid)
    shutil.copymode(file, successor)


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Where to write FILE, which is made, or replaced by a new one, at the end if all went well.

    Devices, pipes and what links lead to are written where they are, and so are files in folders
    where none can be made. Until then it is in a folder of its own: in one that others write to, as
    /tmp, nobody can put a link in its place.
    """
    elsewhere = file.is_symlink() or (file.exists() and not file.is_file())
    if elsewhere or not os.access(file.parent, os.W_OK):
        yield file
        return
    with TemporaryDirectory(prefix=".kmem-", dir=file.parent) as folder:
        beside = Path(folder) / file.name
        yield beside
        if file.exists():
            keep_owner(file, beside)
        beside.replace(file)


def write_result(file: Path | None, option: str, text: str) -> None:
    """The result file that an option asks for; nothing without a name."""
    if file is None:
        return
    try:
        with whole(file) as place:
            place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise KmemError(f"{option} {file}: {error.strerror}") from None


def write_json(file: Path | None, document: dict[str, object]) -> None:
    """The result file that --json asks for; nothing without a name."""
    write_result(file, "--json", json.dumps(document, indent=1) + "\n")
