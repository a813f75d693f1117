# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A small client for redis: pipelined commands over a unix socket."""

import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

Reply = str | int | None | list["Reply"]


class RedisError(AssertionError):
    """The server answered with an error."""


def encode(command: Sequence[str | int]) -> bytes:
    words = [str(word).encode() for word in command]
    parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class Client:
    """One connection; a context manager."""

    def __init__(self, path: Path, timeout: float = 60.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()
        self.socket.close()

    def read(self) -> Reply:
        line = self.file.readline().decode()
        if not line:
            raise RedisError("the server closed the connection")
        kind, rest = line[0], line[1:].rstrip("\r\n")
        if kind == "-":
            raise RedisError(rest)
        if kind == "+":
            return rest
        if kind == ":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == "$":
            return self.file.read(int(rest) + 2)[:-2].decode()
        return [self.read() for _ in range(int(rest))]

    def many(self, commands: Iterable[Sequence[str | int]]) -> list[Reply]:
        """Sends all commands, then reads all replies."""
        listed = list(commands)
        self.socket.sendall(b"".join(encode(command) for command in listed))
        return [self.read() for _ in listed]

    def do(self, *command: str | int) -> Reply:
        return self.many([command])[0]

    def info(self, section: str, field: str) -> str:
        for line in str(self.do("INFO", section)).splitlines():
            if line.startswith(field + ":"):
                return line.split(":", 1)[1]
        raise RedisError(f"INFO {section} has no {field}")


def connect(path: Path, seconds: float = 30.0) -> Client:
    """A connection to a server that is just starting."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            client = Client(path)
            client.do("PING")
            return client
        except (OSError, RedisError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def wait_for(client: Client, section: str, field: str, value: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while (seen := client.info(section, field)) != value:
        if time.monotonic() > deadline:
            raise RedisError(f"{field} is {seen}, not {value}, after {seconds:.0f} s")
        time.sleep(0.02)
