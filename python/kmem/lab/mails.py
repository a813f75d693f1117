# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tables of mails that figures are compared with."""

import csv
from pathlib import Path

MAIL = Path(__file__).parent / "mail"


def read_mail(name: str) -> list[dict[str, str]]:
    """The rows of a table of a mail."""
    with (MAIL / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
