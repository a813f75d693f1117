# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The help of every command as a page, from the commands themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def default_of(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value == ():
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def parameters(command: Any) -> Iterator[str]:
    rows = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if not rows:
        return
    yield "| option | default | effect |\n|---|---|---|"
    for parameter in rows:
        words = parameter.metavar or parameter.name
        if parameter.param_type_name == "option":
            value = f" {parameter.metavar}" if parameter.metavar else ""
            words = ", ".join(parameter.opts) + value
        yield f"| `{cell(words)}` | {default_of(parameter)} | {cell(parameter.help or '')} |"
    yield ""


def described(command: Any, name: str) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{command.help or ''}\n".replace("<", "\\<")
    if hasattr(command, "commands"):
        for word, part in command.commands.items():
            yield from described(part, f"{name} {word}")
    else:
        yield from parameters(command)


def page(root: Path) -> str:
    sys.path.insert(0, str(root / "python"))
    from kmem.commands.shown import command as all_of_kmem

    run = subprocess.run(
        [root / "kmem", "run", "--help"], capture_output=True, text=True, check=True
    )
    lines = [
        "# Commands",
        "",
        "Made from the commands' own help at build time; `./kmem COMMAND --help` prints it.",
        "",
    ]
    lines += ["## kmem run", "", "```text", run.stdout.rstrip("\n"), "```", ""]
    for name, command in all_of_kmem().commands.items():
        if name != "run":
            lines += described(command, f"kmem {name}")
    return "\n".join(lines)
