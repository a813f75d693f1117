# SPDX-License-Identifier: Apache-2.0 OR MIT
"""All commands as their help, the manual pages and the documentation show them."""

import functools
from collections.abc import Iterator
from typing import Any

import typer

from kmem.commands.app import app
from kmem.commands.options import keep_files_apart

# Typer shows the Python type of a value that has no name of its own.
VALUES = {
    "int": "N",
    "int range": "N",
    "float": "X",
    "float range": "X",
    "Path": "FILE",
    "str": "TEXT",
}


def paragraphs(text: str) -> str:
    """A docstring without the line ends of its source, so that lines are as long as the terminal.

    A paragraph after a backspace keeps its lines.
    """
    parts = text.split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in parts)


def number(value: float) -> str:
    """Without an exponent, as 0.000001."""
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def limits(parameter: Any) -> str | None:
    """The numbers that a parameter takes, in words."""
    least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if least is None:
        return None
    if most is None:
        return f"{number(least)} or more"
    return f"{number(least)} to {number(most)}"


def name_value(parameter: Any, context: typer.Context) -> None:
    if parameter.param_type_name == "argument":
        # It has a name already, before which Typer would put the type.
        parameter.display_type_rich = lambda ctx: None
    elif parameter.is_flag:
        parameter.metavar = ""
    elif parameter.metavar is None:
        kind = parameter.display_type(context).strip("<>")
        parameter.metavar = VALUES.get(kind, kind)


def walk(command: Any) -> Iterator[Any]:
    yield command
    for part in getattr(command, "commands", {}).values():
        yield from walk(part)


def keep_apart(part: Any) -> None:
    """Have the command look at the files that it is given before it begins."""
    begin = part.callback

    @functools.wraps(begin)
    def checked(**values: Any) -> Any:
        keep_files_apart(part.params, values)
        return begin(**values)

    part.callback = checked


@functools.cache
def command() -> Any:
    """The command kmem with all commands in it."""
    root = typer.main.get_command(app)
    for part in walk(root):
        part.help = paragraphs(part.help or "")
        if part.callback is not None:
            keep_apart(part)
        context = typer.Context(part)
        for parameter in part.get_params(context):
            name_value(parameter, context)
            if hasattr(parameter, "_get_number_range_help_str"):
                parameter._get_number_range_help_str = functools.partial(limits, parameter)
    return root
