# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Python packages that a command needs, by the extras of pyproject.toml, and how to get them."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

# Others need `command`. The launcher has this list too, for the tree (tests/install compares).
EXTRA_OF = {
    "ps": "figures",
    "info": "figures",
    "attr": "figures",
    "trim": "figures",
    "profile": "figures",
    "bench": "bench",
    "top": "watch",
    "serve": "watch",
    "lab": "lab",
    "replay": "lab",
    "tune": "tune",
}
# Where the launcher of an installation looks for a Python with packages.
FOLDER = "${XDG_DATA_HOME:-$HOME/.local/share}/kmem/venv"


def extra_of(arguments: Sequence[str]) -> str:
    """The extra of a command line."""
    return EXTRA_OF.get(arguments[0] if arguments else "", "command")


def packages_of(extra: str, pyproject: Path) -> list[str]:
    """The packages of an extra and of those that it contains, as name==version."""
    extras = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    packages: list[str] = []
    for text in extras[extra]:
        if text.startswith("kmem["):
            for inner in text.removeprefix("kmem[").rstrip("]").split(","):
                packages += packages_of(inner, pyproject)
        else:
            packages.append(text)
    return packages


def advice(extra: str, pyproject: Path | None) -> str:
    """A line for users: in words for pip's package, or with the file where there is none."""
    if pyproject is None:
        return f"Python packages are missing; install them with: pip install 'kmem[{extra}]'"
    packages = " ".join(packages_of(extra, pyproject))
    return (
        "Python packages are missing; install them with:"
        f' python3 -m venv "{FOLDER}" && "{FOLDER}/bin/pip" install {packages}'
    )
