#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Write recipe.txt: how the libraries are built, for builds by other tools than Meson.

    recipe.py [--check]

src/meson.build alone decides which files are compiled and with which words. This program asks Meson
what it does in build/ (`make build` first) and writes that down; the root's CMakeLists.txt and the
crate kmem-sys read it. With --check the file is compared instead: status 1 if it is out of date.

A line is a part, a key and a value without a space: `core source api/cache.c`. Keys are `source`
(below src), `flag` (of the compiler) and `link`. `{src}` stands for the folder src.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "packaging" / "recipe.txt"

# Meson's names of the targets, and ours: the parts of which the three libraries consist.
PARTS = {
    ("kmem-core", "static library"): "core",
    ("kmem-bound", "static library"): "bound",
    ("kmem-operators-bound", "static library"): "operators",
    ("kmem", "static library"): "archive",
    ("kmem", "shared library"): "libkmem",
    ("kmem-malloc", "shared library"): "libkmem-malloc",
}
# What is left to the other tool: warnings, optimization, folders of headers, position-independent
# code. Options of a build are Meson's alone, and so are probes, whose header a machine may lack.
LEFT_OUT = ("-W", "-O", "-g", "-I", "-std=", "-fPIC", "-fdiagnostics-color")
LEFT_OUT += ("-DKMEM_HAVE_SDT", "-DKMEM_DEBUG_CHECKS", "-DKMEM_SLOTS_LOCKED")
# Meson's libraries run on glibcs older than the machine's. Other builds lack the stub for that.
OLDER_LIBC = "machine/older_libc.c"
LEFT_OUT_LINK = ("-Wl,--wrap=", "-Wl,--push-state", "-Wl,--pop-state", "-Wl,--end-group", "/")
# In front of the words of src/meson.build stand Meson's own, which end here.
LAST_OF_MESON = "-Wl,--no-whole-archive"

HEAD = """\
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Written by packaging/recipe.py from Meson's account of src/meson.build. Do not edit.
"""


def targets() -> list[dict[str, Any]]:
    """What Meson says of the targets in build/."""
    meson = [ROOT / ".venv" / "bin" / "meson", "introspect", ROOT / "build", "--targets"]
    done = subprocess.run(meson, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout))


def flags(words: list[str]) -> list[str]:
    return [word for word in words if not word.startswith(LEFT_OUT)]


def link_words(words: list[str]) -> list[str]:
    """Those of src/meson.build, without its folder's name. Meson moves -L to the front."""
    source = str(ROOT / "src")
    last = len(words) - 1 - words[::-1].index(LAST_OF_MESON)
    own = [word for word in words if word.startswith("-L")] + words[last + 1 :]
    own = [word.replace(source, "{src}") for word in own]
    return [word for word in own if not word.startswith(LEFT_OUT_LINK)]


def recipe() -> str:
    lines = []
    for target in targets():
        part = PARTS.get((target["name"], target["type"]))
        if part is None:
            continue
        for group in target["target_sources"]:
            if "sources" in group:
                files = [str(Path(name).relative_to(ROOT / "src")) for name in group["sources"]]
                lines += [f"{part} source {name}" for name in sorted(files) if name != OLDER_LIBC]
                lines += [f"{part} flag {word}" for word in flags(group["parameters"])]
            elif target["type"] == "shared library":
                lines += [f"{part} link {word}" for word in link_words(group["parameters"])]
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: recipe.py [--check]", file=sys.stderr)
        return 2
    text = recipe()
    if not sys.argv[1:]:
        RECIPE.write_text(text)
    elif RECIPE.read_text() != text:
        print("packaging/recipe.txt is out of date: run packaging/recipe.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
