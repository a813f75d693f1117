# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names from other processes and from files, as text for a terminal."""


def printable(text: str) -> str:
    """The text without characters that move the cursor: a process may give itself any name."""
    if text.isprintable():  # nearly always
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)
