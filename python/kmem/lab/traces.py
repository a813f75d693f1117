# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The traces that an experiment replays: the tree brings some, the user may name others."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from kmem.common.errors import KmemError
from kmem.traces import file as tr

TRACES = Path(tr.__file__).parent


def shipped_traces() -> list[Path]:
    return sorted(TRACES.glob("*.slt.zst"))


def name_of(trace: Path) -> str:
    """Names of files as text that can be shown; they may be any bytes."""
    text = os.fsencode(trace.name).decode(errors="replace")
    return re.sub(r"(\.slt|\.ktrace)?(\.zst)?$", "", text)


def named_traces(traces: Sequence[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for trace in traces or shipped_traces():
        try:
            mode = trace.stat().st_mode
        except OSError as error:
            raise KmemError(f"{trace}: no trace can be read there: {error.strerror}") from None
        if not stat.S_ISREG(mode):
            raise KmemError(f"{trace}: no trace can be read there: expected a regular file")
        name = name_of(trace)
        if name in named:
            raise KmemError(f"{trace}: {named[name]} has the same name; give one of them another")
        named[name] = trace
    return named
