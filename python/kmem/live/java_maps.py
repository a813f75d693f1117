# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Asks a running Java virtual machine for the map of its methods, which perf_maps.py reads.

OpenJDK 17 and newer write it at once when `jcmd PID Compiler.perfmap` asks. jcmd is taken from this
command's PATH and never from beside the program's library, where the program's user may have put
anything.
"""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import PurePosixPath

from kmem.live.pprof import Mapping

LIBRARY = "libjvm.so"
ANSWER_SECONDS = 20  # a program that is stopped never answers


def is_java(mappings: Iterable[Mapping]) -> bool:
    return any(PurePosixPath(mapping.path).name == LIBRARY for mapping in mappings)


def ask_for_map(process: int) -> str | None:
    """Why there is no new map; None if the program has written one."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return "there is no jcmd; expected that of OpenJDK 17 or newer in PATH"
    try:
        # The program's answer is text of another user, perhaps without end.
        done = subprocess.run(
            [jcmd, str(process), "Compiler.perfmap"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"jcmd had no answer in {ANSWER_SECONDS} s"
    except OSError as error:
        return f"{jcmd}: {error.strerror}"
    if done.returncode:
        return "jcmd was refused; expected OpenJDK 17 or newer, of the same user"
    return None
