# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Numbers of bytes as people write them: 4096, 64K, 2M."""

import re

EXPECTED = "expected a number of bytes, with K, M, G or T if wanted"


def bytes_of(text: str) -> int:
    """A number of bytes with K, M, G or T; 0 if the text is none."""
    match = re.fullmatch(r"([1-9][0-9]{0,18})([KMGT]?)", text.upper(), re.ASCII)
    size = int(match[1]) << 10 * ("", *"KMGT").index(match[2]) if match else 0
    return size if size < 1 << 64 else 0


def size_text(text: str) -> int:
    size = bytes_of(text)
    if not size:
        raise ValueError(EXPECTED)
    return size
