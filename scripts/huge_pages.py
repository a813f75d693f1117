#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Run a command while the system puts all memory into huge pages (`always`), or as VALUE says.

    huge_pages.py VALUE COMMAND...

The setting is the machine's, so other programs have it too for that time. It is put back at the
end, in whatever way this is ended. Needs root. Exit status: the command's; 2 for a wrong command
line; 77 (with the reason) if the setting cannot be written here.
"""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import ending

FILE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SKIPPED = 77


def huge_pages(value: str) -> AbstractContextManager[None]:
    """With this setting of the machine's; its own is put back."""
    found = re.search(r"\[(\w+)\]", FILE.read_text())
    return ending.setting(FILE, value, found[1] if found else "madvise")


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: huge_pages.py VALUE COMMAND...", file=sys.stderr)
        return 2
    _, value, *command = sys.argv
    try:
        with huge_pages(value):
            return ending.run(command)
    except OSError as error:
        print(f"huge pages cannot be set to {value} here: {error}")
        return SKIPPED


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
