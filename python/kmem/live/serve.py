# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem serve`: Prometheus metrics and a page with live charts, on loopback unless told otherwise.

On loopback every user of the machine may read. On another address, or with a token in a file, every
request for figures needs the token, and what follows is for servers without.

Other pages in the user's browser get no answers. The server answers a request only if it names this
server as its host, so a name that somebody points to this machine is refused, and only if it comes
from no other page (Origin, Sec-Fetch-Site). A change also needs a token. The token is printed as
part of the address, in the part that browsers send to no server. So other users of the machine, who
can read the shown figures, cannot change anything.
"""

import contextlib
import io
import ipaddress
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import typer
from prometheus_client.exposition import ThreadingWSGIServer

from kmem.common.errors import BadUsage, KmemError
from kmem.common.signals import end_as_by_ctrl_c
from kmem.live.metrics import CACHES_MOST
from kmem.live.sampler import Sampler
from kmem.live.service import CLIENT_SECONDS, Service
from kmem.live.tokens import read_token

ADDRESS = "127.0.0.1"


def host_names(port: int, address: str = ADDRESS) -> set[str]:
    """Names of this server in requests; clients leave out HTTP's own port."""
    ports = [f":{port}", ""] if port == 80 else [f":{port}"]
    return {f"{name}{shown}" for name in (address, "localhost") for shown in ports}


class PatientServer(ThreadingWSGIServer):
    """A server that does not report it when clients go away."""

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any
    ) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class PatientReader(io.RawIOBase):
    """Reads a request within CLIENT_SECONDS, in any number of pieces, or raises TimeoutError.

    A limit for each read would not be enough: a client that sends a byte a second would keep a
    thread and a descriptor for ever.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + CLIENT_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"expected the request within {CLIENT_SECONDS} seconds")
        self.connection.settimeout(left)
        return self.connection.recv_into(buffer)


class PatientWriter(io.BufferedIOBase):
    """Writes an answer within CLIENT_SECONDS from its first byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline: float | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.deadline is None:
            self.deadline = time.monotonic() + CLIENT_SECONDS
        # The limit covers the whole of sendall. When no time is left, it sends as much as the
        # buffer takes.
        self.connection.settimeout(max(self.deadline - time.monotonic(), 0.001))
        try:
            self.connection.sendall(data)
        except TimeoutError:
            # The handler then ends silently, as it does when a client goes away.
            raise ConnectionAbortedError from None
        return memoryview(data).nbytes


class QuietHandler(WSGIRequestHandler):
    """Requests are not logged: there would be a line every second."""

    def setup(self) -> None:
        self.connection = self.request
        self.rfile = io.BufferedReader(PatientReader(self.connection))
        self.wfile = PatientWriter(self.connection)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        pass


def check_address(address: str, token_file: Path | None) -> None:
    try:
        found = ipaddress.IPv4Address(address)
    except ValueError:
        raise BadUsage(
            f"serve: --listen {address}: expected an IPv4 address, as 127.0.0.1 or 0.0.0.0"
        ) from None
    if not found.is_loopback and token_file is None:
        raise BadUsage(
            f"serve: --listen {address}: expected --token-file too, as others can reach it"
        )


def show_service(
    port: int,
    interval: float,
    *,
    allow_writes: bool,
    caches: int,
    listen: str = ADDRESS,
    token_file: Path | None = None,
) -> None:
    if not 0 <= port <= 65535:
        raise BadUsage(f"serve: --port {port}: expected 0 (any) to 65535")
    if not 0.1 <= interval <= 3600:
        raise BadUsage(f"serve: --interval {interval:g}: expected 0.1 to 3600 seconds")
    if not 1 <= caches <= CACHES_MOST:
        raise BadUsage(f"serve: --caches {caches}: expected 1 to {CACHES_MOST}")
    check_address(listen, token_file)
    # A token that is made here is printed; one of a file is known to whom the file is for.
    made = secrets.token_urlsafe(16) if allow_writes and token_file is None else None
    token = made if token_file is None else read_token("serve", token_file)
    sampler = Sampler(interval)
    service = Service(
        sampler, (), token, caches, allow_writes=allow_writes, guarded=token_file is not None
    )
    try:
        server = make_server(listen, port, service, PatientServer, QuietHandler)
    except OSError as error:
        place = f"port {port}" if listen == ADDRESS else f"{listen}, port {port}"
        raise KmemError(f"serve: {place}: {error.strerror}; --port 0 takes any") from None
    service.hosts = host_names(server.server_port, listen)

    end_as_by_ctrl_c(signal.SIGTERM)
    sampler.start()
    try:
        address = f"http://{listen}:{server.server_port}/"
        typer.echo(f"page     {address}{f'#token={made}' if made else ''}")
        typer.echo(f"metrics  {address}metrics")
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        sampler.stop()
