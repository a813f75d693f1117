# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The test's side of heap_server.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "src" / "libkmem-malloc.so"


class HeapError(AssertionError):
    """The process with the heap died; the text is what it said."""


@dataclass
class Line:
    """A cache in the slab table; @active counts free objects in sheaves too."""

    active: int
    objects: int
    size: int


@dataclass
class Table:
    """What the library says about itself at the end."""

    caches: dict[str, Line]
    large: tuple[int, int]  # blocks, bytes
    huge: tuple[int, int]
    text: str


class Server:
    """One setting of the library; heaps are made from it."""

    def __init__(self, options: str, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "socket"
        settings = f"{options},slabinfo={folder}/slabs.%p"
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("heap_server.py"), self.socket, LIBRARY],
            env=os.environ | {"KMEM_OPTIONS": settings},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


class Heap:
    """A process with a heap that nobody has used yet."""

    def __init__(self, server: Server) -> None:
        self.folder = server.folder
        self.messages = server.folder / "messages"
        self.connection = Client(str(server.socket), "AF_UNIX")
        self.connection.send(str(self.messages))

    def ask(self, *operations: tuple[Any, ...]) -> list[Any]:
        """The results of operations, carried out one after the other."""
        try:
            self.connection.send(operations)
            answers: list[Any] = self.connection.recv()
        except (EOFError, OSError) as error:
            raise HeapError(f"died in {operations}: {self.said()}") from error
        return answers

    def said(self) -> str:
        return self.messages.read_text() if self.messages.exists() else ""

    def end(self) -> Table:
        """Ends the process and reads its slab table."""
        for old in self.folder.glob("slabs.*"):
            old.unlink()
        self.connection.send([("end",)])
        with suppress(EOFError, ConnectionResetError):
            self.connection.recv()
        self.connection.close()
        tables = list(self.folder.glob("slabs.*"))
        if len(tables) != 1:
            raise HeapError(f"no slab table: {self.said()}")
        return read_table(tables[0].read_text())

    def close(self) -> None:
        self.connection.close()


def read_table(text: str) -> Table:
    caches = {}
    for line in text.splitlines():
        if not line.startswith(("#", "slabinfo")):
            name, active, objects, size, *_ = line.split()
            caches[name] = Line(int(active), int(objects), int(size))
    numbers = re.search(r"large blocks: (\d+) of (\d+) bytes, huge: (\d+) of (\d+) bytes", text)
    assert numbers, text
    blocks, large_bytes, huge_blocks, huge_bytes = map(int, numbers.groups())
    return Table(caches, (blocks, large_bytes), (huge_blocks, huge_bytes), text)
