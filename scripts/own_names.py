# SPDX-License-Identifier: Apache-2.0 OR MIT
"""own_names.py OBJCOPY ARCHIVE: give internal functions and objects of an archive names of ours.

A hidden name is still seen by the linker of a static program: a program's own function of that
name would stand in front of the library's, and the library would call it. So clock_read becomes
kmem_clock_read_ (docs/stability.md). ARCHIVE counts from the folder that Meson installs to.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def hidden_names(archive: Path) -> set[str]:
    """Of the archive's own functions and objects; the compiler's names have a dot."""
    done = subprocess.run(
        ["readelf", "--wide", "--symbols", archive], capture_output=True, text=True, check=True
    )
    names = set()
    for line in done.stdout.splitlines():
        # number, value, bytes, type, binding, visibility, section, name
        words = line.split()
        if len(words) != 8 or words[4] not in ("GLOBAL", "WEAK") or words[6] == "UND":
            continue
        if words[5] == "HIDDEN" and words[7].isidentifier():
            names.add(words[7])
    return {name for name in names if not name.startswith(("kmem_", "_"))}


def main(objcopy: str, archive: Path) -> None:
    names = hidden_names(archive)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as pairs:
        pairs.writelines(f"{name} kmem_{name}_\n" for name in sorted(names))
        pairs.flush()
        command = [objcopy, f"--redefine-syms={pairs.name}", archive]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # Members in a compiler's own form (-flto), or of another machine: the archive is as it was.
        print(f"kmem: {archive}: internal names stay: {done.stderr.strip()[-200:]}")


if __name__ == "__main__":
    main(sys.argv[1], Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / sys.argv[2])
