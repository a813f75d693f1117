# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables on the terminal."""

from rich.console import Console

TEXT_WIDTH = 160  # columns; a narrower terminal wraps lines, a cut figure is worse


def wide_console(width: int = TEXT_WIDTH) -> Console:
    """One that prints names as they are: Rich has a meaning for [/x] and :100:."""
    console = Console(markup=False, emoji=False)
    if not console.is_terminal or console.width < width:
        console = Console(width=width, markup=False, emoji=False)
    return console
