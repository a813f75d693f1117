# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables on the terminal."""

from rich.console import Console

TEXT_WIDTH = 160  # columns; a narrower terminal wraps lines, a cut figure is worse


def wide_console(width: int = TEXT_WIDTH) -> Console:
    """A console that prints names unchanged: Rich gives [/x] and :100: a meaning."""
    console = Console(markup=False, emoji=False)
    if not console.is_terminal or console.width < width:
        console = Console(width=width, markup=False, emoji=False)
    return console
