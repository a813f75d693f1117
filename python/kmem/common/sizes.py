# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Numbers of bytes as people write them: 4096, 64K, 2M."""

import re

INTERVAL_LEAST, INTERVAL_MOST = 1 << 10, 1 << 40  # bytes between two samples
EXPECTED = "expected a number of bytes, with K, M, G or T if wanted"


def bytes_of(text: str) -> int:
    """A number of bytes with K, M, G or T; 0 if the text is none."""
    match = re.fullmatch(r"([1-9][0-9]{0,18})([KMGT]?)", text.upper(), re.ASCII)
    size = int(match[1]) << 10 * ("", *"KMGT").index(match[2]) if match else 0
    return size if size < 1 << 64 else 0


def size_text(text: str, least: int = 1, most: int = (1 << 64) - 1) -> int:
    """A size; @least and @most are for the message where the text is a number that is none."""
    size = bytes_of(text)
    if size:
        return size
    is_number = re.fullmatch(r"(0+|-?[1-9][0-9]*)[KMGT]?", text.upper(), re.ASCII)
    raise ValueError(f"expected {least} to {most} bytes" if is_number else EXPECTED)


def interval_text(text: str) -> int:
    """Bytes between two samples, whose bounds kmem.live.profile checks."""
    return size_text(text, INTERVAL_LEAST, INTERVAL_MOST)
