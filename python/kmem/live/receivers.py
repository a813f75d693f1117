# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A server that something is sent to, and what is said when it does not take it."""

import http.client
import io
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, ClassVar

from kmem.common.errors import BadUsage, say

ANSWER_SECONDS = 10
ANSWER_MOST_BYTES = 1 << 16
PAUSE_LEAST, PAUSE_MOST = 2.0, 300.0  # seconds, behind a failure


def is_address(url: str) -> bool:
    """Whether a request can be sent below it."""
    if not url.isprintable() or " " in url:  # urlsplit drops some of these
        return False
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as it is looked up
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and port != 0
        and parts.path.isascii()
        and not (parts.query or parts.fragment or "@" in parts.netloc)
    )


def reason_of(error: BaseException) -> str:
    """In words, without the number of the system's error."""
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner)


class Receiver:
    """After a failure a server is left alone for a while, which doubles."""

    what: ClassVar[str]  # is sent

    def __init__(self, url: str) -> None:
        if not is_address(url):
            raise BadUsage(f"push: {url or repr(url)}: expected http://HOST:PORT or https://HOST")
        self.url = url.rstrip("/")
        self.lock = threading.Lock()
        self.pause = 0.0
        self.until = 0.0
        self.lost = 0  # since the last that was taken

    def rests(self) -> bool:
        """Whether it is left alone; then something is lost."""
        with self.lock:
            rests = time.monotonic() < self.until
            self.lost += rests
            return rests

    def failed(self, reason: str) -> None:
        with self.lock:
            first = not self.lost
            self.lost += 1
            self.pause = min(max(2 * self.pause, PAUSE_LEAST), PAUSE_MOST)
            self.until = time.monotonic() + self.pause
        if first:
            say(f"push: {self.url}: {reason}; {self.what} are lost until it takes them")

    def succeeded(self) -> None:
        with self.lock:
            lost, self.lost, self.pause, self.until = self.lost, 0, 0.0, 0.0
        if lost:
            say(f"push: {self.url}: takes {self.what} again; {lost} were lost")


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for the server that was named."""

    def redirect_request(self, *_: object) -> None:
        return None


class PatientReader(io.RawIOBase):
    """Reads an answer within ANSWER_SECONDS, in any number of pieces, or raises TimeoutError.

    A limit for each read would not be enough: a server that sends a byte a second would hold back
    all further profiles, and the end of the command.
    """

    def __init__(self, connection: socket.socket, stream: io.RawIOBase) -> None:
        self.connection, self.stream = connection, stream
        self.deadline = time.monotonic() + ANSWER_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.connection.settimeout(left)
        return self.stream.readinto(buffer)

    def close(self) -> None:
        self.stream.close()
        super().close()


class PatientAnswer(http.client.HTTPResponse):
    """The answer to a request, status and headers included."""

    def __init__(self, sock: socket.socket, *words: Any, **options: Any) -> None:
        super().__init__(sock, *words, **options)
        self.fp = io.BufferedReader(PatientReader(sock, self.fp.detach()))


class HttpConnection(http.client.HTTPConnection):
    response_class = PatientAnswer


class HttpsConnection(http.client.HTTPSConnection):
    response_class = PatientAnswer


class HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(HttpConnection, request)


class HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(HttpsConnection, request)


class Poster(Receiver):
    """A server that takes a message by POST."""

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(url)
        self.token = token
        self.opener = urllib.request.build_opener(NoRedirects, HttpHandler, HttpsHandler)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes | None:
        """What the server answers; None if it did not take the message, which is said."""
        request = urllib.request.Request(
            self.url + path, data=body, headers={"User-Agent": "libkmem"} | headers, method="POST"
        )
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with self.opener.open(request, timeout=ANSWER_SECONDS) as answer:
                return bytes(answer.read(ANSWER_MOST_BYTES))
        except urllib.error.HTTPError as error:
            self.failed(f"{error.code} {error.reason}")
        except OSError as error:
            self.failed(reason_of(error))
        except (ValueError, http.client.HTTPException) as error:
            self.failed(f"expected an answer in HTTP, not {str(error)[:80]!r}")
        return None
