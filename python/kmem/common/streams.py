# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What bzip2 and xz packed, to its end.

pbzip2, `xz` of parts and `cat` make files of several streams. bz2.open and lzma.open take a later
stream that is damaged for bytes that are no part of the file, and end in front of it.
"""

from __future__ import annotations

import io
from bz2 import BZ2Decompressor
from collections.abc import Callable
from lzma import LZMADecompressor
from typing import Any

PIECE = 1 << 16  # bytes


class Streams(io.RawIOBase):
    """The content of all streams; zero bytes behind a stream fill up the file."""

    def __init__(
        self,
        packed: io.BufferedIOBase,
        make: Callable[[], BZ2Decompressor] | Callable[[], LZMADecompressor],
    ) -> None:
        self.packed = packed
        self.make = make
        self.unpacker = make()

    def readable(self) -> bool:
        return True

    def next_stream(self) -> bytes:
        """The beginning of the stream behind the one that has ended; nothing at the file's end."""
        rest = self.unpacker.unused_data or self.packed.read1(PIECE)
        while rest and not rest.strip(b"\0"):
            rest = self.packed.read1(PIECE)
        self.unpacker = self.make()
        return rest.lstrip(b"\0")

    def readinto(self, buffer: Any) -> int:
        while True:
            packed = b""
            if self.unpacker.eof:
                packed = self.next_stream()
                if not packed:
                    return 0
            elif self.unpacker.needs_input:
                packed = self.packed.read1(PIECE)
                if not packed:
                    raise EOFError("it ended before the end of a stream")
            piece = self.unpacker.decompress(packed, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)
