# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Error messages of the command line, each a single line."""

import os
import sys
from collections.abc import Sequence

import typer
from pydantic import ValidationError

from kmem.commands.shown import command, number


def command_path(words: Sequence[str]) -> str:
    """The command that words of a command line name, as `kmem lab order`."""
    path, here = "kmem", command()
    for word in words:
        commands = getattr(here, "commands", {})
        if word not in commands:
            break
        path, here = f"{path} {word}", commands[word]
    return path


EXPECTED = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "string_unicode": "text in UTF-8",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


BOUNDS = {"greater_than_equal", "less_than_equal"}


def plain(bound: object) -> object:
    """86400.0 as 86400, 1e-06 as 0.000001."""
    return number(bound) if isinstance(bound, float) else bound


def shown_value(value: object) -> str:
    """In quotes, with \\xff for a byte that is no text."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return repr(os.fsencode(text)).removeprefix("b")
    return repr(text)


def wrong_value(error: typer.BadParameter) -> str:
    """The option or argument, its value, and the expected form."""
    parameter = error.param
    if not isinstance(error.__cause__, ValidationError) or parameter is None:
        return error.format_message()
    wrong = error.__cause__.errors()[0]
    name = parameter.get_error_hint().split(" / ")[0].strip("'[].")
    bounds = [plain(getattr(parameter, bound, None)) for bound in ("min", "max")]
    if wrong["type"] in BOUNDS and None not in bounds:
        expected = "expected {} to {}".format(*bounds)
    elif wrong["type"] in EXPECTED:
        bound = {key: plain(value) for key, value in wrong.get("ctx", {}).items()}
        expected = "expected " + EXPECTED[wrong["type"]].format(**bound)
    else:
        reason = wrong["msg"].removeprefix("Value error, ").rstrip(".")
        expected = reason.replace(f"{wrong['input']!r} is not one of", "expected one of")
    return f"{name} {shown_value(wrong['input'])}: {expected}"


def as_line(error: typer.TyperException) -> str:
    """The fault of the command line, worded like the other messages."""
    path = command_path(sys.argv[1:])
    # A missing argument has no message of its own.
    if isinstance(error, typer.BadParameter) and error.message:
        text = wrong_value(error)
    else:
        text = error.format_message().rstrip(".")
        text = f"{text[:1].lower()}{text[1:]} ({path} --help says what there is)"
    return ": ".join([*filter(None, [path[len("kmem ") :]]), text])
