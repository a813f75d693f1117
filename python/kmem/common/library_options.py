# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Options that programs are started with: the library's own parser checks them before."""

import os
import subprocess
from collections.abc import Sequence

from kmem.common.errors import BadUsage
from kmem.common.tree import BUILD, build

TOOL = BUILD / "tools" / "options"


def with_options(*texts: str) -> str:
    """The caller's KMEM_OPTIONS with further options at the end."""
    return ",".join(filter(None, [os.environ.get("KMEM_OPTIONS"), *texts]))


def check_options(command: str, texts: Sequence[str] = ()) -> None:
    """Refuse options that the library would not take; it would start with the defaults."""
    if not (options := with_options(*texts)):
        return
    build(TOOL)
    done = subprocess.run(
        [TOOL, options], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        raise BadUsage(f"{command}: {done.stderr.strip().removeprefix('kmem: ')}")
