# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem trim: makes a running process give back the memory that it does not use."""

from pathlib import Path

import typer

from kmem.live.registry.find import open_process
from kmem.live.registry.layout import RegistryError
from kmem.live.registry.requests import WAIT_SECONDS, answer, ask, why_no_answer


def trim(process: int) -> None:
    with open_process(process, writable=True) as registry:
        done = answer(registry, ask(registry, 0, "trim"), WAIT_SECONDS)
        reason = why_no_answer(registry)
    if done is not None:
        typer.echo(f"{done[1]} bytes given back")
        return
    if not Path(f"/proc/{process}").exists():
        raise RegistryError(f"process {process} has ended")
    typer.echo(f"pending: {reason}; it trims at its next refill or drain")
