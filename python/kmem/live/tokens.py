# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files with a token, for option --token-file of commands."""

import re
from pathlib import Path

from kmem.common.errors import KmemError

TOKEN_LEAST, TOKEN_MOST = 16, 4096  # characters
TOKEN = re.compile(r"[\w.~+/=-]+", re.ASCII)


def read_token(command: str, path: Path) -> str:
    """The token in a file, without the spaces and the end of the line around it."""
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_MOST + 1).decode("ascii").strip()
    except OSError as error:
        raise KmemError(f"{command}: --token-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if not (TOKEN_LEAST <= len(text) <= TOKEN_MOST and TOKEN.fullmatch(text)):
        raise KmemError(
            f"{command}: --token-file {path}: expected {TOKEN_LEAST} to {TOKEN_MOST} letters,"
            " digits or -._~+/="
        )
    return text
