# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Words, arguments and options of all commands, from their help: for pages and completions."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import typer

from kmem.commands.app import app

ROOT = Path(__file__).resolve().parents[1]
# Typer names the type behind a name that says enough, as PID, and in place of one that is missing.
KINDS = {
    "int": "N",
    "int range": "N",
    "float": "X",
    "float range": "X",
    "Path": "FILE",
    "str": "TEXT",
}


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


def shown(text: str) -> str:
    """What stands behind an option."""
    return re.sub(r"<([\w ]+)>", lambda match: KINDS.get(match[1], match[1]), text)


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
    arguments, options = [], []
    for parameter in command.params:  # type: ignore[attr-defined]
        if (record := parameter.get_help_record(context)) is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append((re.sub(r" <.*?>$", "", record[0]), record[1]))
        else:
            options.append((shown(record[0]), record[1]))
    inner = getattr(command, "commands", {})
    usage = ["[OPTIONS]", *(name for name, _ in arguments)]
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
    command = typer.main.get_command(app)
    return list(walk(command, typer.Context(command, info_name="kmem"), ["kmem"]))
