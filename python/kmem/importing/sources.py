# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `kmem import` reads: text as it is or packed, or the files of perf and trace-cmd.

perf.data and trace.dat are turned into text by perf and trace-cmd themselves, because their forms
change with these programs. Python 3.11 has no module for zstd, so its program unpacks.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
import subprocess
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from lzma import LZMADecompressor
from pathlib import Path
from threading import Thread
from typing import IO, Any

from kmem.common.errors import KmemError
from kmem.common.signals import killed_by_errors
from kmem.common.streams import Streams

PIECE = 1 << 20  # bytes
MAGIC_BYTES = 16
PACKED: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", lambda packed: Streams(packed, BZ2Decompressor)),
    b"\xfd7zXZ\x00": ("xz", lambda packed: Streams(packed, LZMADecompressor)),
}
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)
ZSTD = "zstd"
FIELDS = "comm,pid,tid,cpu,time,event,trace"

# Beginnings of files that a program turns into text: its name, Debian's package, and its words.
PROGRAMS: dict[bytes, tuple[str, str, list[str]]] = {
    b"PERFILE2": (
        "perf",
        "linux-perf",
        ["script", "--show-lost-events", "--ns", "-F", FIELDS, "-i"],
    ),
    b"(\xb5/\xfd": (ZSTD, "zstd", ["-dcq"]),
    # Without -l trace-cmd 3.1 does not print which interrupt a task was in.
    b"\x17\x08\x44tracing": ("trace-cmd", "trace-cmd", ["report", "-t", "-l", "-i"]),
}
OTHERS = {
    b"\xff\xfe": "text in UTF-16; expected UTF-8, as `iconv -f UTF-16 -t UTF-8` makes it",
    b"\xfe\xff": "text in UTF-16; expected UTF-8, as `iconv -f UTF-16 -t UTF-8` makes it",
    b"KMEMTRCE": "a trace already",
    b"SLTR0001": "a trace already",
}


class Failed:
    """An error of the thread that unpacks, for the command."""

    reason: str | None = None


def pump(source: IO[bytes], sink: IO[bytes], failed: Failed) -> None:
    """Write all of the source to the sink, until that end is closed."""
    try:
        with suppress(BrokenPipeError), sink:
            while piece := source.read(PIECE):
                sink.write(piece)
    except DAMAGED as error:
        failed.reason = str(error)


class Joined(io.RawIOBase):
    """The beginning of a stream, which was read to see what it is, and the rest behind it."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head = head
        self.rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def beginning(source: IO[bytes]) -> bytes:
    """The first bytes, which a file that can be read again keeps."""
    if source.seekable():
        place = os.lseek(source.fileno(), 0, os.SEEK_CUR)
        return os.pread(source.fileno(), MAGIC_BYTES, place)
    head = b""
    while len(head) < MAGIC_BYTES and (piece := source.read(MAGIC_BYTES - len(head))):
        head += piece
    return head


@contextmanager
def pumped(file: Path, source: IO[bytes], fault: str = "") -> Iterator[IO[bytes]]:
    """What the source has, through a pipe; @fault stands before the reason why it has no more.

    The source stays open: to close it would wait for the thread, and that for more of a stream
    whose writer has paused.
    """
    failed = Failed()
    out, into = os.pipe()
    with os.fdopen(out, "rb", buffering=0) as text:
        thread = Thread(target=pump, args=(source, os.fdopen(into, "wb"), failed), daemon=True)
        thread.start()
        yield text
        text.close()
        thread.join()
    if failed.reason is not None:
        raise KmemError(f"import: {file}: {fault}{failed.reason}")


@contextmanager
def converted(
    file: Path, name: str, package: str, words: Sequence[str], packed: IO[bytes] | int
) -> Iterator[IO[bytes]]:
    """The text that the file's own program makes of it, or of its own input."""
    program = shutil.which(name)
    if program is None:
        raise KmemError(
            f"import: {file}: only {name} reads it; expected that program (Debian: {package}), or"
            " the text that it prints"
        )
    command = [program, *words]
    with killed_by_errors(
        lambda: subprocess.Popen(
            command, stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        said: list[bytes] = []
        errors = running.stderr
        thread = Thread(target=lambda: said.extend(errors), daemon=True)
        thread.start()
        yield running.stdout
        running.stdout.close()
        running.wait()
        thread.join()
    if running.returncode != 0:
        lines = [line.decode(errors="replace").strip() for line in said]
        reason = next((line for line in reversed(lines) if line), "no reason given")
        raise KmemError(f"import: {file}: {name} ended with {running.returncode}: {reason}")


@contextmanager
def text_of(file: Path, plain: IO[bytes]) -> Iterator[IO[bytes]]:
    """By its beginning."""
    head = beginning(plain)
    is_stream = not plain.seekable()
    source: Any = Joined(head, plain) if is_stream else plain
    for magic, (form, opener) in PACKED.items():
        if head.startswith(magic):
            packed = opener(io.BufferedReader(source))
            with pumped(file, packed, f"damaged {form} file: ") as text:
                yield text
            return
    for magic, (name, package, words) in PROGRAMS.items():
        if not head.startswith(magic):
            continue
        if name == ZSTD:
            with (
                pumped(file, source) if is_stream else nullcontext(plain) as packed,
                converted(file, name, package, words, packed) as text,
            ):
                yield text
            return
        if is_stream or str(file) == "-":
            raise KmemError(
                f"import: {file}: only {name} reads it, and not from a stream; expected a file"
            )
        words = [*words, str(file.resolve())]
        with converted(file, name, package, words, subprocess.DEVNULL) as text:
            yield text
        return
    for magic, what in OTHERS.items():
        if head.startswith(magic):
            raise KmemError(f"import: {file}: {what}")
    with pumped(file, source) if is_stream else nullcontext(plain) as text:
        yield text


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """The text of FILE, - for standard input, as something that a program can have as its input."""
    is_input = str(file) == "-"
    try:
        # Without a buffer: a program reads on where this one has stopped.
        with (
            open(0 if is_input else file, "rb", buffering=0, closefd=not is_input) as plain,
            text_of(file, plain) as text,
        ):
            yield text
    except IsADirectoryError:
        wanted = "expected a file; of a folder of LTTng the text that babeltrace2 prints"
        raise KmemError(f"import: {file}: a folder; {wanted}") from None
    except OSError as error:
        raise KmemError(f"import: {file}: {error.strerror}") from None
