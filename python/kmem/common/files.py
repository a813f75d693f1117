# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files that the user names: a failed read gives a reason, and a write is complete or not done."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kmem.common.errors import KmemError


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
    if os.access(place, os.W_OK):
        return None
    is_read_only = os.statvfs(place).f_flag & os.ST_RDONLY
    return os.strerror(errno.EROFS if is_read_only else errno.EACCES)


def read_text(file: Path, what: str) -> str:
    """The text of a file that the user named."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise KmemError(f"{what} {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise KmemError(f"{what} {file}: byte {error.start}: expected text in UTF-8") from None


def state_of(file: Path) -> tuple[int, ...] | None:
    """A value that differs once the file was replaced or written to; None without a file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def keep_owner(file: Path, successor: Path) -> None:
    """Give the new file the old file's owner and mode.

    If root writes into a user's folder, that user can still read and remove the file.
    """
    status = file.stat()
    with suppress(PermissionError):
        os.chown(successor, status.st_uid, status.st_gid)
    shutil.copymode(file, successor)


def stream_of(file: Path) -> int | None:
    """The descriptor of the stream that FILE is a link to, as /dev/stdout and /dev/stderr are."""
    with suppress(OSError):  # no such file, a closed stream
        for number in (1, 2):
            if file.is_symlink() and os.path.samestat(file.stat(), os.fstat(number)):
                return number
    return None


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Yield a path to write to; if all goes well, that file then replaces FILE.

    Until then the new file is in a folder of its own. In a folder that other users can write to, as
    /tmp, nobody can then put a link in its place. Devices, pipes and targets of links are written
    directly, and so are files in folders where no new file can be made. A stream of this command
    gets the content behind what it has: opened again, its file would be cut to nothing.
    """
    if (stream := stream_of(file)) is not None:
        with TemporaryDirectory(prefix="kmem-") as folder:
            beside = Path(folder) / file.name
            yield beside
            sys.stdout.flush()
            with beside.open("rb") as content, os.fdopen(os.dup(stream), "wb") as output:
                shutil.copyfileobj(content, output)
        return
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
