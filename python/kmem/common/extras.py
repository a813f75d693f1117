# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Python packages that a command needs, by the extras of pyproject.toml, and how to get them."""

import re
import shlex
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

# Others need `command`. The launcher has this list too, for the tree (tests/install compares).
EXTRA_OF = {
    "ps": "figures",
    "info": "figures",
    "attr": "figures",
    "trim": "figures",
    "profile": "profile",
    "guards": "profile",
    "push": "push",
    "symbolize": "profile",
    "bench": "bench",
    "top": "watch",
    "serve": "watch",
    "export": "lab",
    "lab": "lab",
    "replay": "lab",
    "tune": "tune",
}
# Where the launcher of an installation looks for a Python with packages.
FOLDER = "${XDG_DATA_HOME:-$HOME/.local/share}/kmem/venv"


def extra_of(arguments: Sequence[str]) -> str:
    """The extra of a command line; help needs the fewest packages."""
    if arguments and arguments[-1] == "--help":
        return "command"
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


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    begin = re.split(r"[^\d.]", version, maxsplit=1)[0]
    return tuple(int(number) for number in begin.split(".") if number)


def unfit(extra: str, pyproject: Path) -> str:
    """What keeps the packages of an extra from being used: missing, or older than tested."""
    missing, old = [], []
    for package in packages_of(extra, pyproject):
        name, _, expected = package.partition("==")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if numbers(found) < numbers(expected):
            old.append(f"{name} {found}, expected {expected} or newer")
    if old:
        return f"Python packages are too old ({'; '.join(old)})"
    return "Python packages are missing" if missing else ""


def advice(extra: str, pyproject: Path | None) -> str:
    """How to get an extra: of pip's package, or with the file where there is none.

    Pip is the one of the Python that runs, as the first in PATH may be of another environment.
    """
    if pyproject is None:
        return f"{shlex.quote(sys.executable)} -m pip install 'kmem[{extra}]'"
    packages = " ".join(packages_of(extra, pyproject))
    return f'python3 -m venv "{FOLDER}" && "{FOLDER}/bin/pip" install {packages}'
