# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `kmem import` reads: text as it is or packed, or the files of perf and trace-cmd.

perf.data and trace.dat are turned into text by perf and trace-cmd themselves, because their forms
change with these programs. Python 3.11 has no module for zstd, so its program unpacks.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any

from kmem.common.errors import KmemError

PIECE = 1 << 20  # bytes
MAGIC_BYTES = 16
PACKED: dict[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\x00": ("xz", lzma.open),
}
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)
FIELDS = "comm,pid,tid,cpu,time,event,trace"

# Beginnings of files that a program turns into text: its name, Debian's package, and its words.
PROGRAMS: dict[bytes, tuple[str, str, list[str]]] = {
    b"PERFILE2": (
        "perf",
        "linux-perf",
        ["script", "--show-lost-events", "--ns", "-F", FIELDS, "-i"],
    ),
    b"(\xb5/\xfd": ("zstd", "zstd", ["-dcq"]),
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


@contextmanager
def unpacked(file: Path, form: str, opener: Any) -> Iterator[IO[bytes]]:
    """The text of a packed file, through a pipe."""
    failed = Failed()
    out, into = os.pipe()
    with opener(file, "rb") as source, os.fdopen(out, "rb", buffering=0) as text:
        thread = Thread(target=pump, args=(source, os.fdopen(into, "wb"), failed), daemon=True)
        thread.start()
        yield text
        text.close()
        thread.join()
    if failed.reason is not None:
        raise KmemError(f"import: {file}: damaged {form} file: {failed.reason}")


@contextmanager
def converted(file: Path, name: str, package: str, words: Sequence[str]) -> Iterator[IO[bytes]]:
    """The text that the file's own program makes of it."""
    program = shutil.which(name)
    if program is None:
        raise KmemError(
            f"import: {file}: only {name} reads it; expected that program (Debian: {package}), or"
            " the text that it prints"
        )
    with subprocess.Popen(
        [program, *words, str(file.resolve())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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
def opened(file: Path) -> Iterator[IO[bytes]]:
    """The text of FILE, - for standard input, as something that a program can have as its input."""
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        # Without a buffer: a program reads on where this one has stopped.
        with file.open("rb", buffering=0) as plain:
            head = os.pread(plain.fileno(), MAGIC_BYTES, 0) if plain.seekable() else b""
            for magic, (form, opener) in PACKED.items():
                if head.startswith(magic):
                    with unpacked(file, form, opener) as text:
                        yield text
                    return
            for magic, (name, package, words) in PROGRAMS.items():
                if head.startswith(magic):
                    with converted(file, name, package, words) as text:
                        yield text
                    return
            for magic, what in OTHERS.items():
                if head.startswith(magic):
                    raise KmemError(f"import: {file}: {what}")
            yield plain
    except IsADirectoryError:
        wanted = "expected a file; of a folder of LTTng the text that babeltrace2 prints"
        raise KmemError(f"import: {file}: a folder; {wanted}") from None
    except OSError as error:
        raise KmemError(f"import: {file}: {error.strerror}") from None
