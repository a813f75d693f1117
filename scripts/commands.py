# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Words, arguments and options of all commands, from their help: for pages and completions."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from kmem.commands.shown import command as all_of_kmem

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Command:
    """A command or a group of commands."""

    words: list[str]
    help: str
    usage: str
    arguments: list[tuple[str, str]] = field(default_factory=list)  # name and text
    options: list[tuple[str, str]] = field(default_factory=list)  # "-o, --output FILE" and text
    commands: list[tuple[str, str]] = field(
        default_factory=list
    )  # of a group, and their first lines

    def option_words(self) -> list[str]:
        return [
            word for names, _ in self.options for word in re.findall(r"(?<!\S)--?[\w-]+", names)
        ]


def usage_name(parameter: Any) -> str:
    """An argument as a synopsis shows it."""
    name = parameter.metavar or parameter.name
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs != 1 else "")


def run_help() -> str:
    """The launcher's own text."""
    done = subprocess.run(
        [ROOT / "kmem", "run", "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout


def run_command() -> Command:
    options = re.findall(r"^  (--\S+(?: [A-Z=,.]+)?)  +(.*)$", run_help(), re.MULTILINE)
    return Command(["kmem", "run"], "Run a program with malloc from libkmem.", "", [], options)


def walk(command: object, context: typer.Context, words: list[str]) -> Iterator[Command]:
    arguments, options, usage = [], [], ["[OPTIONS]"]
    for parameter in command.params:  # type: ignore[attr-defined]
        if (record := parameter.get_help_record(context)) is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append((record[0], record[1]))
            usage.append(usage_name(parameter))
        else:
            options.append((record[0].strip(), record[1]))
    inner = getattr(command, "commands", {})
    options.append(("--help", "Show the help and exit."))
    yield Command(
        words,
        str(getattr(command, "help", "") or ""),
        " ".join([*usage, *(["COMMAND ..."] if inner else [])]),
        arguments,
        options,
        [(name, str(one.help or "").split("\n")[0]) for name, one in inner.items()],
    )
    for name, one in inner.items():
        if [*words, name] != ["kmem", "run"]:
            yield from walk(one, typer.Context(one, info_name=name, parent=context), [*words, name])


def all_commands() -> list[Command]:
    """All but `kmem run`, which the launcher does without Python."""
    command = all_of_kmem()
    return list(walk(command, typer.Context(command, info_name="kmem"), ["kmem"]))
