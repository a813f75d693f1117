# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Settings that a process keeps for as long as a command renews them."""

import contextlib
import time
from collections.abc import Iterator

from kmem.live.registry.file import Registry, alive
from kmem.live.registry.layout import RegistryError
from kmem.live.registry.requests import (
    WAIT_SECONDS,
    answer,
    ask,
    waiting_request,
    why_no_answer,
)

RENEWALS = 4  # renewals in the time of a lease
OWN = ""  # the value that the program's own options give


def set_value(registry: Registry, name: str, value: int) -> None:
    """Set a value of a lease, or renew it: see leased."""
    done = answer(registry, ask(registry, 0, name, str(value)), WAIT_SECONDS)
    if done is None:
        raise RegistryError(
            f"{why_no_answer(registry)}; no samples were taken; expected one that allocates"
        )
    if done[0] != 0:
        raise RegistryError(f"process {registry.process} cannot be profiled: error {done[0]}")


class Lease:
    """Settings that hold as long as they are renewed."""

    def __init__(self, registry: Registry, settings: dict[str, int]) -> None:
        self.registry, self.settings = registry, dict(settings)
        self.period = registry.number("head", "profile_lease_ms") / 1000 / RENEWALS
        self.due = 0.0

    def renew(self) -> None:
        """Ask again if it is time; to be called again and again."""
        if time.monotonic() < self.due:
            return
        for name, value in self.settings.items():
            ask(self.registry, 0, name, str(value))
        self.due = time.monotonic() + self.period

    def change(self, name: str, value: int) -> None:
        """Set another value. A process that sleeps takes it when it wakes up."""
        self.settings[name] = value
        answer(self.registry, ask(self.registry, 0, name, str(value)), WAIT_SECONDS)


@contextlib.contextmanager
def leased(registry: Registry, settings: dict[str, int]) -> Iterator[Lease]:
    """Set `settings` inside the block, and restore the earlier values at its end.

    The process restores its values by itself when no request came for the time of the lease, so a
    killed command leaves nothing switched on.
    """
    for name in (*settings, "profile_lease_ms"):
        if name not in registry.parts["head"]:
            process = registry.process
            raise RegistryError(f"process {process} runs on a release without {name}")
    lease = Lease(registry, settings)
    try:
        for name, value in settings.items():
            # An earlier profile may have ended while the process slept, and its request may still
            # wait.
            there = registry.number("head", name) == value
            if not there or waiting_request(registry, 0, name) is not None:
                set_value(registry, name, value)
        lease.renew()
        yield lease
    finally:
        if alive(registry):
            for name in settings:
                ask(registry, 0, name, OWN)
