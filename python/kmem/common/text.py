# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names from other processes and from files, as text for a terminal."""


def printable(text: str) -> str:
    """Without what moves a terminal's cursor: what a process calls itself may be anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
