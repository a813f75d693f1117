# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the reader makes of a text, or of a file in pasted/."""

from pathlib import Path

from kmem.explain.files import read_files
from kmem.explain.table import Reading, Table

PASTED = Path(__file__).parent / "pasted"


def read(folder: Path, text: str) -> Reading:
    file = folder / "report.txt"
    file.write_text(text, encoding="utf-8")
    return read_files([file])


def tables_of(name: str) -> list[Table]:
    return read_files([PASTED / f"{name}.txt"]).tables
