# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A line of source code. Apart from pprof.py, because commands without its packages need it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A function, and the place in its source; no file and line 0 if that is not known."""

    function: str
    file: str = ""
    number: int = 0
