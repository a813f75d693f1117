# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Archives of files that kernels unpack at their start (cpio, "newc"), made without rights."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


class Archive:
    """Archives may follow each other in one file; the kernel unpacks them all."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.entries = 0

    def pad(self) -> None:
        self.file.write(bytes(-self.file.tell() % 4))

    def add(self, name: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        """All is root's; there are no hard links."""
        self.entries += 1
        encoded = name.encode() + b"\0"
        fields = [self.entries, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0]
        self.file.write(b"070701" + b"".join(b"%08x" % field for field in fields) + encoded)
        self.pad()
        self.file.write(content)
        self.pad()

    def add_file(self, source: Path, name: str) -> None:
        mode = source.lstat().st_mode
        if stat.S_ISLNK(mode):
            self.add(name, mode, bytes(source.readlink()))
        elif stat.S_ISDIR(mode):
            self.add(name, mode, b"")
        elif stat.S_ISREG(mode):
            self.add(name, mode, source.read_bytes())

    def add_folder(self, name: str) -> None:
        self.add(name, stat.S_IFDIR | 0o755, b"")

    def add_console(self) -> None:
        """For the output of the first process, before it has mounted what has it."""
        self.add_folder("dev")
        self.add("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))

    def end(self) -> None:
        self.add("TRAILER!!!", 0, b"")


def below(folder: Path) -> Iterator[Path]:
    """All that is in a folder, each folder before what is in it."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from below(path)
