# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The library's table of attributes: attributes.csv, which the program tools/attributes prints.

After a change of the table: build/tools/attributes > python/kmem/common/attributes.csv
"""

import csv
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("attributes.csv")


@dataclass(frozen=True)
class Attribute:
    """Format of an attribute's text, and the values that other processes may write to it."""

    format: str
    outside: bool
    most: int | None  # the largest number; None: the cache decides


def read_table() -> dict[str, Attribute]:
    with TABLE.open(encoding="ascii", newline="") as file:
        return {
            row["name"]: Attribute(
                row["format"],
                row["written"] == "outside",
                int(row["most"]) if row["most"] else None,
            )
            for row in csv.DictReader(file)
        }


ATTRIBUTES = read_table()
