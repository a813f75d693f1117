# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Requests to a running process, which it honours at its next refill or drain.

A reader makes a request under a lock of the file, so a second reader waits.
"""

import contextlib
import fcntl
import time
from collections.abc import Iterator, Sequence

from kmem.common.processes import is_stopped
from kmem.live.registry.file import Registry, alive
from kmem.live.registry.layout import RegistryError

REQUEST_PENDING, REQUEST_DONE, REQUEST_TAKEN = 1, 2, 3  # taken: being honoured
WAIT_SECONDS = 2.0  # for figures that the process has to work out, and for work that it has to do
LOCK_SECONDS = 5.0  # time for the requests of other readers


@contextlib.contextmanager
def locked(registry: Registry) -> Iterator[None]:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(registry.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise RegistryError(
                    f"{registry.path}: another process keeps the file locked; expected it to be"
                    f" free within {LOCK_SECONDS:g} s; nothing was asked"
                ) from None
        # A short sleep, so that a reader with request after request does not get the lock every
        # time.
        time.sleep(0.001)
    try:
        yield
    finally:
        fcntl.flock(registry.file, fcntl.LOCK_UN)


def places(registry: Registry) -> Iterator[int]:
    place = registry.parts["head"]["requests"]
    for number in range(place.count):
        yield place.offset + number * place.size


def waiting_request(
    registry: Registry,
    birth: int,
    attribute: str,
    states: Sequence[int] = (REQUEST_PENDING, REQUEST_TAKEN),
) -> int | None:
    """The place of the newest request that is not honoured yet."""
    found = [
        at
        for at in places(registry)
        if registry.number("request", "state", at) in states
        and registry.number("request", "birth", at) == birth
        and registry.read("request", "attribute", at) == attribute
    ]
    return max(found, key=lambda at: registry.number("request", "number", at), default=None)


def ask(registry: Registry, birth: int, attribute: str, value: str = "") -> tuple[int, int]:
    """Add a request; its place and number.

    A waiting request with another value is replaced. A waiting request with this value is shared:
    each reader waits for its number.
    """
    if len(value) >= registry.parts["request"]["value"].size:
        raise RegistryError(f"{value}: too long for a value")
    with locked(registry):
        # Since the file was opened, the process may have ended, or have made another file.
        if not alive(registry):
            raise RegistryError(f"process {registry.process} has ended, or is another program now")
        at = waiting_request(registry, birth, attribute, [REQUEST_PENDING])
        if at is None or registry.read("request", "value", at) != value:
            at = add(registry, at, birth, attribute, value)
        number = registry.number("request", "number", at)
        asked = registry.number("head", "asked") + 1
        registry.write("head", "asked", 0, asked % (1 << 8 * registry.parts["head"]["asked"].size))
    return at, number


def add(registry: Registry, at: int | None, birth: int, attribute: str, value: str) -> int:
    """Write a request over a waiting request, or over the oldest request that does not wait."""
    if at is None:
        idle = (
            at
            for at in places(registry)
            if registry.number("request", "state", at) not in (REQUEST_PENDING, REQUEST_TAKEN)
        )
        at = min(idle, key=lambda at: registry.number("request", "number", at), default=None)
    if at is None:
        raise RegistryError(
            f"{registry.parts['head']['requests'].count} requests wait for process"
            f" {registry.process}; expected room for one more"
        )
    numbers = [registry.number("request", "number", at) for at in places(registry)]
    number = 1 + max(numbers)
    if number >= 1 << 8 * registry.parts["request"]["number"].size:
        raise RegistryError(f"{registry.path}: the numbers of its requests are used up")
    registry.write("request", "state", at, 0)
    registry.write("request", "number", at, number)
    registry.write("request", "birth", at, birth)
    registry.write("request", "attribute", at, attribute.encode())
    registry.write("request", "value", at, value.encode())
    registry.write("request", "state", at, REQUEST_PENDING)
    return at


def why_no_answer(registry: Registry) -> str:
    """Why the process has not honoured a request in the time that a command waits."""
    process = registry.process
    if not alive(registry):
        return f"process {process} has ended, or is another program now"
    if is_stopped(process):
        return f"process {process} is stopped, by SIGSTOP or a debugger"
    return (
        f"process {process} sleeps or allocates little: it has not passed a refill or drain for"
        f" {WAIT_SECONDS:g} s"
    )


def answer(registry: Registry, request: tuple[int, int], seconds: float) -> tuple[int, int] | None:
    """Error and result of a request; None if it is not honoured in that time."""
    at, number = request
    deadline = time.monotonic() + seconds
    while registry.number("request", "number", at) == number:
        if registry.number("request", "state", at) == REQUEST_DONE:
            return registry.number("request", "error", at), registry.number("request", "result", at)
        if time.monotonic() >= deadline or not alive(registry):
            return None
        time.sleep(0.01)
    return None
